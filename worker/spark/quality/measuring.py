"""The one query that measures all rules about a table, but for queries of the author's own.

Pure: it makes a text of Spark SQL and named values for it, and reads the one row that comes of it.
Values of the author's are bound, never put into the text; conditions and names of columns are his
own words. Other data that a rule refers to is joined to the rows, each key once, so that no row is
counted twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from worker.spark.quality.rules import (
    AnyRule,
    Bound,
    Compare,
    CustomSql,
    Freshness,
    NotNull,
    Range,
    Referential,
    Regex,
    RowCount,
    RowRule,
    Unique,
)

DATA: Final = "data"
"""The view that the rules are about; queries of the author's may use it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurement for one rule."""

    rows: int | None = None
    failed: int | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """The query for some rules."""

    rules: tuple[AnyRule, ...]
    text: str
    values: Mapping[str, object]

    def read(self, row: Sequence[Any]) -> dict[str, Measured]:
        """Return the measurements in its only row, by the names of rules."""
        figures = [None if each is None else float(each) for each in row]
        found = {}
        for index, rule in enumerate(self.rules):
            first, second = figures[2 * index : 2 * index + 2]
            if isinstance(rule, RowRule):
                found[rule.name] = Measured(rows=int(first or 0), failed=int(second or 0))
            else:
                found[rule.name] = Measured(value=first)
        return found


def other_data(index: int) -> str:
    """The view with the data that the rule at this place among all refers to."""
    return f"orcaflow_other_{index}"


def measuring(rules: Mapping[int, AnyRule]) -> Measuring:
    """The query for rules, given with their places among all; a query of the author's is none."""
    text = _Text()
    for index, rule in rules.items():
        text.add(index, rule)
    return text.measuring()


def quoted(column: str) -> str:
    """A column's name in a text; one with backticks in it is quoted already."""
    if "`" in column:
        return column
    return ".".join(f"`{part}`" for part in column.split("."))


class _Text:
    """The query, while rules are added to it."""

    def __init__(self) -> None:
        self._rules: list[AnyRule] = []
        self._items: list[str] = []
        self._joins: list[str] = []
        self._values: dict[str, object] = {}

    def measuring(self) -> Measuring:
        text = f"SELECT {', '.join(self._items)}\nFROM {DATA}{''.join(self._joins)}"
        return Measuring(rules=tuple(self._rules), text=text, values=self._values)

    def add(self, index: int, rule: AnyRule) -> None:
        """Two figures a rule: of a rule about rows how many, and how many of them break it."""
        first, second = self._figures(index, rule)
        self._rules.append(rule)
        self._items += [first, second]

    def _figures(self, index: int, rule: AnyRule) -> tuple[str, str]:
        chosen = f"({rule.where})" if rule.where else "TRUE"
        match rule:
            case NotNull():
                is_null = " OR ".join(f"{quoted(each)} IS NULL" for each in rule.columns)
                return f"count_if({chosen})", f"count_if({chosen} AND ({is_null}))"
            case Unique():
                columns = ", ".join(map(quoted, rule.columns))
                kept = f"{chosen} AND {_has_values(rule)}"
                distinct = f"count(DISTINCT {columns}) FILTER (WHERE {kept})"
                return f"count_if({kept})", f"count_if({kept}) - {distinct}"
            case Range():
                column = quoted(rule.columns[0])
                bounds = [
                    f"{column} {sign} {self._bound(bound)}"
                    for sign, bound in (("<", rule.min), (">", rule.max))
                    if bound is not None
                ]
                kept = f"{chosen} AND {_has_values(rule)}"
                return f"count_if({kept})", f"count_if({kept} AND ({' OR '.join(bounds)}))"
            case Regex():
                text = f"CAST({quoted(rule.columns[0])} AS STRING)"
                kept = f"{chosen} AND {_has_values(rule)}"
                found = f"{text} RLIKE {self._bound(rule.pattern)}"
                return f"count_if({kept})", f"count_if({kept} AND NOT ({found}))"
            case Referential():
                self._join(index, rule)
                kept = f"{chosen} AND {_has_values(rule)}"
                return f"count_if({kept})", f"count_if({kept} AND orcaflow_found_{index} IS NULL)"
            case RowCount():
                return f"count_if({chosen})", "NULL"
            case Freshness():
                newest = f"max(CAST({quoted(rule.column)} AS TIMESTAMP)) FILTER (WHERE {chosen})"
                at = self._bound(rule.at) if rule.at else "current_timestamp()"
                return f"unix_seconds(CAST({at} AS TIMESTAMP)) - unix_seconds({newest})", "NULL"
            case Compare():
                return _metric(rule, chosen), "NULL"
            case CustomSql():
                raise ValueError(f"{rule.name}: a query of the author's own is measured by itself")

    def _join(self, index: int, rule: Referential) -> None:
        keys = [f"orcaflow_key_{index}_{number}" for number in range(len(rule.references))]
        named = ", ".join(
            f"{quoted(column)} AS {key}" for column, key in zip(rule.references, keys, strict=True)
        )
        same = " AND ".join(
            f"{quoted(column)} = {key}" for column, key in zip(rule.columns, keys, strict=True)
        )
        self._joins.append(
            f"\nLEFT JOIN (SELECT DISTINCT {named}, TRUE AS orcaflow_found_{index}"  # noqa: S608
            f" FROM {other_data(index)}) ON {same}"
        )

    def _bound(self, value: Bound) -> str:
        name = f"orcaflow_{len(self._values)}"
        # As it was written, and not as the nearest binary number.
        self._values[name] = Decimal(repr(value)) if isinstance(value, float) else value
        return f":{name}"


def _has_values(rule: RowRule) -> str:
    return " AND ".join(f"{quoted(each)} IS NOT NULL" for each in rule.columns)


def _metric(rule: Compare, chosen: str) -> str:
    column = quoted(rule.column) if rule.column else ""
    match rule.metric:
        case "row_count":
            return f"count_if({chosen})"
        case "distinct":
            call = f"count(DISTINCT {column})"
        case "null_share":
            call = f"avg(CASE WHEN {column} IS NULL THEN 1D ELSE 0D END)"
        case _:
            call = f"{rule.metric}({column})"
    return f"CAST({call} FILTER (WHERE {chosen}) AS DOUBLE)"
