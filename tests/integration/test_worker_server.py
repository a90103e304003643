"""The worker daemon itself, against PostgreSQL and ZooKeeper: claims, reports, kills, restarts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from sqlalchemy import make_url

from common.clock import SystemClock
from common.config import Config, DatabaseConfig, ZookeeperConfig
from common.embedded.addresses import ZookeeperAddress
from common.log_access import LogQuestion, read_key
from common.model.cluster import KillEntry, QueueEntry
from common.model.states import TaskState
from common.ports import free_port
from common.registry.config import RegistryConfig
from common.registry.connect import connect as connect_registry
from common.registry.protocol import Registry
from operations.session import Session
from operations.stored_logs import close_stores
from operations.task_log import LogMissingError
from operations.tasks import find_task
from operations.worker_logs import ask, opened_anywhere
from orcaflow import datasets
from tests.conftest import ZookeeperRoot
from tests.firewalls import no_rules_after
from tests.granting import GRANT_ALL, names_shared
from tests.integration.spark_accounts import AS_ROOT, accounts, bare_python
from tests.integration.task_kinds import own_url
from tests.integration.worker_host import Signpost, wait_until_gone
from tests.proxies import Door, running
from tests.system import nursery

PATIENCE_SECONDS = 60.0


@dataclass
class Cluster:
    """A database, a registry and a home in which worker daemons are started."""

    home: Path
    url: str
    zookeeper: ZookeeperRoot
    registry: Registry
    port: int
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _connection: Any = field(default=None, init=False)

    def start(self, **settings: str) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "worker.server", "--port", str(self.port), "--slots", "8")
        environment = {
            **os.environ,
            "ORCAFLOW_HOME": str(self.home),
            "ORCAFLOW_DATABASE__URL": self.url,
            "ORCAFLOW_ZOOKEEPER__HOSTS": self.zookeeper.hosts,
            "ORCAFLOW_ZOOKEEPER__ROOT": self.zookeeper.root,
            "ORCAFLOW_ZOOKEEPER__SESSION_TIMEOUT_SECONDS": "4",
            "ORCAFLOW_WORKER__KILL_GRACE_SECONDS": "0.2",
            **{f"ORCAFLOW_WORKER__{name}": value for name, value in settings.items()},
        }
        with os.fdopen(os.dup(sys.stderr.fileno()), "wb") as output:
            daemon = nursery.spawned(command, environment, output)
        self.daemons.append(daemon)
        return daemon

    def is_ready(self) -> bool:
        """True if the worker at the port says that it is ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def passes(self, loop: str) -> float:
        """Return the number of passes that a loop of the worker has completed."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        name = f'ds_loop_passes_total{{loop="{loop}"}} '
        return next((float(each.removeprefix(name)) for each in lines if each.startswith(name)), 0)

    def unready(self) -> str:
        """Return the worker's reason for not being ready; "" while it is, or does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()
        except OSError:
            return ""

    def submit(
        self,
        script: str = "",
        *,
        task_type: str = "SHELL",
        params: Mapping[str, object] | None = None,
        timeout_seconds: int | None = None,
        keys: Mapping[str, object] | None = None,
    ) -> int:
        """Submit as a master does: the rows first, then the queue entry."""
        node = json.dumps({"params": {"rawScript": script, **(params or {})}, **(keys or {})})
        task = self.sql(
            """
            WITH d AS (
                INSERT INTO t_ds_process_definition (name, project_id, user_id, release_state,
                    process_definition_json) VALUES ('d' || random(), 1, 1, 1, '{}') RETURNING id
            ), p AS (
                INSERT INTO t_ds_process_instance (name, process_definition_id, state, command_type,
                    process_instance_json, executor_id, host, owner_incarnation, start_time)
                SELECT 'run', id, 1, 0, '{}', 1, 'm:1', 1, now() FROM d RETURNING id, process_definition_id
            )
            INSERT INTO t_ds_task_instance (name, task_type, process_definition_id,
                process_instance_id, task_json, state, submit_time, timeout_seconds, timeout_strategy)
            SELECT 't', %s, process_definition_id, id, %s, 0, now(), %s, 1 FROM p
            RETURNING id, process_instance_id
            """,
            task_type,
            node,
            timeout_seconds,
        )
        entry = QueueEntry(
            process_priority=2,
            process_instance_id=task[1],
            task_priority=2,
            task_instance_id=task[0],
        )
        self.registry.task_queue.offer([entry])
        return int(task[0])

    def sql(self, statement: str, *values: object) -> tuple[int, ...]:
        if self._connection is None:
            # Kept, since what a test waits for is asked many times a second.
            self._connection = psycopg2.connect(self.url.replace("+psycopg2", ""))
            self._connection.autocommit = True
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            row: tuple[int, ...] | None = cursor.fetchone() if cursor.description else None
            cursor.execute(GRANT_ALL if names_shared(statement) else "SELECT 1")
            return row or ()

    def close(self) -> None:
        """End what still runs; the tasks of a daemon end with it."""
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGQUIT)
                daemon.wait(PATIENCE_SECONDS)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def text(self, statement: str, *values: object) -> str:
        """One value of one row."""
        (value,) = self.sql(statement, *values)
        return str(value)

    def end_of(self, task: int) -> TaskState:
        """Wait for the end of the attempt."""
        until(lambda: self._state(task).is_finished)
        return self._state(task)

    def _state(self, task: int) -> TaskState:
        row = self.sql("SELECT state FROM t_ds_task_instance WHERE id = %s", task)
        return TaskState(row[0])


