"""Spark tasks of every kind, from a claimed row to their end, in sessions of a warm server."""

from __future__ import annotations

import csv
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.clock import SystemClock
from common.log_access import token
from common.model.failures import FailureReason
from common.model.quality import QualityState
from common.model.states import TaskState
from common.page_access import MOST_BYTES, PATH, PageQuestion
from common.spark_config import SparkConfig
from common.store.worker.ports import AttemptEnd, DataSource
from operations.worker_calls import Answered, call
from tests.fake_drivers import Attempts, a_page_server
from tests.integration.spark_host import WARM_PROFILES, SparkHost
from tests.integration.worker_host import Host, wait_until_gone
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskSettings

pytestmark = pytest.mark.slow

PASSWORD = "hunter2hunter2"
KEY = bytes(range(32))
CLASSIC = {"profile": "classic", "master": "local[1]"}


class Tasks:
    """A worker's supervisor beside the host."""

    def __init__(self, home: Path, warm: SparkHost, **spark: str) -> None:
        self.host = Host(
            home,
            settings=TaskSettings(
                environment=seen_by_tasks(os.environ),
                spark=SparkConfig(profiles=WARM_PROFILES, **spark),
                spark_socket=warm.loop.address,
                cluster="0123456789ab",
            ),
        )

    def run(self, task_type: str, params: dict[str, Any], **changes: Any) -> AttemptEnd:
        return self.host.run(self.host.task(1, task_type=task_type, params=params, **changes))

    @property
    def log(self) -> str:
        return self.host.log(1)

    def artefact(self, name: str) -> Path:
        (path,) = self.host.home.rglob(f"*.{name}")
        return path


@pytest.fixture
def tasks(warm: SparkHost, tmp_path: Path) -> Iterator[Tasks]:
    tasks = Tasks(tmp_path, warm)
    yield tasks
    tasks.host.supervisor.close()


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    """A package that no index is needed for, as a requirement."""
    path = tmp_path / "weather_vane-1.0-py3-none-any.whl"
    about = "weather_vane-1.0.dist-info"
    told = "Metadata-Version: 2.1\nName: weather-vane\nVersion: 1.0\n"
    made = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("weather_vane.py", "direction = 'north'\n")
        packed.writestr(f"{about}/METADATA", told)
        packed.writestr(f"{about}/WHEEL", made)
        packed.writestr(f"{about}/RECORD", "")
    return f"weather-vane @ file://{path}"


def a_parameter(name: str, kind: str, value: str, direct: str = "IN") -> dict[str, str]:
    return {"prop": name, "direct": direct, "type": kind, "value": value}


def test_sql_is_run_with_its_parameters_and_puts_out_what_it_found(tasks: Tasks) -> None:
    end = tasks.run(
        "SPARK_SQL",
        {
            "rawScript": "create temporary view v as select id, date_add(:day, int(id)) as day"
            " from range(5);\nselect count(*) as n, max(day) as last from v where day > :day",
            "conf": {"spark.sql.session.timeZone": "Asia/Shanghai"},
        },
        local=[a_parameter("day", "DATE", "$[yyyy-MM-dd]"), a_parameter("n", "LONG", "", "OUT")],
    )
    assert end.state is TaskState.SUCCESS, tasks.log
    assert "statement 2 of 2, line 2: select count(*)" in tasks.log
    assert [*csv.reader(tasks.artefact("result.csv").open())] == [
        ["n", "last"],
        ["4", "2026-01-06"],
    ]
    assert json.loads(end.var_pool or "")[0]["value"] == "4"
    assert end.facts is not None
    assert end.facts.app_link.startswith("local-")


def test_nothing_outlives_a_warm_task_however_it_moved_away(tasks: Tasks, tmp_path: Path) -> None:
    up = tmp_path / "up"
    os.mkfifo(up)
    escape = f"env -i setsid -f sh -c 'echo $$ > {up}; exec sleep 600'"
    script = f"""
import subprocess
subprocess.run({escape!r}, shell=True, check=True)
print("escaped:", open({str(up)!r}).readline())
"""
    end = tasks.run("PYSPARK", {"rawScript": script})
    assert end.state is TaskState.SUCCESS, tasks.log
    escaped = re.search(r"escaped: (\d+)", tasks.log)
    assert escaped is not None
    assert f"left processes behind, which are told to end: {escaped[1]} (" in tasks.log
    wait_until_gone(int(escaped[1]))


def test_sql_that_spark_refuses_says_which_statement_and_why(tasks: Tasks) -> None:
    end = tasks.run("SPARK_SQL", {"rawScript": "select 1;\nselect * from nowhere"})
    assert end.state is TaskState.FAILURE
    assert (end.reason or "").startswith("statement 2 of 2, line 2: [TABLE_OR_VIEW_NOT_FOUND]"), (
        tasks.log
    )
    assert end.reported_failure is FailureReason.ANALYSIS_ERROR


