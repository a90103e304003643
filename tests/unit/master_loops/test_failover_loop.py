"""The failover loop: it reads the owners from the tables before the living from the registry."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from common.model.cluster import Node, NodeKind
from common.model.leases import GRACE
from common.model.states import TaskState
from master.identity import Identity
from master.loops.failover_loop import FailoverConfig, FailoverLoop
from tests.memory.registry import MemoryMembership, MemoryRegistry, MemoryZooKeeper
from tests.memory.store import MemoryDatabase, MemoryFailoverStore
from tests.simulation.virtual_clock import VirtualClock

LOST_MASTER = Node(address="m0:5678", incarnation=1001)
LOST_WORKER = Node(address="w0:1234", incarnation=1002)


class Pass:
    """One pass of the loop. A master and a worker join, and take work, after its `nth` query."""

    def __init__(self, nth: int) -> None:
        self.clock = VirtualClock()
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(days=1))
        self.database = MemoryDatabase()
        self._questions_left = nth
        registry = self.zookeeper.registry()
        identity = Identity(registry.membership)
        self.node = registry.membership.join(NodeKind.MASTER, "m1:5678", "")
        identity.become(self.node)
        self.lost_run, self.lost_task = self._work_of(LOST_MASTER, LOST_WORKER)
        self.new_run = self.new_task = 0
        self.states_at_recovery: list[TaskState] = []
        self.loop = FailoverLoop(
            ObservedFailoverStore(self.database, self.queried, self.recovering),
            mutex=registry.mutex,
            membership=ObservedMembership(registry, self.queried),
            identity=identity,
            clock=self.clock,
            config=FailoverConfig(return_grace=timedelta()),
        )

    def run(self) -> None:
        """Run the loop until what it marked has had its grace."""
        self.loop.run_once()
        self.clock.move_to(self.clock.elapsed + GRACE)
        self.loop.run_once()

    def queried(self) -> None:
        self._questions_left -= 1
        if self._questions_left == 0:
            master = self.zookeeper.registry().membership.join(NodeKind.MASTER, "m2:5678", "")
            worker = self.zookeeper.registry().membership.join(NodeKind.WORKER, "w2:1234", "")
            self.new_run, self.new_task = self._work_of(master, worker)

    def recovering(self) -> None:
        self.states_at_recovery.append(self.state(self.lost_task))

    @property
    def recovered(self) -> list[int | None]:
        """The runs that got a recovery command."""
        return [command.process_instance_id for command in self.database.commands]

    def state(self, task_id: int) -> TaskState:
        return TaskState(self.database.tasks.the(task_id).state)

    def _work_of(self, master: Node, worker: Node) -> tuple[int, int]:
        run = self.database.insert(
            self.database.processes,
            name="run",
            process_definition_id=1,
            state=1,
            host=master.address,
            owner_incarnation=master.incarnation,
            command_type=0,
            process_instance_json="{}",
            executor_id=1,
        )
        task = self.database.insert(
            self.database.tasks,
            name="task",
            task_type="SHELL",
            task_json="{}",
            process_definition_id=1,
            process_instance_id=run,
            state=int(TaskState.RUNNING),
            host=worker.address,
            worker_incarnation=worker.incarnation,
        )
        return run, task


class ObservedFailoverStore(MemoryFailoverStore):
    """Calls `queried` after each query for owners, when the answer can't change any more.

    Calls `recovering` before it writes commands for the runs of a lost master.
    """

    def __init__(
        self,
        database: MemoryDatabase,
        queried: Callable[[], None],
        recovering: Callable[[], None],
    ) -> None:
        super().__init__(database)
        self._queried = queried
        self._recovering = recovering

    def recover_runs(self, dead: Node, *, now: datetime) -> int:
        self._recovering()
        return super().recover_runs(dead, now=now)

    def task_owners(self) -> frozenset[Node]:
        owners = super().task_owners()
        self._queried()
        return owners

    def run_owners(self) -> frozenset[Node]:
        owners = super().run_owners()
        self._queried()
        return owners


class ObservedMembership(MemoryMembership):
    """Calls `queried` after each query for the living, when the answer can't change any more."""

    def __init__(self, registry: MemoryRegistry, queried: Callable[[], None]) -> None:
        super().__init__(registry)
        self._queried = queried

    def nodes(self, kind: NodeKind) -> frozenset[Node]:
        nodes = super().nodes(kind)
        self._queried()
        return nodes


# Fails if the registry is read before the tables: an owner that joins between the two queries
# is then in the tables and not among the living.
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_daemon_that_joins_during_a_pass_loses_nothing(nth: int) -> None:
    one = Pass(nth)
    one.run()
    assert one.state(one.new_task) is TaskState.RUNNING
    assert one.state(one.lost_task) is TaskState.NEED_FAULT_TOLERANCE
    assert one.recovered == [one.lost_run]


def test_t77_a_run_is_taken_over_after_its_lost_attempts_have_ended() -> None:
    one = Pass(0)
    # The master is lost later than the worker, whose grace is over by then.
    one.database.update(one.database.processes, one.lost_run, host=one.node.address)
    one.database.update(
        one.database.processes, one.lost_run, owner_incarnation=one.node.incarnation
    )
    one.loop.run_once()
    one.clock.move_to(one.clock.elapsed + GRACE)
    one.database.update(one.database.processes, one.lost_run, host=LOST_MASTER.address)
    one.loop.run_once()
    assert one.recovered == [one.lost_run]
    assert one.states_at_recovery == [TaskState.NEED_FAULT_TOLERANCE]


def test_attempts_of_a_missing_worker_are_marked_and_not_failed_over_at_once() -> None:
    one = Pass(0)
    one.loop.run_once()
    assert one.state(one.lost_task) is TaskState.RUNNING
    assert one.database.tasks.the(one.lost_task).lost_at is not None
    one.clock.move_to(one.clock.elapsed + GRACE - timedelta(milliseconds=1))
    one.loop.run_once()
    assert one.state(one.lost_task) is TaskState.RUNNING


def test_a_worker_that_is_adopting_is_neither_marked_nor_failed_over() -> None:
    one = Pass(0)
    with one.zookeeper.registry().membership.adopting(LOST_WORKER.address):
        one.run()
    assert one.database.tasks.the(one.lost_task).lost_at is None
