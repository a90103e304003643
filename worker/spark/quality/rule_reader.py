"""Reads the rules of a DATA_QUALITY task and checks what its author wrote.

Pure: the worker daemon refuses wrong rules with it before anything runs, and the task's own process
reads them with it again. All mistakes are told together. Keys that every rule has: `type`, `name`
(made from the rule if it is absent), `level` (`block` or `warn`), `where` (a condition in Spark
SQL: other rows are not looked at). A rule about rows has `column` or `columns`, and may have
`threshold`, a share of rows that may break it, or `thresholdRows`, a number of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from common.model.quality import MAX_RESULTS, NAME_CHARS, QualityLevel
from worker.spark.quality.rules import (
    MAX_RUNS,
    METRICS,
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
    Source,
    Unique,
)


class RulesError(Exception):
    """Rules can't be as they are written. Each line of the text is one mistake, with its place."""


def read_rules(given: object) -> tuple[AnyRule, ...]:
    """The rules in `params.rules`; `RulesError` with all that is wrong with them."""
    if not isinstance(given, list) or not given:
        raise RulesError('params.rules must be a list like [{"type": "not_null", "column": "id"}]')
    if len(given) > MAX_RESULTS:
        raise RulesError(f"params.rules has {len(given)} rules; {MAX_RESULTS} are allowed")
    mistakes: list[str] = []
    rules: list[AnyRule] = []
    for index, entry in enumerate(given):
        place = f"params.rules[{index}]"
        if not isinstance(entry, Mapping):
            mistakes.append(f"{place}: must be an object")
            continue
        reader = _Reader(place, entry)
        rule = reader.rule()
        mistakes += reader.mistakes
        if rule is None:
            continue
        if any(each.name == rule.name for each in rules):
            mistakes.append(f"{place}.name: {rule.name!r} is another rule's name already")
        rules.append(rule)
    if mistakes:
        raise RulesError("\n".join(mistakes))
    return tuple(rules)


def read_source(place: str, given: Mapping[str, Any]) -> Source:
    """Data as `table`, `path` (with `format` and `options`) or `sql`; `RulesError` if not one."""
    reader = _Reader(place, given)
    source = reader.source()
    if reader.mistakes:
        raise RulesError("\n".join(reader.mistakes))
    return source


