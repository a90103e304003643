"""Rules on data, tried in a real session."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from common.model.quality import QualityResult, QualityState, results_from
from common.params import DataType
from tests.integration.spark_jobs import Jobs, a_session, text_of
from worker.spark.session import parameters, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

QUALITY_FILE = "quality.json"
FLIGHTS = """
create or replace temporary view flights as select * from values
  (1, 'AA', 10.0D, 'a@b.c', timestamp'2026-01-02 10:00:00'),
  (2, 'AA', -1.0D, 'nobody', timestamp'2026-01-02 11:00:00'),
  (2, 'UA', NULL,  NULL,    timestamp'2026-01-01 09:00:00'),
  (NULL, 'XX', 99.5D, 'x@y.z', NULL)
  as t(id, carrier, delay, mail, at)
"""
CARRIERS = """
create or replace temporary view carriers as select * from values ('AA'), ('UA'), ('UA') as t(code)
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with a_session(tmp_path_factory.mktemp("warehouse")) as spark:
        spark.sql(FLIGHTS)
        spark.sql(CARRIERS)
        yield spark


class Tried:
    """The outcome of some rules."""

    def __init__(self, jobs: Jobs, code: int, told: str) -> None:
        self.code = code
        self.told = told
        self.reason = text_of(jobs.reason).strip()
        found = results_from((jobs.folder / QUALITY_FILE).read_bytes())
        self.results = {each.rule: each for each in found}
        self.outputs = text_of(jobs.outputs)

    @property
    def one(self) -> QualityResult:
        (result,) = self.results.values()
        return result


