"""Tries the rules of a DATA_QUALITY task on its data, in a session that is already open.

Runs in the task's own process: standard library, pyspark and modules of the worker's that need
nothing more. The data is read once for all rules together (`worker.spark.quality.measuring`), and
once more for each query of the author's. What was found goes into the log as a table and into a
file, from which the worker's daemon takes it into `t_ds_quality_result`; the task fails if a rule
of level `block` is broken.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.model.failures import FailureReason
from common.model.quality import QualityLevel, QualityResult, QualityState, to_json
from worker.result_table import Result
from worker.spark.diagnosis.failures import Explained, WorkFailedError, explain
from worker.spark.quality.measuring import DATA, Measured, measuring, other_data, quoted
from worker.spark.quality.rule_reader import RulesError, read_rules, read_source
from worker.spark.quality.rules import (
    AnyRule,
    Compare,
    CustomSql,
    Freshness,
    Referential,
    RowCount,
    RowRule,
    Rule,
    Source,
)
from worker.spark.session.statements import StatementError, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from worker.spark.session.job import Job

_OUTPUT_VARIABLE: Final = "ORCAFLOW_OUTPUT"
_COLUMNS: Final = ("rule", "level", "state", "value", "expected", "rows", "failed")
_MOST_NAMED = 5
_LARGEST = 1 << 62


def run(spark: SparkSession, job: Job) -> int:
    """Try them all; 0 if no rule that blocks is broken."""
    try:
        rules = read_rules(job.document["rules"])
        source = read_source("params", job.document["source"])
    except RulesError as error:
        raise WorkFailedError(str(error), FailureReason.CONFIGURATION) from None
    data = _Data(spark, job)
    data.open(source, DATA, where=str(job.document.get("where") or ""))
    for index, rule in enumerate(rules):
        if isinstance(rule, Referential):
            data.open(rule.source, other_data(index))
    found = data.measured(
        {n: each for n, each in enumerate(rules) if not isinstance(each, CustomSql)}
    )
    found |= {each.name: data.value_of(each) for each in rules if isinstance(each, CustomSql)}
    former = job.document.get("former") or {}
    results = [_judged(each, found[each.name], former.get(each.name) or ()) for each in rules]
    _report(job, source, results)
    return 0


class _Data:
    """The data of a task, as views of its session."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        self._spark = spark
        self._params = job.params

    def open(self, source: Source, view: str, *, where: str = "") -> None:
        """Make a view of data; nothing is read yet."""
        frame = self._frame(source)
        if where:
            frame.createOrReplaceTempView(f"orcaflow_all_{view}")
            # The author's words, in the author's session.
            frame = self._query(f"SELECT * FROM orcaflow_all_{view} WHERE ({where})")  # noqa: S608
        frame.createOrReplaceTempView(view)

    def measured(self, rules: Mapping[int, AnyRule]) -> dict[str, Measured]:
        """Measure all of these rules in one query; the measurements by the rules' names."""
        if not rules:
            return {}
        query = measuring(rules)
        try:
            for index, each in rules.items():
                if isinstance(each, Referential):
                    self._check_types(each, other_data(index))
            row = self._query(query.text, query.values).collect()[0]
        except Exception:
            self._find_wrong(rules)
            raise
        return query.read(row)

    def value_of(self, rule: CustomSql) -> Measured:
        """Run a query of the author's, and return its one number."""
        frame = self._query(rule.sql)
        rows = frame.limit(2).collect()
        if len(frame.columns) != 1 or len(rows) != 1:
            raise WorkFailedError(
                f"rule {rule.name!r}: its query must give one row with one column, and gave"
                f" {'more than one' if len(rows) > 1 else len(rows)} with {len(frame.columns)}",
                FailureReason.CONFIGURATION,
            )
        try:
            value = None if rows[0][0] is None else float(rows[0][0])
        except (TypeError, ValueError):
            raise WorkFailedError(
                f"rule {rule.name!r}: its query must give a number", FailureReason.CONFIGURATION
            ) from None
        return Measured(value=value)

    def _frame(self, source: Source) -> DataFrame:
        if source.table:
            return self._spark.table(source.table)
        if source.sql:
            return self._query(source.sql)
        reader = self._spark.read.format(source.format).options(**source.options)
        return reader.load(source.path)

    def _check_types(self, rule: Referential, view: str) -> None:
        """Text that numbers or dates refer to may spell one of them twice, and so double rows."""
        own, others = self._types(rule.columns, DATA), self._types(rule.references, view)
        for name, mine, other in zip(rule.references, own, others, strict=True):
            if other == "string" != mine:
                raise WorkFailedError(
                    f"rule {rule.name!r}: {name} is text, and what refers to it is {mine}",
                    FailureReason.CONFIGURATION,
                    hint=f"give the references as sql that casts {name}, or the data as sql",
                )

    def _types(self, columns: Sequence[str], view: str) -> list[str]:
        listed = ", ".join(map(quoted, columns))
        found = self._query(f"SELECT {listed} FROM {view}").schema  # noqa: S608
        return [each.dataType.simpleString() for each in found]

    def _query(self, text: str, values: Mapping[str, object] | None = None) -> DataFrame:
        known = {**self._params, **(values or {})}
        try:
            names = {name for each in split(text) for name in each.names}
        except StatementError:
            names = set()  # Spark says what is wrong with it.
        return self._spark.sql(text, args={name: known[name] for name in names & known.keys()})

    def _find_wrong(self, rules: Mapping[int, AnyRule]) -> None:
        """Raise for the rule that Spark refuses: the query of them all does not tell it."""
        for index, rule in rules.items():
            query = measuring({index: rule})
            try:
                _ = self._query(query.text, query.values).columns
            except Exception as error:
                explained = explain(error)
                raise WorkFailedError(
                    f"rule {rule.name!r}: {explained.sentence}",
                    explained.reason,
                    hint=explained.hint,
                ) from error


