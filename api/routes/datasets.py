"""Datasets: seen by whoever may see the project that they are of."""

from __future__ import annotations

from datetime import datetime
from threading import BoundedSemaphore
from typing import Annotated, Any, Final

from fastapi import Path, Query

from api import cursors
from api.asking import Asked
from api.cursors import AfterName, Limit
from api.problems import TooManyError
from api.route import Route, get
from api.stream_answers import DatasetDetail, DatasetFileList, DatasetPage, DatasetRows
from operations import datasets as operations
from operations.documents.datasets import file_row, offset_row, segment_row, summary_row

_MOST_READERS: Final = 2
_READ_SECONDS: Final = 4
"""Less than the time limit of a request."""
_readers: Final = BoundedSemaphore(_MOST_READERS)

Name = Annotated[str, Path(max_length=255, description="The name of the dataset.")]
Interval = Annotated[
    str | None,
    Query(max_length=200, description="Only segments with rows of this time, as 2026-11-20/P1D."),
]


def list_datasets(session: Asked, limit: Limit = 50, after: AfterName = None) -> dict[str, Any]:
    """List the datasets that you may see and that have anything, by name."""
    found = operations.list_datasets(
        session, after=cursors.read_name("datasets", after), limit=limit
    )
    return {
        "items": [summary_row(each) for each in found],
        "next": cursors.next_name("datasets", [each.name for each in found], limit),
    }


def show_dataset(
    id: Name,  # noqa: A002  # The path's name.
    session: Asked,
    interval: Interval = None,
) -> dict[str, Any]:
    """Show a dataset with its segments, 10,000 at most, and the offsets of its stream."""
    found = operations.show_dataset(session, id, interval=interval, most=operations.MOST_SEGMENTS)
    return {
        "dataset": summary_row(found.summary),
        "segments": [segment_row(each) for each in found.segments],
        "offsets": [offset_row(each) for each in found.offsets],
    }


def list_dataset_files(id: Name, session: Asked, interval: Interval = None) -> dict[str, Any]:  # noqa: A002
    """List the Parquet files, of 10,000 segments at most, as the server's computer has them."""
    found = operations.dataset_files(session, id, interval=interval, most=operations.MOST_SEGMENTS)
    return {"items": [file_row(each) for each in found]}


def show_rows(
    id: Name,  # noqa: A002
    session: Asked,
    *,
    interval: Interval = None,
    columns: Annotated[
        list[str] | None, Query(max_length=1000, description="These columns alone.")
    ] = None,
    sql: Annotated[
        str | None,
        Query(
            max_length=operations.MOST_QUERY_LETTERS,
            description="A query of SQLite on the table dataset, instead of columns.",
        ),
    ] = None,
    limit: Annotated[int, Query(description="Rows at most, 10,000 of them.")] = 20,
) -> dict[str, Any]:
    """Show some rows, in no order, or the rows of a query; of whole chunks."""
    if not _readers.acquire(blocking=False):
        raise TooManyError(f"{_MOST_READERS} others read rows just now")
    try:
        found = operations.first_rows(
            session,
            id,
            interval=interval,
            columns=columns or (),
            sql=sql,
            limit=limit,
            seconds=_READ_SECONDS,
        )
    finally:
        _readers.release()
    return {
        "columns": found.columns,
        "times": [
            name
            for at, name in enumerate(found.columns)
            if any(isinstance(row[at], datetime) for row in found.values)
        ],
        "items": found.values,
        "rows": found.rows,
    }


ROUTES: Final[tuple[Route, ...]] = (
    get("/datasets", list_datasets, DatasetPage),
    get("/datasets/{id}", show_dataset, DatasetDetail),
    get("/datasets/{id}/files", list_dataset_files, DatasetFileList),
    get("/datasets/{id}/rows", show_rows, DatasetRows),
)
