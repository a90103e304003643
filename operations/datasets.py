"""Lists datasets, their segments and files, and reads their first rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from common.errors import ConfigurationError, NotFoundError
from common.model.intervals import Interval, IntervalError, read_interval
from common.model.lock_needs import is_dataset_name
from common.model.segments import Segment
from common.store.people.datasets import DatasetSummary, dataset_summaries, sees_rows
from common.store.streams.offsets import PartitionOffset, offsets_of_dataset
from common.store.streams.segments import used_segments
from operations.dataset_rows import SECONDS, QueryError, ReadRows, query_rows, read_rows
from operations.errors import UsageError
from operations.session import Session, operation

if TYPE_CHECKING:
    from common.store.connect import Connection

__all__ = ["DatasetSummary", "DatasetView", "FirstRows"]

MOST_ROWS = 10_000
MOST_QUERY_LETTERS = 10_000
MOST_SEGMENTS = 10_000
"""The maximum number of segments of which rows are read, or which a server lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetView:
    """A dataset at one moment: its segments, in order of time, and the offsets of its stream."""

    summary: DatasetSummary
    segments: tuple[Segment, ...]
    offsets: tuple[PartitionOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """Rows by column; `rows` is the count of all rows of the segments, or of the query."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    rows: int


@operation
def list_datasets(
    session: Session, *, after: str = "", limit: int | None = None
) -> tuple[DatasetSummary, ...]:
    """The datasets that the principal sees and that have anything, in order of their names."""
    with session.engine.connect() as db:
        return dataset_summaries(db, session.principal, after=after, limit=limit)


@operation
def show_dataset(
    session: Session, name: str, *, interval: str | None = None, most: int | None = None
) -> DatasetView:
    """One dataset with the segments that have rows of an interval, or all; `NotFoundError`.

    More segments than `most` are refused.
    """
    wanted = _interval(interval)
    with session.engine.connect() as db:
        summary = _summary(db, session, name)
        if most is not None and wanted is None and summary.segments > most:
            _refuse_more(most)
        found = used_segments(db, name, wanted, limit=None if most is None else most + 1)
        if most is not None and len(found) > most:
            _refuse_more(most)
        return DatasetView(summary=summary, segments=found, offsets=offsets_of_dataset(db, name))


@operation
def dataset_files(
    session: Session, name: str, *, interval: str | None = None, most: int | None = None
) -> tuple[Path, ...]:
    """The files of the segments that have rows of an interval, or of all, as this host has them."""
    root = session.config.datasets_dir
    found = show_dataset(session, name, interval=interval, most=most).segments
    return tuple(root / file for each in found for file in each.files)


@operation
def first_rows(
    session: Session,
    name: str,
    *,
    interval: str | None = None,
    columns: Sequence[str] = (),
    sql: str | None = None,
    limit: int = 20,
    seconds: int = SECONDS,
) -> FirstRows:
    """Read some rows of the segments that have rows of an interval, or of all, with these columns.

    With `sql` read the rows of that query, in which the dataset is the table `dataset`.

    A process without privileges reads the files, for `seconds` at most. A segment is read whole, so
    rows of a chunk that the interval cuts may be of other times; a query refuses such an interval.
    Without a query, only the first segments that hold enough rows are read. More than
    `MOST_SEGMENTS` segments are refused, without counting them.
    """
    if not 1 <= limit <= MOST_ROWS:
        raise UsageError("limit", f"must be from 1 to {MOST_ROWS}")
    if sql is not None and columns:
        raise UsageError("columns", "name the columns in the query")
    if sql is not None and len(sql) > MOST_QUERY_LETTERS:
        raise UsageError("sql", f"is longer than {MOST_QUERY_LETTERS:,} letters")
    wanted = _interval(interval)
    with session.engine.connect() as db:
        if not (is_dataset_name(name) and sees_rows(db, session.principal, name)):
            raise _missing(name)
        found = used_segments(db, name, wanted, limit=MOST_SEGMENTS + 1)
    if len(found) > MOST_SEGMENTS:
        _refuse_more(MOST_SEGMENTS)
    root = session.config.datasets_dir
    try:
        if sql is None:
            return _first(found, limit, partial(read_rows, root, columns=columns, seconds=seconds))
        return _selected(
            found, wanted, partial(query_rows, root, sql=sql, limit=limit, seconds=seconds)
        )
    except KeyError as error:
        raise UsageError(
            "columns", f"{name} has no column {error.args[0]!r}; it has {', '.join(error.args[1])}"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"a file of {name} can't be read ({error.strerror or error}): worker.datasets_dir,"
            f" here {root}, must be that of the workers"
        ) from error


def _first(segments: Sequence[Segment], limit: int, read: Callable[..., ReadRows]) -> FirstRows:
    try:
        found = read(_files(_enough(segments, limit)), limit=limit)
    except KeyError:
        # A column may begin with a later segment.
        found = read(_files(segments), limit=limit)
    return _shown(found, rows=sum(each.rows for each in segments))


def _selected(
    segments: Sequence[Segment], interval: Interval | None, read: Callable[[list[str]], ReadRows]
) -> FirstRows:
    if not segments:
        raise UsageError("interval", "has no rows, so the columns of a query are unknown")
    cut = next((s for s in segments if interval and not interval.contains(s.id.interval)), None)
    if cut is not None:
        raise UsageError(
            "interval",
            f"cuts the chunk {cut.id.interval}, which a query reads whole; name whole chunks, and"
            " compare the column with the times in the query",
        )
    try:
        found = read(_files(segments))
    except QueryError as error:
        raise UsageError("sql", f"was refused by SQLite: {error}") from error
    return _shown(found, rows=found.total)


def _files(segments: Sequence[Segment]) -> list[str]:
    return [file for each in segments for file in each.files]


def _shown(found: ReadRows, *, rows: int) -> FirstRows:
    return FirstRows(columns=found.columns, values=found.values, rows=rows)


def _summary(db: Connection, session: Session, name: str) -> DatasetSummary:
    found = dataset_summaries(db, session.principal, name) if is_dataset_name(name) else ()
    if not found:
        raise _missing(name)
    return found[0]


def _missing(name: str) -> NotFoundError:
    return NotFoundError(f"there is no dataset {name[:80]!r}; see `orcaflow dataset list`")


def _enough(segments: Sequence[Segment], rows: int) -> Sequence[Segment]:
    """Return the first segments that hold at least this number of rows."""
    held = list(accumulate(each.rows for each in segments))
    return segments[: bisect_left(held, rows) + 1]


def _refuse_more(most: int) -> NoReturn:
    raise UsageError("interval", f"there are more than {most} segments; name a shorter interval")


def _interval(text: str | None) -> Interval | None:
    if text is None:
        return None
    try:
        return read_interval(text)
    except IntervalError as error:
        raise UsageError("interval", str(error)) from error