class Rules:
    """Tries rules on the flights."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def run(
        self,
        *rules: Mapping[str, Any],
        source: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> Tried:
        for path in (self._jobs.reason, self._jobs.outputs):
            path.unlink(missing_ok=True)
        quality_file = self._jobs.folder / QUALITY_FILE
        quality_file.write_text("")
        document = {
            "kind": "worker.spark.quality.evaluation",
            "rules": [*rules],
            "source": source or {"table": "flights"},
            "outputs": {},
            "quality_file": str(quality_file),
            "params": parameters.in_job(params or {}, dict.fromkeys(params or {}, DataType.DATE)),
            **changes,
        }
        return Tried(self._jobs, *self._jobs.do(document))


@pytest.fixture
def rules(
    session: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Rules:
    return Rules(Jobs(session, tmp_path, capfd, monkeypatch))


@pytest.mark.parametrize(
    ("rule", "rows", "failed"),
    [
        ({"type": "not_null", "column": "id"}, 4, 1),
        ({"type": "not_null", "columns": ["delay", "id"]}, 4, 2),
        ({"type": "not_null", "column": "id", "where": "carrier = 'AA'"}, 2, 0),
        ({"type": "unique", "column": "id"}, 3, 1),
        ({"type": "unique", "columns": ["id", "carrier"]}, 3, 0),
        ({"type": "range", "column": "delay", "min": 0, "max": 99.5}, 3, 1),
        ({"type": "range", "column": "delay", "max": 50}, 3, 1),
        ({"type": "range", "column": "at", "min": "2026-01-02", "max": "2026-01-03"}, 3, 1),
        ({"type": "regex", "column": "mail", "pattern": "^[^@]+@.+$"}, 3, 1),
        ({"type": "regex", "column": "id", "pattern": "^[0-9]$"}, 3, 0),
        (
            {
                "type": "referential",
                "column": "carrier",
                "references": {"table": "carriers", "column": "code"},
            },
            4,
            1,
        ),
        (
            {
                "type": "referential",
                "columns": ["id", "carrier"],
                "references": {
                    "sql": "select 1 as a, 'AA' as b union all select 2, 'UA'",
                    "columns": ["a", "b"],
                },
            },
            3,
            1,
        ),
    ],
)
def test_rules_about_rows_count_those_that_break_them(
    rules: Rules, rule: Mapping[str, Any], rows: int, failed: int
) -> None:
    tried = rules.run(rule)
    assert (tried.one.rows, tried.one.failed) == (rows, failed), tried.told
    assert tried.one.value == failed / rows
    assert tried.code == (1 if failed else 0)
    assert tried.one.state is (QualityState.BROKEN if failed else QualityState.PASSED)


@pytest.mark.parametrize(
    ("rule", "value", "is_kept"),
    [
        ({"type": "row_count", "min": 4, "max": 4}, 4, True),
        ({"type": "row_count", "min": 1, "where": "carrier = 'ZZ'"}, 0, False),
        (
            {"type": "freshness", "column": "at", "maxAge": "1h", "at": "2026-01-02 12:00:00"},
            3600,
            True,
        ),
        (
            {"type": "freshness", "column": "at", "maxAge": "59m", "at": "2026-01-02 12:00:00"},
            3600,
            False,
        ),
        ({"type": "freshness", "column": "at", "maxAge": "1d", "where": "id = 7"}, None, False),
        ({"type": "custom_sql", "sql": "select max(delay) from data", "max": 100}, 99.5, True),
        ({"type": "custom_sql", "sql": "select max(delay) from data", "max": 10}, 99.5, False),
        (
            {"type": "custom_sql", "sql": "select sum(id) from data where id > 5", "max": 1},
            None,
            False,
        ),
        ({"type": "custom_sql", "sql": "select count(*) > 3 from data", "min": 1}, 1, True),
    ],
)
def test_rules_about_the_whole_measure_one_figure(
    rules: Rules, rule: Mapping[str, Any], value: float | None, is_kept: bool
) -> None:
    tried = rules.run(rule)
    assert tried.one.value == value, tried.told
    assert tried.one.state is (QualityState.PASSED if is_kept else QualityState.BROKEN)


@pytest.mark.parametrize(
    ("former", "change", "is_kept"),
    [
        ([4.0], {"maxChange": 0}, True),
        ([3.0], {"maxChange": 0.3}, False),
        ([3.0], {"maxDecrease": 0}, True),
        ([5.0], {"maxDecrease": 0.2}, True),
        ([6.0], {"maxDecrease": 0.2}, False),
        ([6.0, 2.0, 4.0, 99.0], {"maxChange": 0, "runs": 3}, True),
        ([], {"maxChange": 0}, True),
    ],
)
def test_a_figure_is_compared_with_those_of_former_runs(
    rules: Rules, former: list[float], change: Mapping[str, Any], is_kept: bool
) -> None:
    rule = {"type": "compare", "name": "rows", "metric": "row_count", **change}
    tried = rules.run(rule, former={"rows": former})
    assert tried.one.value == 4
    assert tried.one.type == "Compare"
    assert tried.one.state is (QualityState.PASSED if is_kept else QualityState.BROKEN)


@pytest.mark.parametrize(
    ("metric", "value"),
    [("sum", 108.5), ("avg", 108.5 / 3), ("min", -1), ("distinct", 3), ("null_share", 0.25)],
)
def test_figures_of_a_column_can_be_compared(rules: Rules, metric: str, value: float) -> None:
    tried = rules.run({"type": "compare", "metric": metric, "column": "delay", "maxChange": 1})
    assert tried.one.value == pytest.approx(value)


def test_many_rules_are_tried_in_one_query_and_shown_as_a_table(rules: Rules) -> None:
    tried = rules.run(
        {"type": "not_null", "column": "id", "level": "warn"},
        {"type": "unique", "column": "id", "threshold": 0.34},
        {"type": "range", "column": "delay", "min": 0, "thresholdRows": 1, "name": "late"},
        {"type": "row_count", "min": 1},
        where="carrier <> 'none' and at is not null or id is null",
        outputs={"late": "DOUBLE", "absent": "DOUBLE"},
    )
    assert tried.code == 0, tried.told
    assert {name: each.state.value for name, each in tried.results.items()} == {
        "not_null id": "WARNED",
        "unique id": "PASSED",
        "late": "PASSED",
        "row_count": "PASSED",
    }
    assert "rules on flights:\nrule        | level | state  | value" in tried.told
    assert "not_null id | warn  | WARNED | 0.25" in tried.told
    assert "at most 34 % fail" in tried.told
    assert json.loads(tried.outputs) == {"late": "0.333333"}


def test_broken_rules_end_the_task_after_all_were_tried_and_kept(rules: Rules) -> None:
    tried = rules.run(
        {"type": "not_null", "column": "id"},
        {"type": "custom_sql", "sql": "select 1", "max": 0, "name": "one"},
        {"type": "row_count", "min": 1},
    )
    assert tried.code == 1
    assert tried.reason == (
        "2 of 3 rules on flights are broken: not_null id (1 of 4 rows); one (1, expected at most 0)"
    )
    assert work.facts().current.failure == "DATA_QUALITY"
    assert len(tried.results) == 3
    assert "Traceback" not in tried.told


def test_conditions_and_queries_may_use_parameters(rules: Rules) -> None:
    tried = rules.run(
        {"type": "row_count", "min": 1, "where": "carrier = 'AA'"},
        {"type": "custom_sql", "sql": "select datediff(:day, date'2026-01-01')", "max": 1},
        source={"sql": "select * from flights where to_date(at) = :day"},
        params={"day": "2026-01-02"},
        where="to_date(at) = :day",
    )
    assert tried.code == 0, tried.told
    assert tried.results["row_count"].value == 2


def test_files_are_data_too(rules: Rules, tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    path.write_text("id,carrier\n1,AA\n,UA\n")
    source = {"path": str(path), "format": "csv", "options": {"header": True}}
    tried = rules.run({"type": "not_null", "column": "id"}, source=source)
    assert tried.one.failed == 1
    assert str(path) in tried.reason


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"type": "range", "column": "delai", "min": 1}, "rule 'range delai': [UNRESOLVED_COLUMN"),
        (
            {"type": "not_null", "column": "id", "where": "id ="},
            "rule 'not_null id': [PARSE_SYNTAX_ERROR]",
        ),
        (
            {"type": "custom_sql", "sql": "select id from data", "max": 1},
            "rule 'custom_sql 1': its query must give one row with one column, and gave more than",
        ),
        ({"type": "custom_sql", "sql": "select 'x'", "max": 1}, "its query must give a number"),
        (
            {
                "type": "referential",
                "column": "id",
                "references": {"sql": "select explode(array('1', '01')) as code", "column": "code"},
            },
            "code is text, and what refers to it is int",
        ),
        (
            {
                "type": "referential",
                "column": "id",
                "references": {"table": "carriers", "column": "nothing"},
            },
            "rule 'referential id': [UNRESOLVED_COLUMN",
        ),
    ],
)
def test_a_rule_that_can_not_be_tried_is_named(
    rules: Rules, rule: Mapping[str, Any], told: str
) -> None:
    tried = rules.run({"type": "row_count", "min": 1}, rule)
    assert tried.code == 1
    assert told in tried.reason
    assert tried.results == {}


def test_data_that_is_not_there_is_told(rules: Rules) -> None:
    tried = rules.run({"type": "row_count", "min": 1}, source={"table": "nowhere"})
    assert "nowhere" in tried.reason
    assert work.facts().current.failure == "ANALYSIS_ERROR"
