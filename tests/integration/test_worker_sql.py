"""SQL and PROCEDURE tasks on real databases: binding, order, results, secrets, transactions."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from common.embedded.addresses import PostgresAddress
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd, DataSource
from tests.integration.task_kinds import own_url, rows
from tests.integration.worker_host import Host
from worker.launching.base import TaskSettings

HOSTILE = "'; DROP TABLE t; -- \\ \" %s $$ ${other}"


class Database:
    """A database behind a host; `run` runs an SQL task there."""

    def __init__(self, home: Path, source: Mapping[str, Any], url: str = "") -> None:
        self.host = Host(home)
        (home / "data").mkdir()
        self.url = url
        self.file = home / "data" / "lite.db"
        self.source = DataSource(
            id=7, name="dw", type=1, connection_params=json.dumps(dict(source))
        )
        self._count = 0

    def run(
        self,
        sql: str,
        *,
        query: bool = False,
        task_type: str = "SQL",
        local: Any = (),
        **params: Any,
    ) -> AttemptEnd:
        self._count += 1
        given = {"datasource": 7, "sql": sql, "sqlType": "0" if query else "1", **params}
        return self.host.run(
            self.host.task(
                self._count, task_type=task_type, params=given, local=local, datasource=self.source
            )
        )

    @property
    def log(self) -> str:
        return self.host.log(self._count)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a query outside the task."""
        if self.url:
            return rows(self.url, statement)
        with sqlite3.connect(self.file) as database:
            return database.execute(statement).fetchall()

    def csv(self) -> list[list[str]]:
        """The last task's result."""
        log = Path(self.host.task(self._count, "").log_path)
        with log.with_name(f"{log.stem}.result.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))


@pytest.fixture
def postgresql(tmp_path: Path, plain_url: str) -> Iterator[Database]:
    database = Database(tmp_path, own_url(plain_url), plain_url)
    yield database
    database.host.supervisor.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path, {"url": "sqlite:///lite.db"})
    yield database
    database.host.supervisor.close()


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Database)
    return found


def text(name: str, value: str, kind: str = "VARCHAR") -> dict[str, str]:
    return {"prop": name, "direct": "IN", "type": kind, "value": value}


def out(name: str, kind: str = "VARCHAR") -> dict[str, str]:
    return {"prop": name, "direct": "OUT", "type": kind, "value": ""}


def put_out(end: AttemptEnd) -> dict[str, str]:
    return {each["prop"]: each["value"] for each in json.loads(end.var_pool or "[]")}


def test_the_line_that_an_error_shows_is_the_author_s(postgresql: Database) -> None:
    end = postgresql.run("select 1\nfrom nosuch", query=True)
    assert end.state is TaskState.FAILURE
    assert "LINE 2: from nosuch" in (end.reason or "")
    assert "CURSOR" not in postgresql.log


def test_a_hostile_value_is_only_a_value_x11(database: Database) -> None:
    end = database.run(
        "create table t (a text, b text, c text); insert into t values (${x}, '${x}', '<${x}>')",
        local=[text("x", HOSTILE)],
    )
    assert end.state is TaskState.SUCCESS, database.log
    assert database.rows("select a, b, c from t") == [(HOSTILE, HOSTILE, f"<{HOSTILE}>")]


def test_values_are_bound_by_their_types(database: Database) -> None:
    end = database.run(
        "create table t (n integer, f double precision, d date, w timestamp, b boolean, e integer);"
        " insert into t values (${n}, ${f}, ${d}, ${w}, ${b}, ${e})",
        local=[
            text("n", "-5", "INTEGER"),
            text("f", "1.5", "DOUBLE"),
            text("d", "$[yyyy-MM-dd]", "DATE"),
            text("w", "2026-01-02 03:04:05", "TIMESTAMP"),
            text("b", "true", "BOOLEAN"),
            text("e", "", "INTEGER"),
        ],
    )
    assert end.state is TaskState.SUCCESS, database.log
    ((n, f, d, w, b, e),) = database.rows("select * from t")
    assert (n, f, str(d), str(w), bool(b), e) == (
        -5,
        1.5,
        "2026-01-02",
        "2026-01-02 03:04:05",
        True,
        None,
    )


def test_a_list_is_bound_value_by_value(database: Database) -> None:
    end = database.run(
        "select count(*) as n from (select 1 as i union select 2 union select 3) x where i in (${l})",
        query=True,
        local=[text("l", "[1, 3, 9]", "LIST"), out("n")],
    )
    assert put_out(end) == {"n": "2"}, database.log


