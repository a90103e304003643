"""Reads and writes process instances and their attempts for the master that owns them.

Every write is fenced by the owner's address and epoch, with the rows of the runs locked first. Used
by the run workers and the queue loop of a master. The few things that all stores on PostgreSQL
share (how a transaction ends, which texts can be kept) stand here too.

Adds the word *wave*: decisions of a save that can be written kind by kind, because no two of them
concern the same task in the wrong order. A save is nearly always one wave.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar, assert_never

import psycopg2
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    Integer,
    Row,
    SmallInteger,
    TableValuedAlias,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    column,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.types import TypeEngine

from common.errors import SchedulerError, ServiceUnreachableError
from common.model.cluster import ANY_WORKER, KillEntry, Node, QueueEntry, ip_number
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
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.states import (
    FINISHED_TASK_STATES,
    LIVE_PROCESS_STATES,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskState,
)
from common.store.connect import is_transient, retrying
from common.store.protocol import LoadedRun, Saved, Step, TaskReport
from common.store.tables import process_instance, task_instance, worker_group

log = logging.getLogger(__name__)

WITHDRAWN: Final = "withdrawn before it started"
MESSAGE_LIMIT: Final = 4000

_UNIQUE_VIOLATION: Final = "23505"
# Classes of SQLSTATE that say nothing about the work: a transaction left open or read-only (25),
# resources used up (53), a statement cancelled (57), the machine itself (58).
_PASSING_CLASSES: Final = ("25", "53", "57", "58")

Answer = TypeVar("Answer")
AnyRow: TypeAlias = Row[*tuple[Any, ...]]


class StoreConflictError(SchedulerError):
    """A run's rows are not as its owner believes. Forget the run and load it again.

    Nothing of the transaction was written, for this run or another.
    """


def storable(words: str, limit: int = MESSAGE_LIMIT) -> str:
    """The text as PostgreSQL can keep it: no NUL, no half characters, not longer than `limit`."""
    clean = words.replace("\0", "\N{REPLACEMENT CHARACTER}")
    clean = clean.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def unstorable(values: Mapping[str, Any]) -> str | None:
    """Which text PostgreSQL can't keep, and why; None if it can keep them all."""
    for name, value in values.items():
        if not isinstance(value, str):
            continue
        if "\0" in value:
            return f"{name} holds a NUL character"
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return f"{name} holds half of a surrogate pair, which is not a character"
    return None


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """`engine.begin()`; what passes by itself leaves it as `ServiceUnreachableError`."""
    try:
        with engine.begin() as db:
            yield db
    except (DBAPIError, PoolTimeoutError) as error:
        if not passes(error):
            raise
        raise ServiceUnreachableError(
            f"PostgreSQL could not carry a transaction out just now: {refusal(error)}"
        ) from error


def passes(error: Exception) -> bool:
    """Whether the trouble is the server's and not the work's: it may succeed another time."""
    original = error.orig if isinstance(error, DBAPIError) else error
    code = original.pgcode if isinstance(original, psycopg2.Error) else None
    return is_transient(error) or (code is not None and code.startswith(_PASSING_CLASSES))


def repeatable(engine: Engine, work: Callable[[Connection], Answer]) -> Answer:
    """Do what bears being done twice, once more if the first connection turned out to be lost."""

    def attempt() -> Answer:
        with transaction(engine) as db:
            return work(db)

    return retrying(attempt, attempts=2)


