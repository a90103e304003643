"""Mistakes that people make in such systems, each planted into the simulated cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from common import firing
from common.cron import Timetable
from common.model.cluster import Node, NodeKind
from common.model.complement_states import ComplementState, DateState
from common.model.complements import ComplementSnapshot, ComplementStep
from common.model.instances import Ownership
from common.model.plans import ChildOf, ParentSnapshot, Plan, Restart, SetIntent
from common.model.retry_policy import RetryPolicy
from common.model.schedules import Fire, FirePlan, FirePlanner, Schedule
from common.model.states import TaskState
from common.model.upstream import Absence
from common.store.master.ports import Fired
from common.store.worker.ports import AttemptEnd, AttemptFolders, ClaimedTask
from master.commands.restart import all_begun, plan_restart
from master.engine.run import ProcessRun
from master.logic import complement, dependent
from master.loops.run_worker import RunWorker
from tests.memory.store import (
    ComplementDateRecord,
    ComplementRecord,
    MemoryCommandStore,
    MemoryComplementStore,
    MemoryDatabase,
    MemoryFailoverStore,
    MemoryScheduleStore,
    MemoryTaskStore,
    MemoryTimeoutStore,
    ProcessRecord,
    ScheduleRecord,
    TaskRecord,
    Transaction,
)
from tests.simulation.absence_mistakes import (
    BlindTaskStore,
    fail_over_what_was_marked_just_now,
    forget_the_lease,
    join_again_with_empty_hands,
    kill_with_the_session,
    miss_whoever_comes_back_later,
    take_silence_for_consent,
)
from tests.simulation.definitions import NESTING_SHAPES, PLAIN_SHAPES, WAITING_SHAPES
from tests.simulation.faults import Options
from tests.simulation.hold_mistakes import (
    CountingHoldStore,
    LeakingHoldStore,
    LocklessHoldStore,
)
from tests.simulation.parts import Parts, RepeatingRunStore
from tests.simulation.world import World


class UnfencedRunStore(RepeatingRunStore):
    """Writes for any caller, as long as the run is live."""

    def _is_owned(self, process: ProcessRecord, ownership: Ownership) -> bool:
        return process.is_live


def keep_memory_after_a_failed_save(runs: RunWorker) -> None:
    """Decisions stay in memory though it is unknown whether they were written."""

    def keep(stepped: list[ProcessRun]) -> None:
        for run in stepped:
            runs._keep(run)

    runs._reopen = keep  # type: ignore[method-assign]  # The mistake.


class UncountedTaskStore(MemoryTaskStore):
    """Starts attempts claimed in the registry, however many rows the UPDATE changed."""

    def claim(
        self,
        node: Node,
        task_instance_ids: Collection[int],
        *,
        folders: AttemptFolders,
        now: datetime,
        hinted: bool = False,
        is_reserved: bool = False,
    ) -> tuple[ClaimedTask, ...]:
        claimed = super().claim(
            node,
            task_instance_ids,
            folders=folders,
            now=now,
            hinted=hinted,
            is_reserved=is_reserved,
        )
        known = [task.id for task in claimed]
        missed = [self._db.tasks.get(i) for i in task_instance_ids if i not in known]
        return claimed + tuple(
            self._claimed(task, folders.paths(0, 0, task.id), now)
            for task in missed
            if task is not None
        )


class AddressOnlyTaskStore(MemoryTaskStore):
    """Accepts a report from any daemon at the address that the row names."""

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
    """Takes a worker for alive if any daemon is at its address."""

    def __init__(self, database: MemoryDatabase, world: World) -> None:
        super().__init__(database)
        self._world = world

    def task_owners(self) -> frozenset[Node]:
        standing = self._world.zookeeper.children(NodeKind.WORKER.value)
        return frozenset(node for node in super().task_owners() if node.address not in standing)


class HastyCommandStore(MemoryCommandStore):
    """Begins a sub process regardless of the attempt that called it (trap T36c)."""

    def _parent(self, task_instance_id: int) -> ParentSnapshot | None:
        parent = super()._parent(task_instance_id)
        return None if parent is None else replace(parent, waits=True)

    def _begin_for_parent(self, tx: Transaction, child_of: ChildOf, now: datetime) -> None:
        task = self._db.tasks.the(child_of.task_instance_id)
        if task.state == TaskState.SUBMITTED:
            tx.update(self._db.tasks, task.id, state=int(TaskState.RUNNING), start_time=now)


class LastWordCommandStore(MemoryCommandStore):
    """Gives an instance the latest intent, even a pause after a stop."""

    def _set_intent(self, tx: Transaction, plan: SetIntent, now: datetime) -> None:
        process = self._db.processes.the(plan.process_instance_id)
        if process.is_live and not process.is_waiting:
            wanted = int(plan.wanted_state)
            tx.update(self._db.processes, process.id, wanted_state=wanted, wanted_at=now)


class ForgetfulTimeoutStore(MemoryTimeoutStore):
    """Forgets that it has timed a run out."""

    def _time_out_process(self, tx: Transaction, process: ProcessRecord, now: datetime) -> int:
        said = super()._time_out_process(tx, process, now)
        if said:
            tx.update(self._db.processes, process.id, timeout_flag=0)
        return said


class DeafRunStore(RepeatingRunStore):
    """Stops a parent without its children."""

    def propagate_intents(self, node: Node) -> int:
        return 0


class TrustingScheduleStore(MemoryScheduleStore):
    """Puts a command for each planned fire, even if the ledger had it already."""

    def _note(self, tx: Transaction, row: ScheduleRecord, fire: Fire, now: datetime) -> bool:
        super()._note(tx, row, fire, now)
        return True


class ForgetfulScheduleStore(MemoryScheduleStore):
    """Plans fires from the time of the pass: fires due during an outage are lost (T91)."""

    def fire(self, *, planner: FirePlanner, now: datetime, limit: int) -> Fired:
        def from_now_on(schedule: Schedule) -> FirePlan:
            due = schedule.next_fire_time
            if due is not None and now - due > timedelta(minutes=2):
                schedule = replace(schedule, counted_from=now, next_fire_time=None)
            return planner(schedule)

        return super().fire(planner=from_now_on, now=now, limit=limit)


class HaltingScheduleStore(MemoryScheduleStore):
    """Writes the ledger, commits, and puts the commands afterwards."""

    def fire(self, *, planner: FirePlanner, now: datetime, limit: int) -> Fired:
        self._later: list[tuple[ScheduleRecord, FirePlan, Fire]] = []
        fired = super().fire(planner=planner, now=now, limit=limit)
        with self._db.transaction("fire") as tx:
            for row, plan, fire in self._later:
                super()._command(tx, row, plan, fire, now)
        return fired

    def _command(
        self, tx: Transaction, row: ScheduleRecord, plan: FirePlan, fire: Fire, now: datetime
    ) -> None:
        self._later.append((row, plan, fire))


class MiscountingComplementStore(MemoryComplementStore):
    """Counts running dates, and not those whose command waits."""

    def _snapshot(
        self, row: ComplementRecord, counts: Counter[DateState], above: ComplementRecord | None
    ) -> ComplementSnapshot:
        found = super()._snapshot(row, counts, above)
        return replace(found, live=counts[DateState.RUNNING])


class UnfencedCommandStore(MemoryCommandStore):
    """Begins a date because its command says so, whatever the state of its complement."""

    def _may_begin(self, complement_date_id: int, command_id: int) -> bool:
        return True


class LitteringComplementStore(MemoryComplementStore):
    """Cancels and pauses without withdrawing the commands of dates."""

    def _take_back(self, tx: Transaction, date: ComplementDateRecord, now: datetime) -> None:
        self._make_pending(tx, date, now)


class DeafComplementStore(MemoryComplementStore):
    """Does not stop the runs of a complement that is cancelled."""

    def _stop_runs(self, complement_id: int, now: datetime) -> None:
        """Does nothing."""


class FinalComplementStore(MemoryComplementStore):
    """Takes a failed complement for ended, though its dates may be recovered."""

    def _may_go_on(self, row: ComplementRecord) -> bool:
        return False


def pause_at_once(patch: pytest.MonkeyPatch) -> None:
    """Pauses a complement as soon as somebody asks, though some of its dates still run."""

    def decide(found: ComplementSnapshot) -> ComplementStep:
        if found.state is ComplementState.READY_PAUSE:
            return ComplementStep(state=ComplementState.PAUSE)
        return complement.step(found)

    patch.setattr("master.loops.complement_loop.step", decide)


def keep_one_misfire_more(patch: pytest.MonkeyPatch) -> None:
    """One misfire more happens than the limit allows."""
    oldest_kept = firing._oldest_kept

    def kept(schedule: Schedule, timetable: Timetable, late: datetime) -> datetime | None:
        found = oldest_kept(schedule, timetable, late)
        return found and timetable.previous(found)

    patch.setattr("common.firing._oldest_kept", kept)


def withdraw_nothing(patch: pytest.MonkeyPatch) -> None:
    """A stop asks workers to end their tasks, and forgets the attempts in the queue (trap T41)."""
    patch.setattr("tests.memory.saving.Writing._withdraw", lambda *_: False)


def rerun_the_failed_alone(patch: pytest.MonkeyPatch) -> None:
    """A recovery runs failed tasks, and not those that never began because of them (trap T71)."""

    def plan(*given: Any, **named: Any) -> Plan:
        restart = plan_restart(*given, **named)
        if isinstance(restart, Restart) and restart.reset:
            return replace(restart, run_scope=restart.reset)
        return restart

    patch.setattr("master.commands.start_failure_task.plan_restart", plan)


def rerun_everything(patch: pytest.MonkeyPatch) -> None:
    """A recovery sets good results aside as well."""
    patch.setattr("master.commands.start_failure_task.not_good", all_begun)


def fail_what_has_not_begun(patch: pytest.MonkeyPatch) -> None:
    """A DEPENDENT takes an upstream that has not started for one that has failed."""
    patch.setitem(dependent._ABSENT, Absence.NO_RUN, dependent.DependResult.FAILED)


def compare_no_attempts(patch: pytest.MonkeyPatch) -> None:
    """A report counts for the current attempt, whichever it names."""
    patch.setattr("master.engine.advance.is_current", lambda _reported, _attempt: True)


def forget_reasons(patch: pytest.MonkeyPatch) -> None:
    """A new owner does not know the reasons for which its attempts failed."""
    patch.setattr("tests.memory.reading.reason_from", lambda _: None)


def retry_whatever_the_reason(patch: pytest.MonkeyPatch) -> None:
    """A failure without the right to a retry gets one."""
    patch.setattr(RetryPolicy, "retries", lambda _policy, _failure: True)


def keep_room_while_waiting(patch: pytest.MonkeyPatch) -> None:
    """Runs that wait for others take the room that those need to begin (trap T67)."""
    patch.setattr("master.loops.run_worker.takes_room", lambda run: not run.context.hands_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A planted mistake, with the faults and requests that expose it and few others.

    `seed` is tried first: the lowest that exposed it when it was last looked for.
    """

    name: str
    seed: int = 0
    options: Options
    parts: Parts = field(default_factory=Parts)
    plant: Callable[[pytest.MonkeyPatch], None] = lambda _: None


