"""Task types with what they run on, one *kind* each: what it does well, badly, for ever, too much."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg2
from sqlalchemy import make_url

from common.spark_config import SparkConfig
from common.store.worker.ports import ClaimedTask, DataSource
from tests import light_jvm
from tests.integration.answering_server import Server
from tests.integration.spark_host import WARM_PROFILES, SparkHost
from tests.integration.worker_host import Host, Signpost
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings
from worker.processes import attempt_processes

PATIENCE_SECONDS = 60.0
LOG_LIMIT_BYTES = 100_000


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One task type, with its params for each part of the suite. They are the node's."""

    task_type: str
    good: Mapping[str, Any]
    said: str
    """The text expected in the log."""
    bad: Mapping[str, Any]
    why: str
    """The text expected in the reason."""
    mistaken: Mapping[str, Any]
    key: str
    endless: Mapping[str, Any]
    runs: Callable[[], bool]
    left: Callable[[], bool]
    """True if something outside this host still works for it."""
    flood: Mapping[str, Any]
    source: DataSource | None = None
    is_slow: bool = False
    """Its start takes a JVM seconds."""

    def task(self, host: Host, params: Mapping[str, Any], **changes: Any) -> ClaimedTask:
        given = dict(params)
        local = given.pop("localParams", [])
        return host.task(
            1,
            task_type=self.task_type,
            params=given,
            local=local,
            datasource=self.source,
            **changes,
        )


class Place:
    """A host, and the servers that its tasks talk to."""

    def __init__(
        self,
        home: Path,
        database_url: Callable[[], str],
        *,
        warm: Callable[[], SparkHost],
        grace: timedelta = timedelta(seconds=30),
    ) -> None:
        self.home = home
        self._grace = grace
        self._warm = warm
        self.host = self._host()
        (home / "data").mkdir()
        self._database_url = database_url
        self.signpost = Signpost(home / "signpost")
        self.server: Server | None = None

    def _host(self, **settings: Any) -> Host:
        return Host(
            self.home,
            log_limit_bytes=LOG_LIMIT_BYTES,
            grace=self._grace,
            settings=TaskSettings(
                environment=seen_by_tasks(os.environ), http_allowed=("127.0.0.1",), **settings
            ),
        )

    def kind(self, name: str) -> Kind:
        return KINDS[name](self)

    def warm(self) -> SparkHost:
        """The Spark host, which the tasks then get their sessions from; it runs nothing yet."""
        spark = self._warm()
        self.host.until(lambda: spark.is_quiet)
        self.host.supervisor.close()
        self.host = self._host(
            spark=SparkConfig(profiles=WARM_PROFILES),
            spark_socket=spark.loop.address,
            cluster="0123456789ab",
        )
        return spark

    def close(self) -> None:
        self.host.supervisor.kill_all()
        self.host.until(lambda: not self.host.supervisor.running())
        self.host.supervisor.close()
        self.signpost.close()
        if self.server is not None:
            self.server.close()

    def has_signal(self) -> bool:
        """Wait until the task has written to the signpost, as it surely will; then true."""
        self.signpost.wait()
        return True

    def database(self, *statements: str) -> tuple[str, DataSource]:
        """Create a PostgreSQL database for the test, with the data source of it."""
        url = self._database_url()
        for statement in statements:
            rows(url, statement)
        source = DataSource(id=7, name="dw", type=1, connection_params=json.dumps(own_url(url)))
        return url, source

    def nothing_left(self) -> bool:
        """True if no process carries the attempt's marker."""
        paths = {str(self.host.directory(1)): 1}
        return not attempt_processes.belonging(attempt_processes.scan(), paths=paths, sessions={})


def own_url(url: str) -> dict[str, str]:
    """A data source's own URL of a database of the tests' server, with its password in it."""
    found = make_url(url)
    password_file = found.query.get("passfile")
    if not isinstance(password_file, str):
        return {"url": url}
    password = Path(password_file).read_text(encoding="ascii").strip().rpartition(":")[2]
    plain = found.set(password=password).difference_update_query(["passfile", "require_auth"])
    return {"url": plain.render_as_string(hide_password=False)}


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    connection = psycopg2.connect(url.replace("+psycopg2", ""))
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def sleepers(url: str) -> bool:
    """True if PostgreSQL still runs a statement that the test has marked."""
    found = rows(
        url,
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'"
        " AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()",
    )
    return bool(found)


def shell(place: Place) -> Kind:
    return Kind(
        task_type="SHELL",
        good={"rawScript": "echo hello"},
        said="\nhello\n",
        bad={"rawScript": "exit 3"},
        why="exit code 3",
        mistaken={"rawScript": ""},
        key="params.rawScript",
        endless={"rawScript": f"echo up > {place.signpost.path}; sleep 600"},
        runs=place.has_signal,
        left=lambda: False,
        flood={"rawScript": "yes 0123456789 | head -c 5000000"},
    )


