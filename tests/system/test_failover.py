"""Daemons that are killed or restarted in the middle of their work, on a real cluster.

ORCAFLOW_TEST_STORM_INSTANCES makes the storm longer: it lasts until so many have ended.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.model.leases import GRACE
from common.ports import free_port
from operations.daemons import Kind, Options
from tests.system.cluster import (
    PrivateCluster,
    a_task,
    private_cluster,
    task_processes,
    until,
)

pytestmark = pytest.mark.kills_daemons

INSTANCES = int(os.environ.get("ORCAFLOW_TEST_STORM_INSTANCES", "100"))
SESSION_SECONDS = 8
"""A daemon that lives keeps its session, though other clusters are killed beside this one."""
STEADY_SESSION_SECONDS = 60
"""The session of a worker that is back within it, however busy the machine is."""
# Far more than it takes; what goes on for so long has got stuck.
STORM_LIMIT_SECONDS = 60 + 6 * INSTANCES


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    """Two masters and three workers, whose sessions end soon after them."""
    home = tmp_path_factory.mktemp("failover")
    with private_cluster(home, ZOOKEEPER__SESSION_TIMEOUT_SECONDS=str(SESSION_SECONDS)) as made:
        made.start(masters=2, workers=3, slots=3)
        yield made


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """A worker with a group of its own, whose session lasts longer than it is away.

    It runs tasks of no group too: who waits for the end of a session has it stopped first.
    """

    cluster: PrivateCluster
    port: int
    group: int

    def start(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            name = "ORCAFLOW_ZOOKEEPER__SESSION_TIMEOUT_SECONDS"
            patch.setenv(name, str(STEADY_SESSION_SECONDS))
            options = Options(groups="steady", slots=3)
            self.cluster.daemons.start_daemon(Kind.WORKER, self.port, options)

    def kill(self) -> None:
        self.cluster.kill(Kind.WORKER, self.port)

    def stop(self) -> None:
        self.cluster.daemons.stop_one(Kind.WORKER, self.port)


@pytest.fixture(scope="module")
def steady(cluster: PrivateCluster) -> Steady:
    ((group,),) = cluster.rows(
        "INSERT INTO t_ds_worker_group (name) VALUES ('steady') RETURNING id"
    )
    made = Steady(cluster=cluster, port=free_port(), group=group)
    made.start()
    return made


@pytest.fixture
def short_sessions(steady: Steady) -> None:
    steady.stop()


def _only_worker(cluster: PrivateCluster, instance_id: int) -> int:
    """The port of the worker that has the instance's only task."""
    ((host,),) = cluster.tasks_of(instance_id, "host")
    return int(host.rpartition(":")[2])


def _a_patient_run(cluster: PrivateCluster, name: str, **where: int) -> tuple[int, Path]:
    """A process instance whose only task runs until the file is there."""
    gate = cluster.home / f"{name}.gate"
    script = f"until [ -e '{gate}' ]; do sleep 0.05; done"
    definition = cluster.define(name, [a_task("patient", script, **where)])
    instance = cluster.begin(definition)
    cluster.await_task(instance, 1)
    return instance, gate


def test_a_worker_that_is_restarted_gracefully_goes_on_with_its_task(
    cluster: PrivateCluster, steady: Steady
) -> None:
    instance, gate = _a_patient_run(cluster, "restarted", workerGroupId=steady.group)
    ((before, pid),) = cluster.tasks_of(instance, "worker_incarnation", "pid")
    steady.stop()
    steady.start()
    gate.touch()
    assert cluster.await_end(instance) == 7
    ((attempt, state, incarnation, pid_after),) = cluster.tasks_of(
        instance, "attempt", "state", "worker_incarnation", "pid"
    )
    assert (attempt, state, pid_after) == (1, 7, pid)
    assert incarnation != before


def test_a_killed_worker_that_is_back_within_its_session_goes_on_with_its_task(
    cluster: PrivateCluster, steady: Steady
) -> None:
    instance, gate = _a_patient_run(cluster, "killed", workerGroupId=steady.group)
    steady.kill()
    steady.start()
    gate.touch()
    assert cluster.await_end(instance) == 7
    assert cluster.tasks_of(instance, "attempt", "state") == [(1, 7)]


