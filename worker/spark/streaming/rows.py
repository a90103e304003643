"""Turns records into rows of a dataset: time, transforms, filter, dimensions, inputs of metrics.

Every record gets a state and stays in the frame, so that all can be counted where they are written:

    KEPT          a row; `flawed` if one of its values could not be converted, and is missing now
    UNPARSEABLE   it can't be read, or has no time, or one beyond the years from 1 to 9999
    THROWN_AWAY   without a value, refused by the filter, or too late or too early

Columns are named so that no name of a user's meets one of ours: `d:` and a dimension, `m:` and a
metric, `t:` and the metric whose own time it is. `chunk` and `time` are microseconds since 1970.
The session needs `SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from functools import cached_property, reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from common.errors import SchedulerError
from common.model.streams.chunks import microseconds
from common.model.streams.schema import TIME_COLUMN
from common.model.streams.spec import (
    ColumnType,
    DataSchema,
    Dimension,
    InputFormat,
    Metric,
    TimestampSpec,
)
from worker.spark.streaming import expressions, filters, times
from worker.spark.streaming.records import (
    Columns,
    Parsing,
    parsing,
    source_fields,
    with_steps,
)
from worker.spark.streaming.values import Kind, Value, real, text, whole

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # Fields of JSON differ by their case.
    "spark.sql.caseSensitive": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # The plan of a batch without rows would be cut off, and with it the counts of its records.
    "spark.sql.adaptive.optimizer.excludedRules": (
        "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
    ),
}
"""Settings of a session in which records are read."""

MOST_DISCOVERED: Final = 1_000
"""The most dimensions that are discovered; records with ids as names of fields would have more."""

TYPES: Final[Mapping[ColumnType, str]] = {
    ColumnType.STRING: "string",
    ColumnType.LONG: "bigint",
    ColumnType.FLOAT: "float",
    ColumnType.DOUBLE: "double",
    ColumnType.JSON: "string",
}


class RowState(IntEnum):
    """The state of a record."""

    KEPT = 0
    UNPARSEABLE = 1
    THROWN_AWAY = 2


class TooManyColumnsError(SchedulerError):
    """Records of a stream have more fields than a dataset can have columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The times of rows that are kept, both ends included; None for no limit."""

    least: datetime | None = None
    most: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowColumns:
    """The steps from parsed records to rows, and then the columns of the rows."""

    steps: tuple[Columns, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """A dimension that was found in records, with all spellings that differ by case alone."""

    name: str
    spellings: tuple[str, ...]


class RowReader:
    """Reads the records of one stream by its schema.

    Its columns are made once: to make them for each batch would take longer than a small batch.
    """

    def __init__(self, schema: DataSchema, format_: InputFormat, accepted: Accepted) -> None:
        self._schema = schema
        self._format = format_
        self._accepted = accepted
        self._transforms = {each.name: each.expression for each in schema.transforms}
        self._made: tuple[tuple[Discovered, ...], _RowColumns] | None = None

    @property
    def discovers(self) -> bool:
        return self._schema.dimensions.discovers

    @property
    def source_fields(self) -> tuple[str, ...]:
        """The fields that the source may read by itself."""
        return source_fields(self._format, None if self.discovers else self.needed())

    @cached_property
    def _parsing(self) -> Parsing:
        return parsing(self._format, None if self.discovers else self.needed())

    def open(self, records: DataFrame) -> DataFrame:
        """Parse records; the frame is worth keeping if columns are discovered in it."""
        return with_steps(records, self._parsing.steps)

    def needed(self) -> tuple[str, ...]:
        """Return the names of the fields that the schema reads."""
        schema = self._schema
        names = {schema.timestamp.column}
        written = {each.name for each in schema.dimensions.declared}
        for metric in schema.metrics:
            written |= {each for each in (metric.field, metric.time_column) if each}
        if schema.filter is not None:
            written |= filters.columns_of(schema.filter)
        names |= written - self._transforms.keys()
        for tree in self._transforms.values():
            names |= expressions.columns_of(tree)
        names.discard(TIME_COLUMN)
        return tuple(sorted(names))

    def discover(self, parsed: DataFrame) -> tuple[Discovered, ...]:
        """Return the dimensions in parsed records that are not declared; runs a job if it may."""
        if self._parsing.all_fields is None:
            return ()
        keys = parsed.select(f.explode(f.map_keys(self._parsing.all_fields)).alias("key"))
        found = [row["key"] for row in keys.distinct().limit(10 * MOST_DISCOVERED).collect()]
        schema = self._schema
        taken = {TIME_COLUMN, schema.timestamp.column.lower()}
        taken |= {each.lower() for each in schema.dimensions.excluded}
        taken |= {each.name.lower() for each in schema.dimensions.declared}
        for metric in schema.metrics:
            taken |= {each.lower() for each in (metric.name, metric.field) if each}
        spellings: dict[str, list[str]] = {}
        for key in sorted(found):
            if key and key.lower() not in taken:
                spellings.setdefault(key.lower(), []).append(key)
        if len(spellings) > MOST_DISCOVERED:
            raise TooManyColumnsError(
                f"records have more than {MOST_DISCOVERED} different fields; declare dimensions,"
                " or exclude fields by dimensionExclusions"
            )
        return tuple(Discovered(name=each[0], spellings=tuple(each)) for each in spellings.values())

    def rows(self, parsed: DataFrame, discovered: Sequence[Discovered] = ()) -> DataFrame:
        """Return one row for each parsed record, with its state."""
        wanted = tuple(discovered)
        if self._made is None or self._made[0] != wanted:
            self._made = wanted, self._make(wanted)
        made = self._made[1]
        return with_steps(parsed, made.steps).select(*made.columns)

    def _make(self, discovered: Sequence[Discovered]) -> _RowColumns:
        schema = self._schema
        written = self._parsing.field(schema.timestamp.column)
        first_time = times.micros_of(written, schema.timestamp)
        # A step of its own: what is used often stands in the plan once.
        steps = [
            {"__read": first_time},
            {"__micros": times.usable(f.col("__read"), schema.segment_granularity)},
        ]
        row = self._transformed()
        if TIME_COLUMN in self._transforms:
            millis = whole(row(TIME_COLUMN))
            moved = f.try_multiply(millis, f.lit(times.MILLI).cast("bigint"))
            steps.append({"__moved": times.usable(moved, schema.segment_granularity)})
            steps.append({"__micros": f.col("__moved")})
        micros = f.col("__micros")
        steps.append({"state": self._state(micros, row)})
        flaws: list[Column] = []
        columns = [
            *(self._dimension(each, row(each.name), flaws) for each in schema.dimensions.declared),
            *(self._discovered(each, row) for each in discovered),
            *(self._input(each, row, flaws) for each in schema.metrics if each.field),
            *(self._own_time(each, row) for each in schema.metrics if each.time_column),
        ]
        flawed = reduce(or_, flaws, f.lit(False))
        kept = f.col("state") == int(RowState.KEPT)
        return _RowColumns(
            steps=tuple(steps),
            columns=(
                *map(f.col, ("topic", "partition", "offset", "value", "state")),
                (kept & f.coalesce(flawed, f.lit(False))).alias("flawed"),
                micros.alias("micros"),
                times.chunk_start(micros, schema.segment_granularity).alias("chunk"),
                times.chunk_start(micros, schema.query_granularity).alias("time"),
                *columns,
            ),
        )

    def _transformed(self) -> Callable[[str], Value]:
        """Return the values of columns behind the transforms, which all see the record itself."""

        def before(name: str) -> Value:
            if name == TIME_COLUMN:
                millis = f.call_function("div", f.col("__micros"), f.lit(times.MILLI))
                return Value(millis, Kind.LONG)
            return Value(self._parsing.field(name), Kind.ANY)

        def behind(name: str) -> Value:
            tree = self._transforms.get(name)
            return before(name) if tree is None else expressions.value_of(tree, before)

        return behind

    def _state(self, micros: Column, row: Callable[[str], Value]) -> Column:
        refused = f.lit(False)
        if self._schema.filter is not None:
            refused = ~filters.passes(self._schema.filter, row)
        if self._accepted.least is not None:
            refused |= micros < microseconds(self._accepted.least)
        if self._accepted.most is not None:
            refused |= micros > microseconds(self._accepted.most)
        return (
            f.when(self._parsing.absent, int(RowState.THROWN_AWAY))
            .when(~self._parsing.readable | micros.isNull(), int(RowState.UNPARSEABLE))
            .when(refused, int(RowState.THROWN_AWAY))
            .otherwise(int(RowState.KEPT))
        )

    def _dimension(self, dimension: Dimension, value: Value, flaws: list[Column]) -> Column:
        converted = _converted(value, TYPES[dimension.type], flaws)
        return converted.alias(f"d:{dimension.name}")

    def _discovered(self, dimension: Discovered, row: Callable[[str], Value]) -> Column:
        """Return the column of a dimension; records in which it was not discovered lack a value."""
        found = f.coalesce(
            *(
                f.when(self._parsing.discovered(each).isNotNull(), text(row(each)))
                for each in dimension.spellings
            )
        )
        return found.alias(f"d:{dimension.name}")

    def _input(self, metric: Metric, row: Callable[[str], Value], flaws: list[Column]) -> Column:
        value = row(metric.field or "")
        return _converted(value, input_type(metric), flaws).alias(f"m:{metric.name}")

    def _own_time(self, metric: Metric, row: Callable[[str], Value]) -> Column:
        written = text(row(metric.time_column or ""))
        return times.micros_of(written, TimestampSpec()).alias(f"t:{metric.name}")


def input_type(metric: Metric) -> str:
    """Return the type of the values that a metric aggregates."""
    for beginning, type_ in (
        *(("long", "bigint"), ("double", "double"), ("float", "float")),
        ("quantilesDoubles", "double"),
    ):
        if metric.type.startswith(beginning):
            return type_
    return "string"


def _converted(value: Value, type_: str, flaws: list[Column]) -> Column:
    """Return a value of a type; what is there and can't be converted is missing, and a flaw."""
    if type_ == "string":
        return text(value)
    converted = whole(value) if type_ == "bigint" else real(value).try_cast(type_)
    written = text(value)
    flaws.append(written.isNotNull() & (f.trim(written) != "") & converted.isNull())
    return converted