def python(place: Place) -> Kind:
    return Kind(
        task_type="PYTHON",
        good={"rawScript": "print('hello')"},
        said="\nhello\n",
        bad={"rawScript": "raise SystemExit(3)"},
        why="exit code 3",
        mistaken={"file": "gone.py"},
        key="params.file",
        endless={
            "rawScript": f"import time\nopen({str(place.signpost.path)!r}, 'w').write('up\\n')\n"
            "time.sleep(600)"
        },
        runs=place.has_signal,
        left=lambda: False,
        flood={"rawScript": "for _ in range(500_000):\n    print('0123456789')"},
    )


_SPARK = light_jvm.arguments(
    {"spark.ui.enabled": "false", "spark.log.level": "WARN", **light_jvm.conf()}
)


def spark(place: Place) -> Kind:
    def program(name: str, *lines: str) -> dict[str, Any]:
        path = place.home / f"{name}.py"
        path.write_text("\n".join(lines) + "\n")
        return {
            "programType": "PYTHON",
            "deployMode": "local",
            "master": "local[1]",
            "mainJar": {"res": str(path)},
            "driverMemory": "512M",
            "others": _SPARK,
        }

    session = (
        "from pyspark.sql import SparkSession",
        "spark = SparkSession.builder.getOrCreate()",
    )
    flood = ("for _ in range(500_000):", "    print('0123456789')")
    return Kind(
        task_type="SPARK",
        good={},
        said="",
        bad=program("bad", "raise SystemExit(3)"),
        why="exit code 3",
        mistaken={"mainJar": {"res": "gone.jar"}, "mainClass": "a.B", "deployMode": "local"},
        key="params.mainJar",
        endless=program(
            "endless",
            *session,
            "import time",
            f"open({str(place.signpost.path)!r}, 'w').write('up\\n')",
            "time.sleep(600)",
        ),
        runs=place.has_signal,
        left=lambda: False,
        flood=program("flood", *session, *flood, "spark.stop()"),
        is_slow=True,
    )


def pyspark(place: Place) -> Kind:
    conf = {
        "spark.driver.extraJavaOptions": light_jvm.LIGHT,
        "spark.driver.memory": "512m",
    }
    script = f"open({str(place.signpost.path)!r}, 'w').write('up\\n')\nspark.range(10**15).count()"
    return Kind(
        task_type="PYSPARK",
        good={},
        said="",
        bad={"rawScript": "def f(:"},
        why="SyntaxError: invalid syntax",
        mistaken={"rawScript": "spark", "conf": ["a"]},
        key="params.conf",
        endless={"rawScript": script, "master": "local[1]", "conf": conf},
        runs=place.has_signal,
        left=lambda: False,
        flood={
            "rawScript": "for _ in range(500_000):\n    print('0123456789')",
            "master": "local[1]",
            "conf": conf,
        },
        is_slow=True,
    )


_FOR_EVER = (
    "select count(rest) from (select reflect('java.lang.Thread', 'sleep', 20L) as rest"
    " from range(1000000000000000))"
)


def spark_sql(place: Place) -> Kind:
    spark = place.warm()
    return Kind(
        task_type="SPARK_SQL",
        good={},
        said="",
        bad={"rawScript": "select * from nowhere"},
        why="statement 1 of 1, line 1: [TABLE_OR_VIEW_NOT_FOUND]",
        mistaken={"rawScript": "select 'a"},
        key="params.rawScript",
        endless={"rawScript": _FOR_EVER},
        runs=lambda: "statement 1 of 1" in place.host.log(1),
        left=lambda: bool(spark.running_jobs()),
        flood={},
        is_slow=True,
    )


def data_quality(place: Place) -> Kind:
    spark = place.warm()
    rule = {"type": "row_count", "min": 1, "name": "enough"}

    return Kind(
        task_type="DATA_QUALITY",
        good={},
        said="",
        bad={"sql": "select 1 as a where false", "rules": [rule]},
        why="the rule on a query is broken: enough (0, expected at least 1)",
        mistaken={"table": "t", "rules": [{"type": "row_count"}]},
        key="params.rules[0].min",
        endless={"sql": _FOR_EVER, "rules": [rule]},
        runs=lambda: bool(spark.running_jobs()),
        left=lambda: bool(spark.running_jobs()),
        flood={},
        is_slow=True,
    )


