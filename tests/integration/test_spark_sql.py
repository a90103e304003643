"""The statements of a SPARK_SQL task, run in a real session."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from common.params import DataType
from tests.integration.spark_jobs import Jobs, a_session, text_of
from worker.spark.session import parameters, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

RESULT_FILE = "result.csv"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with a_session(tmp_path_factory.mktemp("warehouse"), zone="Asia/Shanghai") as spark:
        yield spark


class Run:
    """The outcome of a text of statements."""

    def __init__(self, jobs: Jobs, code: int, told: str) -> None:
        self.code = code
        self.told = told
        self.reason = text_of(jobs.reason).strip()
        self.rows = [*csv.reader(text_of(jobs.folder / RESULT_FILE).splitlines())]
        self.outputs = [json.loads(line) for line in text_of(jobs.outputs).splitlines()]


class Statements:
    """Runs texts, one after the other, in the one session."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def run(
        self,
        text: str,
        *,
        params: Mapping[str, tuple[DataType, str]] | None = None,
        outputs: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> Run:
        result_file = self._jobs.folder / RESULT_FILE
        result_file.write_text("")
        given = params or {}
        values = {name: text for name, (_, text) in given.items()}
        document = {
            "kind": "worker.spark.session.sql",
            "text": text,
            "place": "params.rawScript",
            "limit": 5,
            "rows_shown": 3,
            "result_file": str(result_file),
            "outputs": dict(outputs or {}),
            "params": parameters.in_job(values, {name: kind for name, (kind, _) in given.items()}),
            **changes,
        }
        return Run(self._jobs, *self._jobs.do(document))