def test_a_script_has_typed_parameters_and_its_data_sources(tasks: Tasks) -> None:
    script = """
from datetime import date
assert params["day"] == date(2026, 1, 2) and params["n"] == 3 and params["text"] == "3", params
shop = datasource("shop")
spark.range(params["n"]).write.format("jdbc").options(**shop).option("dbtable", "T").save()
print("rows", spark.table("shop.ME.T").count(), shop)
print("hidden", [p for p in open("/proc/self/environ").read().split("\\0") if "hunter2" in p])
print("argv", "hunter2" in open("/proc/self/cmdline").read())
from orcaflow import task
assert task.datasource("shop") == shop and task.params["day"] == params["day"]
task.output("rows", spark.range(params["n"]).count())
"""
    connection = {
        "jdbcUrl": f"jdbc:derby:memory:{tasks.host.home.name};create=true",
        "user": "me",
        "password": PASSWORD,
    }
    source = DataSource(id=7, name="shop", type=1, connection_params=json.dumps(connection))
    end = tasks.run(
        "PYSPARK",
        {"rawScript": script, "datasources": [7]},
        local=[
            a_parameter("day", "DATE", "$[yyyy-MM-dd]"),
            a_parameter("n", "INTEGER", "3"),
            a_parameter("text", "VARCHAR", "3"),
            a_parameter("rows", "LONG", "", "OUT"),
        ],
        datasources=(source,),
    )
    assert end.state is TaskState.SUCCESS, tasks.log
    assert "rows 3 {'url': 'jdbc:derby:" in tasks.log
    assert json.loads(end.var_pool or "")[0]["value"] == "3"
    assert "'password': '******'" in tasks.log
    assert "hidden []" in tasks.log
    assert "argv False" in tasks.log
    assert PASSWORD not in tasks.log
    assert not any(
        PASSWORD in path.read_text(errors="replace")
        for path in tasks.host.directory(1).rglob("*")
        if path.is_file()
    )


def test_rules_on_data_are_reported_with_the_end(tasks: Tasks) -> None:
    end = tasks.run(
        "DATA_QUALITY",
        {
            "sql": "select id, if(id = 3, null, id) as x from range(4)",
            "rules": [
                {"type": "unique", "column": "id"},
                {"type": "not_null", "column": "x", "level": "warn"},
                {"type": "compare", "metric": "row_count", "maxChange": 0.1},
            ],
        },
        former_quality={"compare row_count": (9.0,)},
    )
    assert end.state is TaskState.FAILURE
    assert end.reason == (
        "1 of 3 rules on a query is broken: compare row_count (4, expected 8.1 to 9.9)"
    ), tasks.log
    assert end.reported_failure is FailureReason.DATA_QUALITY
    assert [(each.rule, each.state) for each in end.quality] == [
        ("unique id", QualityState.PASSED),
        ("not_null x", QualityState.WARNED),
        ("compare row_count", QualityState.BROKEN),
    ]


def test_a_session_says_which_run_its_lineage_belongs_to(warm: SparkHost, tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, warm, openlineage_url="http://127.0.0.1:9")
    script = """
import os
print("parent", spark.conf.get("spark.openlineage.parentRunId"))
print("trace", os.environ["TRACEPARENT"])
"""
    end = tasks.run("PYSPARK", {"rawScript": script})
    tasks.host.supervisor.close()
    assert end.state is TaskState.SUCCESS, tasks.log
    assert re.search(r"^parent [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", tasks.log, re.MULTILINE)
    assert re.search(r"^trace 00-[0-9a-f]{32}-[0-9a-f]{16}-01$", tasks.log, re.MULTILINE)


def test_the_pages_of_a_server_are_fetched_with_links_below_their_prefix(
    warm: SparkHost, tmp_path: Path
) -> None:
    base = "/spark-ui/1.2"
    (place, *_) = warm.places()
    attempts = Attempts()
    attempts.write_link(1, tmp_path, place.ui_link)
    with a_page_server(attempts, warm.directory, KEY, "c") as address:

        def get(path: str) -> Answered:
            question = PageQuestion(task=1, path=path, base=base, sees_shared=True)
            now = SystemClock().now().timestamp()
            return call(
                address,
                f"{PATH}?{question.query()}",
                allowed=token(KEY, cluster="c", question=question, now=now),
                most=MOST_BYTES,
                seconds=60,
            )

        page = get("jobs/")
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html")
        links = set(re.findall(r'(?:href|src)="(/[^"]*)"', page.body.decode()))
        assert f"{base}/stages/" in links
        assert {each for each in links if not each.startswith(f"{base}/")} == set()
        files = sorted(each for each in links if "/static/" in each)
        assert files
        for each in files:
            assert get(each.removeprefix(f"{base}/")).status == 200, each
        executors = get(f"api/v1/applications/{place.application_id}/allexecutors")
        assert [each["id"] for each in json.loads(executors.body)] == ["driver"]
        assert place.page_token.encode() not in page.body


_WITH_PACKAGE = """
import sys, weather_vane
from pyspark.sql.functions import udf
@udf("string")
def turned(n):
    import weather_vane
    return f"{weather_vane.direction} {n}"
print("driver", weather_vane.direction)
print("udf", spark.range(1).select(turned("id")).first()[0])
"""


@pytest.mark.parametrize("way", ["warm", "classic"])
def test_a_task_and_its_udfs_have_the_packages_of_its_environment(
    tasks: Tasks, wheel: str, way: str
) -> None:
    params = {"rawScript": _WITH_PACKAGE, "environment": {"requirements": [wheel]}}
    end = tasks.run("PYSPARK", params | (CLASSIC if way == "classic" else {}))
    assert end.state is TaskState.SUCCESS, tasks.log
    assert "[orcaflow] makes an environment with weather-vane" in tasks.log
    assert "driver north\n" in tasks.log
    assert "udf north 0\n" in tasks.log


@pytest.mark.parametrize("way", ["warm", "classic"])
def test_an_environment_that_can_not_be_made_is_the_reason(tasks: Tasks, way: str) -> None:
    params = {"rawScript": "1", "environment": {"requirements": ["x @ file:///no/such.whl"]}}
    end = tasks.run("PYSPARK", params | (CLASSIC if way == "classic" else {}))
    assert end.state is TaskState.FAILURE
    assert (end.reason or "").startswith("the task's environment could not be made: pip: ")
    assert end.reported_failure is FailureReason.CONFIGURATION
    assert not list(tasks.host.directory(1).glob("spark_*.json"))