MISTAKES = (
    Mistake(
        name="no ownership fence",
        seed=31,
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
        seed=3,
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
        seed=4,
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
        seed=2,
        plant=withdraw_nothing,
        options=Options(acts=12, kinds=("stop",), pools=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a child that begins though its parent was stopped (T36c)",
        seed=13,
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
        seed=1,
        parts=Parts(hold_store=CountingHoldStore),
        options=Options(acts=12, kinds=("stop",), pools=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="locks that are granted whoever holds others",
        seed=1,
        parts=Parts(hold_store=LocklessHoldStore),
        options=Options(locks=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="locks that leak with attempts that were stopped",
        seed=4,
        parts=Parts(hold_store=LeakingHoldStore),
        options=Options(acts=12, kinds=("stop",), locks=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a recovery of the listed nodes alone (T71)",
        seed=1,
        plant=rerun_the_failed_alone,
        options=Options(failing_tasks=0.4, acts=6, kinds=("rerun",), shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a recovery that loses good results",
        seed=3,
        plant=rerun_everything,
        options=Options(failing_tasks=0.4, acts=6, kinds=("rerun",), shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a turn that is told of once and missed",
        seed=17,
        parts=Parts(hold_interval=timedelta(days=1)),
        options=Options(
            no_answer=0.5, serial=1.0, acts=12, kinds=("start", "repeat"), shapes=PLAIN_SHAPES
        ),
    ),
    Mistake(
        name="a pause that takes a stop back",
        seed=16,
        parts=Parts(command_store=LastWordCommandStore),
        options=Options(acts=12, kinds=("pause", "stop"), pause=0.3, pause_before=("save",)),
    ),
    Mistake(
        name="a time-out that is told of again and again",
        seed=1,
        parts=Parts(timeout_store=ForgetfulTimeoutStore),
        options=Options(minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a wait that fails before its upstream begins",
        seed=1,
        plant=fail_what_has_not_begun,
        options=Options(shapes=(*PLAIN_SHAPES, *WAITING_SHAPES)),
    ),
    Mistake(
        name="a command for a fire that the ledger had already",
        seed=4,
        parts=Parts(schedule_store=TrustingScheduleStore),
        options=Options(schedules=3, clock_jumps=8, acts=20, kinds=("schedule",), starts=(0, 0)),
    ),
    Mistake(
        name="fires that are lost while nobody looks (T91)",
        seed=1,
        parts=Parts(schedule_store=ForgetfulScheduleStore),
        options=Options(schedules=3, outage=timedelta(hours=3), shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a command that is put after the ledger's commit",
        seed=1,
        parts=Parts(schedule_store=HaltingScheduleStore),
        options=Options(schedules=3, crash_at_commit=0.3, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a misfire that happens though another stands for it",
        seed=1,
        plant=keep_one_misfire_more,
        options=Options(schedules=3, outage=timedelta(hours=3), shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a complement that does not count what is about to begin",
        parts=Parts(complement_store=MiscountingComplementStore),
        options=Options(acts=12, kinds=("complement",), pause=0.3, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a date that begins without a fence",
        seed=71,
        parts=Parts(command_store=UnfencedCommandStore),
        options=Options(
            acts=30,
            kinds=("complement", "cancel_complement", "pause_complement"),
            pause=0.5,
            pause_before=("take",),
            shapes=PLAIN_SHAPES,
        ),
    ),
    Mistake(
        name="a cancel that leaves commands behind",
        parts=Parts(complement_store=LitteringComplementStore),
        options=Options(
            acts=20,
            kinds=("complement", "cancel_complement", "pause_complement"),
            pause=0.5,
            pause_before=("take",),
            shapes=PLAIN_SHAPES,
        ),
    ),
    Mistake(
        name="a cancel that stops no run",
        seed=2,
        parts=Parts(complement_store=DeafComplementStore),
        options=Options(
            acts=20,
            kinds=("complement", "cancel_complement"),
            minutes=1.0,
            pools=1.0,
            shapes=PLAIN_SHAPES,
        ),
    ),
    Mistake(
        name="a pause that does not wait for what runs",
        plant=pause_at_once,
        options=Options(acts=20, kinds=("complement", "pause_complement"), shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a failed complement that hears of no recovery",
        seed=1,
        parts=Parts(complement_store=FinalComplementStore),
        options=Options(
            acts=12, kinds=("complement", "rerun"), failing_tasks=0.4, shapes=PLAIN_SHAPES
        ),
    ),
    Mistake(
        name="a failover that forgets that the memory was too little",
        seed=2,
        plant=forget_reasons,
        options=Options(failing_tasks=0.6, crash_at_commit=0.3, minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a retry for a reason that the author excludes",
        seed=6,
        plant=retry_whatever_the_reason,
        options=Options(failing_tasks=0.6, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a run that waits and keeps its room (T67)",
        seed=6,
        plant=keep_room_while_waiting,
        options=Options(acts=12, kinds=("start",), shapes=(*PLAIN_SHAPES, *WAITING_SHAPES)),
    ),
    Mistake(
        name="a worker without a session that nothing ends",
        seed=31,
        plant=forget_the_lease,
        options=Options(cut_off=0.02, minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a worker that does not see that it is missed",
        parts=Parts(task_store=BlindTaskStore),
        options=Options(cut_off=0.02, minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a worker that takes silence of the tables for consent",
        seed=3,
        plant=take_silence_for_consent,
        options=Options(isolate=0.02, minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a failover that gives a missing worker no grace",
        plant=fail_over_what_was_marked_just_now,
        options=Options(cut_off=0.02, minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a master that misses whoever comes back later than itself",
        seed=35,
        plant=miss_whoever_comes_back_later,
        options=Options(registry_away=timedelta(seconds=12), minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a lost session that kills what runs",
        plant=kill_with_the_session,
        options=Options(registry_away=timedelta(seconds=12), minutes=1.0, shapes=PLAIN_SHAPES),
    ),
    Mistake(
        name="a worker that comes back with empty hands",
        plant=join_again_with_empty_hands,
        options=Options(registry_away=timedelta(seconds=12), minutes=1.0, shapes=PLAIN_SHAPES),
    ),
)
