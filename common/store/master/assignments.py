"""Chooses workers for submitted attempts that ask for it, in one transaction with the facts.

A request is a row of `t_ds_task_assignment`, from the attempt's submission until its end. The
choice is the attempt's `host` before its claim, by which the claim is fenced; `UNASSIGNED` while
there is none. A lock of its own lets one master choose at a time, so that none believes in room
which another gives away. Used by the assign loop of a master.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Engine,
    Integer,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from common.model.assignments import (
    AskedEnd,
    AskingTask,
    AssignmentFacts,
    Choices,
    Decide,
    RunningTasks,
)
from common.model.cluster import QueueEntry
from common.model.failures import FailureReason
from common.model.grants import GrantKind
from common.model.states import FINISHED_TASK_CODES, LIVE_PROCESS_STATES, TaskState
from common.model.streams.tasks import TASK_TYPE
from common.model.worker_needs import UNASSIGNED, WorkerNeed
from common.store.fixed_statement import FixedStatement
from common.store.master.assignment_ports import Assigned, AssignmentStore
from common.store.master.attempts import Place, queue_entries
from common.store.project_slots import SEVERAL_PROJECTS, project_of_run
from common.store.queue_entries import IS_COMPLEMENT
from common.store.streams.reach import project_of_task, reaches_dataset
from common.store.tables import (
    grant,
    process_instance,
    project_failures,
    stream_task,
    task_assignment,
    task_instance,
    worker_group,
    worker_strategy,
)
from common.store.transaction import (
    AnyRow,
    StoreConflictError,
    any_of,
    repeatable,
    storable,
    transaction,
)
from common.store.worker_modes import worker_modes

# Any number will do that nobody else takes; it is held until the transaction ends.
_ASSIGN_LOCK: Final = 0x0CAF_1037
_MOST: Final = 1_000

_IS_OF_IT: Final = task_instance.c.id == task_assignment.c.task_id
_HAS_ENDED: Final = task_instance.c.state.in_(sorted(FINISHED_TASK_CODES))
_IS_UNCLAIMED: Final = and_(
    task_instance.c.state == TaskState.SUBMITTED,
    task_instance.c.flag == 1,
    task_instance.c.wanted_state.is_(None),
    task_instance.c.host.is_not(None),
)
_PROJECT: Final = func.coalesce(
    project_of_run(task_instance.c.process_instance_id), literal_column("0", Integer)
)
_ANYTHING: Final = FixedStatement(
    select(
        exists()
        .where(_IS_OF_IT)
        .where(or_(_HAS_ENDED, task_instance.c.state == TaskState.SUBMITTED))
    ),
    prepared=True,
)
_ENDED: Final = (
    select(
        task_assignment.c.task_id,
        task_instance.c.state,
        task_instance.c.host,
        _PROJECT.label("project"),
    )
    .join_from(task_assignment, task_instance, _IS_OF_IT)
    .where(_HAS_ENDED)
    .order_by(task_instance.c.end_time, task_assignment.c.task_id)
    .limit(_MOST)
)
_FORGET: Final = delete(task_assignment).where(task_assignment.c.task_id == any_of("ids"))
# Thousands of waiting attempts of one project must not hide the attempts of another project.
_TURNS: Final = (
    select(
        task_instance.c.id,
        func.row_number()
        .over(
            partition_by=_PROJECT,
            order_by=(task_instance.c.host == UNASSIGNED, task_instance.c.id),
        )
        .label("turn"),
    )
    .join_from(task_assignment, task_instance, _IS_OF_IT)
    .where(_IS_UNCLAIMED)
    .subquery("turns")
)
_FIRST: Final = select(_TURNS.c.id).order_by(_TURNS.c.turn, _TURNS.c.id).limit(_MOST)
# Locked in order of id, as all that lock several attempts do it; a claim at the same moment wins.
_LOCK: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(_IS_UNCLAIMED)
    .order_by(task_instance.c.id)
    .with_for_update(of=task_instance, key_share=True)
)
_GROUP: Final = case(
    (task_instance.c.worker_group_id > 0, task_instance.c.worker_group_id),
    else_=process_instance.c.worker_group_id,
)
# Of a stream task the replicas are those that do the same work.
_AVAILABILITY: Final = func.coalesce(
    task_assignment.c.availability_group, stream_task.c.base_sequence
)
_OF_RUN: Final = and_(
    stream_task.c.command_id == process_instance.c.command_id,
    task_instance.c.task_type == TASK_TYPE,
)
# The name of a dataset that the project may not use moves its tasks to no worker.
_DATASET: Final = case(
    (task_assignment.c.dataset == "", ""),
    (
        reaches_dataset(project_of_task(task_instance.c.id), task_assignment.c.dataset),
        task_assignment.c.dataset,
    ),
    else_="",
)
_ASKING: Final = (
    select(
        task_instance.c.id,
        task_instance.c.task_type,
        task_instance.c.host,
        task_instance.c.process_instance_id,
        task_instance.c.task_instance_priority,
        process_instance.c.process_instance_priority,
        _GROUP.label("worker_group_id"),
        worker_group.c.ip_list,
        IS_COMPLEMENT.label("yields"),
        _PROJECT.label("project"),
        _DATASET.label("dataset"),
        _AVAILABILITY.label("availability_group"),
        task_assignment.c.capacity,
        task_assignment.c.assigned_at,
        task_assignment.c.tries,
        task_assignment.c.excluded,
    )
    .join_from(task_assignment, task_instance, _IS_OF_IT)
    .join(process_instance, process_instance.c.id == task_instance.c.process_instance_id)
    .outerjoin(stream_task, _OF_RUN)
    .outerjoin(worker_group, worker_group.c.id == _GROUP)
    .where(task_instance.c.id == any_of("ids"))
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    .order_by(
        process_instance.c.process_instance_priority,
        IS_COMPLEMENT,
        process_instance.c.id,
        task_instance.c.task_instance_priority,
        task_instance.c.id,
    )
)
_RUNNING_IN: Final = (
    select(
        task_instance.c.host,
        task_instance.c.process_instance_id,
        func.count().label("slots"),
        func.sum(func.coalesce(task_assignment.c.capacity, 1)).label("capacity"),
    )
    .outerjoin_from(task_instance, task_assignment, _IS_OF_IT)
    .where(task_instance.c.state == TaskState.RUNNING)
    .where(task_instance.c.worker_incarnation.is_not(None))
    .group_by(task_instance.c.host, task_instance.c.process_instance_id)
    .subquery("running_in")
)
_RUNNING: Final = select(
    _RUNNING_IN.c.host,
    func.coalesce(project_of_run(process_instance.c.id), literal_column("0", Integer)).label(
        "project"
    ),
    IS_COMPLEMENT.label("yields"),
    _RUNNING_IN.c.slots,
    _RUNNING_IN.c.capacity,
).join_from(
    _RUNNING_IN, process_instance, process_instance.c.id == _RUNNING_IN.c.process_instance_id
)
_RUNNING_GROUPS: Final = (
    select(
        task_instance.c.host,
        _PROJECT.label("project"),
        _AVAILABILITY.label("availability_group"),
    )
    .join_from(task_assignment, task_instance, _IS_OF_IT)
    .join(process_instance, process_instance.c.id == task_instance.c.process_instance_id)
    .outerjoin(stream_task, _OF_RUN)
    .where(task_instance.c.state == TaskState.RUNNING)
    .where(_AVAILABILITY.is_not(None))
)
_GRANTED: Final = select(grant.c.object_id, grant.c.project_id).where(
    grant.c.object_type == GrantKind.WORKER_GROUP
)
_STRATEGY: Final = (
    select(worker_strategy.c.document).order_by(worker_strategy.c.version.desc()).limit(1)
)
_FAILURES: Final = select(
    project_failures.c.project_id,
    project_failures.c.worker,
    project_failures.c.failures,
    project_failures.c.until,
)
_IS_EXPECTED: Final = and_(
    task_instance.c.id == bindparam("task_id"),
    task_instance.c.state == TaskState.SUBMITTED,
    task_instance.c.host == bindparam("expected"),
)
_SET_HOST: Final = update(task_instance).where(_IS_EXPECTED).values(host=bindparam("worker"))
_FAIL: Final = (
    update(task_instance)
    .where(_IS_EXPECTED)
    .values(
        state=int(TaskState.FAILURE),
        host=None,
        end_time=func.now(),
        reason=bindparam("because"),
        failure_reason=FailureReason.SUBMIT_FAILED.value,
    )
)
_NOTE: Final = (
    update(task_assignment)
    .where(task_assignment.c.task_id == bindparam("asked_id"))
    .values(assigned_at=func.now(), tries=task_assignment.c.tries + 1)
)
_EXCLUDE: Final = (
    update(task_assignment)
    .where(task_assignment.c.task_id == bindparam("asked_id"))
    .values(excluded=bindparam("without"))
)


class PostgresAssignmentStore(AssignmentStore):
    """`AssignmentStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def is_asked(self) -> bool:
        ((is_anything,),) = repeatable(self._engine, lambda db: _ANYTHING.rows_alone(db, {}))
        return bool(is_anything)

    def assign(self, decide: Decide) -> Assigned:
        with transaction(self._engine) as db:
            db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ASSIGN_LOCK})
            ended = db.execute(_ENDED).all()
            if ended:
                db.execute(_FORGET, {"ids": [row.task_id for row in ended]})
            first = list(db.scalars(_FIRST))
            locked = list(db.scalars(_LOCK, {"ids": first})) if first else []
            asking = db.execute(_ASKING, {"ids": locked}).all() if locked else []
            facts = _facts(db, asking, ended)
            choices = decide(facts)
            return _write(db, {row.id: row for row in asking}, facts, choices)


def _facts(db: Connection, asking: Sequence[AnyRow], ended: Sequence[AnyRow]) -> AssignmentFacts:
    groups: dict[str, frozenset[tuple[int, str]]] = {}
    for row in db.execute(_RUNNING_GROUPS):
        group = (row.project, row.availability_group)
        groups[row.host] = groups.get(row.host, frozenset()) | {group}
    granted: dict[int, frozenset[int]] = {}
    for group_id, project_id in db.execute(_GRANTED):
        granted[group_id] = granted.get(group_id, frozenset()) | {project_id}
    failures = db.execute(_FAILURES).all()
    return AssignmentFacts(
        now=db.execute(select(func.now())).scalar_one(),
        tasks=tuple(_task(row) for row in asking),
        ends=tuple(
            AskedEnd(worker=row.host, succeeded=_verdict(row.state), project=row.project)
            for row in ended
            if row.host not in (None, UNASSIGNED)
        ),
        running=tuple(
            RunningTasks(
                worker=row.host,
                project=row.project,
                yields=row.yields,
                slots=row.slots,
                capacity=row.capacity,
            )
            for row in db.execute(_RUNNING)
        ),
        groups=groups,
        several_projects=bool(db.scalar(SEVERAL_PROJECTS)),
        granted=granted,
        modes=worker_modes(db),
        strategy=db.scalar(_STRATEGY),
        failures={(row.project_id, row.worker): row.failures for row in failures},
        until={
            (row.project_id, row.worker): row.until for row in failures if row.until is not None
        },
    )


def _verdict(state: int) -> bool | None:
    if state in (TaskState.SUCCESS, TaskState.FAILURE):
        return state == TaskState.SUCCESS
    return None


def _task(row: AnyRow) -> AskingTask:
    return AskingTask(
        id=row.id,
        task_type=row.task_type,
        need=WorkerNeed(
            dataset=row.dataset,
            availability_group=row.availability_group,
            capacity=row.capacity,
        ),
        worker=None if row.host == UNASSIGNED else row.host,
        since=row.assigned_at,
        excluded=tuple(row.excluded),
        tries=row.tries,
        group_id=row.worker_group_id,
        group_hosts=tuple(each.strip() for each in (row.ip_list or "").split(",") if each.strip()),
        project=row.project,
        yields=row.yields,
    )


def _write(
    db: Connection, rows: Mapping[int, AnyRow], facts: AssignmentFacts, choices: Choices
) -> Assigned:
    hosts = {**dict.fromkeys(choices.taken_back, UNASSIGNED), **choices.assigned}
    for task_id, worker in hosts.items():
        _change(db, _SET_HOST, rows[task_id], worker=worker)
    for task_id, reason in choices.failed.items():
        _change(db, _FAIL, rows[task_id], because=storable(reason))
    if choices.assigned:
        db.execute(_NOTE, [{"asked_id": task_id} for task_id in choices.assigned])
    for task_id, excluded in choices.excluded.items():
        db.execute(_EXCLUDE, {"asked_id": task_id, "without": list(excluded)})
    _write_failures(db, facts, choices)
    left = {*choices.taken_back, *choices.assigned, *choices.failed}
    entries = _entries(db, rows, choices.assigned)
    former = {
        task_id: rows[task_id].host
        for task_id in sorted(left)
        if rows[task_id].host not in (UNASSIGNED, choices.assigned.get(task_id))
    }
    return Assigned(
        offers=entries,
        withdrawn=_entries(db, rows, former),
        waiting=any(
            task.id not in choices.assigned and task.id not in choices.failed
            for task in facts.tasks
            if task.worker is None or task.id in choices.taken_back
        ),
    )


def _change(db: Connection, statement: Any, row: AnyRow, **values: Any) -> None:
    given = {"task_id": row.id, "expected": row.host, **values}
    if db.execute(statement, given).rowcount != 1:
        # The rows are locked, so this never happens; else the entries would be wrong.
        raise StoreConflictError(f"task instance {row.id} has changed meanwhile")


def _write_failures(db: Connection, facts: AssignmentFacts, choices: Choices) -> None:
    table = project_failures
    known = {*facts.failures, *facts.until}
    present = {*choices.failures, *choices.until}
    for project, worker in sorted(known - present):
        of_both = and_(table.c.project_id == project, table.c.worker == worker)
        db.execute(delete(table).where(of_both))
    for each in sorted(present):
        count, until = choices.failures.get(each, 0), choices.until.get(each)
        if (count, until) == (facts.failures.get(each), facts.until.get(each)):
            continue
        project, worker = each
        values = {"failures": count, "until": until}
        made = insert(table).values(project_id=project, worker=worker, **values)
        db.execute(made.on_conflict_do_update(index_elements=["project_id", "worker"], set_=values))


def _entries(
    db: Connection, rows: Mapping[int, AnyRow], workers: Mapping[int, str]
) -> tuple[QueueEntry, ...]:
    places = {
        task_id: Place(
            process_priority=rows[task_id].process_instance_priority,
            process_instance_id=rows[task_id].process_instance_id,
            task_priority=rows[task_id].task_instance_priority,
            worker_group_id=rows[task_id].worker_group_id,
            yields=rows[task_id].yields,
            worker=worker,
        )
        for task_id, worker in workers.items()
    }
    return tuple(queue_entries(db, [places])[0]) if places else ()
