"""Writes the engine's decisions on a pass's runs, in one fenced transaction.

The rows of the runs are locked first and their owner and epoch compared; then the decisions are
written kind by kind, each kind in one statement that counts its rows, however many runs there are.

Adds the word *wave*: decisions of a save that can be written kind by kind, because no two of them
concern the same task in the wrong order. A save is nearly always one wave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, assert_never

from sqlalchemy import (
    Boolean,
    Connection,
    DateTime,
    Integer,
    SmallInteger,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.decisions import (
    AbandonTask,
    DecideTask,
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    PauseProcess,
    PauseTask,
    RetryTask,
    SkipTask,
    StopProcess,
    SubmitTask,
)
from common.model.instances import Ownership
from common.model.states import LIVE_PROCESS_STATES, ProcessState, TaskState
from common.store.fixed_statement import FixedStatement
from common.store.master.alerts import alert_of_ends, alert_of_lost_attempts, is_worth_an_alert
from common.store.master.attempts import (
    IS_NAMED,
    NAMED,
    USES_POOLS,
    AttemptName,
    conflict,
    named,
    queue_entries,
    require_all,
)
from common.store.master.endings import ChildEnd, ProcessEnd, end_parent_attempts, end_processes
from common.store.master.ports import Saved, Step
from common.store.master.submissions import (
    Submission,
    Submitted,
    decided_row,
    insert_decided,
    submission,
    submit,
    texts_of,
)
from common.store.master.withdrawals import WITHDRAWN as WITHDRAWN  # noqa: PLC0414  # Re-exported.
from common.store.master.withdrawals import Ending, Withdrawals, end_attempts
from common.store.tables import process_instance, task_instance
from common.store.transaction import (
    AnyRow,
    StoreConflictError,
    any_of,
    storable,
    unnested,
    unstorable,
)

RUN_COLUMNS: Final = (
    process_instance.c.id,
    process_instance.c.host,
    process_instance.c.owner_epoch,
    process_instance.c.state,
    process_instance.c.wanted_state,
    process_instance.c.process_definition_id,
    process_instance.c.executor_id,
    process_instance.c.process_instance_priority,
    process_instance.c.worker_group_id,
    process_instance.c.failure_strategy,
    process_instance.c.warning_type,
    process_instance.c.warning_group_id,
    process_instance.c.schedule_time,
    process_instance.c.history_cmd,
    process_instance.c.is_sub_process,
    process_instance.c.parent_task_instance_id,
)
"""The columns that a save reads of a run's row."""

# Not FOR UPDATE: inserting an attempt shares a key lock on its process instance.
_LOCK_RUNS: Final = FixedStatement(
    select(*RUN_COLUMNS)
    .where(process_instance.c.id == any_of("ids"))
    .order_by(process_instance.c.id)
    .with_for_update(key_share=True)
)

_ENDED: Final = unnested(
    "ended",
    run_id=Integer,
    name=Text,
    attempt=Integer,
    state=SmallInteger,
    retry_at=DateTime(timezone=True),
    without_output=Boolean,
)
_SETTLE: Final = (
    update(task_instance)
    .where(task_instance.c.process_instance_id == _ENDED.c.run_id)
    .where(task_instance.c.name == _ENDED.c.name)
    .where(task_instance.c.attempt == _ENDED.c.attempt)
    .where(task_instance.c.state == _ENDED.c.state)
    .where(or_(~_ENDED.c.without_output, task_instance.c.var_pool.is_(None)))
    .where(~task_instance.c.settled)
    .values(settled=True, retry_at=_ENDED.c.retry_at)
    .returning(
        task_instance.c.process_instance_id,
        task_instance.c.name,
        task_instance.c.attempt,
        USES_POOLS.label("uses_pools"),
    )
)

_GIVE_UP_RETRY: Final = (
    update(task_instance)
    .where(IS_NAMED)
    .where(task_instance.c.retry_at.is_not(None))
    .values(retry_at=None)
    .returning(task_instance.c.process_instance_id, task_instance.c.name, task_instance.c.attempt)
)
_SUPERSEDE: Final = (
    update(task_instance)
    .where(task_instance.c.process_instance_id == NAMED.c.run_id)
    .where(task_instance.c.name == NAMED.c.name)
    .where(task_instance.c.attempt < NAMED.c.attempt)
    .where(task_instance.c.flag == 1)
    .values(flag=0)
)
# All attempts that a save may have to wait for, in order of id, before it writes any: two masters
# that end each other's attempts, as parents and children do, must not wait for each other.
_LOCK_ATTEMPTS: Final = (
    select(task_instance.c.id)
    .where(
        task_instance.c.id
        == func.any(
            func.array_cat(
                cast(bindparam("ids"), ARRAY(Integer)),
                func.array(
                    select(task_instance.c.id)
                    .join_from(task_instance, NAMED, IS_NAMED)
                    .scalar_subquery()
                ),
            )
        )
    )
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True)
)

