"""Writes what the engine decided for a pass's runs, in one fenced transaction.

The rows of the runs are locked first and their owner and epoch compared; then the decisions are
written kind by kind, each kind in one statement that counts its rows, however many runs there are.

Adds the word *wave*: decisions of a save that can be written kind by kind, because no two of them
concern the same task in the wrong order. A save is nearly always one wave.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from sqlalchemy import (
    Connection,
    DateTime,
    Integer,
    SmallInteger,
    Text,
    and_,
    case,
    func,
    insert,
    select,
    update,
)

from common.model.cluster import KillEntry, QueueEntry
from common.model.decisions import (
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.instances import Ownership
from common.model.states import (
    LIVE_PROCESS_STATES,
    ProcessState,
    TaskState,
)
from common.store.protocol import Saved, Step
from common.store.queue_entries import effective_group, queue_entry
from common.store.tables import process_instance, task_instance, worker_group
from common.store.transaction import (
    AnyRow,
    StoreConflictError,
    any_of,
    storable,
    unnested,
    unstorable,
)

WITHDRAWN: Final = "withdrawn before it started"

_IS_LIVE: Final = process_instance.c.state.in_(LIVE_PROCESS_STATES)

# Not FOR UPDATE: inserting an attempt shares a key lock on its process instance.
_LOCK_RUNS: Final = (
    select(
        process_instance.c.id,
        process_instance.c.host,
        process_instance.c.owner_epoch,
        process_instance.c.state,
        process_instance.c.process_definition_id,
        process_instance.c.executor_id,
        process_instance.c.process_instance_priority,
        process_instance.c.worker_group_id,
    )
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
)
_SETTLE: Final = (
    update(task_instance)
    .where(task_instance.c.process_instance_id == _ENDED.c.run_id)
    .where(task_instance.c.name == _ENDED.c.name)
    .where(task_instance.c.attempt == _ENDED.c.attempt)
    .where(task_instance.c.state == _ENDED.c.state)
    .where(~task_instance.c.settled)
    .values(settled=True, retry_at=_ENDED.c.retry_at)
    .returning(task_instance.c.process_instance_id, task_instance.c.name, task_instance.c.attempt)
)

_NAMED: Final = unnested("named", run_id=Integer, name=Text, attempt=Integer)
_IS_NAMED: Final = and_(
    task_instance.c.process_instance_id == _NAMED.c.run_id,
    task_instance.c.name == _NAMED.c.name,
    task_instance.c.attempt == _NAMED.c.attempt,
)
_GIVE_UP_RETRY: Final = (
    update(task_instance)
    .where(_IS_NAMED)
    .where(task_instance.c.retry_at.is_not(None))
    .values(retry_at=None)
    .returning(task_instance.c.process_instance_id, task_instance.c.name, task_instance.c.attempt)
)
_SUPERSEDE: Final = (
    update(task_instance)
    .where(task_instance.c.process_instance_id == _NAMED.c.run_id)
    .where(task_instance.c.name == _NAMED.c.name)
    .where(task_instance.c.attempt < _NAMED.c.attempt)
    .where(task_instance.c.flag == 1)
    .values(flag=0)
)
_SUBMIT: Final = insert(task_instance).returning(task_instance.c.id, sort_by_parameter_order=True)
# Locked in order of id, as a worker's reports are, so that the two can't wait for each other. The
# lock also decides between a withdrawal and a claim: who comes second sees what the first has done.
_LOCK_ATTEMPTS: Final = (
    select(
        task_instance.c.id,
        task_instance.c.process_instance_id,
        task_instance.c.name,
        task_instance.c.attempt,
        task_instance.c.state,
        task_instance.c.host,
        task_instance.c.task_instance_priority,
        task_instance.c.worker_group_id,
    )
    .join_from(task_instance, _NAMED, _IS_NAMED)
    .order_by(task_instance.c.id)
    .with_for_update(key_share=True, of=task_instance)
)
_WITHDRAWN: Final = unnested("withdrawn", id=Integer, at=DateTime(timezone=True))
_WITHDRAW: Final = (
    update(task_instance)
    .where(task_instance.c.id == _WITHDRAWN.c.id)
    .where(task_instance.c.state == TaskState.SUBMITTED)
    .values(
        state=int(TaskState.KILL),
        wanted_state=int(TaskState.KILL),
        end_time=_WITHDRAWN.c.at,
        reason=WITHDRAWN,
    )
)
_ASK_FOR_KILL: Final = (
    update(task_instance)
    .where(task_instance.c.id == any_of("ids"))
    .where(task_instance.c.state != TaskState.SUBMITTED)
    .values(wanted_state=int(TaskState.KILL))
)

_MOVED: Final = unnested(
    "moved", run_id=Integer, state=SmallInteger, at=DateTime(timezone=True), reason=Text
)
_MOVE_PROCESSES: Final = (
    update(process_instance)
    .where(process_instance.c.id == _MOVED.c.run_id)
    .where(_IS_LIVE)
    .values(
        state=_MOVED.c.state,
        update_time=_MOVED.c.at,
        end_time=case(
            (_MOVED.c.state == ProcessState.READY_STOP, process_instance.c.end_time),
            else_=_MOVED.c.at,
        ),
        state_reason=func.coalesce(_MOVED.c.reason, process_instance.c.state_reason),
    )
)

_ADDRESS_LISTS: Final = select(worker_group.c.id, worker_group.c.ip_list).where(
    worker_group.c.id == any_of("ids")
)

_Name = tuple[int, str, int]


@dataclass(slots=True)
class _Wave:
    """Decisions that are written kind by kind, in the order of these fields."""

    settled: dict[_Name, tuple[TaskState, datetime | None]] = field(default_factory=dict)
    given_up: list[_Name] = field(default_factory=list)
    submitted: dict[_Name, dict[str, Any]] = field(default_factory=dict)
    killed: dict[_Name, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What an attempt's place in the queue is made of, besides its own id."""

    process_priority: int
    process_instance_id: int
    task_priority: int
    worker_group_id: int


