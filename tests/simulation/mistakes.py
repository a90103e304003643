"""Mistakes that people make in such systems, each planted into the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from common.model.cluster import Node, NodeKind
from common.model.instances import Ownership
from common.model.plans import ChildOf, ParentSnapshot, Plan, Restart, Signal
from common.model.states import TaskState
from common.model.upstream import Absence
from common.store.protocol import AttemptEnd, AttemptFolders, ClaimedTask
from master.commands.restart import all_begun, plan_restart
from master.engine.run import ProcessRun
from master.logic import dependent
from master.run_worker import RunWorker
from tests.memory.store import (
    MemoryCommandStore,
    MemoryDatabase,
    MemoryFailoverStore,
    MemoryHoldStore,
    MemoryTaskStore,
    MemoryTimeoutStore,
    ProcessRecord,
    TaskRecord,
    Transaction,
)
from tests.simulation.definitions import NESTING_SHAPES, PLAIN_SHAPES, WAITING_SHAPES
from tests.simulation.faults import Options
from tests.simulation.world import Parts, RepeatingRunStore, World


class UnfencedRunStore(RepeatingRunStore):
    """Writes for whoever asks, as long as the run is live."""

    def _is_owned(self, process: ProcessRecord, ownership: Ownership) -> bool:
        return process.is_live


def keep_memory_after_a_failed_save(runs: RunWorker) -> None:
    """What was decided stays in memory though nobody knows whether it was written."""

    def keep(stepped: list[ProcessRun]) -> None:
        for run in stepped:
            runs._keep(run)

    runs._lose = keep  # type: ignore[method-assign]  # The mistake.


class UncountedTaskStore(MemoryTaskStore):
    """Starts what was won in the registry, however many rows the UPDATE changed."""

    def claim(
        self,
        node: Node,
        task_instance_ids: Collection[int],
        *,
        folders: AttemptFolders,
        now: datetime,
    ) -> tuple[ClaimedTask, ...]:
        claimed = super().claim(node, task_instance_ids, folders=folders, now=now)
        known = [task.id for task in claimed]
        missed = [self._db.tasks.get(i) for i in task_instance_ids if i not in known]
        return claimed + tuple(
            self._claimed(task, folders.paths(0, 0, task.id), now)
            for task in missed
            if task is not None
        )


class AddressOnlyTaskStore(MemoryTaskStore):
    """Takes a report from whoever stands at the address that the row names."""

    _by_address = False

    def report(self, node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        self._by_address = True
        try:
            return super().report(node, ends)
        finally:
            self._by_address = False

    def _holds(self, task: TaskRecord, node: Node) -> bool:
        if self._by_address:
            return task.state == TaskState.RUNNING and task.host == node.address
        return super()._holds(task, node)


class AddressOnlyFailoverStore(MemoryFailoverStore):
    """Takes a worker for alive when something stands at its address."""

    def __init__(self, database: MemoryDatabase, world: World) -> None:
        super().__init__(database)
        self._world = world

    def task_owners(self) -> frozenset[Node]:
        standing = self._world.zookeeper.children(NodeKind.WORKER.value)
        return frozenset(node for node in super().task_owners() if node.address not in standing)


class HastyCommandStore(MemoryCommandStore):
    """Begins a sub process whatever became of the attempt that wanted it (trap T36c)."""

    def _parent(self, task_instance_id: int) -> ParentSnapshot | None:
        parent = super()._parent(task_instance_id)
        return None if parent is None else replace(parent, waits=True)

    def _begin_for_parent(self, tx: Transaction, child_of: ChildOf, now: datetime) -> None:
        task = self._db.tasks.the(child_of.task_instance_id)
        if task.state == TaskState.SUBMITTED:
            tx.update(self._db.tasks, task.id, state=int(TaskState.RUNNING), start_time=now)


class LastWordCommandStore(MemoryCommandStore):
    """Wants of an instance whatever was asked for last, be it a pause after a stop."""

    def _signal(self, tx: Transaction, plan: Signal, now: datetime) -> None:
        process = self._db.processes.the(plan.process_instance_id)
        if process.is_live and not process.is_waiting:
            wanted = int(plan.wanted_state)
            tx.update(self._db.processes, process.id, wanted_state=wanted, wanted_at=now)


class CountingHoldStore(MemoryHoldStore):
    """Counts the slots that it gives, and takes back those of attempts that ended by themselves."""

    def _sweep(self, tx: Transaction) -> None:
        for row in self._db.pool_queue:
            ended = self._db.tasks.the(row.task_id).state in (TaskState.SUCCESS, TaskState.FAILURE)
            if row.status == 1 and ended:
                self._count(tx, row.group_id, -row.weight)
        super()._sweep(tx)

    def _fill_pools(self, tx: Transaction, now: datetime) -> list[int]:
        released = super()._fill_pools(tx, now)
        for row in self._db.pool_queue:
            if row.task_id in released:
                self._count(tx, row.group_id, row.weight)
        return released

    def _count(self, tx: Transaction, pool_id: int, slots: int) -> None:
        pool = self._db.pools.the(pool_id)
        tx.update(self._db.pools, pool_id, use_size=pool.use_size + slots)

    def _free_slots(self) -> dict[int, int]:
        return {pool.id: pool.group_size - pool.use_size for pool in self._db.pools}


class ForgetfulTimeoutStore(MemoryTimeoutStore):
    """Does not keep what it has said."""

    def _time_out_process(self, tx: Transaction, process: ProcessRecord, now: datetime) -> int:
        said = super()._time_out_process(tx, process, now)
        if said:
            tx.update(self._db.processes, process.id, timeout_flag=0)
        return said


class DeafRunStore(RepeatingRunStore):
    """Stops a parent and not its children."""

    def pass_wishes_on(self, node: Node) -> int:
        return 0


def withdraw_nothing(patch: pytest.MonkeyPatch) -> None:
    """A stop asks workers to end what they run, and forgets what waits in the queue (trap T41)."""
    patch.setattr("tests.memory.saving.Writing._withdraw", lambda *_: False)


def rerun_the_failed_alone(patch: pytest.MonkeyPatch) -> None:
    """A recovery runs what has failed, and not what never began because of that (trap T71)."""

    def plan(*given: Any, **named: Any) -> Plan:
        restart = plan_restart(*given, **named)
        if isinstance(restart, Restart) and restart.reset:
            return replace(restart, run_scope=restart.reset)
        return restart

    patch.setattr("master.commands.start_failure_task.plan_restart", plan)


def rerun_everything(patch: pytest.MonkeyPatch) -> None:
    """A recovery puts good results aside as well."""
    patch.setattr("master.commands.start_failure_task.not_good", all_begun)


def fail_what_has_not_begun(patch: pytest.MonkeyPatch) -> None:
    """A DEPENDENT takes an upstream that has not started for one that has failed."""
    patch.setitem(dependent._ABSENT, Absence.NO_RUN, dependent.DependResult.FAILED)


def compare_no_attempts(patch: pytest.MonkeyPatch) -> None:
    """A report counts for the attempt that is under way, whichever it speaks of."""
    patch.setattr("master.engine.advance.is_current", lambda _reported, _attempt: True)


def keep_room_while_waiting(patch: pytest.MonkeyPatch) -> None:
    """Runs that wait for others take the room that those need to begin (trap T67)."""
    patch.setattr("master.run_worker._takes_room", lambda run: not run.context.hands_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What is planted, and the faults and people that bring it to light; little else."""

    name: str
    options: Options
    parts: Parts = field(default_factory=Parts)
    plant: Callable[[pytest.MonkeyPatch], None] = lambda _: None


