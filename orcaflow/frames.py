"""Datasets as frames of Spark: reading, adding and replacing, for scripts of PYSPARK tasks.

    from orcaflow.task import dataset

    flights = dataset("flights")
    frame = flights.frame(spark, "2026-11-20/P1D")
    with flights.replace("2026-11-20/P1D", time="departed") as writer:
        writer.write(cleaned)
    with flights.append(time="departed", granularity="HOUR") as writer:
        writer.write(late)

Rows are put into chunks of time by a column of theirs, in UTC. What was written appears when the
block ends, all at once; nothing does if it raises. The locks are those that the task asks for in
its definition. Imports no pyspark: everything is asked of the session and the frames that it is
given, which may be Connect's.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from orcaflow.datasets import (
    Allocation,
    DatasetError,
    Files,
    Segments,
    StoredSegment,
    allocate,
    publish,
    segments,
    was_published,
)

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Dataset", "DatasetWriter", "dataset"]

log: Final = logging.getLogger("orcaflow.task")

TIME: Final = "__time"
"""The column with the time of a row, where none is named."""

_CHUNK: Final = "__chunk"
_DAY_SECONDS: Final = 86_400
_SECONDS: Final = {
    "MINUTE": 60,
    "FIVE_MINUTE": 300,
    "TEN_MINUTE": 600,
    "FIFTEEN_MINUTE": 900,
    "THIRTY_MINUTE": 1_800,
    "HOUR": 3_600,
    "SIX_HOUR": 21_600,
    "EIGHT_HOUR": 28_800,
    "DAY": _DAY_SECONDS,
}
_MONTHS: Final = {"MONTH": ("MM", 1), "YEAR": ("YYYY", 12)}
_EPOCH_DAY: Final = "DATE'1970-01-01'"
_APPENDS: Final[Counter[str]] = Counter()


class Dataset:
    """A dataset by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"dataset({self.name!r})"

    def frame(self, spark: Any, interval: str | None = None, *, time: str = TIME) -> Any:
        """Return the rows of an interval, or all, as they are at this moment.

        `time` is the column by which they were put into chunks. It is needed if the interval cuts
        one.
        """
        found = segments(self.name, interval)
        if not found.segments:
            return self._read(spark, segments(self.name).segments[-1:], interval).limit(0)
        frame = self._read(spark, found.segments, interval)
        if found.start is None or found.end is None or not _is_cut(found):
            return frame
        if time not in frame.columns:
            raise DatasetError(
                f"{interval} cuts a chunk of {self.name}: name the column with the times of rows,"
                f" frame(spark, {interval!r}, time=...), or ask for whole chunks"
            )
        seconds = _seconds(frame, time)
        start, end = _epoch(found.start), _epoch(found.end)
        return frame.where(f"{seconds} >= {start} AND {seconds} < {end}")

    def view(
        self, spark: Any, interval: str | None = None, *, name: str | None = None, time: str = TIME
    ) -> str:
        """Make the frame a view for SQL; return its name: the dataset's, with _ for - and dots."""
        view = re.sub(r"\W", "_", self.name) if name is None else name
        self.frame(spark, interval, time=time).createOrReplaceTempView(view)
        return view

    def replace(
        self, interval: str, *, time: str = TIME, granularity: str = "DAY"
    ) -> DatasetWriter:
        """Replace all rows of an interval by those that are written in the block.

        Takes a lock REPLACE or EXCLUSIVE. To do it again leaves the same.
        """
        return DatasetWriter(self.name, time=time, granularity=granularity, replaces=interval)

    def append(
        self, *, time: str = TIME, granularity: str = "DAY", key: str | None = None
    ) -> DatasetWriter:
        """Add the rows that are written in the block. Takes a lock APPEND, REPLACE or EXCLUSIVE.

        What an attempt of the same task of the same run has added is not added again. Several
        appends of a script are told apart by their order, or by `key`.
        """
        if key is None:
            key = str(_APPENDS[self.name])
            _APPENDS[self.name] += 1
        return DatasetWriter(self.name, time=time, granularity=granularity, key=key)

    def _read(self, spark: Any, found: Iterable[StoredSegment], interval: str | None) -> Any:
        files = [name for each in found for name in each.files]
        if not files:
            raise DatasetError(
                f"dataset {self.name} has no rows"
                + (f", in {interval} or elsewhere" * bool(interval))
            )
        # Names of folders are no columns; a column may be new since some segment.
        reader = spark.read.option("recursiveFileLookup", "true").option("mergeSchema", "true")
        return reader.parquet(*files)


dataset: Final[Callable[[str], Dataset]] = Dataset