@dataclass(slots=True)
class _Wake:
    """What the registry has to be told once the save stands, by task instance id."""

    offered: dict[int, _Place] = field(default_factory=dict)
    kills: list[KillEntry] = field(default_factory=list)
    withdrawn: dict[int, _Place] = field(default_factory=dict)


class _Save:
    """Sorts the decisions of a save into waves, in the order in which they were taken."""

    def __init__(self, runs: Mapping[int, AnyRow]) -> None:
        self.waves: list[_Wave] = []
        self.moves: list[dict[int, tuple[ProcessState, datetime, str | None]]] = [{}, {}]
        self._runs = runs
        self._last: dict[tuple[int, str], tuple[int, int]] = {}
        self._ended = {run_id for run_id, run in runs.items() if not _is_live(run)}

    def add(self, step: Step, decision: Decision) -> None:
        run_id = step.ownership.process_instance_id
        match decision:
            case FinishTask():
                name = (run_id, decision.name, decision.attempt)
                self._wave(run_id, decision.name, 0).settled[name] = (decision.state, None)
            case RetryTask():
                name = (run_id, decision.name, decision.attempt)
                self._wave(run_id, decision.name, 0).settled[name] = (decision.state, decision.at)
            case GiveUpRetry():
                name = (run_id, decision.name, decision.attempt)
                self._wave(run_id, decision.name, 1).given_up.append(name)
            case SubmitTask():
                self._require_live(run_id)
                name = (run_id, decision.name, decision.attempt)
                row = _new_attempt(self._runs[run_id], decision, step.at)
                cause = unstorable(row)
                if cause is not None:
                    raise _conflict(name, cause)
                self._wave(run_id, decision.name, 2).submitted[name] = row
            case KillTask():
                name = (run_id, decision.name, decision.attempt)
                self._wave(run_id, decision.name, 3).killed[name] = step.at
            case StopProcess():
                self._require_live(run_id)
                self.moves[0][run_id] = (ProcessState.READY_STOP, step.at, None)
            case FinishProcess():
                self._require_live(run_id)
                self._ended.add(run_id)
                reason = None if decision.reason is None else storable(decision.reason)
                self.moves[1][run_id] = (decision.state, step.at, reason)
            case PassForbidden():
                pass
            case _:
                assert_never(decision)

    def _wave(self, run_id: int, task: str, kind: int) -> _Wave:
        """The first wave in which this kind comes after all that was decided of the task before."""
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