def until(condition: Callable[[], bool]) -> None:
    """Poll; the pause is a wait for an event that never comes."""
    clock = SystemClock()
    limit = clock.monotonic() + PATIENCE_SECONDS
    never = threading.Event()
    while not condition():
        assert clock.monotonic() < limit, "it did not happen in time"
        never.wait(0.02)


@contextmanager
def _a_cluster(home: Path, url: str, zookeeper: ZookeeperRoot) -> Iterator[Cluster]:
    registry = connect_registry(
        RegistryConfig(
            hosts=zookeeper.hosts, root=zookeeper.root, session_timeout=timedelta(seconds=30)
        ),
        clock=SystemClock(),
    )
    made = Cluster(home, url, zookeeper, registry, free_port())
    try:
        yield made
    finally:
        made.close()
        registry.close()


@pytest.fixture
def cluster(tmp_path: Path, migrated_url: str, zk_root: ZookeeperRoot) -> Iterator[Cluster]:
    """A cluster without a daemon."""
    with _a_cluster(tmp_path / "home", migrated_url, zk_root) as made:
        yield made


@pytest.fixture(scope="module")
def serving(
    tmp_path_factory: pytest.TempPathFactory, url: str, zookeeper: ZookeeperAddress
) -> Iterator[Cluster]:
    """A cluster with a worker that goes on, for tests that only have it run tasks."""
    root = ZookeeperRoot(hosts=zookeeper.hosts, root=f"/test-{uuid.uuid4().hex[:16]}")
    with _a_cluster(tmp_path_factory.mktemp("serving") / "home", url, root) as made:
        made.start()
        yield made


def test_a_submitted_task_is_claimed_run_and_reported(serving: Cluster) -> None:
    good, bad = serving.submit("echo hello"), serving.submit("exit 7")
    assert serving.end_of(good) is TaskState.SUCCESS
    assert serving.end_of(bad) is TaskState.FAILURE
    assert serving.sql("SELECT exit_code FROM t_ds_task_instance WHERE id = %s", bad) == (7,)
    until(lambda: not serving.registry.task_queue.claimed())
    # Of a failure the tables keep the last words.
    tails = "SELECT tail FROM t_ds_task_log_tail WHERE task_instance_id = %s"
    until(lambda: serving.sql(tails, bad))
    assert b"exit code 7" in bytes(serving.sql(tails, bad)[0])
    assert serving.sql(
        "SELECT array_agg(task_instance_id) FROM t_ds_task_log_tail"
        " WHERE task_instance_id IN (%s, %s)",
        good,
        bad,
    ) == ([bad],)
    # A log is read at the worker's port by whoever has a copy of its home's key.
    (run, token) = serving.sql(
        "SELECT process_instance_id, token FROM t_ds_task_instance, t_ds_cluster"
        " WHERE t_ds_task_instance.id = %s",
        good,
    )
    key = read_key(serving.home / "keys" / "log.key")
    question = LogQuestion(instance=run, task=good)
    piece = ask(f"127.0.0.1:{serving.port}", question, key=key, cluster=token)
    assert b"\nhello\n" in piece.body
    assert piece.size == len(piece.body)