_STOPPING: Final = (ProcessState.STOP, ProcessState.FAILURE)

_MOVED: Final = unnested(
    "moved",
    run_id=Integer,
    state=SmallInteger,
    at=DateTime(timezone=True),
    wanted=SmallInteger,
    deadline=DateTime(timezone=True),
)
_MOVE_PROCESSES: Final = (
    update(process_instance)
    .where(process_instance.c.id == _MOVED.c.run_id)
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    .values(
        state=_MOVED.c.state,
        update_time=_MOVED.c.at,
        wanted_deadline=func.coalesce(_MOVED.c.deadline, process_instance.c.wanted_deadline),
        wanted_state=func.coalesce(_MOVED.c.wanted, process_instance.c.wanted_state),
        wanted_at=case(
            (
                and_(
                    _MOVED.c.wanted.is_not(None),
                    process_instance.c.wanted_state.is_distinct_from(_MOVED.c.wanted),
                ),
                _MOVED.c.at,
            ),
            else_=process_instance.c.wanted_at,
        ),
    )
)


@dataclass(slots=True)
class _Wave:
    """Decisions to be written kind by kind, in the order of these fields."""

    settled: dict[AttemptName, FinishTask | RetryTask] = field(default_factory=dict)
    given_up: list[AttemptName] = field(default_factory=list)
    decided: dict[AttemptName, dict[str, Any]] = field(default_factory=dict)
    submitted: dict[AttemptName, Submission] = field(default_factory=dict)
    ended: dict[AttemptName, Ending] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """A live run's new state, and what comes with it."""

    state: ProcessState
    at: datetime
    wanted: ProcessState | None = None
    deadline: datetime | None = None


class _Save:
    """Sorts the decisions of a save into waves, in the order in which they were taken."""

    def __init__(self, runs: Mapping[int, AnyRow]) -> None:
        self.waves: list[_Wave] = []
        self.moves: dict[int, _Move] = {}
        self.ends: dict[int, ProcessEnd] = {}
        self.failed_over: dict[AttemptName, datetime] = {}
        self._runs = runs
        self._last: dict[tuple[int, str], tuple[int, int]] = {}
        self._ended = {run_id for run_id, run in runs.items() if not _is_live(run)}

    def add(self, step: Step, decision: Decision) -> None:
        run_id = step.ownership.process_instance_id
        match decision:
            case FinishTask():
                self._settle(run_id, decision)
            case RetryTask():
                self._settle(run_id, decision)
                if decision.state is TaskState.NEED_FAULT_TOLERANCE:
                    self.failed_over[run_id, decision.name, decision.attempt] = step.at
            case GiveUpRetry():
                name = (run_id, decision.name, decision.attempt)
                self._wave(run_id, decision.name, 1).given_up.append(name)
            case SubmitTask():
                self._submit(run_id, decision, step.at)
            case DecideTask():
                self._decide(run_id, decision, step.at)
            case KillTask() | PauseTask() | AbandonTask():
                name = (run_id, decision.name, decision.attempt)
                ending = Ending(decision=decision, at=step.at)
                self._wave(run_id, decision.name, 3).ended[name] = ending
            case PauseProcess():
                self._require_live(run_id)
                self.moves[run_id] = _Move(state=ProcessState.READY_PAUSE, at=step.at)
            case StopProcess():
                self._require_live(run_id)
                self.moves[run_id] = _Move(
                    state=ProcessState.READY_STOP,
                    at=step.at,
                    wanted=ProcessState.FAILURE if decision.failing else None,
                    deadline=decision.deadline,
                )
            case FinishProcess():
                self._finish(run_id, decision, step.at)
            case PassForbidden() | SkipTask():
                pass
            case _:
                assert_never(decision)

    def _settle(self, run_id: int, decision: FinishTask | RetryTask) -> None:
        name = (run_id, decision.name, decision.attempt)
        self._wave(run_id, decision.name, 0).settled[name] = decision

    def _submit(self, run_id: int, decision: SubmitTask, at: datetime) -> None:
        self._require_live(run_id)
        name = (run_id, decision.name, decision.attempt)
        made = submission(self._runs[run_id], decision, at)
        _require_storable(name, made.row)
        if (
            decision.pools
            or decision.locks
            or decision.worker_need is not None
            or decision.child_definition is not None
        ):
            _require_storable(name, texts_of(decision))
        self._wave(run_id, decision.name, 2).submitted[name] = made

    def _decide(self, run_id: int, decision: DecideTask, at: datetime) -> None:
        self._require_live(run_id)
        name = (run_id, decision.name, decision.attempt)
        row = decided_row(self._runs[run_id], decision, at)
        _require_storable(name, row)
        self._wave(run_id, decision.name, 2).decided[name] = row

    def _finish(self, run_id: int, decision: FinishProcess, at: datetime) -> None:
        self._require_live(run_id)
        cause = unstorable({"var_pool": decision.var_pool})
        if cause is not None:
            raise StoreConflictError(f"process instance {run_id}: {cause}")
        self._ended.add(run_id)
        self.ends[run_id] = ProcessEnd(
            state=decision.state,
            at=at,
            reason=None if decision.reason is None else storable(decision.reason),
            var_pool=decision.var_pool,
        )

    def _wave(self, run_id: int, task: str, kind: int) -> _Wave:
        """Return the first wave in which this kind follows all earlier decisions on the task."""
        wave, last_kind = self._last.get((run_id, task), (0, -1))
        if kind <= last_kind:
            wave += 1
        self._last[run_id, task] = (wave, kind)
        while len(self.waves) <= wave:
            self.waves.append(_Wave())
        return self.waves[wave]

    def _require_live(self, run_id: int) -> None:
        if run_id in self._ended:
            raise StoreConflictError(f"process instance {run_id} has ended already")


