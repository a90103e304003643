"""The rules of a DATA_QUALITY task, and the data that they are about.

Pure, and without pyspark. A rule about rows may be broken by a few of them: by a share of those
that it looks at, or by a number. `worker.spark.quality.rule_reader` makes rules of what an author
wrote, and `worker.spark.quality.evaluation` tries them on data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Final, TypeAlias

from common.model.quality import MAX_FORMER, QualityLevel

METRICS: Final = ("row_count", "sum", "avg", "min", "max", "distinct", "null_share")
MAX_RUNS: Final = MAX_FORMER

Bound: TypeAlias = int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The common fields of all rules."""

    name: str
    level: QualityLevel = QualityLevel.BLOCK
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRule(Rule):
    """A rule that each row keeps or breaks. Columns that are NULL keep all of them but NotNull."""

    columns: tuple[str, ...]
    threshold: float = 0.0
    threshold_rows: int = 0

    def allowed(self, rows: int) -> int:
        """Return the number of rows that may break it."""
        # As it was written: the nearest binary number may be a little less than 0.29.
        return max(self.threshold_rows, int(Decimal(repr(self.threshold)) * rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNull(RowRule):
    """The columns have a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique(RowRule):
    """No two rows have the same values in the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(RowRule):
    """The column's value is between two others, which are allowed too."""

    min: Bound | None = None
    max: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Regex(RowRule):
    """A regular expression finds something in the column's text."""

    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Data: one of a table, a path with its format, and a query."""

    table: str = ""
    path: str = ""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    sql: str = ""

    def __str__(self) -> str:
        return self.table or self.path or "a query"


@dataclass(frozen=True, slots=True, kw_only=True)
class Referential(RowRule):
    """The columns' values stand in the columns of other data."""

    source: Source
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount(Rule):
    """There are so many rows."""

    min: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness(Rule):
    """The newest value of a column is no older than this."""

    column: str
    max_age: timedelta
    at: str = ""
    """The time that it is compared with, as Spark reads one; "" is the present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomSql(Rule):
    """The one value that a query of the author's gives is within bounds."""

    sql: str
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Rule):
    """A figure is not too far from what former runs measured."""

    metric: str
    column: str = ""
    runs: int = 1
    max_increase: float | None = None
    max_decrease: float | None = None


AnyRule: TypeAlias = (
    NotNull | Unique | Range | Regex | Referential | RowCount | Freshness | CustomSql | Compare
)
