"""Records of a stream, by way of a specification, as rows in a session of Spark's."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from common.model.streams.chunks import microseconds
from common.model.streams.reading import read_spec
from common.model.streams.spec import SupervisorSpec
from tests.unit.stream_specs import SMALL, changed
from worker.spark.streaming import rollup
from worker.spark.streaming.json_fields import read_fields
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

    def __init__(
        self, spark: SparkSession, changes: Mapping[str, Any], *, reads: bool = True
    ) -> None:
        """`reads`: the source reads the fields of short values, as that of Kafka does."""
        document = copy.deepcopy(SMALL)
        for path, value in changes.items():
            document = changed(document, f"spec.{path}", value)
        spec = read_spec(document).spec
        assert isinstance(spec, SupervisorSpec)
        self.spec = spec
        self._spark = spark
        self._fields = self.reader().source_fields
        self._reads = reads

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
        if self._fields:
            texts = self.texts([row["value"] for row in made])
            kind = pa.struct([(name, pa.string()) for name in self._fields])
            table = table.append_column("fields", pa.array(texts, kind))
        return self._spark.createDataFrame(table)

    def texts(self, values: Sequence[bytes | None]) -> list[dict[str, str | None] | None]:
        """Return what the source has read of each value, None where it left that to Spark."""
        read = read_fields(values if self._reads else [None] * len(values), self._fields)
        return [
            None if left else dict(zip(self._fields, texts, strict=True))
            for left, *texts in zip(read.left, *read.columns, strict=True)
        ]

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


def odd_records() -> Iterator[bytes]:
    """Records with all that parsers of JSON disagree on."""
    numbers = "0 -0 1.0 1.50 1e3 1E-3 1E400 -1e-400 01 +1 .5 1. 0x1F 1_0 NaN -Infinity Infinity"
    numbers += " 9999999.9 1e7 -1e7 0.001 0.00099 -0.0 0.1234567890123456789 4.35 2e-3 123456.7e-5"
    values = [
        *(*numbers.split(), "9" * 300, "0." + "1" * 300, "true", "null", "True", "nul", ""),
        *('"x"', '"', '"x', "'x'", '"" ""', '"1e3"', '" 7 "', '"7.9"', "1 // no", "/* no */ 1"),
        *('"a\\/b\\b\\n\\u00fc"', '"\\u0000"', '"\\ud800"', '"\\uD83D\\uDE00"', '"\\x41"'),
        *('"tab\there"', '"line\nhere"', '"nul\x00"', '"\x7f"', '"ü\u2028😀"'),
        *("{}", "[]", '{"c": 1.0}', '[1.0, "x", null]', "[1,]", '{"c": 1,}', "[" * 99 + "]" * 99),
    ]
    for name in ("origin", "number", "delay", "nested", "a.b", "other"):
        for value in values:
            yield f'{{"at": "{T}", "{name}": {value}}}'.encode()
    whole = f'{{"at": "{T}", "origin": "x"}}'
    for before in ("", " ", "\t\n", "\ufeff", "\xa0", "[", "1"):
        for behind in ("", " ", "\r\n", "\x0b", "\x00", "\xa0", "]", ",", "}", whole, f"\n{whole}"):
            yield f"{before}{whole}{behind}".encode()
    for fields in (
        '"origin": 1, "origin": "2"',
        '"origin": "1", "origin": null',
        '"ORIGIN": 1',
        '"": 1',
    ):
        yield f'{{"at": "{T}", {fields}}}'.encode()
    yield b'{"at": "' + T.encode() + b'", "origin": "\xed\xa0\x80"}'
    yield b'{"at": "' + T.encode() + b'", "\xff": 1}'
    yield f'{{"at": "{T}", "or\\u0069gin": "x"}}'.encode()
    yield whole.encode("utf-16")


def spoilt_records(count: int) -> Iterator[bytes]:
    """Records of which some bytes are others, or gone."""
    chance = random.Random(7)
    for number in range(count):
        record = bytearray(
            f'{{"at": "{T}", "origin": "J{number}", "number": {number}, "nested": "{number}e1"}}',
            "ascii",
        )
        for _ in range(chance.randint(0, 2)):
            place = chance.randrange(len(record))
            record[place : place + chance.randint(0, 2)] = chance.choice(
                b'{}[]",:0e-\\ \xc3u'
            ).to_bytes()
        yield bytes(record)


def _raw(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()
