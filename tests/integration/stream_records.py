"""Records of a stream, by way of a specification, as rows in a session of Spark's."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from common.model.streams.chunks import microseconds
from common.model.streams.reading import read_spec
from common.model.streams.spec import SupervisorSpec
from tests.unit.stream_specs import SMALL, changed
from worker.spark.streaming import rollup
from worker.spark.streaming.rows import Accepted, RowReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = "2026-11-20T04:05:06Z"
MILLIS = microseconds(datetime(2026, 11, 20, 4, 5, 6, tzinfo=UTC)) // 1000
ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class Stream:
    """A specification with records to read by it."""

    def __init__(self, spark: SparkSession, changes: Mapping[str, Any]) -> None:
        document = copy.deepcopy(SMALL)
        for path, value in changes.items():
            document = changed(document, f"spec.{path}", value)
        spec = read_spec(document).spec
        assert isinstance(spec, SupervisorSpec)
        self.spec = spec
        self._spark = spark

    def reader(self, accepted: Accepted | None = None) -> RowReader:
        schema, format_ = self.spec.schema, self.spec.io.input_format
        return RowReader(schema, format_, accepted or Accepted())

    def records(self, *values: Any) -> DataFrame:
        """Frame of records; a value is text, bytes, JSON, or a whole record."""
        made = []
        for offset, value in enumerate(values):
            record = value if isinstance(value, Record) else Record(value=value)
            made.append(record.row(offset))
        # By way of Arrow, so that no process of Python's takes part.
        table = pa.Table.from_pylist(made, ARROW)
        return self._spark.createDataFrame(table)

    def rows(self, *values: Any, accepted: Accepted | None = None) -> list[dict[str, Any]]:
        reader = self.reader(accepted)
        opened = reader.open(self.records(*values))
        frame = reader.rows(opened, reader.discover(opened)).drop("value", "topic")
        return [row.asDict() for row in frame.collect()]

    def rolled_up(self, *values: Any) -> list[dict[str, Any]]:
        """All but the last record are one batch, the last is another."""
        reader = self.reader()
        batches = []
        for some in (values[:-1], values[-1:]):
            opened = reader.open(self.records(*some))
            rows = reader.rows(opened, reader.discover(opened))
            batches.append(rollup.partials(rows, self.spec.schema))
        both = batches[0].unionByName(batches[1], allowMissingColumns=True)
        schema = self.spec.schema
        frame = rollup.finished(rollup.merged(both, schema), schema)
        found = [row.asDict() for row in frame.collect()]
        return sorted(found, key=repr)


class Record:
    """A record with more than its value."""

    def __init__(self, value: Any, key: Any = None, headers: Any = None, at: int = MILLIS) -> None:
        self._value, self._key, self._headers, self._at = value, key, headers, at

    def row(self, offset: int) -> dict[str, Any]:
        return {
            "topic": "events",
            "partition": 0,
            "offset": offset,
            "timestamp": self._at,
            "key": _raw(self._key),
            "value": _raw(self._value),
            "headers": [{"key": key, "value": value} for key, value in self._headers or ()],
        }


def _raw(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()