def save(db: Connection, steps: Sequence[Step], *, most_sub_processes: int) -> Saved:
    """Write the steps of the runs that are still owned; the caller's transaction makes it whole."""
    runs = {row.id: row for row in _LOCK_RUNS.execute(db, {"ids": run_ids(steps)})}
    return write(db, steps, runs, most_sub_processes=most_sub_processes)


def write(
    db: Connection,
    steps: Sequence[Step],
    runs: Mapping[int, AnyRow],
    *,
    most_sub_processes: int,
) -> Saved:
    """`save`, given the rows of the runs, which this transaction has locked or made."""
    lost = frozenset(step.ownership for step in steps if not is_owned(runs, step.ownership))
    overtaken = frozenset(
        step.ownership
        for step in steps
        if step.ownership not in lost
        and is_overtaken(step, runs[step.ownership.process_instance_id].wanted_state)
    )
    save = _Save(runs)
    for step in steps:
        if step.ownership not in lost and step.ownership not in overtaken:
            for decision in step.decisions:
                save.add(step, decision)
    children = _children(save, runs)
    _lock_attempts(db, save, children)
    submitted = Submitted(most_sub_processes=most_sub_processes)
    withdrawals = Withdrawals()
    holds = False
    for wave in save.waves:
        holds |= _settle(db, wave)
        _give_up_retries(db, wave)
        _submit(db, wave, runs, submitted)
        if wave.ended:
            end_attempts(db, wave.ended, runs, withdrawals)
    if save.failed_over:
        alert_of_lost_attempts(db, save.failed_over)
    if save.moves:
        _move_processes(db, save.moves)
    holds |= _end_processes(db, save, runs, children)
    for task_id in withdrawals.withdrawn:
        submitted.offered.pop(task_id, None)
    offers, withdrawn = queue_entries(db, (submitted.offered, withdrawals.withdrawn))
    return Saved(
        lost=lost,
        offers=tuple(offers),
        kills=tuple(withdrawals.kills),
        withdrawn=tuple(withdrawn),
        holds=holds or submitted.held or withdrawals.pools,
        intents=withdrawals.intents,
        dependents=submitted.dependents,
        asks=submitted.asks,
        overtaken=overtaken,
    )


def is_overtaken(step: Step, wanted_state: int | None) -> bool:
    """Return True if a step ends a run as paused, of which a stop is wanted by now.

    A stop is taken while its run is live, and would get lost with the end of that. Any other end
    is one that the stop came too late for.
    """
    return wanted_state in _STOPPING and any(
        isinstance(decision, FinishProcess) and decision.state is ProcessState.PAUSE
        for decision in step.decisions
    )


