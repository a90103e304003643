"""Two short plans of faults on a real cluster, one after the other; nothing is broken by either.

`bin/chaos` does the same for longer and with more seeds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from operations.daemons import Kind
from tests.faults.driver import Chaos
from tests.faults.facts import Asked
from tests.faults.plan import PEOPLE, SESSION_SECONDS, Action, Deed, plan
from tests.system.cluster import PrivateCluster, private_cluster, until

pytestmark = pytest.mark.kills_daemons

SECONDS = 14.0
LIMIT = pytest.mark.timeout(600)
"""Far more than a plan and the rest after it take."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    with private_cluster(
        tmp_path_factory.mktemp("chaos"),
        ZOOKEEPER__SESSION_TIMEOUT_SECONDS=str(SESSION_SECONDS),
        WORKER__KILL_GRACE_SECONDS="2",
    ) as made:
        yield made


@pytest.fixture(scope="module")
def chaos(cluster: PrivateCluster) -> Chaos:
    made = Chaos(cluster, print)
    made.start(masters=2, workers=2)
    return made


@pytest.mark.slow
@LIMIT
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_broken_after_a_seeds_faults(chaos: Chaos, seed: int) -> None:
    chaos.play(plan(seed, SECONDS, tuple(chaos.definitions), masters=2, workers=2))
    assert chaos.settle() == []


@LIMIT
def test_nothing_is_broken_after_the_death_of_all_daemons_at_once(
    chaos: Chaos, cluster: PrivateCluster
) -> None:
    chaos.revive()
    for name in chaos.definitions:
        _run(chaos, name, times=2)
    until(lambda: cluster.rows("SELECT 1 FROM t_ds_task_instance WHERE state = 1 LIMIT 1") != [])
    for kind, port in cluster.pids():
        cluster.kill(kind, port)
    _run(chaos, "layers", times=3)
    chaos.heal()
    assert chaos.settle() == []


@pytest.mark.slow
@LIMIT
def test_daemons_that_were_frozen_for_three_sessions_break_nothing_when_they_wake(
    chaos: Chaos, cluster: PrivateCluster
) -> None:
    chaos.revive()
    (command,) = _run(chaos, "long")
    row = "SELECT id, host FROM t_ds_process_instance WHERE command_id = %s"
    until(lambda: cluster.rows(row, command.command_id) != [])
    ((instance, owner),) = cluster.rows(row, command.command_id)
    cluster.await_task(instance, 1)
    ((worker,),) = cluster.tasks_of(instance, "host")
    before = cluster.pids()
    frozen = [
        before[kind, int(address.rpartition(":")[2])]
        for kind, address in ((Kind.MASTER, owner), (Kind.WORKER, worker))
    ]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3 * SESSION_SECONDS)
    # As long as it takes until the others have taken everything over.
    until(lambda: cluster.tasks_of(instance, "state")[0] == (8,))
    until(lambda: cluster.rows(row, command.command_id) != [(instance, owner)])
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    assert chaos.settle() == []
    assert cluster.pids() == before
    assert cluster.rows(row, command.command_id) != [(instance, owner)]
    states = cluster.tasks_of(instance, "name", "attempt", "state")
    assert states == [("a", 1, 8), ("a", 2, 7), ("b", 1, 7)]


def _run(chaos: Chaos, definition: str, *, times: int = 1) -> tuple[Asked, ...]:
    before = len(chaos.people.asked)
    action = Action(at=0, target=PEOPLE, deed=Deed.RUN, definition=definition, times=times)

    def is_asked() -> bool:
        # A server that has just been started may be slow to answer.
        chaos.people.ask(action)
        return len(chaos.people.asked) > before

    until(is_asked)
    return tuple(chaos.people.asked[before:])