MISTAKES = (
    Mistake(
        name="no ownership fence",
        parts=Parts(run_store=UnfencedRunStore),
        options=Options(pause=0.5, pause_before=("save",), shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="memory kept after a failed save",
        parts=Parts(run_worker=keep_memory_after_a_failed_save),
        options=Options(no_answer=0.2),
    ),
    Mistake(
        name="start without a claim",
        parts=Parts(task_store=UncountedTaskStore),
        options=Options(
            pause=0.5,
            pause_before=("claim",),
            failing_tasks=0.6,
            acts=12,
            kinds=("stop",),
            shapes=PLAIN_SHAPES,
        ),
    ),
    Mistake(
        name="worker known by address only",
        parts=Parts(task_store=AddressOnlyTaskStore, failover_store=AddressOnlyFailoverStore),
        options=Options(crash_at_commit=0.3, expire=0.01, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="an attempt that is not compared in a report",
        plant=compare_no_attempts,
        options=Options(
            repeat_report=0.8, failing_tasks=0.4, crash_at_commit=0.1, shapes=PLAIN_SHAPES
        ),
    ),
    Mistake(
        name="a stop that forgets queued tasks (T41)",
        plant=withdraw_nothing,
        options=Options(acts=12, kinds=("stop",), pools=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a child that begins though its parent was stopped (T36c)",
        parts=Parts(command_store=HastyCommandStore),
        options=Options(
            acts=12,
            kinds=("want_stop",),
            pause=0.5,
            pause_before=("take",),
            shapes=NESTING_SHAPES,
        ),
    ),
    Mistake(
        name="a stop that does not reach the children (T34)",
        parts=Parts(run_store=DeafRunStore),
        options=Options(acts=12, kinds=("stop",), shapes=NESTING_SHAPES),
    ),
    Mistake(
        name="pool slots that are counted and leak",
        parts=Parts(hold_store=CountingHoldStore),
        options=Options(acts=12, kinds=("stop",), pools=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a recovery of the listed nodes alone (T71)",
        plant=rerun_the_failed_alone,
        options=Options(failing_tasks=0.4, acts=6, kinds=("rerun",), shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a recovery that loses good results",
        plant=rerun_everything,
        options=Options(failing_tasks=0.4, acts=6, kinds=("rerun",), shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a turn that is told of once and missed",
        parts=Parts(hold_interval=timedelta(days=1)),
        options=Options(
            no_answer=0.5, serial=1.0, acts=12, kinds=("start", "repeat"), shapes=PLAIN_SHAPES
        ),
    ),
    Mistake(
        name="a pause that takes a stop back",
        parts=Parts(command_store=LastWordCommandStore),
        options=Options(acts=12, kinds=("pause", "stop"), pause=0.3, pause_before=("save",)),
    ),
    Mistake(
        name="a time-out that is told of again and again",
        parts=Parts(timeout_store=ForgetfulTimeoutStore),
        options=Options(minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a wait that fails before its upstream begins",
        plant=fail_what_has_not_begun,
        options=Options(shapes=(*PLAIN_SHAPES, *WAITING_SHAPES)),
    ),
    Mistake(
        name="a run that waits and keeps its room (T67)",
        plant=keep_room_while_waiting,
        options=Options(acts=12, kinds=("start",), shapes=(*PLAIN_SHAPES, *WAITING_SHAPES)),
    ),
)