def run_ids(steps: Sequence[Step]) -> list[int]:
    """Return the ids of the process instances that the steps change, each once, in order."""
    return sorted({step.ownership.process_instance_id for step in steps})


def ownership_of(row: AnyRow) -> Ownership:
    """The owner that the row of a run names."""
    return Ownership(process_instance_id=row.id, host=row.host, epoch=row.owner_epoch)


def is_owned(runs: Mapping[int, AnyRow], ownership: Ownership) -> bool:
    """Return True if the rows as they stand name this very owner and epoch."""
    row = runs.get(ownership.process_instance_id)
    return row is not None and ownership_of(row) == ownership


def _is_live(row: AnyRow) -> bool:
    return row.state in LIVE_PROCESS_STATES


def _require_storable(name: AttemptName, values: Mapping[str, Any]) -> None:
    cause = unstorable(values)
    if cause is not None:
        raise conflict(name, cause)


def _children(save: _Save, runs: Mapping[int, AnyRow]) -> list[ChildEnd]:
    """Return the runs ending here for which an attempt of another run waits."""
    return [
        ChildEnd(
            process_instance_id=run_id,
            parent_task_instance_id=runs[run_id].parent_task_instance_id,
            end=end,
        )
        for run_id, end in save.ends.items()
        if runs[run_id].parent_task_instance_id
    ]


def _lock_attempts(db: Connection, save: _Save, children: Sequence[ChildEnd]) -> None:
    ended = [list(wave.ended) for wave in save.waves if wave.ended]
    if len(ended) + len(children) < 2:
        # Then one statement locks all that there is to lock, in order, when it comes to it.
        return
    names = [name for names in ended for name in names]
    parents = {"ids": [child.parent_task_instance_id for child in children]}
    db.execute(_LOCK_ATTEMPTS, named(names) | parents)


def _settle(db: Connection, wave: _Wave) -> bool:
    """Write the ends of attempts as settled; return True if slots in pools became free."""
    if not wave.settled:
        return False
    rows = named(wave.settled, "ended") | {
        "ended_state": [int(each.state) for each in wave.settled.values()],
        "ended_retry_at": [
            each.at if isinstance(each, RetryTask) else None for each in wave.settled.values()
        ],
        "ended_without_output": [
            isinstance(each, FinishTask) and each.is_without_output
            for each in wave.settled.values()
        ],
    }
    changed = db.execute(_SETTLE, rows).all()
    require_all(wave.settled, changed)
    return any(row.uses_pools for row in changed)


def _give_up_retries(db: Connection, wave: _Wave) -> None:
    if wave.given_up:
        changed = db.execute(_GIVE_UP_RETRY, named(wave.given_up)).all()
        require_all(wave.given_up, changed)


def _submit(db: Connection, wave: _Wave, runs: Mapping[int, AnyRow], submitted: Submitted) -> None:
    later = [name for name in (*wave.decided, *wave.submitted) if name[2] > 1]
    if later:
        db.execute(_SUPERSEDE, named(later))
    if wave.decided:
        insert_decided(db, list(wave.decided.values()))
    if wave.submitted:
        submit(db, list(wave.submitted.values()), runs, submitted)


def _move_processes(db: Connection, moves: Mapping[int, _Move]) -> None:
    changed = db.execute(
        _MOVE_PROCESSES,
        {
            "moved_run_id": list(moves),
            "moved_state": [int(move.state) for move in moves.values()],
            "moved_at": [move.at for move in moves.values()],
            "moved_wanted": [
                None if move.wanted is None else int(move.wanted) for move in moves.values()
            ],
            "moved_deadline": [move.deadline for move in moves.values()],
        },
    )
    if changed.rowcount != len(moves):
        raise StoreConflictError(f"one of the process instances {list(moves)} has ended already")


def _end_processes(
    db: Connection, save: _Save, runs: Mapping[int, AnyRow], children: Sequence[ChildEnd]
) -> bool:
    """Write the ends of instances; return True if others may have waited for one of them."""
    if not save.ends:
        return False
    others_may_wait = end_processes(db, save.ends)
    if children:
        end_parent_attempts(db, children)
    ends_to_alert = {
        run_id: end.at
        for run_id, end in save.ends.items()
        if is_worth_an_alert(runs[run_id], end.state)
    }
    if ends_to_alert:
        alert_of_ends(db, ends_to_alert)
    return others_may_wait
