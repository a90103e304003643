"""A whole cluster on this computer, as an operator starts, uses and stops it."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import select
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from common import config
from common.process_identity import process_start_time
from common.store.listen import Channel, Notifications
from operations.daemons import Cluster, Kind
from tests.bounds import step_within
from tests.system import command_line, planted_secrets
from tests.system.asking import Asking, Cookies, ended_by_events
from tests.system.command_line import ROOT

REPEATS = int(os.environ.get("ORCAFLOW_REPEATS", "1"))


CERTIFICATES = ROOT / "tests" / "integration" / "certificates"


class Operator:
    """Somebody with a shell and a home of their own, whose workers speak TLS."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(exist_ok=True)
        key = home / "worker.key"
        key.write_bytes((CERTIFICATES / "server.key").read_bytes())
        key.chmod(stat.S_IRUSR)
        self.settings = {
            "ORCAFLOW_HOME": str(home),
            "ORCAFLOW_WORKER__TLS": "true",
            "ORCAFLOW_WORKER__TLS_CERT_FILE": str(CERTIFICATES / "server.pem"),
            "ORCAFLOW_WORKER__TLS_KEY_FILE": str(key),
            "ORCAFLOW_WORKER__TLS_CA_FILE": str(CERTIFICATES / "ca.pem"),
            # A worker that is restarted is back within it, however busy the machine is.
            "ORCAFLOW_ZOOKEEPER__SESSION_TIMEOUT_SECONDS": "60",
        }
        self._environment = os.environ | self.settings

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """A command, with settings as environment variables."""
        return command_line.run(*arguments, environment=self._environment | settings)

    def does(self, *arguments: str) -> str:
        """Standard output of what must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def told(self, *arguments: str) -> Any:
        """The same as a JSON document."""
        return json.loads(self.does(*arguments, "-o", "json"))

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        # A shell's background job, and so its children, ignore SIGINT; a terminal's do not.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "orcaflow", *arguments],
                cwd=ROOT,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def define(self, name: str, *scripts: str) -> None:
        """Import a chain of SHELL tasks, t0 to tn."""
        tasks = [
            {
                "name": f"t{index}",
                "type": "SHELL",
                "params": {"rawScript": script},
                "preTasks": [f"t{index - 1}"] if index else [],
            }
            for index, script in enumerate(scripts)
        ]
        path = self.home / f"{name}.json"
        path.write_text(json.dumps({"name": name, "processDefinitionJson": {"tasks": tasks}}))
        self.does("definition", "import", str(path))

    def daemon(self, name: str) -> dict[str, Any]:
        (found,) = [each for each in self.told("server", "status") if each["name"] == name]
        row: dict[str, Any] = found
        return row


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """With a standalone cluster on free ports, which ends with the tests of this module."""
    somebody = Operator(tmp_path_factory.mktemp("operator"))
    try:
        somebody.does("server", "start", "standalone-server", "--free-ports")
        yield somebody
    finally:
        somebody.run("server", "stop", "standalone-server", "--now")


def until(is_so: Callable[[], bool]) -> None:
    """Repeat a check until it succeeds; each check is a command that takes a second at most."""
    step_within(is_so, lambda: None, awaited="a state of a daemon", within=timedelta(minutes=2))


def test_all_daemons_are_listed_with_who_they_are(operator: Operator) -> None:
    rows = operator.told("server", "status")
    assert [row["name"] for row in rows] == [
        "postgres",
        "zookeeper",
        "api-server",
        "master-server",
        "worker-server",
    ]
    for row in rows:
        assert set(row) == {
            *("name", "host", "port", "pid", "incarnation", "state", "since", "reason")
        }
        assert row["state"] == "ready"
        assert process_start_time(row["pid"]) is not None
    # The others are no members of the cluster.
    assert [isinstance(row["incarnation"], int) for row in rows] == [False] * 3 + [True] * 2
    members = operator.told("server", "list")
    assert [(each["kind"], each["health"]) for each in members] == [
        ("master", "ready"),
        ("worker", "ready"),
    ]


def test_the_api_runs_a_definition_by_a_token_and_says_how_it_stands(operator: Operator) -> None:
    url = operator.does("config", "get", "api.url").strip()
    token = operator.told("token", "create", "--user", "admin", "--name", "test")["token"]
    operator.define("asked_for", "echo over http")
    ask = Asking(url, token)
    assert ask("GET", "/readyz") == (200, {"status": "ok"})
    assert ask("GET", "/api/v1/me")[1]["name"] == "admin"
    kinds = [each["kind"] for each in ask("GET", "/api/v1/servers")[1]["items"]]
    assert kinds == ["master", "worker"]
    ((definition,),) = [
        [each["id"] for each in ask("GET", "/api/v1/definitions?name=asked_for")[1]["items"]]
    ]
    wait = {"Prefer": "wait=10", "Idempotency-Key": "once"}
    found: dict[str, Any] = {}

    def begun() -> bool:
        found.update(ask("POST", "/api/v1/instances", {"definition_id": definition}, **wait)[1])
        return found["instance"] is not None

    until(begun)
    run = found["instance"]["id"]
    assert ended_by_events(url, token, run) == "SUCCESS"
    assert ask("GET", f"/api/v1/instances/{run}")[1]["state"]["name"] == "SUCCESS"
    tasks = ask("GET", f"/api/v1/instances/{run}/tasks")[1]["items"]
    assert [(each["name"], each["state"]["code"]) for each in tasks] == [("t0", 7)]
    listed = ask("GET", f"/api/v1/instances?definition_id={definition}")[1]["items"]
    assert [each["id"] for each in listed] == [run]
    # As if the task's home were on another computer: the worker is asked, which speaks TLS alone.
    dsn = operator.does("config", "get", "database.dsn").strip()
    with closing(psycopg2.connect(dsn)) as db, db, db.cursor() as cursor:
        cursor.execute(
            "UPDATE t_ds_task_instance SET log_path = '/elsewhere' || log_path"
            f" WHERE id = {tasks[0]['id']} RETURNING host"
        )
        ((worker,),) = cursor.fetchall()
    log = f"{url}/api/v1/tasks/{tasks[0]['id']}/log"
    request = urllib.request.Request(log, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert b"over http\n" in answer.read()
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"http://{worker}/metrics", timeout=60)


def test_a_link_opens_a_page_of_an_administrator_once(operator: Operator) -> None:
    link = operator.does("console", "--print").strip()
    # It follows to the overview, with the cookie of the session.
    page = urllib.request.build_opener(Cookies()).open(link, timeout=60)
    assert "<title>Overview" in page.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(link, timeout=60)


def test_an_order_is_carried_out_once_though_the_api_dies_between_it_and_its_answer(
    operator: Operator,
) -> None:
    url = operator.does("config", "get", "api.url").strip()
    token = operator.told("token", "create", "--user", "admin", "--name", "kills")["token"]
    operator.define("ordered", "true")
    ask = Asking(url, token)
    definition = ask("GET", "/api/v1/definitions?name=ordered")[1]["items"][0]["id"]
    answers: list[tuple[str, int]] = []
    unanswered: list[str] = []
    answered = threading.Semaphore(0)
    kills_are_over = threading.Event()
    given_up = threading.Event()

    def order(person: int) -> None:
        """Put orders, each sent again until it has been answered twice."""
        for number in itertools.count():
            key = f"{person}-{number}"
            left = 2
            while left and not given_up.is_set():
                try:
                    told = ask(
                        *("POST", "/api/v1/instances", {"definition_id": definition}),
                        **{"Idempotency-Key": key},
                    )
                except (OSError, http.client.HTTPException):
                    unanswered.append(key)
                else:
                    answers.append((key, told[1]["command"]["id"]))
                    answered.release()
                    left -= 1
            if kills_are_over.is_set():
                return

    with ThreadPoolExecutor(6) as people:
        each = [people.submit(order, person) for person in range(6)]
        try:
            for _ in range(2 * REPEATS):
                for _ in range(12):
                    answered.acquire()
                os.kill(operator.daemon("api-server")["pid"], signal.SIGKILL)
                operator.does("server", "start", "api-server", "--port", url.rpartition(":")[2])
        except BaseException:
            given_up.set()
            raise
        finally:
            kills_are_over.set()
        for one in each:
            one.result()
    assert unanswered
    asked = set(answers)
    assert len({key for key, _ in asked}) == len({number for _, number in asked}) == len(asked)
    limit = len(asked) + 10
    until(lambda: not operator.told("command", "list", "--outcome", "waiting"))
    begun = operator.told("instance", "list", "--definition", "ordered", "--limit", str(limit))
    assert len(begun) == len(asked)


def test_starting_twice_is_harmless(operator: Operator) -> None:
    before = operator.told("server", "status")
    started = operator.told("server", "start", "standalone-server", "--free-ports")
    assert all(each["already"] for each in started)
    assert operator.told("server", "status") == before


def test_a_row_typed_by_hand_runs_and_everything_tells_the_same_story(
    operator: Operator,
) -> None:
    operator.define("by_hand", "echo the first", "echo the second")
    dsn = operator.does("config", "get", "database.dsn").strip()
    url = operator.does("config", "get", "database.url").strip()
    notifications = Notifications(url, (Channel.PROCESS,))
    assert [news.is_reminder for news in notifications.wait(timedelta(seconds=60))] == [True]
    connection = psycopg2.connect(dsn)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO t_ds_command"
                " (command_type, process_definition_id, command_param, executor_id)"
                " VALUES (0, (SELECT id FROM t_ds_process_definition WHERE name = 'by_hand'),"
                " '{}', 1)"
            )

            notifications.wait(timedelta(seconds=60))
            cursor.execute(
                "SELECT i.id, i.state FROM t_ds_process_instance i"
                " JOIN t_ds_process_definition d ON d.id = i.process_definition_id"
                " WHERE d.name = 'by_hand'"
            )
            instance_id, state = cursor.fetchone() or (0, 0)
    finally:
        connection.close()
        notifications.close()
    assert state == 7
    shown = operator.told("instance", "show", str(instance_id))
    assert shown["state"] == "SUCCESS"
    assert [(task["name"], task["state"]) for task in shown["tasks"]] == [
        ("t0", "SUCCESS"),
        ("t1", "SUCCESS"),
    ]
    log = operator.does("task", "log", str(shown["tasks"][1]["id"]), "-f")
    assert "the second\n" in log
    worker = operator.daemon("worker-server")
    trust = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
    metrics_url = f"https://127.0.0.1:{worker['port']}/metrics"
    with urllib.request.urlopen(metrics_url, timeout=5, context=trust) as answer:
        metrics = answer.read().decode()
    assert "ds_task" in metrics


def test_waiting_ends_by_the_end_of_the_run(operator: Operator) -> None:
    operator.define("good", "true")
    operator.define("bad", "echo what went wrong >&2; exit 3")
    assert operator.run("run", "good", "--wait").returncode == 0
    failed = operator.run("run", "bad", "--wait")
    assert failed.returncode == 1
    assert "| what went wrong" in failed.stdout
    assert "exit code 3" in failed.stdout


def test_the_own_data_source_reads_and_can_not_write(operator: Operator) -> None:
    made = operator.told("datasource", "create", "own", "--project", "default")
    assert (made["user"], made["database"]) == ("orcaflow_reader", "orcaflow")
    assert operator.told("datasource", "test", "own")["server"].startswith("postgresql")
    reader = (
        operator.does("config", "get", "database.dsn")
        .strip()
        .replace("user=orcaflow", "user=orcaflow_reader")
        .replace("/postgres.password", "/orcaflow_reader.password")
    )
    connection = psycopg2.connect(reader)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM t_ds_process_definition WHERE name = 'good'")
        assert cursor.fetchall() == [("good",)]
        cursor.execute("SET default_transaction_read_only = off")
        for statement in (
            "INSERT INTO t_ds_command (command_type) VALUES (0)",
            "DELETE FROM t_ds_process_instance",
            "SELECT connection_params FROM public.t_ds_datasource",
        ):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(statement)
    connection.close()


def test_no_table_holds_a_secret_in_clear_and_tasks_get_theirs(operator: Operator) -> None:
    planted_secrets.plant_and_search(operator)


def test_a_outsider_finds_the_cluster_closed(operator: Operator) -> None:
    outsider = KazooClient(hosts=operator.does("config", "get", "zookeeper.hosts").strip())
    outsider.start()
    try:
        for attack in (
            lambda: outsider.delete("/dolphinscheduler/workers", recursive=True),
            lambda: outsider.create("/dolphinscheduler/tasks_queue/2_1_2_1_-1", b""),
            lambda: outsider.get_children("/dolphinscheduler/masters"),
        ):
            with pytest.raises(NoAuthError):
                attack()
    finally:
        outsider.stop()
        outsider.close()
    for folder in ("logs", "data"):
        assert stat.S_IMODE((operator.home / folder).stat().st_mode) == 0o700
    _, _, password = operator.does("config", "get", "zookeeper.digest").strip().partition(":")
    shown = operator.does("config", "show")
    for row in operator.told("server", "status"):
        process = Path("/proc", str(row["pid"]))
        shown += (process / "cmdline").read_text() + (process / "environ").read_text()
    shown += "".join(path.read_text() for path in (operator.home / "logs").iterdir())
    assert password not in shown


def test_ctrl_c_ends_the_watching_and_not_the_run(operator: Operator) -> None:
    operator.define("long", "sleep 300")
    watching = operator.begin("run", "long", "--wait")
    assert watching.stdout is not None
    first = watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, told = watching.communicate(timeout=120)
    assert watching.returncode == 130
    assert "the run goes on" in told
    instance_id = first.split()[2]
    assert f"orcaflow instance stop {instance_id}" in told
    assert operator.told("instance", "show", instance_id)["state"] == "RUNNING"
    assert operator.run("instance", "stop", instance_id, "--wait").returncode == 0
    assert operator.told("instance", "show", instance_id)["state"] == "STOP"


def test_a_planned_restart_of_a_daemon_keeps_its_tasks_and_raises_no_alert(
    operator: Operator,
) -> None:
    gate = operator.home / "gate"
    operator.define("patient", f"until [ -e '{gate}' ]; do sleep 0.05; done; echo let through")
    operator.does("run", "patient")

    def runs() -> list[str]:
        # A master may take the command later than `run` waits for it.
        listed = operator.told("instance", "list", "--definition", "patient")
        return [str(each["id"]) for each in listed]

    until(lambda: len(runs()) == 1)
    (instance_id,) = runs()

    def tasks() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = operator.told("instance", "show", instance_id)["tasks"]
        return found

    until(lambda: [task["state"] for task in tasks()] == ["RUNNING"])
    before = operator.daemon("worker-server")
    operator.does("server", "restart", "worker-server")
    after = operator.daemon("worker-server")
    assert (after["port"], after["state"]) == (before["port"], "ready")
    assert after["pid"] != before["pid"]
    assert after["incarnation"] != before["incarnation"]
    operator.does("server", "restart", "master-server")
    gate.touch()
    assert operator.run("instance", "watch", instance_id).returncode == 0
    assert [(task["attempt"], task["state"]) for task in tasks()] == [(1, "SUCCESS")]
    alerts = operator.told("alert", "list")
    assert [each for each in alerts if each["title"] == "Fault tolerance warning"] == []
    run = operator.told("instance", "show", instance_id)
    assert (run["command_type"], run["first_command_type"]) == (
        "RECOVER_TOLERANCE_FAULT_PROCESS",
        "START_PROCESS",
    )


def test_a_worker_can_serve_a_group_and_its_options_outlive_a_restart(operator: Operator) -> None:
    connection = psycopg2.connect(operator.does("config", "get", "database.dsn").strip())
    with connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t_ds_worker_group (name) VALUES ('etl')")
    connection.close()
    operator.does("worker-group", "grant", "etl", "--project", "default")
    operator.define("grouped", "true")
    (started,) = operator.told(
        *("server", "start", "worker-server", "--port", "0", "--groups", "etl", "--slots", "1")
    )
    port = str(started["port"])
    operator.does("server", "restart", "worker-server", "--port", port)
    document = operator.told("run", "grouped", "--worker-group", "etl", "--wait")
    assert [task["host"] for task in document["tasks"]] == [f"127.0.0.1:{port}"]
    # Out of service, also after a restart, until it is enabled.
    address = f"127.0.0.1:{port}"
    operator.does("worker", "disable", address, "--reason", "new disk")
    operator.does("server", "restart", "worker-server", "--port", port)
    begun = operator.told("run", "grouped", "--worker-group", "etl")
    instance_id = str(begun["instance"]["id"])
    while "worker_disabled" not in operator.does("instance", "why", instance_id, "-o", "json"):
        pass
    (row,) = [each for each in operator.told("worker", "list") if each["address"] == address]
    assert (row["mode"], row["obeys"], row["used"], row["reason"]) == (
        *("disabled", "disabled"),
        *(0, "new disk"),
    )
    operator.does("worker", "enable", address)
    assert operator.run("instance", "watch", instance_id).returncode == 0
    # A master chooses this one, since it alone serves the group.
    connection = psycopg2.connect(operator.does("config", "get", "database.dsn").strip())
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "UPDATE t_ds_process_definition SET process_definition_json = jsonb_set("
            "process_definition_json::jsonb, '{tasks,0,workerSelect}', 'true')::text"
            " WHERE name = 'grouped'"
        )
    connection.close()
    document = operator.told("run", "grouped", "--worker-group", "etl", "--wait")
    assert [task["host"] for task in document["tasks"]] == [address]
    assert operator.does("server", "stop", "worker-server", "--port", port).startswith("stopped")


def test_a_port_in_use_is_told_with_the_cure(operator: Operator) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = operator.run("server", "start", "master-server", "--port", port)
    assert done.returncode == 78
    assert f"port {port} is in use" in done.stderr
    assert "--port" in done.stderr


def test_a_standalone_cluster_whose_port_is_taken_starts_nothing_and_names_the_option(
    tmp_path: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        other = Operator(tmp_path / "home")
        done = other.run("server", "start", "standalone-server", ORCAFLOW_WORKER__PORT=port)
    assert done.returncode == 78
    assert f"port {port} is in use" in done.stderr
    assert "--free-ports" in done.stderr
    assert not (tmp_path / "home" / "postgres").exists()


def test_a_worker_of_a_new_group_is_started_and_the_group_made(operator: Operator) -> None:
    started = operator.told(
        "server", "start", "worker-server", "--port", "0", "--groups", "nobody_yet"
    )
    (worker,) = started if isinstance(started, list) else [started]
    # Now that the group is there, a run may ask for it.
    done = operator.run("run", "unknown", "--worker-group", "nobody_yet")
    assert "nobody_yet" not in done.stderr
    port = str(worker["port"])
    assert operator.run("server", "stop", "worker-server", "--port", port).returncode == 0


def test_a_daemon_that_can_not_start_shows_its_last_words(operator: Operator) -> None:
    done = operator.run(
        *("server", "start", "master-server", "--port", "0"),
        ORCAFLOW_MASTER__HTTP_HOST="203.0.113.1",
    )
    assert done.returncode == 78
    assert "ended with exit code 78; the end of" in done.stderr
    assert "203.0.113.1" in done.stderr
    assert len(operator.told("server", "status")) == 5


def test_a_daemon_whose_server_is_away_waits_for_it_and_says_so(operator: Operator) -> None:
    done = operator.run(
        *("server", "start", "master-server", "--port", "0"),
        ORCAFLOW_ZOOKEEPER__HOSTS="127.0.0.1:1",
        ORCAFLOW_ZOOKEEPER__CONNECTION_TIMEOUT_SECONDS="1",
    )
    assert done.returncode == 5
    assert "waits for a server" in done.stderr
    assert "127.0.0.1:1" in done.stderr
    listed = json.loads(operator.run("server", "status", "-o", "json").stdout)
    (waiting,) = [row for row in listed if row["state"] == "degraded"]
    assert waiting["name"] == "master-server"
    port = str(waiting["port"])
    assert operator.run("server", "stop", "master-server", "--port", port).returncode == 0
    assert len(operator.told("server", "status")) == 5


def test_a_killed_daemon_is_dead_and_can_be_started_again(operator: Operator) -> None:
    before = operator.daemon("master-server")
    process = os.pidfd_open(before["pid"])
    signal.pidfd_send_signal(process, signal.SIGKILL)
    assert select.select([process], [], [], 30)[0]
    os.close(process)
    listed = operator.run("server", "status", "-o", "json")
    assert listed.returncode == 1
    assert {row["name"]: row["state"] for row in json.loads(listed.stdout)}["master-server"] == (
        "dead"
    )
    operator.does("server", "restart", "master-server")
    assert operator.daemon("master-server")["port"] == before["port"]
    assert operator.run("run", "good", "--wait").returncode == 0


def test_a_daemon_that_ends_while_it_is_taken_for_running_is_started(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in operator.settings.items():
        monkeypatch.setenv(name, value)
    before = operator.daemon("worker-server")

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(before["pid"], signal.SIGKILL)

    started = Cluster(config.load()).start_daemon(Kind.WORKER, before["port"], after=kill)
    assert (started.already, started.port) == (False, before["port"])
    assert operator.daemon("worker-server")["pid"] == started.pid != before["pid"]


def test_stopping_leaves_nothing_behind_and_starting_again_finds_everything(
    operator: Operator,
) -> None:
    statuses = operator.told("server", "status")
    pids = [row["pid"] for row in statuses]
    before = {pid: process_start_time(pid) for pid in pids}
    assert None not in before.values()
    operator.does("server", "stop", "standalone-server")
    # A pid may be another's by now.
    assert [pid for pid in pids if process_start_time(pid) == before[pid]] == []
    assert operator.run("server", "status").returncode == 3
    assert list((operator.home / "run").glob("*.pid")) == []
    started = operator.told("server", "start", "standalone-server", "--free-ports")
    # Bookmarks and contexts name a port.
    assert {(row["name"], row["port"]) for row in started} <= {
        (row["name"], row["port"]) for row in statuses
    }
    names = [row["name"] for row in operator.told("definition", "list")]
    assert {"good", "bad", "by_hand"} <= set(names)
    assert operator.run("run", "good", "--wait").returncode == 0