@pytest.fixture
def statements(
    session: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Statements:
    return Statements(Jobs(session, tmp_path, capfd, monkeypatch))


def test_statements_run_in_order_and_the_last_query_s_rows_are_kept(statements: Statements) -> None:
    done = statements.run(
        "-- a day\ncreate or replace temporary view v as\n  select id, id * 2 as twice"
        " from range(4);\nselect 'not kept';\nselect * from v where id < 2 order by id;\n"
        "set spark.sql.shuffle.partitions = 1",
        outputs={"twice": "INTEGER", "id": "LIST", "absent": "VARCHAR"},
    )
    assert done.code == 0, done.told
    assert "statement 1 of 4, line 2: create or replace temporary view v as\n" in done.told
    assert "statement 3 of 4, line 5: select * from v where id < 2 order by id\n" in done.told
    assert "  done in " in done.told
    assert done.rows == [["id", "twice"], ["0", "0"], ["1", "2"]]
    assert done.outputs == [{"twice": "0", "id": "[0, 1]"}]


def test_a_query_s_rows_are_a_table_a_file_and_what_is_put_out(statements: Statements) -> None:
    done = statements.run(
        "select id, id * 2 as Twice, struct(id as a, array('x') as b) as s from range(2)"
        " order by id",
        outputs={"twice": "INTEGER", "id": "LIST", "absent": "VARCHAR"},
    )
    assert done.code == 0, done.told
    assert done.rows == [
        ["id", "Twice", "s"],
        ["0", "0", '{"a": 0, "b": ["x"]}'],
        ["1", "2", '{"a": 1, "b": ["x"]}'],
    ]
    assert "id | Twice | s\n" in done.told
    assert "2 rows; as CSV in " in done.told
    assert done.outputs == [{"twice": "0", "id": "[0, 1]"}]


def test_rows_are_fetched_up_to_the_limit_and_that_is_said(statements: Statements) -> None:
    done = statements.run("select id from range(100) order by id")
    assert [row[0] for row in done.rows[1:]] == ["0", "1", "2", "3", "4"]
    assert "5 rows and more, the first 3 above" in done.told
    assert "only the first 5 rows were fetched (params.limit)" in done.told


def test_parameters_are_bound_with_their_types(statements: Statements) -> None:
    done = statements.run(
        "select :day, typeof(:day), :at, :n + 1, :flag, :text, size(:many), :nothing, ':text',"
        " typeof(:time), 'a' as `b:c`",
        params={
            "day": (DataType.DATE, "2026-01-31"),
            "at": (DataType.TIMESTAMP, "2026-01-31 01:30:00"),
            "n": (DataType.LONG, "41"),
            "flag": (DataType.BOOLEAN, "true"),
            "text": (DataType.VARCHAR, "'; DROP TABLE x; --"),
            "many": (DataType.LIST, '["a", "b"]'),
            "nothing": (DataType.INTEGER, ""),
            "time": (DataType.TIME, "13:30:00"),
            "unused": (DataType.VARCHAR, "x"),
        },
    )
    assert done.code == 0, done.told
    assert done.rows[1] == [
        "2026-01-31",
        "date",
        "2026-01-31 01:30:00",
        "42",
        "true",
        "'; DROP TABLE x; --",
        "2",
        "",
        ":text",
        "time(6)",
        "a",
    ]


def test_the_name_of_a_table_may_be_a_parameter_too(statements: Statements) -> None:
    done = statements.run(
        "create or replace temporary view sales_eu as select 7 as n;"
        "select n from identifier('sales_' || :region)",
        params={"region": (DataType.VARCHAR, "eu")},
    )
    assert done.rows == [["n"], ["7"]]


def test_a_compound_statement_is_run_as_one(statements: Statements) -> None:
    done = statements.run(
        "BEGIN DECLARE x INT DEFAULT 1; IF x > 0 THEN SET x = 5; END IF; SELECT x AS x; END;"
    )
    assert done.code == 0, done.told
    assert done.rows == [["x"], ["5"]]


def test_without_a_query_the_rows_of_a_command_are_shown(statements: Statements) -> None:
    done = statements.run("use default; set spark.sql.ansi.enabled = true")
    assert done.rows == [["key", "value"], ["spark.sql.ansi.enabled", "true"]]


def test_times_are_shown_in_the_session_s_zone(statements: Statements) -> None:
    done = statements.run("select timestamp'2026-01-31 01:30:00+00:00' as at, current_timezone()")
    assert done.rows[1] == ["2026-01-31 09:30:00", "Asia/Shanghai"]


def test_every_row_of_a_query_before_the_last_is_computed(statements: Statements) -> None:
    done = statements.run(
        "select assert_true(id < 50, 'too large') from range(100); select 1 as one"
    )
    assert done.code == 1
    assert done.reason.startswith("statement 1 of 2, line 1: ")
    assert "too large" in done.reason


def test_a_statement_that_spark_refuses_ends_the_task_with_its_line_and_word(
    statements: Statements,
) -> None:
    done = statements.run("select 1 as x;\n\nselect *\nfrom no_such_table;\nselect 2 as x")
    assert done.code == 1
    assert done.reason.startswith("statement 2 of 3, line 3: [TABLE_OR_VIEW_NOT_FOUND]")
    assert work.facts().current.failure == "ANALYSIS_ERROR"
    assert "Traceback" not in done.told
    assert "statement 3" not in done.told


def test_a_parameter_that_nobody_gives_is_spark_s_to_tell(statements: Statements) -> None:
    done = statements.run("select :nobody")
    assert "UNBOUND_SQL_PARAMETER" in done.reason
    assert "nobody" in done.reason


def test_secrets_and_control_characters_are_not_shown(statements: Statements) -> None:
    done = statements.run(
        "select 'hunter2' as a, '\\u001b[31m' as b", secrets=["hunter2"], rows_shown=3
    )
    assert "hunter2" not in done.told
    assert "\x1b" not in done.told
    assert done.rows[1][0] == "hunter2"


def test_a_file_is_read_by_the_task_and_what_is_wrong_with_it_is_told(
    statements: Statements, tmp_path: Path
) -> None:
    path = tmp_path / "daily.sql"
    path.write_bytes("\ufeffselect 1 as one;\r\nselect 'ä' as two".encode())
    changes: dict[str, Any] = {"script": str(path), "place": "params.file"}
    assert statements.run("", **changes).rows == [["two"], ["ä"]]
    path.write_text("select 1;\nselect 'a")
    assert statements.run("", **changes).reason == (
        "params.file, line 2: a text in ' is never closed"
    )
    path.unlink()
    assert f"params.file: {path} can't be read: No such file" in statements.run("", **changes).told