def refusal(error: Exception) -> str:
    """The cause in PostgreSQL's own words, without the statement or its values."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(original, psycopg2.Error):
        return " ".join(str(original).split())
    words = original.diag.message_primary or " ".join(str(original).split())
    # Only here is the detail short and about keys; elsewhere it may quote the whole row.
    if original.pgcode == _UNIQUE_VIOLATION and original.diag.message_detail:
        words = f"{words}: {original.diag.message_detail}"
    return words


def any_of(parameter: str) -> ColumnElement[Any]:
    """`= ANY(…)` over a list of ids, so that the statement is the same for every length."""
    return any_(cast(bindparam(parameter), ARRAY(Integer)))


def possible_ids(ids: Iterable[int]) -> list[int]:
    """Those that a row can have, once each: others come of znodes and files written by anybody."""
    return [row_id for row_id in dict.fromkeys(ids) if 0 < row_id < 2**31]


def unnested(alias: str, /, **columns: TypeEngine[Any] | type[TypeEngine[Any]]) -> TableValuedAlias:
    """Rows that travel as one array a column; the parameters are called `<alias>_<column>`."""
    arrays = [cast(bindparam(f"{alias}_{key}"), ARRAY(kind)) for key, kind in columns.items()]
    shape = [column(key, kind) for key, kind in columns.items()]
    return func.unnest(*arrays).table_valued(*shape).render_derived(name=alias)


def queue_hosts(ip_list: str | None) -> str:
    """The addresses of a worker group as a queue entry names them (specification §4.4)."""
    numbers = []
    for address in (ip_list or "").split(","):
        try:
            numbers.append(str(ip_number(address)))
        except ValueError:
            # A host's name can't be told as a number: its workers go by the group's id.
            continue
    return ",".join(numbers) or ANY_WORKER


def effective_group(task_group_id: int, process_group_id: int) -> int:
    """The group that a task is bound to; not above 0 means any worker."""
    return task_group_id if task_group_id > 0 else process_group_id


def queue_entry(
    *,
    process_priority: int,
    process_instance_id: int,
    task_priority: int,
    task_instance_id: int,
    worker_group_id: int,
    ip_list: str | None,
) -> QueueEntry:
    """The place in the queue of an attempt whose effective group is `worker_group_id`."""
    bound = worker_group_id > 0
    return QueueEntry(
        process_priority=process_priority,
        process_instance_id=process_instance_id,
        task_priority=task_priority,
        task_instance_id=task_instance_id,
        hosts=queue_hosts(ip_list) if bound else ANY_WORKER,
        worker_group_id=worker_group_id if bound else -1,
    )


_IS_LIVE: Final = process_instance.c.state.in_(LIVE_PROCESS_STATES)

_PROCESSES: Final = select(
    process_instance.c.id,
    process_instance.c.host,
    process_instance.c.owner_epoch,
    process_instance.c.name,
    process_instance.c.state,
    process_instance.c.wanted_state,
    process_instance.c.failure_strategy,
    process_instance.c.process_instance_priority,
    process_instance.c.worker_group_id,
    process_instance.c.task_depend_type,
    process_instance.c.command_param,
    process_instance.c.process_definition_id,
    process_instance.c.process_instance_json,
    process_instance.c.executor_id,
    process_instance.c.start_time,
).where(process_instance.c.id == any_of("ids"))

_ATTEMPTS: Final = (
    select(
        task_instance.c.id,
        task_instance.c.process_instance_id,
        task_instance.c.name,
        task_instance.c.attempt,
        task_instance.c.state,
        task_instance.c.retry_times,
        task_instance.c.flag,
        task_instance.c.settled,
        task_instance.c.end_time,
        task_instance.c.retry_at,
        task_instance.c.wanted_state,
    )
    .where(task_instance.c.process_instance_id == any_of("ids"))
    .order_by(task_instance.c.id)
)

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

_IS_OWN: Final = and_(
    process_instance.c.host == bindparam("owner_host"),
    process_instance.c.owner_incarnation == bindparam("incarnation"),
    _IS_LIVE,
)
_OWNED: Final = select(
    process_instance.c.id, process_instance.c.host, process_instance.c.owner_epoch
).where(_IS_OWN)
_WANTED: Final = (
    select(
        process_instance.c.id,
        process_instance.c.host,
        process_instance.c.owner_epoch,
        process_instance.c.wanted_state,
    )
    .where(_IS_OWN)
    .where(process_instance.c.wanted_state.is_not(None))
    .order_by(process_instance.c.id)
)
_UNSETTLED: Final = (
    select(
        task_instance.c.process_instance_id,
        task_instance.c.id,
        task_instance.c.name,
        task_instance.c.attempt,
        task_instance.c.state,
        task_instance.c.end_time,
        task_instance.c.reason,
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(_IS_OWN)
    .where(task_instance.c.state.in_(FINISHED_TASK_STATES))
    .where(~task_instance.c.settled)
    .where(task_instance.c.flag == 1)
    .order_by(task_instance.c.id)
)
_UNSETTLED_OF: Final = _UNSETTLED.where(task_instance.c.id == any_of("ids"))
_EFFECTIVE_GROUP: Final = case(
    (task_instance.c.worker_group_id > 0, task_instance.c.worker_group_id),
    else_=process_instance.c.worker_group_id,
)
_UNCLAIMED: Final = (
    select(
        process_instance.c.process_instance_priority,
        task_instance.c.process_instance_id,
        task_instance.c.task_instance_priority,
        task_instance.c.id,
        _EFFECTIVE_GROUP.label("worker_group_id"),
        worker_group.c.ip_list,
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .outerjoin(worker_group, worker_group.c.id == _EFFECTIVE_GROUP)
    .where(_IS_OWN)
    .where(task_instance.c.state == TaskState.SUBMITTED)
    .where(task_instance.c.flag == 1)
    .where(task_instance.c.submit_time < bindparam("submitted_before"))
    .order_by(
        process_instance.c.process_instance_priority,
        task_instance.c.process_instance_id,
        task_instance.c.task_instance_priority,
        task_instance.c.id,
    )
)


class PostgresRunStore:
    """`RunStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun, ...]:
        return repeatable(self._engine, lambda db: _load(db, ownerships))

    def save(self, steps: Sequence[Step]) -> Saved:
        try:
            with transaction(self._engine) as db:
                return _save(db, steps)
        except (IntegrityError, DataError, ValueError) as error:
            raise StoreConflictError(
                f"PostgreSQL refused a step of one of the process instances {_run_ids(steps)}: "
                f"{refusal(error)}"
            ) from error

    def owned(self, node: Node) -> frozenset[Ownership]:
        rows = repeatable(self._engine, lambda db: db.execute(_OWNED, _owner(node)).all())
        return frozenset(_ownership(row) for row in rows)

    def reports(
        self, node: Node, task_instance_ids: Collection[int] | None
    ) -> tuple[TaskReport, ...]:
        question, parameters = _UNSETTLED, _owner(node)
        if task_instance_ids is not None:
            question = _UNSETTLED_OF
            parameters["ids"] = possible_ids(task_instance_ids)
        rows = repeatable(self._engine, lambda db: db.execute(question, parameters).all())
        return tuple(
            TaskReport(
                process_instance_id=row.process_instance_id,
                task_instance_id=row.id,
                name=row.name,
                attempt=row.attempt,
                state=TaskState(row.state),
                end_time=row.end_time,
                reason=row.reason,
            )
            for row in rows
        )

    def wanted(self, node: Node) -> dict[Ownership, ProcessState]:
        rows = repeatable(self._engine, lambda db: db.execute(_WANTED, _owner(node)).all())
        return {_ownership(row): ProcessState(row.wanted_state) for row in rows}

    def unclaimed(self, node: Node, *, submitted_before: datetime) -> tuple[QueueEntry, ...]:
        parameters = _owner(node) | {"submitted_before": submitted_before}
        rows = repeatable(self._engine, lambda db: db.execute(_UNCLAIMED, parameters).all())
        return tuple(
            queue_entry(
                process_priority=row.process_instance_priority,
                process_instance_id=row.process_instance_id,
                task_priority=row.task_instance_priority,
                task_instance_id=row.id,
                worker_group_id=row.worker_group_id,
                ip_list=row.ip_list,
            )
            for row in rows
        )


def _owner(node: Node) -> dict[str, Any]:
    return {"owner_host": node.address, "incarnation": node.incarnation}


def _ownership(row: AnyRow) -> Ownership:
    return Ownership(process_instance_id=row.id, host=row.host, epoch=row.owner_epoch)


def _load(db: Connection, ownerships: Sequence[Ownership]) -> tuple[LoadedRun, ...]:
    ids = sorted({ownership.process_instance_id for ownership in ownerships})
    if not ids:
        return ()
    # These are two questions, between which no take-over may come.
    db.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    processes = {row.id: row for row in db.execute(_PROCESSES, {"ids": ids})}
    attempts: dict[int, list[AnyRow]] = {run_id: [] for run_id in processes}
    if attempts:
        for row in db.execute(_ATTEMPTS, {"ids": list(attempts)}):
            attempts[row.process_instance_id].append(row)
    loaded = []
    for ownership in ownerships:
        if not _is_owned(processes, ownership):
            continue
        run_id = ownership.process_instance_id
        try:
            run = LoadedRun(
                ownership=ownership,
                process=_process_row(processes[run_id]),
                tasks=tuple(_task_row(row) for row in attempts[run_id]),
            )
        except ValueError as error:
            # A code that this version does not know: no reason to load none of the others.
            log.error(  # noqa: TRY400  # The text of the error is the whole story.
                "process instance can't be read",
                extra={"process_instance_id": run_id, "cause": str(error)},
            )
            continue
        loaded.append(run)
    return tuple(loaded)


def _process_row(row: AnyRow) -> ProcessRow:
    return ProcessRow(
        id=row.id,
        name=row.name,
        state=ProcessState(row.state),
        wanted_state=None if row.wanted_state is None else ProcessState(row.wanted_state),
        failure_strategy=FailureStrategy(row.failure_strategy),
        priority=Priority(row.process_instance_priority),
        worker_group_id=row.worker_group_id,
        task_depend_type=row.task_depend_type,
        command_param=row.command_param or "",
        process_definition_id=row.process_definition_id,
        process_instance_json=row.process_instance_json,
        executor_id=row.executor_id,
        start_time=row.start_time,
    )


def _task_row(row: AnyRow) -> TaskRow:
    return TaskRow(
        id=row.id,
        name=row.name,
        attempt=row.attempt,
        state=TaskState(row.state),
        retry_times=row.retry_times,
        valid=row.flag == 1,
        settled=row.settled,
        end_time=row.end_time,
        retry_at=row.retry_at,
        kill_requested=row.wanted_state == TaskState.KILL,
    )


# An attempt as the decisions name it: process instance, task, attempt.
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


def _save(db: Connection, steps: Sequence[Step]) -> Saved:
    runs = {row.id: row for row in db.execute(_LOCK_RUNS, {"ids": _run_ids(steps)})}
    lost = frozenset(step.ownership for step in steps if not _is_owned(runs, step.ownership))
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


def _run_ids(steps: Sequence[Step]) -> list[int]:
    return sorted({step.ownership.process_instance_id for step in steps})


def _is_owned(runs: Mapping[int, AnyRow], ownership: Ownership) -> bool:
    row = runs.get(ownership.process_instance_id)
    return row is not None and _ownership(row) == ownership


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