def test_a_task_that_ended_while_its_worker_was_away_is_told_by_the_next_incarnation(
    cluster: PrivateCluster, steady: Steady
) -> None:
    instance, gate = _a_patient_run(cluster, "ended_alone", workerGroupId=steady.group)
    steady.stop()
    gate.touch()
    until(lambda: task_processes(cluster.home) == [])
    assert cluster.tasks_of(instance, "state") == [(1,)]
    steady.start()
    assert cluster.await_end(instance) == 7
    assert cluster.tasks_of(instance, "attempt", "state") == [(1, 7)]


@pytest.mark.usefixtures("short_sessions")
def test_the_task_of_a_worker_that_stays_away_is_run_once_more_elsewhere(
    cluster: PrivateCluster,
) -> None:
    instance, gate = _a_patient_run(cluster, "lost")
    (task,) = cluster.tasks_of(instance, "id")
    port = _only_worker(cluster, instance)
    cluster.kill(Kind.WORKER, port)
    until(lambda: len(cluster.tasks_of(instance, "id")) == 2)
    # The new attempt runs although the old one's processes are still there: only a daemon of that
    # address could end them, and the next one does.
    cluster.start_again(Kind.WORKER, port)
    until(lambda: task_processes(cluster.home, task[0]) == [])
    gate.touch()
    assert cluster.await_end(instance) == 7
    assert cluster.tasks_of(instance, "attempt", "state", "flag") == [(1, 8, 0), (2, 7, 1)]
    hosts = cluster.tasks_of(instance, "host")
    assert hosts[0] != hosts[1]


@pytest.mark.usefixtures("short_sessions")
def test_zookeeper_that_is_away_for_longer_than_a_session_costs_no_task(
    cluster: PrivateCluster,
) -> None:
    instance, gate = _a_patient_run(cluster, "without_zookeeper")
    before = cluster.tasks_of(instance, "id", "pid", "worker_incarnation")
    port = _only_worker(cluster, instance)
    assert cluster.daemons.stop_one("zookeeper", None)
    until(lambda: cluster.metrics(Kind.WORKER, port)['ds_zk_state{state="lost"}'] == 1)
    cluster.daemons.start_zookeeper()
    until(lambda: cluster.tasks_of(instance, "id", "pid", "worker_incarnation") != before)
    gate.touch()
    assert cluster.await_end(instance) == 7
    assert cluster.tasks_of(instance, "id", "pid") == [each[:2] for each in before]
    assert cluster.tasks_of(instance, "attempt", "state") == [(1, 7)]


def test_t01_stopping_the_masters_writes_no_state_and_the_next_one_goes_on(
    cluster: PrivateCluster,
) -> None:
    instance, gate = _a_patient_run(cluster, "masters_stopped")
    row = f"SELECT state, end_time, owner_epoch FROM t_ds_process_instance WHERE id = {instance}"
    place = f"SELECT host, owner_incarnation FROM t_ds_process_instance WHERE id = {instance}"
    before = cluster.rows(row), cluster.tasks_of(instance, "*")
    owner = int(cluster.rows(place)[0][0].rpartition(":")[2])
    (other,) = (port for port in cluster.ports(Kind.MASTER) if port != owner)
    # The owner last, or the other one would take the run over, which is right but not asked here.
    cluster.stop(Kind.MASTER, other)
    cluster.stop(Kind.MASTER, owner)
    assert (cluster.rows(row), cluster.tasks_of(instance, "*")) == before
    assert before[0][0][0] == 1
    # A planned stop releases the run, so that the next master recovers it without an alert.
    assert cluster.rows(place) == [(None, None)]
    gate.touch()
    cluster.start_again(Kind.MASTER, other)
    assert cluster.await_end(instance) == 7
    assert cluster.tasks_of(instance, "attempt", "state") == [(1, 7)]
    cluster.start_again(Kind.MASTER, owner)