class DatasetWriter:
    """Writes frames into a dataset; `with` it, they appear at the end of the block."""

    def __init__(
        self,
        name: str,
        *,
        time: str,
        granularity: str,
        replaces: str | None = None,
        key: str | None = None,
    ) -> None:
        if granularity not in _SECONDS and granularity not in _MONTHS:
            known = ", ".join([*_SECONDS, *_MONTHS])
            raise DatasetError(f"there is no granularity {granularity!r}; there are {known}")
        self._name = name
        self._time = time
        self._granularity = granularity
        self._replaces = replaces
        self._key = key
        self._place: Allocation | None = None
        self._again = False
        self._writes = 0
        self._files: dict[str, list[str]] = {}
        self._rows: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._again = self._key is not None and was_published(self._name, self._key)
        if self._again:
            log.info("%s: an earlier attempt of this task has added its rows", self._name)
        else:
            self._place = allocate(self._name)
        return self

    def write(self, frame: Any) -> None:
        """Write all rows of a frame; may be called more than once."""
        self._writes += 1
        if self._again:
            return
        place = self._place
        if place is None:
            raise DatasetError("a writer writes in its block: with dataset(...).append() as writer")
        if _CHUNK in frame.columns:
            raise DatasetError(f"a column is called {_CHUNK}, which is the writer's own")
        if self._time not in frame.columns:
            raise DatasetError(
                f"the frame has no column {self._time!r} with the times of its rows; name it:"
                f' replace(..., time="...") or append(time="...")'
            )
        folder = place.path / str(self._writes)
        chunk = _chunk(_seconds(frame, self._time), self._granularity)
        chunked = frame.selectExpr("*", f"{chunk} AS {_CHUNK}")
        chunked.write.partitionBy(_CHUNK).parquet(str(folder))
        if not any(folder.glob(f"{_CHUNK}=*")):
            if not frame.isEmpty():
                raise DatasetError(
                    f"Spark has written its rows elsewhere: the folder {place.path.parent} must be"
                    " one for this worker and all executors (worker.datasets_dir)"
                )
            return
        counted = frame.sparkSession.read.parquet(str(folder)).groupBy(_CHUNK).count().collect()
        for row in counted:
            if row[_CHUNK] is None:
                raise DatasetError(
                    f"{row['count']} rows have no time: {self._time!r} is null; leave them out"
                )
            self._take(place, folder, int(row[_CHUNK]), int(row["count"]))

    def _take(self, place: Allocation, folder: Path, epoch: int, rows: int) -> None:
        start = datetime.fromtimestamp(0, UTC) + timedelta(seconds=epoch)
        # Else whoever reads the files took the folder for a column.
        named = (folder / f"{_CHUNK}={epoch}").rename(folder / f"{start:%Y%m%dT%H%M%SZ}")
        interval = f"{start.isoformat()}/{_end(start, self._granularity).isoformat()}"
        found = sorted(named.glob("*.parquet"))
        names = [each.relative_to(place.path).as_posix() for each in found]
        self._files.setdefault(interval, []).extend(names)
        self._rows[interval] += rows

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        place, self._place = self._place, None
        if kind is not None or place is None:
            return
        if not self._writes:
            raise DatasetError(
                "nothing was written in the block; write an empty frame if that is meant"
            )
        outcome = publish(
            place,
            [Files(each, names, rows=self._rows[each]) for each, names in self._files.items()],
            replaces=self._replaces,
            key=self._key,
        )
        if outcome.again:
            log.info("%s: an earlier attempt of this task has added its rows", self._name)
        else:
            rows = sum(self._rows.values())
            log.info("%s: %d rows in %d segments", self._name, rows, len(self._files))


def _seconds(frame: Any, column: str) -> str:
    """SQL for the seconds from 1970 on, in UTC whatever the session's zone is."""
    name = f"`{column.replace('`', '``')}`"
    kind = frame.schema[column].dataType.typeName()
    days = f"CAST(datediff(CAST({name} AS DATE), {_EPOCH_DAY}) AS BIGINT) * {_DAY_SECONDS}"
    match kind:
        case "timestamp":
            return f"unix_seconds({name})"
        case "timestamp_ntz":
            clock = f"hour({name}) * 3600 + minute({name}) * 60 + second({name})"
            return f"({days} + {clock})"
        case "date":
            return f"({days})"
        case _:
            raise DatasetError(
                f"column {column!r} is of type {kind}; a time is a timestamp or date"
            )


def _chunk(seconds: str, granularity: str) -> str:
    """SQL for the start of a row's chunk, in seconds."""
    size = _SECONDS.get(granularity)
    if size is not None:
        return f"({seconds} - pmod({seconds}, {size}L))"
    unit, _ = _MONTHS[granularity]
    day = f"date_add({_EPOCH_DAY}, CAST(floor({seconds} / {_DAY_SECONDS}) AS INT))"
    return f"(CAST(datediff(trunc({day}, '{unit}'), {_EPOCH_DAY}) AS BIGINT) * {_DAY_SECONDS})"


def _end(start: datetime, granularity: str) -> datetime:
    size = _SECONDS.get(granularity)
    if size is not None:
        return start + timedelta(seconds=size)
    _, months = _MONTHS[granularity]
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    return start.replace(year=year, month=month + 1)


def _is_cut(found: Segments) -> bool:
    # Texts of this one form are in the order of their times.
    start, end = str(found.start), str(found.end)
    return any(each.start < start or each.end > end for each in found.segments)


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