_COMMON: Final = frozenset({"type", "name", "level", "where"})
_OF_ROWS: Final = frozenset({"column", "columns", "threshold", "thresholdRows"})
_AGE = re.compile(r"([0-9]{1,6}(?:\.[0-9]+)?)\s*(s|m|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class _Reader:
    """Reads one rule, and notes what is wrong with it."""

    def __init__(self, place: str, given: Mapping[str, Any]) -> None:
        self._place = place
        self._given = given
        self.mistakes: list[str] = []

    def rule(self) -> AnyRule | None:
        """The rule; None if there are mistakes."""
        kind = self._given.get("type")
        known = _TYPES.get(kind) if isinstance(kind, str) else None
        if known is None:
            self._wrong("type", f"must be one of {', '.join(_TYPES)}, not {kind!r:.40}")
            return None
        read, keys = known
        for key in self._given:
            if key not in _COMMON and key not in keys:
                self._wrong(
                    str(key)[:40], f"is unknown (known: {', '.join(sorted(_COMMON | keys))})"
                )
        rule = read(self)
        return None if self.mistakes else rule

    # One method a type.

    def not_null(self) -> NotNull:
        return NotNull(**self._common("not_null"), **self._of_rows(several=True))

    def unique(self) -> Unique:
        return Unique(**self._common("unique"), **self._of_rows(several=True))

    def range(self) -> Range:
        low, high = self._bound("min"), self._bound("max")
        if low is None and high is None:
            self._wrong("min", "is missing, and so is max: give one of them or both")
        if isinstance(low, str) is not isinstance(high, str) and None not in (low, high):
            self._wrong("max", "must be of the same kind as min")
        return Range(**self._common("range"), **self._of_rows(), min=low, max=high)

    def regex(self) -> Regex:
        pattern = self._text("pattern", is_needed=True)
        return Regex(**self._common("regex"), **self._of_rows(), pattern=pattern)

    def referential(self) -> Referential:
        of_rows = self._of_rows(several=True)
        given = self._given.get("references")
        if not isinstance(given, Mapping):
            self._wrong(
                "references", 'must be an object like {"table": "carriers", "column": "code"}'
            )
            given = {}
        other = _Reader(f"{self._place}.references", given)
        source = other.source()
        columns = other._columns(several=True)
        if given:
            self.mistakes += other.mistakes
            if columns and len(columns) != len(of_rows["columns"]):
                self._wrong("references.columns", "must be as many as the rule's own")
        return Referential(
            **self._common("referential"), **of_rows, source=source, references=columns
        )

    def row_count(self) -> RowCount:
        low, high = self._number("min", whole=True), self._number("max", whole=True)
        if low is None and high is None:
            self._wrong("min", "is missing, and so is max: give one of them or both")
        return RowCount(
            **self._common("row_count"),
            min=None if low is None else int(low),
            max=None if high is None else int(high),
        )

    def freshness(self) -> Freshness:
        (column, *_) = self._columns() or ("",)
        text = self._text("maxAge", is_needed=True)
        match = _AGE.fullmatch(text.strip())
        if text and match is None:
            self._wrong("maxAge", f"must be like 90m, 24h or 7d, not {text[:40]!r}")
        age = timedelta(**{_UNITS[match[2]]: float(match[1])}) if match else timedelta()
        return Freshness(
            **self._common("freshness"), column=column, max_age=age, at=self._text("at")
        )

    def custom_sql(self) -> CustomSql:
        low, high = self._number("min"), self._number("max")
        if low is None and high is None:
            self._wrong("max", "is missing, and so is min: within what is the query's value?")
        return CustomSql(
            **self._common("custom_sql"), sql=self._text("sql", is_needed=True), min=low, max=high
        )

    def compare(self) -> Compare:
        metric = self._text("metric", is_needed=True)
        if metric and metric not in METRICS:
            self._wrong("metric", f"must be one of {', '.join(METRICS)}, not {metric[:40]!r}")
        column = ""
        if metric != "row_count":
            (column, *_) = self._columns() or ("",)
        both = self._number("maxChange", least=0)
        increase = self._number("maxIncrease", least=0)
        decrease = self._number("maxDecrease", least=0)
        if both is increase is decrease is None:
            self._wrong("maxChange", "is missing: by which share may the figure change?")
        runs = self._number("runs", whole=True, least=1, most=MAX_RUNS)
        return Compare(
            **self._common("compare"),
            metric=metric,
            column=column,
            runs=1 if runs is None else int(runs),
            max_increase=both if increase is None else increase,
            max_decrease=both if decrease is None else decrease,
        )

    def source(self) -> Source:
        texts = {key: self._text(key) for key in ("table", "path", "sql")}
        named = [key for key, text in texts.items() if text.strip()]
        if len(named) != 1:
            told = " and ".join(named) or "none"
            self._wrong("table", f"one of table, path and sql is needed; here is {told}")
        options = self._given.get("options") or {}
        if not isinstance(options, Mapping):
            self._wrong("options", "must be an object")
            options = {}
        return Source(
            **texts,
            format=self._text("format") or "parquet",
            options={str(key): _option(value) for key, value in options.items()},
        )

    # Parts of rules.

    def _common(self, kind: str) -> dict[str, Any]:
        level = str(self._given.get("level") or QualityLevel.BLOCK.value).lower()
        if level not in list(QualityLevel):
            self._wrong("level", f"must be block or warn, not {level[:40]!r}")
            level = QualityLevel.BLOCK.value
        name = self._text("name").strip()
        if len(name) > NAME_CHARS or not name.isprintable():
            self._wrong("name", f"must have at most {NAME_CHARS} printable characters")
        return {
            "name": name or self._made_name(kind),
            "level": QualityLevel(level),
            "where": self._text("where").strip(),
        }

    def _made_name(self, kind: str) -> str:
        columns = self._given.get("columns") or [self._given.get("column")]
        listed = columns if isinstance(columns, list) else [columns]
        parts = [kind, *(str(each) for each in listed if each)]
        if kind == "compare":
            parts.insert(1, str(self._given.get("metric")))
        if kind == "custom_sql":
            parts.append(re.sub(r"\D", "", self._place.rpartition("[")[2]))
        name = " ".join(parts)[:NAME_CHARS]
        return name if name.isprintable() else kind

    def _of_rows(self, *, several: bool = False) -> dict[str, Any]:
        threshold = self._number("threshold", least=0, most=1)
        rows = self._number("thresholdRows", whole=True, least=0)
        if threshold is not None and rows is not None:
            self._wrong("threshold", "and thresholdRows are both given; which one is meant?")
        return {
            "columns": self._columns(several=several),
            "threshold": threshold or 0.0,
            "threshold_rows": int(rows or 0),
        }

    def _columns(self, *, several: bool = False) -> tuple[str, ...]:
        one, listed = self._given.get("column"), self._given.get("columns")
        given = [one] if listed is None else listed
        texts = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
        columns = tuple(each.strip() for each in texts if each.strip() and each.isprintable())
        if not columns or len(columns) < len(given):
            self._wrong("column", "is missing: which column is the rule about?")
            return ()
        if one is not None and listed is not None:
            self._wrong("column", "and columns are both given; which one is meant?")
        if len(given) > 1 and not several:
            self._wrong("columns", "must be one column")
        return columns

    def _text(self, key: str, *, is_needed: bool = False) -> str:
        value = self._given.get(key)
        if value is None or value == "":
            if is_needed:
                self._wrong(key, "is missing")
            return ""
        if not isinstance(value, str) or "\0" in value:
            self._wrong(key, "must be text")
            return ""
        return value

    def _bound(self, key: str) -> Bound | None:
        value = self._given.get(key)
        if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
            return value
        self._wrong(key, "must be a number, or text such as a date")
        return None

    def _number(
        self,
        key: str,
        *,
        whole: bool = False,
        least: float | None = None,
        most: float | None = None,
    ) -> float | None:
        value = self._given.get(key)
        if value is None or value == "":
            return None
        try:
            number = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        is_right = number == number and abs(number) < float("inf")  # noqa: PLR0124  # Not NaN.
        is_right = is_right and not (whole and number != int(number))
        if least is not None:
            is_right = is_right and number >= least
        if most is not None:
            is_right = is_right and number <= most
        if is_right:
            return number
        kind = "a whole number" if whole else "a number"
        bounds = f" from {least:g}" if least is not None else ""
        bounds += f" to {most:g}" if most is not None else ""
        self._wrong(key, f"must be {kind}{bounds}, not {value!r:.40}")
        return None

    def _wrong(self, key: str, problem: str) -> None:
        self.mistakes.append(f"{self._place}.{key}: {problem}")


def _option(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


_TYPES: Final[Mapping[str, tuple[Callable[[_Reader], AnyRule], frozenset[str]]]] = {
    "not_null": (_Reader.not_null, _OF_ROWS),
    "unique": (_Reader.unique, _OF_ROWS),
    "range": (_Reader.range, _OF_ROWS | {"min", "max"}),
    "regex": (_Reader.regex, _OF_ROWS | {"pattern"}),
    "referential": (_Reader.referential, _OF_ROWS | {"references"}),
    "row_count": (_Reader.row_count, frozenset({"min", "max"})),
    "freshness": (_Reader.freshness, frozenset({"column", "maxAge", "at"})),
    "custom_sql": (_Reader.custom_sql, frozenset({"sql", "min", "max"})),
    "compare": (
        _Reader.compare,
        frozenset({"metric", "column", "runs", "maxChange", "maxIncrease", "maxDecrease"}),
    ),
}