def test_a_percent_sign_is_only_a_sign(database: Database) -> None:
    end = database.run(
        "select '100%' as p, 'a%sb' like 'a%' as l, ${x} as x",
        query=True,
        local=[text("x", "%s"), out("p"), out("x")],
    )
    assert put_out(end) == {"p": "100%", "x": "%s"}, database.log
    assert put_out(database.run("select '%' as p", query=True, local=[out("p")])) == {"p": "%"}


def test_dates_of_the_schedule_are_put_into_statements(database: Database) -> None:
    end = database.run("select '$[yyyyMMdd-1]' as d", query=True, local=[out("d")])
    assert put_out(end) == {"d": "20260101"}, database.log


def test_statements_run_in_order_on_one_connection(database: Database) -> None:
    end = database.run(
        "insert into t values (1); insert into t values (2)",
        preStatements=["create temporary table t (a int)"],
        postStatements=["insert into t values (3)", "create table kept as select * from t"],
    )
    assert end.state is TaskState.SUCCESS, database.log
    assert database.rows("select a from kept order by a") == [(1,), (2,), (3,)]
    assert "params.sql, statement 2: 1 row\n" in database.log


def test_a_statement_after_the_query_that_fails_is_a_failure_t19(database: Database) -> None:
    end = database.run(
        "select 1 as one", query=True, local=[out("one")], postStatements=["select nothing"]
    )
    assert (end.state, end.exit_code, end.var_pool) == (TaskState.FAILURE, 1, None)
    assert (end.reason or "").startswith("params.postStatements[0]: ")


def test_what_is_no_query_is_run_once_and_by_its_type_t19b(database: Database) -> None:
    database.run("create table t (a int)")
    assert database.run("insert into t values (1)").state is TaskState.SUCCESS
    assert database.rows("select a from t") == [(1,)]
    end = database.run("delete from t", query=True)
    assert end.state is TaskState.FAILURE
    assert "it returns no rows; a statement that does not has sqlType 1" in (end.reason or "")


def test_a_query_that_returns_rows_from_a_change_is_a_query(database: Database) -> None:
    database.run("create table t (a int)")
    end = database.run("insert into t values (4) returning a", query=True, local=[out("a")])
    assert put_out(end) == {"a": "4"}, database.log


def test_the_whole_result_is_a_csv_file_and_its_first_rows_are_in_the_log(
    database: Database,
) -> None:
    end = database.run(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2500)"
        " select i as number, 'a,\"b\n' as txt, null as empty from n",
        query=True,
        displayRows=3,
        local=[out("Number"), out("NUMBERS", "LIST"), out("txt", "LIST")],
    )
    assert end.state is TaskState.SUCCESS, database.log
    assert put_out(end).keys() == {"Number", "txt"}
    found = database.csv()
    assert found[0] == ["number", "txt", "empty"]
    assert found[2500] == ["2500", 'a,"b\n', ""]
    assert len(found) == 2501
    assert "2,500 rows, the first 3 above; as CSV in " in database.log
    assert database.log.count('a,"b\\n') == 3
    assert (
        Path(database.host.task(1, "").log_path).parent / "1.result.csv"
    ).stat().st_mode & 0o777 == 0o600


def test_output_parameters_are_the_first_row_or_lists_of_all(database: Database) -> None:
    end = database.run(
        "select 1 as n, 'x' as s union all select 2, null order by 1",
        query=True,
        local=[out("n"), out("S", "LIST"), out("missing"), text("in", "x")],
    )
    assert put_out(end) == {"n": "1", "S": '["x", null]'}


def test_a_query_without_rows_puts_out_empty_lists_only(database: Database) -> None:
    end = database.run(
        "select 1 as n, 2 as m where 1 = 0", query=True, local=[out("n"), out("m", "LIST")]
    )
    assert end.state is TaskState.SUCCESS, database.log
    assert put_out(end) == {"m": "[]"}
    assert "0 rows" in database.log


def test_what_a_table_holds_puts_out_nothing_by_being_printed(database: Database) -> None:
    end = database.run(
        "select '${x}' as evil", query=True, local=[text("x", "#{setValue(n=666)}"), out("n")]
    )
    assert end.state is TaskState.SUCCESS
    assert "#{setValue(n=666)}" in database.log
    assert end.var_pool is None


