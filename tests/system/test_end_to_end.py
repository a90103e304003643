"""The whole chain as an operator meets it: scripts, a definition, a row typed with psql, an end."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from common.process_identity import is_alive, process_start_time
from operations.daemons import Kind
from tests.mock_kafka import Broker, a_broker
from tests.system.cluster import (
    PrivateCluster,
    a_task,
    private_cluster,
    task_processes,
    until,
)
from tests.system.command_line import ROOT
from tests.unit.stream_specs import SMALL

STOP, SUCCESS = 5, 7
WITHOUT = ("--without", "api-server")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    """Started by the script, with the definition `chain` imported."""
    home = tmp_path_factory.mktemp("end_to_end")
    with private_cluster(home, WORKER__KILL_GRACE_SECONDS="1") as made:
        _script("orcaflow-daemon.sh", "start", "standalone-server", "--free-ports", *WITHOUT)
        file = home / "chain.json"
        tasks = [a_task("first", "echo from the first"), a_task("last", "echo $(day)", "first")]
        tasks[1]["params"] = {
            "rawScript": "echo it is ${day}",
            "localParams": [{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "$[yyyy]"}],
        }
        file.write_text(json.dumps({"name": "chain", "processDefinitionJson": {"tasks": tasks}}))
        _script("orcaflow", "definition", "import", str(file))
        yield made


def _script(name: str, *arguments: str) -> str:
    """Run a script that must succeed, and return its output."""
    done = subprocess.run(
        [str(ROOT / "bin" / name), *arguments],
        # Not from the checkout: it must not matter where an operator stands.
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (name, arguments, done.stdout, done.stderr)
    return done.stdout


def _typed(dsn: str, statement: str) -> None:
    """Typed into psql, where there is one; as libpq understands it in any case."""
    psql = shutil.which("psql")
    if psql is not None:
        subprocess.run(
            [psql, dsn, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement],
            check=True,
            timeout=60,
        )
        return
    connection = psycopg2.connect(dsn)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
    finally:
        connection.close()


def _counted(cluster: PrivateCluster, kind: Kind, sample: str) -> float:
    (port,) = cluster.ports(kind)
    return cluster.metrics(kind, port).get(sample, 0.0)


def test_a_row_typed_with_psql_runs_and_everything_tells_the_same_story(
    cluster: PrivateCluster,
) -> None:
    instances = 'ds_process_instances_total{state="SUCCESS"}'
    attempts = 'ds_task_attempts_total{state="SUCCESS",type="SHELL"}'
    before = _counted(cluster, Kind.MASTER, instances), _counted(cluster, Kind.WORKER, attempts)
    _typed(
        _script("orcaflow", "config", "get", "database.dsn").strip(),
        "INSERT INTO t_ds_command"
        " (command_type, process_definition_id, command_param, executor_id, schedule_time)"
        " VALUES (0, (SELECT id FROM t_ds_process_definition WHERE name = 'chain'), '{}', 1,"
        " '2013-06-15 12:00:00+00')",
    )
    ((definition,),) = cluster.rows("SELECT id FROM t_ds_process_definition WHERE name = 'chain'")
    until(lambda: cluster.last_instance(definition) > 0)
    instance = cluster.last_instance(definition)
    assert cluster.await_end(instance) == SUCCESS

    rows = cluster.tasks_of(instance, "id", "name", "state", "host", "attempt", "exit_code")
    (worker,) = cluster.ports(Kind.WORKER)
    assert [row[1:] for row in rows] == [
        ("first", SUCCESS, f"127.0.0.1:{worker}", 1, 0),
        ("last", SUCCESS, f"127.0.0.1:{worker}", 1, 0),
    ]
    shown = json.loads(_script("orcaflow", "instance", "show", str(instance), "-o", "json"))
    assert (shown["id"], shown["state"]) == (instance, "SUCCESS")
    assert [
        (task["id"], task["name"], task["state"], task["host"], task["attempt"])
        for task in shown["tasks"]
    ] == [(task, name, "SUCCESS", host, attempt) for task, name, _, host, attempt, _ in rows]
    logs = [_script("orcaflow", "task", "log", str(row[0]), "-f") for row in rows]
    assert "from the first\n" in logs[0]
    assert "it is 2013\n" in logs[1]
    # Daemons count what stands in the tables already.
    until(lambda: _counted(cluster, Kind.MASTER, instances) == before[0] + 1)
    until(lambda: _counted(cluster, Kind.WORKER, attempts) == before[1] + 2)
    until(lambda: _counted(cluster, Kind.MASTER, "ds_runs") == 0)
    until(lambda: _counted(cluster, Kind.WORKER, 'ds_slots{state="used"}') == 0)
    for kind in (Kind.MASTER, Kind.WORKER):
        assert _counted(cluster, kind, "ds_db_transaction_seconds_count") > 0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with a_broker() as made:
        made.create("events", 4)
        yield made


def test_a_supervisor_of_a_stream_is_kept_until_it_is_terminated(
    cluster: PrivateCluster, broker: Broker, tmp_path: Path
) -> None:
    document = copy.deepcopy(SMALL)
    document["suspended"] = True
    document["spec"]["ioConfig"] |= {
        "consumerProperties": {"bootstrap.servers": broker.servers},
        "startDelay": "PT0S",
        "period": "PT1S",
    }
    file = tmp_path / "flights.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    assert cluster.told("stream", "submit", str(file))["outcome"] == "created"
    until(lambda: cluster.told("stream", "status", "flights")["state"] == "SUSPENDED")
    shown = cluster.told("stream", "status", "flights")
    assert (shown["partitions"], shown["healthy"], shown["tasks"]) == (4, True, [])
    assert cluster.orcaflow("stream", "terminate", "flights").returncode == 0
    until(lambda: cluster.told("stream", "status", "flights")["state"] == "TERMINATED")


def test_a_stop_typed_as_a_row_ends_a_run_with_all_its_processes(cluster: PrivateCluster) -> None:
    marker = cluster.home / "children"
    stubborn = f"trap '' TERM\n(trap '' TERM; setsid sleep 1000) & echo $! > '{marker}'\nsleep 1001"
    tasks = [a_task("stubborn", stubborn), a_task("next", "true", "stubborn")]
    instance = cluster.begin(cluster.define("stubborn", tasks))
    task, _ = cluster.await_task(instance, 1)
    until(lambda: marker.exists() and len(task_processes(cluster.home, task)) >= 3)
    until(lambda: _counted(cluster, Kind.MASTER, "ds_runs") == 1)
    until(lambda: _counted(cluster, Kind.WORKER, 'ds_slots{state="used"}') == 1)
    _typed(
        cluster.dsn,
        "INSERT INTO t_ds_command (command_type, command_param)"
        f""" VALUES (9, '{{"ProcessInstanceId": {instance}}}')""",
    )
    assert cluster.await_end(instance) == STOP
    assert task_processes(cluster.home, task) == []
    assert cluster.tasks_of(instance, "name", "state") == [("stubborn", 9)]
    until(lambda: _counted(cluster, Kind.MASTER, 'ds_process_instances_total{state="STOP"}') == 1)
    shown = cluster.told("instance", "show", str(instance))
    assert (shown["state"], [each["state"] for each in shown["tasks"]]) == ("STOP", ["KILL"])
    # Once more is harmless.
    _typed(
        cluster.dsn,
        "INSERT INTO t_ds_command (command_type, command_param)"
        f""" VALUES (9, '{{"ProcessInstanceId": "{instance}"}}')""",
    )
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])
    assert cluster.state_of(instance) == STOP
    assert cluster.rows("SELECT message FROM t_ds_error_command") == []


def _processes(cluster: PrivateCluster) -> dict[int, float]:
    """Pid and start time of every daemon, the two servers included."""
    rows: list[dict[str, Any]] = cluster.told("server", "status")
    assert [row["name"] for row in rows] == [
        *("postgres", "zookeeper", "master-server", "worker-server")
    ]
    found = {int(row["pid"]): process_start_time(int(row["pid"])) for row in rows}
    return {pid: started for pid, started in found.items() if started is not None}


def test_hundreds_of_commands_at_once_each_begin_one_run_and_in_turn(
    cluster: PrivateCluster,
) -> None:
    """`bin/bench burst` has ten thousand, and measures them."""
    # It ends as soon as it is begun, so that many cost little.
    definition = cluster.define("burst", [a_task("off", "exit 1", runFlag="FORBIDDEN")])
    cluster.rows(
        "INSERT INTO t_ds_command (command_type, process_definition_id, process_instance_priority)"
        " SELECT 0, %s, n %% 5 FROM generate_series(1, 200) AS n",
        definition,
    )
    begun = (
        "SELECT process_instance_priority, command_id FROM t_ds_process_instance"
        f" WHERE process_definition_id = {definition} AND state = {SUCCESS} ORDER BY id"
    )
    until(lambda: len(cluster.rows(begun)) == 200)
    in_turn = cluster.rows(begun)
    assert in_turn == sorted(in_turn)
    assert len({command_id for _, command_id in in_turn}) == 200
    assert cluster.rows(
        "SELECT outcome, count(*) FROM t_ds_command_ledger WHERE process_definition_id = %s"
        " GROUP BY outcome",
        definition,
    ) == [(1, 200)]


def test_starting_twice_changes_nothing(cluster: PrivateCluster) -> None:
    before = _processes(cluster)
    _script("orcaflow-daemon.sh", "start", "standalone-server", "--free-ports", *WITHOUT)
    _script("start-all.sh", "--free-ports", *WITHOUT)
    assert _processes(cluster) == before


def test_stopping_leaves_nothing_running(cluster: PrivateCluster) -> None:
    processes = _processes(cluster)
    assert len(processes) == 4
    _script("orcaflow-daemon.sh", "stop", "standalone-server")
    assert [pid for pid, started in processes.items() if is_alive(pid, started)] == []
    assert _using(cluster.home) == []
    assert list((cluster.home / "run").glob("*.pid")) == []
    # And stopping what does not run is harmless.
    _script("stop-all.sh")


def _using(home: Path) -> list[str]:
    """The command lines that name this home, and the tasks that belong to it."""
    found = [str(pid) for pid in task_processes(home)]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(home).encode() in words:
                found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