def save(db: Connection, steps: Sequence[Step]) -> Saved:
    """Write the steps of the runs that are still owned; the caller's transaction makes it whole."""
    runs = {row.id: row for row in db.execute(_LOCK_RUNS, {"ids": run_ids(steps)})}
    lost = frozenset(step.ownership for step in steps if not is_owned(runs, step.ownership))
    save = _Save(runs)
    for step in steps:
        if step.ownership not in lost:
            for decision in step.decisions:
                save.add(step, decision)
    wake = _Wake()
    for wave in save.waves:
        _settle(db, wave)
        _give_up_retries(db, wave)
        _submit(db, wave, runs, wake)
        _kill(db, wave, runs, wake)
    for moves in save.moves:
        _move_processes(db, moves)
    offered = {
        task_id: place for task_id, place in wake.offered.items() if task_id not in wake.withdrawn
    }
    lists = _address_lists(db, [*offered.values(), *wake.withdrawn.values()])
    return Saved(
        lost=lost,
        offers=tuple(_entry(task_id, place, lists) for task_id, place in offered.items()),
        kills=tuple(wake.kills),
        withdrawn=tuple(_entry(*withdrawn, lists) for withdrawn in wake.withdrawn.items()),
    )


def run_ids(steps: Sequence[Step]) -> list[int]:
    """The process instances that the steps are about, each once, in order."""
    return sorted({step.ownership.process_instance_id for step in steps})


def ownership_of(row: AnyRow) -> Ownership:
    """Whom the row names as the owner of its run."""
    return Ownership(process_instance_id=row.id, host=row.host, epoch=row.owner_epoch)


def is_owned(runs: Mapping[int, AnyRow], ownership: Ownership) -> bool:
    """Whether the rows as they stand name this very owner and epoch."""
    row = runs.get(ownership.process_instance_id)
    return row is not None and ownership_of(row) == ownership


def _is_live(row: AnyRow) -> bool:
    return row.state in LIVE_PROCESS_STATES


def _conflict(
    name: _Name, cause: str = "its row is not as its owner believes"
) -> StoreConflictError:
    run_id, task, attempt = name
    return StoreConflictError(
        f"process instance {run_id}: attempt {attempt} of task {task!r}: {cause}"
    )


def _require_all(expected: Collection[_Name], changed: Sequence[AnyRow]) -> None:
    if len(changed) == len(expected):
        return
    found = {tuple(row) for row in changed}
    raise _conflict(next(name for name in expected if name not in found))


def _names(names: Collection[_Name], prefix: str) -> dict[str, list[Any]]:
    return {
        f"{prefix}_run_id": [run_id for run_id, _, _ in names],
        f"{prefix}_name": [task for _, task, _ in names],
        f"{prefix}_attempt": [attempt for _, _, attempt in names],
    }


def _settle(db: Connection, wave: _Wave) -> None:
    if not wave.settled:
        return
    rows = _names(wave.settled, "ended") | {
        "ended_state": [int(state) for state, _ in wave.settled.values()],
        "ended_retry_at": [retry_at for _, retry_at in wave.settled.values()],
    }
    _require_all(wave.settled, db.execute(_SETTLE, rows).all())


def _give_up_retries(db: Connection, wave: _Wave) -> None:
    if wave.given_up:
        changed = db.execute(_GIVE_UP_RETRY, _names(wave.given_up, "named")).all()
        _require_all(wave.given_up, changed)