def test_control_characters_of_a_result_command_no_terminal(database: Database) -> None:
    database.run("select ${x} as x", query=True, local=[text("x", "\x1b[2J\r")])
    assert "\x1b" not in database.log


def test_t84_a_password_is_nowhere_to_be_seen(tmp_path: Path, postgres: PostgresAddress) -> None:
    password = postgres.password_file.read_text().strip().split(":")[-1]
    source = {
        "address": f"jdbc:postgresql://{postgres.host}:{postgres.port}",
        "database": postgres.dbname,
        "user": postgres.user,
        "password": password,
    }
    database = Database(tmp_path, source)
    secret = text("db_password", "hunter2!")
    end = database.run("select '${db_password}' as x", query=True, local=[secret])
    assert end.state is TaskState.SUCCESS, database.log
    assert "hunter2!" not in database.log
    end = database.run("select error_of_${db_password}", local=[secret])
    assert "hunter2!" not in (end.reason or "hunter2!")
    end = database.run(f"select cast('{password}' as int)")
    assert password not in (end.reason or password)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name != "params.json" and path.suffix != ".csv":
            assert password not in path.read_text(), path
    database.host.supervisor.close()


def test_a_wrong_password_fails_and_is_not_shown(tmp_path: Path, postgres: PostgresAddress) -> None:
    source = {
        "address": f"jdbc:postgresql://{postgres.host}:{postgres.port}",
        "database": postgres.dbname,
        "user": postgres.user,
        "password": "hunter2!",
    }
    database = Database(tmp_path, source)
    end = database.run("select 1")
    assert end.state is TaskState.FAILURE
    assert "data source 'dw' can't be reached: " in (end.reason or "")
    assert "hunter2!" not in database.log
    database.host.supervisor.close()


def test_a_driver_that_is_not_installed_is_named(tmp_path: Path) -> None:
    database = Database(tmp_path, {"url": "mysql+pymysql://h/d"})
    end = database.run("select 1")
    assert end.state is TaskState.FAILURE
    assert "the driver for mysql+pymysql is not installed on this worker" in (end.reason or "")
    database.host.supervisor.close()


def test_a_large_result_does_not_fill_the_memory(postgresql: Database) -> None:
    end = postgresql.run(
        "select repeat('x', 1000) as x, i from generate_series(1, 20000) i", query=True
    )
    assert end.state is TaskState.SUCCESS, postgresql.log
    assert len(postgresql.csv()) == 20_001


def test_a_transaction_of_one_s_own_is_kept(database: Database) -> None:
    database.run("create table t (a int)")
    own: dict[str, Any] = {"preStatements": ["begin"], "postStatements": ["commit"]}
    end = database.run("insert into t values (1); insert into nowhere values (2)", **own)
    assert end.state is TaskState.FAILURE
    assert "params.sql, statement 2: " in (end.reason or "")
    assert database.rows("select a from t") == []
    end = database.run("insert into t values (3); insert into t values (4)", **own)
    assert end.state is TaskState.SUCCESS, database.log
    assert database.rows("select a from t order by a") == [(3,), (4,)]


def test_a_query_in_a_transaction_of_one_s_own_does_not_end_it(database: Database) -> None:
    database.run("create table t (a int)")
    begin = ["begin", "insert into t values (1)"]
    end = database.run(
        "select a from t", query=True, preStatements=begin, postStatements=["select nothing"]
    )
    assert end.state is TaskState.FAILURE
    assert database.rows("select a from t") == []
    end = database.run(
        "select a from t", query=True, preStatements=begin, postStatements=["commit"]
    )
    assert end.state is TaskState.SUCCESS, database.log
    assert database.rows("select a from t") == [(1,)]


def test_the_program_s_own_settings_are_not_the_task_s_interpreter(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, settings=TaskSettings(python="/no/such/python"))
    source = DataSource(
        id=7, name="lite", type=1, connection_params='{"url": "sqlite:///:memory:"}'
    )
    params = {"datasource": 7, "sql": "select 1", "sqlType": "0"}
    end = host.run(host.task(1, task_type="SQL", params=params, datasource=source))
    assert end.state is TaskState.SUCCESS, host.log(1)
    host.supervisor.close()


