"""The specification of a Kafka supervisor, as values.

Pure. Names are ours; those of the JSON stand in `common.model.streams.reading`, with the defaults.
A *dataset* is what Druid calls a dataSource; the id of a supervisor is the name of its dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

from common.model.streams.expressions import Node
from common.model.streams.joda import TimeReader
from common.model.streams.partitions import Partition
from common.model.streams.paths import Path
from common.model.streams.periods import Granularity

Offsets: TypeAlias = Mapping[Partition, int]
"""An offset for each partition: of starts the first to read, of ends the first not to read."""


LATER: Final[Mapping[str, Any]] = {"later": True}
"""The metadata of a field that earlier versions did not have. At its default it names no work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSecret:
    """A consumer property that the task takes from its environment, so that no table holds it."""

    variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedField:
    """A field of a `flattenSpec`: the value at a path from the root of the record."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """The way to read a record's value: `json`, or `csv`, `tsv` and `regex` with names of columns.

    Of `json`, `nested` are further fields, which hide fields of the record with the same name, and
    `takes_roots` is False if these further fields are all. `pattern` is the expression of `regex`.
    """

    type: str
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    list_delimiter: str | None = None
    nested: tuple[NestedField, ...] = field(default=(), metadata=LATER)
    takes_roots: bool = field(default=True, metadata=LATER)
    pattern: str = field(default="", metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFormat:
    """A record with its key, headers, timestamp and topic as columns beside those of its value."""

    value: TextFormat
    key: TextFormat | None
    header_encoding: str | None
    header_prefix: str
    key_column: str
    timestamp_column: str
    topic_column: str


InputFormat: TypeAlias = TextFormat | KafkaFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRule:
    """The rule by which a supervisor without new records stops starting tasks."""

    enabled: bool = False
    inactive_after: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """The limits beyond which people are told; without `lag`, no lag is too large.

    `lag`: records above which it has to be for `lag_for`. `task_failures`: in a row; 0 for never.
    """

    lag: int | None = None
    lag_for: timedelta = timedelta(minutes=10)
    unhealthy: bool = True
    task_failures: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRule:
    """Limits and thresholds by which the number of task groups follows the lag."""

    enabled: bool
    least: int
    most: int
    start: int
    cool_down: timedelta
    collect_every: timedelta
    collect_for: timedelta
    start_delay: timedelta
    act_every: timedelta
    out_threshold: int
    out_share: float
    out_step: int
    in_threshold: int
    in_share: float
    in_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A range of a stream; the supervisor ends itself once all of it is published."""

    starts: Offsets
    ends: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class IoConfig:
    """The stream, and the tasks that read it. `consumer` may hold secrets and is never shown.

    With `has_pattern`, `topic` is a pattern of topics, and partitions are `TopicPartition`s.
    `connection` is the name of a data source with the brokers and the log-in; "" without one.
    """

    topic: str
    consumer: Mapping[str, str | EnvironmentSecret]
    input_format: InputFormat
    has_pattern: bool = False
    connection: str = ""
    replicas: int = 1
    task_count: int = 1
    task_duration: timedelta = timedelta(hours=1)
    start_delay: timedelta = timedelta(seconds=5)
    period: timedelta = timedelta(seconds=30)
    use_earliest_offset: bool = False
    completion_timeout: timedelta = timedelta(minutes=30)
    late_period: timedelta | None = None
    late_start: datetime | None = None
    early_period: timedelta | None = None
    poll_timeout: timedelta = timedelta(milliseconds=100)
    stop_task_count: int | None = None
    idle: IdleRule = IdleRule()
    scaling: ScalingRule | None = None
    bounds: Bounds | None = None
    alerts: AlertRule = AlertRule()

    @property
    def most_tasks(self) -> int:
        """The number of reading tasks at a time, if the stream has enough partitions."""
        scales = self.scaling is not None and self.scaling.enabled
        most = self.scaling.most if self.scaling is not None and scales else 0
        return max(self.task_count, most) * self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningConfig:
    """Limits of tasks and of the supervisor's patience."""

    shutdown_timeout: timedelta = timedelta(seconds=80)
    offset_fetch_period: timedelta = timedelta(seconds=30)
    repartition_transition: timedelta = timedelta(minutes=2)
    max_rows_per_segment: int = 5_000_000
    max_total_rows: int | None = None
    intermediate_handoff_period: timedelta | None = None
    reset_offset_automatically: bool = False
    max_parse_exceptions: int = 2**31 - 1
    max_saved_parse_exceptions: int = 0
    log_parse_exceptions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampSpec:
    """The column with a row's time. `pattern` is for formats that are patterns.

    The names of the fields are part of the digest of running tasks (`work_of`).
    """

    column: str = "timestamp"
    format: str = "auto"
    pattern: TimeReader | None = None
    missing_value: datetime | None = None


class ColumnType(StrEnum):
    """The type of a dimension."""

    STRING = "string"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A column that rows are grouped by."""

    name: str
    type: ColumnType = ColumnType.STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """Declared columns, or with `discovers` all columns of the records but the excluded ones."""

    declared: tuple[Dimension, ...]
    excluded: frozenset[str]
    discovers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """An aggregated column.

    `size` is lgK of an HLL sketch, the entries of a theta sketch, or K of a KLL sketch.
    """

    name: str
    type: str
    field: str | None
    size: int | None = None
    target: str | None = None
    time_column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A column that is computed of others before the filter."""

    name: str
    expression: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Rows of which a column equals a value; None stands for a missing one."""

    column: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class In:
    """Rows of which a column equals one of several values."""

    column: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Rows of which a column lies within bounds, in the order of texts or of numbers."""

    column: str
    lower: str | None
    upper: str | None
    lower_strict: bool
    upper_strict: bool
    numeric: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Rows in which a part of a column matches a regular expression."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """Rows of which a column fits a pattern of SQL, in which a backslash escapes a sign."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Rows that pass all filters; with none, all rows."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Some:
    """Rows that pass at least one of the filters."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """Rows that do not pass the filter."""

    filter: Filter


Filter: TypeAlias = Selector | In | Bound | Matches | Like | Every | Some | Not


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSchema:
    """The dataset, and the way from a record to its rows."""

    dataset: str
    timestamp: TimestampSpec
    dimensions: Dimensions
    metrics: tuple[Metric, ...]
    segment_granularity: Granularity
    query_granularity: Granularity
    rollup: bool
    transforms: tuple[Transform, ...] = ()
    filter: Filter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSpec:
    """A Kafka supervisor: a stream, a dataset, and how the one becomes the other."""

    schema: DataSchema
    io: IoConfig
    tuning: TuningConfig
    suspended: bool = False
    priority: int | None = None

    @property
    def id(self) -> str:
        return self.schema.dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """The last version of a supervisor that was terminated."""

    id: str
