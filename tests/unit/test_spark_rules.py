"""Rules on data as authors write them: read, or refused all at once; and the resulting query."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from common.model.quality import (
    LIMIT_BYTES,
    QualityLevel,
    QualityResult,
    QualityState,
    results_from,
    to_json,
)
from worker.spark.quality.measuring import measuring
from worker.spark.quality.rule_reader import RulesError, read_rules, read_source
from worker.spark.quality.rules import (
    Compare,
    CustomSql,
    Freshness,
    NotNull,
    Range,
    Referential,
    RowCount,
    Source,
    Unique,
)


def a_rule(kind: str, **keys: Any) -> Any:
    (rule,) = read_rules([{"type": kind, **keys}])
    return rule


def mistakes(*rules: Any) -> list[str]:
    with pytest.raises(RulesError) as caught:
        read_rules([*rules])
    return str(caught.value).splitlines()


def test_each_kind_of_rule_is_read() -> None:
    assert a_rule("not_null", column="id", threshold=0.01) == NotNull(
        name="not_null id", columns=("id",), threshold=0.01
    )
    assert a_rule("unique", columns=["a", "b"], level="warn", name="key", where="a > 0") == Unique(
        name="key", columns=("a", "b"), level=QualityLevel.WARN, where="a > 0"
    )
    assert a_rule("range", column="x", min=0, thresholdRows="5") == Range(
        name="range x", columns=("x",), min=0, threshold_rows=5
    )
    assert a_rule(
        "referential", column="c", references={"table": "t", "columns": ["code"]}
    ) == Referential(
        name="referential c", columns=("c",), source=Source(table="t"), references=("code",)
    )
    assert a_rule("row_count", min="1", max=10) == RowCount(name="row_count", min=1, max=10)
    assert a_rule("freshness", column="at", maxAge="36h") == Freshness(
        name="freshness at", column="at", max_age=timedelta(hours=36)
    )
    assert a_rule("custom_sql", sql="select 1", max=0.5) == CustomSql(
        name="custom_sql 0", sql="select 1", max=0.5
    )
    assert a_rule("compare", metric="sum", column="x", maxChange=0.3, maxIncrease=1) == Compare(
        name="compare sum x", metric="sum", column="x", max_increase=1.0, max_decrease=0.3
    )


def test_all_mistakes_are_told_together_with_their_places() -> None:
    assert mistakes(
        {"type": "nul"},
        {"type": "not_null"},
        {"type": "range", "column": "x"},
        {"type": "range", "columns": ["x", "y"], "min": 1, "max": "b", "threshold": 2},
        {"type": "regex", "column": "x", "level": "fatal", "colour": "red"},
        {"type": "referential", "column": "x"},
        {"type": "referential", "column": "x", "references": {"table": "t", "sql": "select 1"}},
        {"type": "freshness", "column": "x", "maxAge": "2 weeks"},
        {"type": "compare", "metric": "median"},
        {"type": "row_count", "min": 1.5},
        {"type": "custom_sql", "sql": 5, "min": "x"},
        {"type": "not_null", "column": "a", "threshold": 0.1, "thresholdRows": 1},
        "not_null",
    ) == [
        ("params.rules[0].type: must be one of not_null, unique, range, regex, referential,"
        " row_count, freshness, custom_sql, compare, not 'nul'"),
        "params.rules[1].column: is missing: which column is the rule about?",
        "params.rules[2].min: is missing, and so is max: give one of them or both",
        "params.rules[3].max: must be of the same kind as min",
        "params.rules[3].threshold: must be a number from 0 to 1, not 2",
        "params.rules[3].columns: must be one column",
        ("params.rules[4].colour: is unknown (known: column, columns, level, name, pattern,"
        " threshold, thresholdRows, type, where)"),
        "params.rules[4].pattern: is missing",
        "params.rules[4].level: must be block or warn, not 'fatal'",
        ('params.rules[5].references: must be an object like {"table": "carriers", "column":'
        ' "code"}'),
        ("params.rules[6].references.table: one of table, path and sql is needed; here is table and"
        " sql"),
        "params.rules[6].references.column: is missing: which column is the rule about?",
        "params.rules[7].maxAge: must be like 90m, 24h or 7d, not '2 weeks'",
        ("params.rules[8].metric: must be one of row_count, sum, avg, min, max, distinct,"
        " null_share, not 'median'"),
        "params.rules[8].column: is missing: which column is the rule about?",
        "params.rules[8].maxChange: is missing: by which share may the figure change?",
        "params.rules[9].min: must be a whole number, not 1.5",
        "params.rules[9].min: is missing, and so is max: give one of them or both",
        "params.rules[10].min: must be a number, not 'x'",
        "params.rules[10].max: is missing, and so is min: within what is the query's value?",
        "params.rules[10].sql: must be text",
        "params.rules[11].threshold: and thresholdRows are both given; which one is meant?",
        "params.rules[12]: must be an object",
    ]  # fmt: skip


def test_two_rules_have_two_names() -> None:
    rule = {"type": "not_null", "column": "id"}
    assert mistakes(rule, rule) == [
        "params.rules[1].name: 'not_null id' is another rule's name already"
    ]
    read_rules([rule, {**rule, "where": "x", "name": "another"}])


@pytest.mark.parametrize("given", [None, [], {}, "x", [{"type": "row_count", "min": 1}] * 501])
def test_rules_are_a_list_that_is_not_endless(given: object) -> None:
    with pytest.raises(RulesError, match=r"params\.rules"):
        read_rules(given)


@pytest.mark.parametrize("given", [{}, {"table": "t", "path": "/x"}, {"table": 5}])
def test_data_is_one_of_three(given: dict[str, Any]) -> None:
    with pytest.raises(RulesError, match=r"params\.table"):
        read_source("params", given)


def test_rules_about_rows_become_one_query_with_their_values_bound() -> None:
    rules = read_rules(
        [
            {"type": "not_null", "column": "a.b", "where": "day = :day"},
            {"type": "range", "column": "x", "min": 0.1, "max": 5},
            {"type": "regex", "column": "`odd.name`", "pattern": "'; --"},
        ]
    )
    query = measuring(dict(enumerate(rules)))
    assert query.text.count("FROM data") == query.text.count("SELECT") == 1
    assert "count_if((day = :day) AND (`a`.`b` IS NULL))" in query.text
    assert "(`x` < :orcaflow_0 OR `x` > :orcaflow_1)" in query.text
    assert "CAST(`odd.name` AS STRING) RLIKE :orcaflow_2" in query.text
    assert query.values == {"orcaflow_0": Decimal("0.1"), "orcaflow_1": 5, "orcaflow_2": "'; --"}
    found = query.read([4, 1, None, 0, 3, 3])
    assert [(each.rows, each.failed) for each in found.values()] == [(4, 1), (0, 0), (3, 3)]


RESULT = QualityResult(
    rule="id is there",
    type="NotNull",
    target="id",
    level=QualityLevel.WARN,
    state=QualityState.WARNED,
    value=0.5,
    expected="none fails",
    rows=4,
    failed=2,
    detail="ä",
)


def test_results_travel_as_they_are() -> None:
    assert results_from(to_json("a table", [RESULT]).encode()) == (RESULT,)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "null",
        "[]",
        '{"results": 5}',
        '{"results": [5, null, {}]}',
        '{"results": [{"rule": "a", "level": "fatal", "state": "PASSED"}]}',
        '{"results": [{"rule": "a\\u0000", "level": "warn", "state": "PASSED"}]}',
        "[" * 100_000,
        " " * (LIMIT_BYTES + 1),
    ],
)
def test_a_document_that_is_none_has_no_results(document: str) -> None:
    assert results_from(document) == ()


def test_what_is_hostile_in_results_is_left_out() -> None:
    entry = {
        "rule": "r" * 1_000,
        "level": "block",
        "state": "BROKEN",
        "value": float("inf"),
        "rows": 10**40,
        "failed": -5,
        "detail": "\x1b[31m",
        "type": ["x"],
    }
    (found,) = results_from(json.dumps({"results": [entry, entry]}))
    assert (len(found.rule), found.value, found.failed, found.detail) == (200, None, 0, "")
    assert found.type == ""
    assert found.rows is not None
    assert found.rows < 2**63


@pytest.mark.parametrize(
    ("threshold", "rows", "allowed"), [(0.29, 100, 29), (0.07, 100, 7), (0.1, 9, 0), (0.0, 9, 0)]
)
def test_a_share_of_rows_is_meant_as_it_is_written(
    threshold: float, rows: int, allowed: int
) -> None:
    assert NotNull(name="n", columns=("id",), threshold=threshold).allowed(rows) == allowed