@pytest.mark.slow
@pytest.mark.usefixtures("short_sessions")
@pytest.mark.timeout(STORM_LIMIT_SECONDS + 60)
def test_a_storm_of_kills_costs_no_instance_and_runs_nothing_twice(
    cluster: PrivateCluster,
) -> None:
    lines = cluster.home / "lines"
    definition = cluster.define("storm", _layers(lines))
    cluster.rows(
        "INSERT INTO t_ds_command (command_type, process_definition_id)"
        f" SELECT 0, {definition} FROM generate_series(1, {INSTANCES})"
    )

    def have_ended() -> bool:
        return cluster.rows(
            "SELECT count(*) FROM t_ds_process_instance"
            " WHERE process_definition_id = %s AND end_time IS NOT NULL",
            definition,
        ) == [(INSTANCES,)]

    _storm(cluster, random.Random(20130101), until_so=have_ended)
    states = cluster.rows(
        "SELECT state, count(*) FROM t_ds_process_instance"
        " WHERE process_definition_id = %s GROUP BY state",
        definition,
    )
    assert states == [(7, INSTANCES)]
    taken_over = cluster.rows(
        "SELECT count(*) FROM t_ds_process_instance"
        " WHERE process_definition_id = %s AND owner_epoch > 1",
        definition,
    )
    assert taken_over > [(0,)]
    assert cluster.rows("SELECT * FROM t_ds_error_command") == []
    until(lambda: task_processes(cluster.home) == [])

    attempts = cluster.rows(
        "SELECT t.id, t.attempt, t.state, t.process_instance_id, t.name FROM t_ds_task_instance t"
        " JOIN t_ds_process_instance p ON p.id = t.process_instance_id"
        " WHERE p.process_definition_id = %s",
        definition,
    )
    assert {state for _, _, state, _, _ in attempts} <= {7, 8}
    succeeded = Counter((instance, name) for _, _, state, instance, name in attempts if state == 7)
    assert len(succeeded) == 10 * INSTANCES
    assert set(succeeded.values()) == {1}

    written = [tuple(map(int, line.split()[:2])) for line in lines.read_text().splitlines()]
    assert [line for line, times in Counter(written).items() if times > 1] == []
    assert {(task, attempt) for task, attempt, state, *_ in attempts if state == 7} <= set(written)
    assert set(written) <= {(task, attempt) for task, attempt, *_ in attempts}


def _layers(lines: Path) -> list[dict[str, object]]:
    """One, then four, then four that need two each, then one: ten tasks of different lengths."""
    before = {
        "t0": (),
        **{f"t{1 + i}": ("t0",) for i in range(4)},
        **{f"t{5 + i}": (f"t{1 + i}", f"t{1 + (i + 1) % 4}") for i in range(4)},
        "t9": ("t5", "t6", "t7", "t8"),
    }
    line = f"echo \"$ORCAFLOW_TASK_INSTANCE_ID $ORCAFLOW_ATTEMPT $$\" >> '{lines}'"
    return [
        a_task(name, f"sleep 0.{5 + 5 * (index % 5):02}\n{line}\nsleep 0.{5 * (index % 3):02}", *of)
        for index, (name, of) in enumerate(before.items())
    ]


def _storm(cluster: PrivateCluster, choose: random.Random, *, until_so: Callable[[], bool]) -> None:
    """Every second or two a master and a worker at once; now and then they stay away for long."""
    masters, workers = cluster.ports(Kind.MASTER), cluster.ports(Kind.WORKER)
    deadline = time.monotonic() + STORM_LIMIT_SECONDS
    kills = 0
    while not until_so():
        assert time.monotonic() < deadline, "the instances have not ended"
        pair = (Kind.MASTER, choose.choice(masters)), (Kind.WORKER, choose.choice(workers))
        time.sleep(choose.uniform(0.5, 2))
        for kind, port in pair:
            cluster.kill(kind, port)
        kills += 1
        if kills % 3 == 0:
            # Long enough to be taken for dead: others take the runs over and run the tasks anew.
            time.sleep(SESSION_SECONDS + GRACE.total_seconds() + 1)
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda one: cluster.start_again(*one), pair))
    assert kills >= 3