def _judged(rule: AnyRule, found: Measured, former: Sequence[float]) -> QualityResult:
    """Return the verdict of a rule on its measurement."""
    match rule:
        case RowRule():
            return _judged_rows(rule, found)
        case Freshness():
            limit = rule.max_age.total_seconds()
            is_kept = found.value is not None and found.value <= limit
            expected = f"at most {_figure(limit)} s old"
            detail = "there is no value" if found.value is None else ""
        case Compare():
            return _compared(rule, found, former)
        case RowCount() | CustomSql():
            is_kept = found.value is not None and _is_between(found.value, rule.min, rule.max)
            expected = _between(rule.min, rule.max)
            detail = "there is no value" if found.value is None else ""
    return _result(rule, found, is_kept=is_kept, expected=expected, detail=detail)


def _judged_rows(rule: RowRule, found: Measured) -> QualityResult:
    rows, failed = found.rows or 0, found.failed or 0
    expected = "none fails"
    if rule.threshold:
        expected = f"at most {_figure(100 * rule.threshold)} % fail"
    elif rule.threshold_rows:
        expected = f"at most {rule.threshold_rows:,} fail"
    share = Measured(rows=rows, failed=failed, value=failed / rows if rows else 0.0)
    return _result(rule, share, is_kept=failed <= rule.allowed(rows), expected=expected)


def _compared(rule: Compare, found: Measured, former: Sequence[float]) -> QualityResult:
    known = [float(each) for each in former[: rule.runs]]
    if not known:
        told = "there is no former run to compare with"
        return _result(rule, found, is_kept=True, expected="", detail=told)
    usual = sum(known) / len(known)
    low = -math.inf if rule.max_decrease is None else usual - abs(usual) * rule.max_decrease
    high = math.inf if rule.max_increase is None else usual + abs(usual) * rule.max_increase
    is_kept = found.value is not None and low <= found.value <= high
    bounds = _between(*(None if math.isinf(each) else each for each in (low, high)))
    runs = f"the last {len(known)} runs" if len(known) > 1 else "the last run"
    return _result(
        rule,
        found,
        is_kept=is_kept,
        expected=bounds,
        detail=f"{runs} measured {_figure(usual)}" + (" on average" if len(known) > 1 else ""),
    )