def test_a_module_in_the_attempt_s_directory_is_not_imported(
    tmp_path: Path, new_database: Callable[..., str]
) -> None:
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "sqlalchemy.py").write_text("raise SystemExit(7)")
    database = Database(tmp_path, {"url": "sqlite:///lite.db"})
    end = database.run("select 1", resourceList=[{"res": "sqlalchemy.py"}])
    assert end.exit_code == 0, database.log
    database.host.supervisor.close()


@pytest.mark.parametrize(
    ("made", "local", "values"),
    [
        (
            """create procedure P(a int, inout b int, out c text) language plpgsql as
            $$ begin b := a + 1; c := 'c' || a; end $$""",
            [text("a", "1", "INTEGER"), out("b", "INTEGER"), out("c")],
            {"b": "2", "c": "c1"},
        ),
        (
            """create function P(a date, out x date, out y text) language sql as
            $$ select a + 1, 'y' $$""",
            [text("a", "2026-01-31", "DATE"), out("x", "DATE"), out("y")],
            {"x": "2026-02-01", "y": "y"},
        ),
        (
            "create function P(a text) returns int language sql as $$ select length(a) $$",
            [text("a", HOSTILE), out("result")],
            {"result": str(len(HOSTILE))},
        ),
        (
            "create function P() returns setof int language sql as $$ select generate_series(1, 3) $$",
            [out("p", "LIST")],
            {"p": "[1, 2, 3]"},
        ),
        ("create procedure P() language sql as $$ select 1 $$", [], {}),
    ],
)
def test_a_procedure_gets_its_arguments_and_gives_its_results(
    postgresql: Database, made: str, local: list[dict[str, str]], values: dict[str, str]
) -> None:
    postgresql.run(made)
    end = postgresql.run("", task_type="PROCEDURE", method="P", local=local)
    assert end.state is TaskState.SUCCESS, postgresql.log
    assert put_out(end) == values
    for name, value in values.items():
        assert f"OUT {name} = {value}\n" in postgresql.log


@pytest.mark.parametrize("method", ["p", "public.p", "{call p(?)}", "call P(?, ?)", '"p"'])
def test_a_procedure_may_be_named_in_several_ways(postgresql: Database, method: str) -> None:
    postgresql.run("create procedure p() language sql as $$ select 1 $$")
    end = postgresql.run("", task_type="PROCEDURE", method=method)
    assert end.state is TaskState.SUCCESS, postgresql.log


@pytest.mark.parametrize(
    "method", ["", "p; drop table t", "p()x", "p(1)", "a.b.c", 'p"', "p -- ", "select 1", "$(id)"]
)
def test_what_is_no_name_of_a_procedure_is_never_sent(postgresql: Database, method: str) -> None:
    end = postgresql.run("", task_type="PROCEDURE", method=method)
    assert (end.state, end.exit_code) == (TaskState.FAILURE, None)
    assert "params.method" in (end.reason or "")


def test_a_procedure_that_gives_too_little_back_fails(postgresql: Database) -> None:
    postgresql.run("create procedure p() language sql as $$ select 1 $$")
    end = postgresql.run("", task_type="PROCEDURE", method="p", local=[out("n")])
    assert end.state is TaskState.FAILURE


def test_sqlite_has_no_procedures(sqlite: Database) -> None:
    end = sqlite.run("", task_type="PROCEDURE", method="p")
    assert "procedures of PostgreSQL can be called, not of sqlite" in (end.reason or "")


def test_a_task_that_is_stopped_before_it_reads_its_job_leaves_no_password(tmp_path: Path) -> None:
    database = Database(tmp_path, {"url": "postgresql://u:hunter2@127.0.0.1:1/d"})
    params = {"datasource": 7, "sql": "select 1", "sqlType": "1"}
    task = database.host.task(1, task_type="SQL", params=params, datasource=database.source)
    database.host.begin(task)
    database.host.supervisor.kill_all()
    database.host.end_of(1)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or "hunter2" not in path.read_text(), path
    database.host.supervisor.close()


def test_what_a_procedure_says_is_in_the_log(postgresql: Database) -> None:
    postgresql.run(
        "create procedure p() language plpgsql as $$ begin raise notice 'half done'; end $$"
    )
    postgresql.run("", task_type="PROCEDURE", method="p")
    assert "\nNOTICE:  half done\n" in postgresql.log
    postgresql.run("call p()")
    assert "\nNOTICE:  half done\n" in postgresql.log