def test_t53_a_worker_keeps_the_memory_free_that_its_configuration_reserves(
    cluster: Cluster,
) -> None:
    cluster.start(RESERVED_MEMORY_GB="1000000")
    log = cluster.home / "logs" / f"worker-server-{cluster.port}.log"
    until(lambda: log.exists() and "host has no room for more work" in log.read_text())
    assert leaves(cluster, cluster.submit("true"))


def test_a_worker_without_room_on_its_disk_claims_nothing_and_is_not_ready(
    cluster: Cluster,
) -> None:
    cluster.start(RESERVED_DISK_GB="1000000")
    # Nothing but that keeps it from claiming: it has joined, and its session can be trusted.
    until(
        lambda: (
            "less than worker.reserved_disk_gb" in (told := cluster.unready())
            and '"part": "zookeeper"' not in told
        )
    )
    assert leaves(cluster, cluster.submit("true"))


def test_a_log_outlives_the_host_that_ran_the_task(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"file://{tmp_path}/store"
    monkeypatch.setenv("ORCAFLOW_LOG_STORE", store)
    # Another home at another address; a reader has no more of it than a copy of its key.
    cluster.start(HOST="127.0.0.2", HTTP_HOST="127.0.0.2")
    go = tmp_path / "go"
    os.mkfifo(go)
    running = cluster.submit(f"echo begun; read line < {go}; echo ended $line; exit 3")
    quiet = cluster.submit("echo quiet")
    assert cluster.end_of(quiet) is TaskState.SUCCESS
    here = tmp_path / "here"
    (here / "keys").mkdir(parents=True, mode=0o700)
    shutil.copy(cluster.home / "keys" / "log.key", here / "keys")
    with closing(Session()) as session:
        config = Config(
            home=here,
            log_store=store,
            database=DatabaseConfig(url=cluster.url),
            zookeeper=ZookeeperConfig(hosts=cluster.zookeeper.hosts, root=cluster.zookeeper.root),
        )
        session.__dict__["config"] = config

        def text(task: int) -> str:
            with opened_anywhere(session, find_task(session, task)) as found:
                return "".join(found.rest())

        # Its worker has it while it runs, and so has the store soon.
        until(lambda: "begun\n" in text(running))
        spool = cluster.home / "tasks" / "unstored" / str(cluster.port)
        go.write_text("well\n")
        assert cluster.end_of(running) is TaskState.FAILURE
        whole = text(running)
        assert "ended well\n" in whole
        tails = "SELECT tail FROM t_ds_task_log_tail WHERE task_instance_id = %s"
        until(lambda: cluster.sql(tails, running) and not any(spool.iterdir()))
        cluster.close()
        shutil.rmtree(cluster.home)
        try:
            assert text(running) == whole
            assert "\nquiet\n" in text(quiet)
        finally:
            close_stores()
        session.__dict__["config"] = replace(config, log_store="")
        assert text(running) == whole  # Shorter than the last words that are kept.
        with pytest.raises(LogMissingError, match="none are kept"):
            text(quiet)


def leaves(cluster: Cluster, task: int) -> bool:
    """Return whether the worker has left an attempt in the queue though it has looked there."""
    # The pass that was under way when the entry came may have looked before it, the next has not.
    enough = cluster.passes("claim") + 2
    until(lambda: cluster.passes("claim") >= enough)
    offered = [entry.task_instance_id for entry in cluster.registry.task_queue.entries()]
    row = cluster.sql("SELECT state FROM t_ds_task_instance WHERE id = %s", task)
    return task in offered and row == (TaskState.SUBMITTED,)


def test_a_task_gets_its_data_source_and_its_outputs_are_in_its_row(serving: Cluster) -> None:
    (source,) = serving.sql(
        "INSERT INTO t_ds_datasource (name, type, user_id, connection_params)"
        " VALUES ('own', 1, 1, %s) RETURNING id",
        json.dumps(own_url(serving.url)),
    )
    params = {
        "datasource": str(source),
        "sql": "select 42 as n",
        "sqlType": "0",
        "localParams": [{"prop": "n", "direct": "OUT", "type": "INTEGER", "value": ""}],
    }
    task = serving.submit(task_type="SQL", params=params)
    missing = serving.submit(task_type="SQL", params={**params, "datasource": source + 1})
    assert serving.end_of(task) is TaskState.SUCCESS
    row = serving.text("SELECT var_pool FROM t_ds_task_instance WHERE id = %s", task)
    assert json.loads(row) == [{"prop": "n", "direct": "IN", "type": "INTEGER", "value": "42"}]
    assert serving.end_of(missing) is TaskState.FAILURE
    reason = serving.text("SELECT reason FROM t_ds_task_instance WHERE id = %s", missing)
    assert reason.startswith(f"params.datasource: the project has no data source {source + 1}: an")


def test_a_task_has_the_variables_of_its_environment_and_its_secrets_are_masked(
    serving: Cluster,
) -> None:
    config = "export PLACE=moon A_TOKEN=hunter22 PATH=$PATH:/of/config"
    serving.sql(
        "INSERT INTO t_ds_environment (code, name, config) VALUES (7000000001, 'e', %s)"
        " RETURNING id",
        config,
    )
    script = 'echo "$PLACE $A_TOKEN ${PATH##*:}"; test "$A_TOKEN" = hunter22'
    ids = [
        serving.submit(script, keys={"environmentCode": code})
        for code in (7_000_000_001, 7_000_000_002)
    ]
    assert [serving.end_of(each) for each in ids] == [TaskState.SUCCESS, TaskState.FAILURE]
    log = Path(serving.text("SELECT log_path FROM t_ds_task_instance WHERE id = %s", ids[0]))
    assert "\nmoon ******** /of/config\n" in log.read_text(encoding="utf-8")
    reason = serving.text("SELECT reason FROM t_ds_task_instance WHERE id = %s", ids[1])
    assert reason.startswith("environmentCode: the project has no environment")


TENANTS_SCRIPT = """
import os
import sys
home = os.environ["ORCAFLOW_HOME"]
secret = [home + "/logs", home + "/tasks/records", "/proc/{daemon}/environ"]
reached = [path for path in secret if os.access(path, os.R_OK)]
open(os.environ["ORCAFLOW_DATA_DIR"] + "/mine", "w").close()
print("uid", os.getuid(), "reached", reached, "list", os.access(home + "/data", os.R_OK))
sys.path.insert(0, "{modules}")
from datasets import Files, allocate, ask_lock, publish, segments
ask_lock("flights", "2026-11-20/P1D")
place = allocate("flights")
(place.path / "part.parquet").write_text("rows")
publish(place, [Files("2026-11-20/P1D", ["part.parquet"], rows=1)], key="main")
(file,) = segments("flights").segments[-1].files
print("published", open(file).read(), os.access(file, os.W_OK), os.access(place.path, os.W_OK))
"""


@AS_ROOT
def test_a_worker_in_mode_tenant_runs_tasks_as_their_tenants_accounts(cluster: Cluster) -> None:
    # The folders of `tmp_path` are closed to other accounts.
    with tempfile.TemporaryDirectory(prefix="orcaflow-") as home, no_rules_after(home):
        Path(home).chmod(0o711)
        nobody, _ = accounts(Path(home))
        cluster.home = Path(home) / "home"
        cluster.sql("UPDATE t_ds_tenant SET tenant_code = %s WHERE id = 1", nobody.name)
        python = bare_python(nobody)
        daemon = cluster.start(TENANT_MODE="tenant", PYTHON=python)
        modules = Path(home) / "modules"
        modules.mkdir()
        (modules / "datasets.py").write_text(Path(datasets.__file__).read_text())
        modules.chmod(0o755)
        (modules / "datasets.py").chmod(0o644)
        script = TENANTS_SCRIPT.format(daemon=daemon.pid, modules=modules)
        for task_type, text in (
            ("SHELL", f"exec {python} - <<'END'\n{script}END\n"),
            ("PYTHON", script),
        ):
            task = cluster.submit(text, task_type=task_type)
            assert cluster.end_of(task) is TaskState.SUCCESS
            log = cluster.text("SELECT log_path FROM t_ds_task_instance WHERE id = %s", task)
            told = Path(log).read_text().splitlines()
            assert f"uid {nobody.uid} reached [] list False" in told
            assert "published rows False False" in told
        assert (cluster.home / f"data/tenants/{nobody.name}/mine").stat().st_uid == nobody.uid
        daemon.send_signal(signal.SIGQUIT)
        assert daemon.wait(PATIENCE_SECONDS) == 0


def test_a_time_out_stands_in_the_row(serving: Cluster) -> None:
    task = serving.submit("sleep 600", timeout_seconds=1)
    assert serving.end_of(task) is TaskState.FAILURE
    reason = serving.text("SELECT reason FROM t_ds_task_instance WHERE id = %s", task)
    assert "timed out after" in reason


def test_a_kill_that_is_asked_for_in_the_registry_is_met(
    serving: Cluster, signpost: Signpost
) -> None:
    task = serving.submit(f"trap '' TERM; echo $$ > {signpost.path}; while :; do sleep 600; done")
    pid = int(signpost.wait())
    serving.registry.kill_queue.ask(
        [KillEntry(address=f"127.0.0.1:{serving.port}", task_instance_id=task)]
    )
    assert serving.end_of(task) is TaskState.KILL
    wait_until_gone(pid)
    until(lambda: not serving.registry.kill_queue.asked(f"127.0.0.1:{serving.port}"))


def test_a_worker_that_is_killed_and_started_again_goes_on_with_its_tasks(
    cluster: Cluster, signpost: Signpost, tmp_path: Path
) -> None:
    gate = Signpost(tmp_path / "gate")
    daemon = cluster.start()
    waits = cluster.submit(f"echo up > {signpost.path}; read go < {gate.path}")
    signpost.wait()
    ends = cluster.submit(f"echo $PPID > {signpost.path}")
    signpost.wait()
    daemon.kill()
    daemon.wait()
    daemon = cluster.start()
    assert cluster.end_of(ends) is TaskState.SUCCESS
    # The former one may have reported that end: this one must be ready to handle a signal.
    until(cluster.is_ready)
    # And once more, gracefully.
    daemon.terminate()
    assert daemon.wait(PATIENCE_SECONDS) == 0
    cluster.start()
    gate.path.write_text("go\n")
    assert cluster.end_of(waits) is TaskState.SUCCESS
    gate.close()


def test_a_worker_that_starts_while_both_servers_are_away_goes_on_with_its_tasks_afterwards(
    cluster: Cluster, signpost: Signpost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = [Signpost(tmp_path / name) for name in ("while it waits", "afterwards")]
    daemon = cluster.start()
    tasks = []
    for gate in gates:
        script = f"echo $PPID > {signpost.path}; read go < {shlex.quote(str(gate.path))}"
        tasks.append(cluster.submit(script))
        leader = int(signpost.wait())
        if len(tasks) == 1:
            ends = leader
    daemon.kill()
    daemon.wait()
    url = make_url(cluster.url)
    database = Door(str(url.host), int(url.port or 5432))
    registry = Door(*_first_of(cluster.zookeeper.hosts))
    away = replace(
        cluster,
        url=url.set(host="127.0.0.1", port=database.port).render_as_string(hide_password=False),
        zookeeper=replace(cluster.zookeeper, hosts=f"127.0.0.1:{registry.port}"),
    )
    # Else a connection that is refused is tried again for longer than this needs.
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__CONNECTION_TIMEOUT_SECONDS", "3")
    waiting = away.start()
    until(lambda: f"port {database.port}" in away.unready())
    gates[0].path.write_text("go\n")
    wait_until_gone(ends)
    with running(database, name="database"):
        until(lambda: f"127.0.0.1:{registry.port}" in away.unready())
        with running(registry, name="registry"):
            assert cluster.end_of(tasks[0]) is TaskState.SUCCESS
            gates[1].path.write_text("go\n")
            assert cluster.end_of(tasks[1]) is TaskState.SUCCESS
            waiting.terminate()
            assert waiting.wait(PATIENCE_SECONDS) == 0
    for gate in gates:
        gate.close()


def _first_of(hosts: str) -> tuple[str, int]:
    host, _, port = hosts.split(",", maxsplit=1)[0].rpartition(":")
    return host, int(port)


def test_a_worker_that_is_told_to_quit_takes_its_tasks_with_it_and_gives_them_back(
    cluster: Cluster, signpost: Signpost
) -> None:
    daemon = cluster.start()
    task = cluster.submit(f"echo $$ > {signpost.path}; sleep 600")
    pid = int(signpost.wait())
    daemon.send_signal(signal.SIGQUIT)
    assert daemon.wait(PATIENCE_SECONDS) == 0
    wait_until_gone(pid)
    assert cluster.end_of(task) is TaskState.NEED_FAULT_TOLERANCE


def _lose(cluster: Cluster, task: int) -> None:
    """Fail an attempt over, as a master does that misses its worker."""
    cluster.sql(
        "UPDATE t_ds_task_instance SET state = 8, end_time = now(), lost_at = now() WHERE id = %s",
        task,
    )


def test_the_tasks_of_a_daemon_that_never_comes_back_are_ended_by_its_warden(
    cluster: Cluster, signpost: Signpost
) -> None:
    daemon = cluster.start()
    lost = cluster.submit(f"echo $$ > {signpost.path}; sleep 600")
    pid = int(signpost.wait())
    kept = cluster.submit(f"echo $$ > {signpost.path}; sleep 600")
    kept_pid = int(signpost.wait())
    daemon.kill()
    daemon.wait()
    _lose(cluster, lost)
    wait_until_gone(pid)
    until(
        lambda: cluster.text("SELECT lost_at FROM t_ds_task_instance WHERE id = %s", lost) == "None"
    )
    # The other is still its worker's, whose next daemon goes on with it.
    assert Path(f"/proc/{kept_pid}").exists()
    cluster.start()
    cluster.registry.kill_queue.ask(
        [KillEntry(address=f"127.0.0.1:{cluster.port}", task_instance_id=kept)]
    )
    assert cluster.end_of(kept) is TaskState.KILL


def test_the_tasks_of_a_frozen_daemon_are_ended_by_another_worker_of_its_host(
    cluster: Cluster, signpost: Signpost, tmp_path: Path
) -> None:
    daemon = cluster.start()
    task = cluster.submit(f"echo $$ > {signpost.path}; sleep 600")
    pid = int(signpost.wait())
    daemon.send_signal(signal.SIGSTOP)
    try:
        _lose(cluster, task)
        other = Cluster(
            tmp_path / "other", cluster.url, cluster.zookeeper, cluster.registry, free_port()
        )
        second = other.start()
        wait_until_gone(pid)
        second.terminate()
        assert second.wait(PATIENCE_SECONDS) == 0
    finally:
        daemon.send_signal(signal.SIGCONT)


def test_a_worker_that_has_nothing_left_takes_its_warden_with_it(cluster: Cluster) -> None:
    daemon = cluster.start()
    until(cluster.is_ready)
    (warden,) = _wardens(daemon.pid)
    daemon.terminate()
    assert daemon.wait(PATIENCE_SECONDS) == 0
    assert not Path(f"/proc/{warden}").exists()


def _wardens(daemon: int) -> list[int]:
    children = Path(f"/proc/{daemon}/task").glob("*/children")
    pids = [int(pid) for each in children for pid in each.read_text().split()]
    return [pid for pid in pids if b"worker.warden" in Path(f"/proc/{pid}/cmdline").read_bytes()]