def _submit(db: Connection, wave: _Wave, runs: Mapping[int, AnyRow], wake: _Wake) -> None:
    later = [name for name in wave.submitted if name[2] > 1]
    if later:
        db.execute(_SUPERSEDE, _names(later, "named"))
    if not wave.submitted:
        return
    rows = list(wave.submitted.values())
    for task_id, row in zip(db.scalars(_SUBMIT, rows), rows, strict=True):
        wake.offered[task_id] = _place(
            runs[row["process_instance_id"]],
            task_priority=row["task_instance_priority"],
            task_group_id=row["worker_group_id"],
        )


def _new_attempt(run: AnyRow, decision: SubmitTask, at: datetime) -> dict[str, Any]:
    return {
        "name": decision.name,
        "task_type": decision.task_type,
        "process_definition_id": run.process_definition_id,
        "process_instance_id": run.id,
        "task_json": decision.task_json,
        "state": int(TaskState.SUBMITTED),
        "submit_time": at,
        "start_time": at,
        "retry_times": decision.retry_times,
        "retry_interval": decision.retry_interval // timedelta(minutes=1),
        "max_retry_times": decision.max_retry_times,
        "task_instance_priority": int(decision.priority),
        "worker_group_id": decision.worker_group_id,
        "executor_id": run.executor_id,
        "attempt": decision.attempt,
    }


def _kill(db: Connection, wave: _Wave, runs: Mapping[int, AnyRow], wake: _Wake) -> None:
    if not wave.killed:
        return
    rows = db.execute(_LOCK_ATTEMPTS, _names(wave.killed, "named")).all()
    names = {row.id: (row.process_instance_id, row.name, row.attempt) for row in rows}
    if len(rows) < len(wave.killed):
        found = list(names.values())
        raise _conflict(next(name for name in wave.killed if name not in found))
    waiting = {row.id: row for row in rows if row.state == TaskState.SUBMITTED}
    claimed = [row for row in rows if row.state != TaskState.SUBMITTED]
    if waiting:
        ends = [wave.killed[names[task_id]] for task_id in waiting]
        db.execute(_WITHDRAW, {"withdrawn_id": list(waiting), "withdrawn_at": ends})
        for row in waiting.values():
            wake.withdrawn[row.id] = _place(
                runs[row.process_instance_id],
                task_priority=row.task_instance_priority,
                task_group_id=row.worker_group_id,
            )
    if claimed:
        # Also of one that has just ended: its report is read with the wish in mind.
        db.execute(_ASK_FOR_KILL, {"ids": [row.id for row in claimed]})
        wake.kills.extend(
            KillEntry(address=row.host, task_instance_id=row.id)
            for row in claimed
            if row.state == TaskState.RUNNING
        )


def _move_processes(
    db: Connection, moves: Mapping[int, tuple[ProcessState, datetime, str | None]]
) -> None:
    if not moves:
        return
    changed = db.execute(
        _MOVE_PROCESSES,
        {
            "moved_run_id": list(moves),
            "moved_state": [int(state) for state, _, _ in moves.values()],
            "moved_at": [at for _, at, _ in moves.values()],
            "moved_reason": [reason for _, _, reason in moves.values()],
        },
    )
    if changed.rowcount != len(moves):
        raise StoreConflictError(f"one of the process instances {list(moves)} has ended already")


def _place(run: AnyRow, *, task_priority: int, task_group_id: int) -> _Place:
    return _Place(
        process_priority=run.process_instance_priority,
        process_instance_id=run.id,
        task_priority=task_priority,
        worker_group_id=effective_group(task_group_id, run.worker_group_id),
    )


def _address_lists(db: Connection, places: Sequence[_Place]) -> dict[int, str | None]:
    groups = sorted({place.worker_group_id for place in places if place.worker_group_id > 0})
    if not groups:
        return {}
    return {row.id: row.ip_list for row in db.execute(_ADDRESS_LISTS, {"ids": groups})}


def _entry(
    task_instance_id: int, place: _Place, address_lists: Mapping[int, str | None]
) -> QueueEntry:
    return queue_entry(
        process_priority=place.process_priority,
        process_instance_id=place.process_instance_id,
        task_priority=place.task_priority,
        task_instance_id=task_instance_id,
        worker_group_id=place.worker_group_id,
        ip_list=address_lists.get(place.worker_group_id),
    )
