"""The rules of a compaction: which chunks are worth it, and the metrics that can be merged. Pure.

A compaction makes of the small files of a chunk as few as hold its rows. With the metrics of the
dataset, rows of one time with the same dimensions become one besides (rollup).
"""

from __future__ import annotations

from typing import Any, Final

from common.model.intervals import IntervalError, read_interval
from common.model.lock_needs import is_dataset_name
from common.model.streams.fields import Fields, Findings
from common.model.streams.schema import TIME_COLUMN, read_schema
from common.model.streams.spec import DataSchema
from common.model.task_type import ValueFaultError

ROWS_PER_SEGMENT: Final = 5_000_000
_UNMERGED: Final = ("First", "Last")


def is_worth_it(rows: int, files: int, most_rows: int) -> bool:
    """Return whether so many rows need fewer files than there are."""
    return files > max(1, -(-rows // most_rows))


def check_dataset(value: Any) -> None:
    """Raise `ValueFaultError` for what is no name of a dataset."""
    if not is_dataset_name(str(value)):
        raise ValueFaultError("must be the name of a dataset")


def check_interval(value: Any) -> None:
    """Raise `ValueFaultError` for what is no interval."""
    try:
        read_interval(str(value))
    except IntervalError as error:
        raise ValueFaultError(str(error)) from error


def read_metrics(value: Any) -> DataSchema:
    """Return a schema with the metrics of a `metricsSpec`; `ValueFaultError` with every mistake."""
    if not isinstance(value, list) or not value:
        raise ValueFaultError("must be a list of metrics, as in the stream's dataSchema")
    findings = Findings()
    document = {
        "dataSource": "compacted",
        "timestampSpec": {"column": TIME_COLUMN},
        "dimensionsSpec": {},
        "metricsSpec": value,
    }
    schema = read_schema(Fields(document, "", findings)).schema
    mistakes = [
        *findings.mistakes,
        *(
            f"{each.name}: a {each.type} can't be merged, for the dataset has not kept the times of"
            " its values; leave metricsSpec out, and rows stay as they are"
            for each in schema.metrics
            if each.type.endswith(_UNMERGED)
        ),
    ]
    if mistakes:
        raise ValueFaultError("can't be read: " + "; ".join(mistakes))
    return schema
