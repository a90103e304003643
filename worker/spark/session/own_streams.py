"""Gives streaming queries of a shared driver the folder and the output of their task.

In the forked process of a warm task, for classic sessions. Spark resolves some paths of a stream by
the working directory of the JVM, which is the server's: the checkpoint, and the files with their
log. Rows of the `console` sink are printed by the JVM, so into the log of the server. Here the
paths are made absolute, and the rows are printed by the task.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, DataFrameReader
from pyspark.sql.streaming.listener import QueryStartedEvent
from pyspark.sql.streaming.readwriter import DataStreamWriter

from worker.spark.session.own_paths import absolute
from worker.spark.session.sessions import tag_of

_PLACES: Final = frozenset({"checkpointlocation", "path"})
"""Options of a stream that are paths, in lower case."""
_SINK_LOG: Final = "_spark_metadata"
"""The folder in which a stream lists the files that it has written for sure."""
_READERS: Final = ("csv", "json", "load", "orc", "parquet", "text", "xml")
_CONSOLE: Final = "console"
_STATE: Final = "_orcaflow_sink"
_WITHOUT_BATCHES: Final = "_orcaflow_without_batches"
_LINE: Final = "-" * 43


def take_over(folder: Callable[[], Path | None]) -> None:
    """Change PySpark's writers of streams and readers; `folder` is that of relative paths."""
    _take_over_events()
    _take_over_writers(folder)
    _take_over_readers(folder)


def _take_over_events() -> None:
    """Have events of jobs with tags read: PySpark expects Java's texts to be objects.

    So no listener of a session whose jobs have tags would hear of the start of a query.
    """

    def of_java(cls: type[QueryStartedEvent], event: Any) -> QueryStartedEvent:
        found = json.loads(event.json())
        tags = [each for each in found.get("jobTags", ()) if not each.startswith(tag_of(""))]
        return cls.fromJson({**found, "jobTags": tags})

    events: Any = QueryStartedEvent
    events.fromJObject = classmethod(of_java)


def _take_over_writers(folder: Callable[[], Path | None]) -> None:
    writers: Any = DataStreamWriter
    option, start, set_format, trigger = (
        writers.option,
        writers.start,
        writers.format,
        writers.trigger,
    )
    signature = inspect.signature(start)

    def one(writer: Any, key: str, value: Any) -> Any:
        known = key.lower()
        _state(writer)[known] = value
        return option(writer, key, absolute(folder(), value) if known in _PLACES else value)

    def several(writer: Any, **named: Any) -> Any:
        for key, value in named.items():
            one(writer, key, value)
        return writer

    def formatted(writer: Any, source: str) -> Any:
        _state(writer)[_STATE] = source
        return set_format(writer, source)

    def triggered(writer: Any, **named: Any) -> Any:
        # Queries of these kinds have no batches, which functions could be called for.
        _state(writer)[_WITHOUT_BATCHES] = bool(named.keys() & {"continuous", "realTime"})
        return trigger(writer, **named)

    def started(*given: Any, **named: Any) -> Any:
        found = signature.bind(*given, **named).arguments
        writer = found["self"]
        several(writer, **found.pop("options", {}))
        if (source := found.pop("format", None)) is not None:
            writer.format(source)
        state = _state(writer)
        if str(state.get(_STATE)).lower() == _CONSOLE and not state.get(_WITHOUT_BATCHES):
            writer.foreachBatch(_printer(dict(state)))
        return start(**{**found, "path": absolute(folder(), found.get("path"))})

    writers.option, writers.options = one, several
    writers.format, writers.trigger = formatted, triggered
    writers.start = started


def _state(writer: Any) -> dict[str, Any]:
    """Return the options that a writer has, by their names in lower case, and its format."""
    found: dict[str, Any] = writer.__dict__.setdefault(_STATE, {})
    return found


def _printer(options: dict[str, Any]) -> Callable[[DataFrame, int], None]:
    """Return a function that prints batches as Spark's `ConsoleWrite` does."""
    rows = int(options.get("numrows", 20))
    is_cut = str(options.get("truncate", True)).lower() == "true"

    def show(batch: DataFrame, number: int) -> None:
        sys.stdout.write(f"{_LINE}\nBatch: {number}\n{_LINE}\n")
        batch.show(rows, is_cut)

    return show


def _take_over_readers(folder: Callable[[], Path | None]) -> None:
    """Have a folder that a stream has written read by the list of its files."""

    def found(path: Any) -> Any:
        if isinstance(path, list | tuple):
            return type(path)(map(found, path))
        whole = absolute(folder(), path)
        if whole is path or not os.path.isdir(f"{folder()}/{path}/{_SINK_LOG}"):  # noqa: PTH112
            return path
        return whole

    def reading(read: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
        def of_folder(reader: DataFrameReader, *paths: Any, **named: Any) -> DataFrame:
            for key in ("path", "paths"):
                if key in named:
                    named[key] = found(named[key])
            first = map(found, paths) if read.__name__ == "parquet" else map(found, paths[:1])
            rest = () if read.__name__ == "parquet" else paths[1:]
            return read(reader, *first, *rest, **named)

        of_folder.__name__, of_folder.__doc__ = read.__name__, read.__doc__
        return of_folder

    readers: Any = DataFrameReader
    for name in _READERS:
        if hasattr(readers, name):
            setattr(readers, name, reading(getattr(readers, name)))