def sql_on_postgresql(place: Place) -> Kind:
    url, source = place.database()
    return Kind(
        task_type="SQL",
        good={
            "datasource": 7,
            "sql": "select 'hello' as word, ${n} + 1 as n",
            "localParams": [{"prop": "n", "type": "INTEGER", "value": "41"}],
        },
        said="hello | 42",
        bad={"datasource": "7", "sql": "select * from nowhere"},
        why='params.sql: relation "nowhere" does not exist',
        mistaken={"datasource": 0, "sql": "select 1"},
        key="params.datasource",
        endless={"datasource": 7, "sql": "select pg_sleep(600)", "sqlType": "1"},
        runs=lambda: sleepers(url),
        left=lambda: sleepers(url),
        flood={
            "datasource": 7,
            "sql": "select repeat('0123456789', 10) from generate_series(1, 50000)",
            "displayRows": 1000,
        },
        source=source,
    )


def sql_on_sqlite(place: Place) -> Kind:
    file = place.home / "data" / "lite.db"
    params = json.dumps({"url": "sqlite:///lite.db"})

    def runs() -> bool:
        if not file.exists():
            return False
        with sqlite3.connect(file) as database:
            return bool(
                database.execute("select 1 from sqlite_master where name = 'up'").fetchall()
            )

    numbers = "with recursive n(i) as (select 1 union all select i + 1 from n {}) "
    return Kind(
        task_type="SQL",
        good={
            "datasource": 7,
            "sql": "select 'hello' as word, ${n} + 1 as n",
            "localParams": [{"prop": "n", "type": "INTEGER", "value": "41"}],
        },
        said="hello | 42",
        bad={"datasource": "7", "sql": "select * from nowhere"},
        why="params.sql: no such table: nowhere",
        mistaken={"datasource": 7, "sql": "select 1; select 2"},
        key="params.sql has 2 statements",
        endless={
            "datasource": 7,
            "preStatements": ["create table up (x)"],
            "sql": numbers.format("") + "select max(i) from n",
        },
        runs=runs,
        left=lambda: False,
        flood={
            "datasource": 7,
            "sql": numbers.format("limit 50000") + "select i, printf('%0100d', i) from n",
            "displayRows": 1000,
        },
        source=DataSource(id=7, name="lite", type=0, connection_params=params),
    )


def procedure(place: Place) -> Kind:
    url, source = place.database(
        "create procedure twice(n int, out m int) language plpgsql as $$ begin m := 2 * n; end $$",
        "create procedure nap() language plpgsql as $$ begin perform pg_sleep(600); end $$",
        "create function many() returns setof text language sql as"
        " $$ select repeat('0123456789', 10) from generate_series(1, 50000) $$",
    )
    return Kind(
        task_type="PROCEDURE",
        good={
            "datasource": 7,
            "method": "twice",
            "localParams": [
                {"prop": "n", "direct": "IN", "type": "INTEGER", "value": "21"},
                {"prop": "m", "direct": "OUT", "type": "INTEGER", "value": ""},
            ],
        },
        said="OUT m = 42",
        bad={"datasource": 7, "method": "nowhere.refresh"},
        why="nowhere.refresh: there is no such procedure",
        mistaken={"datasource": 7, "method": "twice(1); drop table x"},
        key="params.method",
        # `nap` calls pg_sleep: the statement shown is the CALL.
        endless={"datasource": 7, "method": "nap"},
        runs=lambda: napping(url),
        left=lambda: napping(url),
        flood={"datasource": 7, "method": "many"},
        source=source,
    )


def napping(url: str) -> bool:
    return bool(
        rows(
            url,
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event = 'PgSleep'",
        )
    )


def http(place: Place) -> Kind:
    server = place.server = Server()
    return Kind(
        task_type="HTTP",
        good={"url": f"{server.url}/hello"},
        said="\nhello\n",
        bad={"url": f"{server.url}/nowhere"},
        why="the status is 404, not 200",
        mistaken={"url": "file:///etc/passwd"},
        key="params.url",
        endless={"url": f"{server.url}/endless"},
        runs=lambda: server.asked.wait(PATIENCE_SECONDS),
        left=lambda: not server.gone.wait(PATIENCE_SECONDS),
        flood={"url": f"{server.url}/flood"},
    )


KINDS: dict[str, Callable[[Place], Kind]] = {
    "SHELL": shell,
    "PYTHON": python,
    "SPARK": spark,
    "PYSPARK": pyspark,
    "SPARK_SQL": spark_sql,
    "DATA_QUALITY": data_quality,
    "SQL on PostgreSQL": sql_on_postgresql,
    "SQL on SQLite": sql_on_sqlite,
    "PROCEDURE": procedure,
    "HTTP": http,
}
