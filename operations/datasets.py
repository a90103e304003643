"""Lists datasets, their segments and files, and reads their first rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from common.errors import ConfigurationError, NotFoundError
from common.model.intervals import Interval, IntervalError, read_interval
from common.model.lock_needs import is_dataset_name
from common.model.segments import Segment
from common.store.people.datasets import DatasetSummary, dataset_summaries
from common.store.streams.segments import PartitionOffset, offsets, used_segments
from operations.errors import UsageError
from operations.session import Session, operation

if TYPE_CHECKING:
    from common.store.connect import Connection

__all__ = ["DatasetSummary", "DatasetView", "FirstRows"]

MOST_ROWS = 10_000
Reader: TypeAlias = Callable[
    [Sequence[Path], Sequence[str], int], tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]
]
"""Reads rows out of files, as `operations.dataset_rows.read_rows` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetView:
    """A dataset at one moment: its segments, in order of time, and the offsets of its stream."""

    summary: DatasetSummary
    segments: tuple[Segment, ...]
    offsets: tuple[PartitionOffset, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """Rows of a dataset by column, in no order; `rows` counts all that could be read."""

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
        found = used_segments(db, name, wanted)
        if most is not None and len(found) > most:
            _refuse_more(most)
        return DatasetView(summary=summary, segments=found, offsets=offsets(db, name))


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
    limit: int = 20,
    reader: Reader | None = None,
    most: int | None = None,
) -> FirstRows:
    """Some rows of the segments that have rows of an interval, or of all, with these columns.

    The files are read without Spark, here or by the `reader`. A segment is read whole, so rows of a
    chunk that the interval cuts may be of other times.
    """
    from operations.dataset_rows import read_rows

    if not 1 <= limit <= MOST_ROWS:
        raise UsageError("limit", f"must be from 1 to {MOST_ROWS}")
    found = show_dataset(session, name, interval=interval, most=most).segments
    files = [session.config.datasets_dir / file for each in found for file in each.files]
    try:
        shown, values = (reader or read_rows)(files, columns, limit)
    except KeyError as error:
        raise UsageError(
            "columns", f"{name} has no column {error.args[0]!r}; it has {', '.join(error.args[1])}"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"a file of {name} can't be read ({error.strerror or error}): worker.datasets_dir,"
            f" here {session.config.datasets_dir}, must be that of the workers"
        ) from error
    return FirstRows(columns=shown, values=values, rows=sum(each.rows for each in found))


def _summary(db: Connection, session: Session, name: str) -> DatasetSummary:
    found = dataset_summaries(db, session.principal, name) if is_dataset_name(name) else ()
    if not found:
        raise NotFoundError(f"there is no dataset {name[:80]!r}; see `orcaflow dataset list`")
    return found[0]


def _refuse_more(most: int) -> NoReturn:
    raise UsageError("interval", f"there are more than {most} segments; name a shorter interval")


def _interval(text: str | None) -> Interval | None:
    if text is None:
        return None
    try:
        return read_interval(text)
    except IntervalError as error:
        raise UsageError("interval", str(error)) from error
