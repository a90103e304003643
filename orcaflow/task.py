"""The helper for code in tasks: parameters, data sources, datasets, outputs and a log.

    from orcaflow.task import dataset, datasource, log, metrics, output, params

For PYSPARK scripts and every other Python that a task runs; standard library only, and nothing of
Orcaflow's daemons. Without Orcaflow around it, as when a script is tried by hand, parameters are
none, and outputs are only logged. Parameters have the types that were declared for them in
PYSPARK; elsewhere they are texts.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from orcaflow.datasets import Files, Range, allocate, ask_lock, publish, segments
from orcaflow.frames import dataset

__all__ = [
    "Files",
    "Range",
    "allocate",
    "ask_lock",
    "dataset",
    "datasource",
    "log",
    "metrics",
    "output",
    "params",
    "publish",
    "segments",
]

_PARAMS: Final = "ORCAFLOW_PARAMS"
_OUTPUT: Final = "ORCAFLOW_OUTPUT"
_DATASOURCES: Final = "ORCAFLOW_DATASOURCES"
_GIVEN: Final = "__orcaflow__"
"""The name of a script's module that holds what Orcaflow has put into it."""

log: Final = logging.getLogger("orcaflow.task")
"""Lines for the task's log. They are printed unless the script has set up logging of its own."""


class _Printer(logging.Handler):
    """Prints lines as `print` does, so that both stay in order."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            sys.stdout.write(f"{self.format(record)}\n")
            sys.stdout.flush()


def _prepared() -> None:
    if not log.handlers:
        printer = _Printer()
        printer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(printer)
        log.setLevel(logging.INFO)


_prepared()


class _Params(Mapping[str, Any]):
    """The task's parameters by name, read when they are asked for."""

    def __getitem__(self, name: str) -> Any:
        return _parameters()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_parameters())

    def __len__(self) -> int:
        return len(_parameters())

    def __repr__(self) -> str:
        return f"<parameters {', '.join(sorted(self)) or 'none'}>"


params: Final[Mapping[str, Any]] = _Params()


def output(name: str, value: object) -> None:
    """Put out a value for the tasks downstream, under a name that the task declares as OUT."""
    document = {name: _text(value)}
    path = os.environ.get(_OUTPUT)
    if path is None:
        log.info("puts out %s=%s", name, document[name])
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n")


def metrics(**figures: float) -> None:
    """Log figures of this attempt in one line: `metrics rows=5 seconds=1.5`."""
    text = " ".join(f"{name}={figure}" for name, figure in figures.items())
    log.info("metrics %s", text)


def datasource(name: str) -> dict[str, Any]:
    """Return a data source that the task names in `datasources`; `KeyError` if it names none.

    In PYSPARK it is the options of Spark's `jdbc`. In PYTHON it has `url`, as SQLAlchemy takes it,
    and its parts `dialect`, `host`, `port`, `database`, `user`, `password` and `query`. The
    password is not shown when it is printed.
    """
    find: Callable[[str], dict[str, Any]] | None = _given().get("datasource")
    if find is not None:
        return find(name)
    path = os.environ.get(_DATASOURCES)
    if path is None:
        raise KeyError(
            f"data source {name!r} is missing: name it in params.datasources of a PYTHON or PYSPARK"
            " task"
        )
    found: dict[str, dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    if name not in found:
        known = ", ".join(sorted(found))
        raise KeyError(f"this task names no data source {name!r} (it names {known})")
    return _Connection(found[name])


class _Connection(dict[str, Any]):
    """The parts of a data source. Its printed form hides the password, also within the URL."""

    def __repr__(self) -> str:
        password = self.get("password")
        hidden = {"url": "******", "password": "******"} if password else {}
        return repr({**self, **hidden})

    __str__ = __repr__


def _parameters() -> Mapping[str, Any]:
    given: Mapping[str, Any] | None = _given().get("params")
    if given is not None:
        return MappingProxyType(dict(given))
    path = os.environ.get(_PARAMS)
    if path is None:
        return {}
    found: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


def _given() -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(sys.modules.get("__main__"), _GIVEN, {})
    return found


def _text(value: object) -> object:
    """As the worker reads it: text and numbers as they are, everything else as JSON or text."""
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, date | time):
        return value.isoformat()
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value