def _result(
    rule: Rule, found: Measured, *, is_kept: bool, expected: str, detail: str = ""
) -> QualityResult:
    broken = QualityState.WARNED if rule.level is QualityLevel.WARN else QualityState.BROKEN
    value = found.value
    return QualityResult(
        rule=rule.name,
        type=type(rule).__name__,
        target=", ".join(_columns(rule)),
        level=rule.level,
        state=QualityState.PASSED if is_kept else broken,
        value=value if value is not None and abs(value) < _LARGEST else None,
        expected=expected,
        rows=found.rows,
        failed=found.failed,
        detail=detail,
    )


def _columns(rule: Rule) -> tuple[str, ...]:
    if isinstance(rule, RowRule):
        return rule.columns
    column = getattr(rule, "column", "")
    return (column,) if column else ()


def _report(job: Job, source: Source, results: Sequence[QualityResult]) -> None:
    """Show and keep what was found; raises if it blocks."""
    table = Result(_COLUMNS, rows_shown=len(results), outputs={})
    for each in results:
        figure = "" if each.value is None else _figure(each.value)
        cells: list[object] = [
            each.rule, each.level.value, each.state.value, figure, each.expected,
            each.rows, each.failed,
        ]  # fmt: skip
        table.take(cells)
    lines = [f"rules on {source}:", table.table()]
    lines += [f"{each.rule}: {each.detail}" for each in results if each.detail]
    sys.stdout.write(f"{job.shown(chr(10).join(lines))}\n")
    sys.stdout.flush()
    Path(str(job.document["quality_file"])).write_text(
        to_json(str(source), results), encoding="utf-8"
    )
    _put_out(job.document["outputs"], results)
    broken = [each for each in results if each.state is QualityState.BROKEN]
    if broken:
        explained = _explained(source, broken, len(results))
        raise WorkFailedError(explained.sentence, explained.reason)


def _explained(source: Source, broken: Sequence[QualityResult], count: int) -> Explained:
    named = "; ".join(
        f"{each.rule} ({f'{each.failed:,} of {each.rows:,} rows' if each.failed else _found(each)})"
        for each in broken[:_MOST_NAMED]
    )
    more = f" and {len(broken) - _MOST_NAMED} more" if len(broken) > _MOST_NAMED else ""
    rules = f"{len(broken)} of {count} rules" if count > 1 else "the rule"
    are = "is" if rules == "the rule" or len(broken) == 1 else "are"
    return Explained(
        reason=FailureReason.DATA_QUALITY,
        sentence=f"{rules} on {source} {are} broken: {named}{more}",
    )


def _found(result: QualityResult) -> str:
    if result.value is None:
        return result.detail or "no value"
    return f"{_figure(result.value)}, expected {result.expected}"


def _put_out(outputs: Mapping[str, Any], results: Sequence[QualityResult]) -> None:
    """A declared OUT parameter with the name of a rule takes what was measured for it."""
    values = {
        each.rule: _figure(each.value)
        for each in results
        if each.rule in outputs and each.value is not None
    }
    if values:
        with Path(os.environ[_OUTPUT_VARIABLE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def _is_between(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _between(low: float | None, high: float | None) -> str:
    if low is None:
        return "" if high is None else f"at most {_figure(high)}"
    return f"at least {_figure(low)}" if high is None else f"{_figure(low)} to {_figure(high)}"


def _figure(value: float) -> str:
    """A number for people, without a fraction that is none."""
    return f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
