"""Reads the facts for `common.why`: one process instance and all that it waits for, at one moment.

Everything is read in one transaction that sees the database as of its beginning, so the facts are
consistent. Nothing is written or locked, and no daemon decides anything by what is read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, and_, func, or_, select

from common.masking import shown_reason
from common.model.cluster import Node
from common.model.control_types import MASTER_TASK_TYPES
from common.model.retry_policy import reason_from
from common.model.rights import Principal
from common.model.run_names import version_in
from common.model.slot_share import NO_SHARES, SharePercents
from common.model.spark import progress_from
from common.model.states import (
    FINISHED_TASK_CODES,
    LIVE_PROCESS_STATES,
    ProcessState,
    TaskState,
)
from common.model.task_type import TaskTypeSpec
from common.store.command_turns import turn
from common.store.people.load import alive, project_names, shares_in_force, surplus_slots
from common.store.people.locks import lock_waits
from common.store.people.pools import pool_users
from common.store.people.rights import seen_instances, seen_projects
from common.store.people.run_complements import complements_of_runs
from common.store.project_slots import project_of_run
from common.store.queue_entries import IS_COMPLEMENT, effective_group
from common.store.tables import (
    command,
    process_definition,
    process_instance,
    relation_process_instance,
    task_assignment,
    task_group,
    task_group_queue,
    task_instance,
    worker_group,
)
from common.store.transaction import AnyRow
from common.why import (
    Attempt,
    Facts,
    Holder,
    LostAttempt,
    Other,
    PendingCommand,
    PoolWait,
    QueuePlace,
    Run,
    evidence_runs,
)

MAX_RUNS: Final = 200
"""Of a tree of sub processes no more are looked at."""

_ONLINE: Final = 1


@contextmanager
def moment(engine: Engine) -> Iterator[Connection]:
    """Open a read-only transaction that sees all tables as of one moment."""
    with engine.connect() as connection:
        db = connection.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        with db.begin():
            yield db


def facts_of(
    db: Connection,
    process_instance_id: int,
    *,
    members: tuple[frozenset[Node], frozenset[Node]] | None,
    now: datetime,
    task_types: Mapping[str, TaskTypeSpec],
    exec_threads: int,
    shares: SharePercents = NO_SHARES,
    principal: Principal,
) -> Facts | None:
    """Read the facts that may hold the instance back; None if there is no such instance.

    `members`: the live masters and workers; None if they could not be read. Of other runs there are
    those alone that the principal may see; it has to be checked that this is the case of the first.
    """
    runs, children, foreign = _tree(db, process_instance_id, principal)
    if process_instance_id not in runs:
        return None
    attempts = [attempt for run in runs.values() for attempt in run.attempts]
    wanting = [
        each.id
        for each in attempts
        if each.task_type == "SUB_PROCESS" and each.state in _MAY_HAVE_CHILD
    ]
    held = [each.id for each in attempts if each.state == TaskState.WAITING_DEPEND]
    queued = [
        each.id
        for each in attempts
        if each.state == TaskState.SUBMITTED and each.task_type not in MASTER_TASK_TYPES
    ]
    begun_by = command.c.parent_task_instance_id.in_(wanting)
    child_commands = {
        each.parent_task_instance_id: (each, is_seen)
        for each, is_seen in (_commands(db, begun_by, principal) if wanting else ())
    }
    foreign |= {attempt for attempt, (_, is_seen) in child_commands.items() if not is_seen}
    named = [run for each in attempts for run in evidence_runs(each.evidence)]
    return Facts(
        now=now,
        alive=alive(db, members),
        runs=runs,
        recoveries={
            each.process_instance_id: each
            for each, _ in _commands(db, command.c.process_instance_id.in_(list(runs)), principal)
        },
        children=children,
        child_commands={
            attempt: each for attempt, (each, is_seen) in child_commands.items() if is_seen
        },
        foreign=frozenset(foreign),
        seen=None if principal.sees_all else seen_instances(db, principal, named),
        pools=_pools(db, held, principal),
        locks=lock_waits(db, held, principal, now=now),
        queue=_queue(db, queued),
        task_types=task_types,
        exec_threads=exec_threads,
        shares=shares_in_force(db, shares),
        complements=complements_of_runs(db, runs.values()),
    )


def facts_of_command(
    db: Connection,
    command_id: int,
    *,
    members: tuple[frozenset[Node], frozenset[Node]] | None,
    now: datetime,
    exec_threads: int,
    shares: SharePercents = NO_SHARES,
    principal: Principal,
) -> tuple[Facts, PendingCommand] | None:
    """Read the facts that may hold the command back; None if it does not wait any more."""
    found = _commands(db, command.c.id == command_id, principal)
    if not found:
        return None
    facts = Facts(
        now=now,
        alive=alive(db, members),
        exec_threads=exec_threads,
        shares=shares_in_force(db, shares),
    )
    return facts, found[0][0]


_MAY_HAVE_CHILD: Final = (int(TaskState.SUBMITTED), int(TaskState.RUNNING))


def _tree(
    db: Connection, root: int, principal: Principal
) -> tuple[dict[int, Run], dict[int, int], set[int]]:
    """Read the instance and the children that it waits for, to any depth, with their owners.

    The attempts whose children the principal may not see come last; of those nothing is read.
    """
    runs: dict[int, Run] = {}
    children: dict[int, int] = {}
    foreign: set[int] = set()
    waiting = [root]
    while waiting and len(runs) < MAX_RUNS:
        found = _runs(db, waiting[: MAX_RUNS - len(runs)])
        runs |= found
        wanting = [
            attempt.id
            for run in found.values()
            for attempt in run.attempts
            if attempt.task_type == "SUB_PROCESS" and attempt.state in _MAY_HAVE_CHILD
        ]
        below = _children(db, wanting) if wanting else {}
        may_see = seen_instances(db, principal, below.values())
        foreign |= {attempt for attempt, child in below.items() if child not in may_see}
        children |= {attempt: child for attempt, child in below.items() if child in may_see}
        waiting = [
            child for child in dict.fromkeys(below.values()) if child in may_see - runs.keys()
        ]
    return runs, children, foreign


def _children(db: Connection, attempts: Sequence[int]) -> dict[int, int]:
    rows = db.execute(
        select(
            relation_process_instance.c.parent_task_instance_id,
            relation_process_instance.c.process_instance_id,
        )
        .where(relation_process_instance.c.parent_task_instance_id.in_(attempts))
        .where(relation_process_instance.c.process_instance_id > 0)
        .order_by(relation_process_instance.c.id)
    )
    return {row.parent_task_instance_id: row.process_instance_id for row in rows}


def _runs(db: Connection, ids: Sequence[int]) -> dict[int, Run]:
    rows = db.execute(
        select(
            process_instance.c.id,
            process_instance.c.name,
            process_instance.c.process_definition_id,
            process_definition.c.name.label("definition_name"),
            process_definition.c.version.label("latest_version"),
            process_instance.c.definition_version,
            process_instance.c.state,
            process_instance.c.start_time,
            process_instance.c.end_time,
            process_instance.c.process_instance_json,
            process_instance.c.command_param,
            process_instance.c.task_depend_type,
            process_instance.c.failure_strategy,
            process_instance.c.wanted_state,
            process_instance.c.wanted_at,
            process_instance.c.wanted_deadline,
            process_instance.c.state_reason,
            process_instance.c.host,
            process_instance.c.owner_incarnation,
            process_instance.c.run_scope,
            process_instance.c.schedule_time,
            process_instance.c.business_time,
            process_instance.c.timezone_id,
        )
        .outerjoin_from(
            process_instance,
            process_definition,
            process_definition.c.id == process_instance.c.process_definition_id,
        )
        .where(process_instance.c.id.in_(ids))
        .order_by(process_instance.c.id)
    ).all()
    attempts: dict[int, list[Attempt]] = {row.id: [] for row in rows}
    found = db.execute(
        select(*_ATTEMPT_COLUMNS)
        .where(task_instance.c.process_instance_id.in_(list(attempts)))
        .where(task_instance.c.flag == 1)
        .order_by(task_instance.c.id)
    )
    for each in found:
        attempts[each.process_instance_id].append(_attempt(each))
    lost = _lost(db, list(attempts))
    return {row.id: _run(db, row, attempts[row.id], lost.get(row.id, ())) for row in rows}


def _lost(db: Connection, ids: Sequence[int]) -> dict[int, list[LostAttempt]]:
    """Read the ended attempts, superseded ones too, of which processes may still run."""
    rows = db.execute(
        select(
            task_instance.c.id,
            task_instance.c.process_instance_id,
            task_instance.c.name,
            task_instance.c.attempt,
            task_instance.c.host,
            task_instance.c.lost_at,
        )
        .where(task_instance.c.lost_at.is_not(None))
        .where(task_instance.c.process_instance_id.in_(ids))
        .where(task_instance.c.state.in_(FINISHED_TASK_CODES))
        .order_by(task_instance.c.id)
        .limit(1000)
    )
    found: dict[int, list[LostAttempt]] = {}
    for row in rows:
        found.setdefault(row.process_instance_id, []).append(
            LostAttempt(
                id=row.id, name=row.name, attempt=row.attempt, host=row.host, lost_at=row.lost_at
            )
        )
    return found


def _run(
    db: Connection, row: AnyRow, attempts: Sequence[Attempt], lost: Sequence[LostAttempt]
) -> Run:
    return Run(
        id=row.id,
        name=row.name,
        definition_name=row.definition_name,
        state=row.state,
        start_time=row.start_time,
        end_time=row.end_time,
        process_instance_json=row.process_instance_json,
        command_param=row.command_param or "",
        task_depend_type=row.task_depend_type,
        failure_strategy=row.failure_strategy,
        wanted_state=row.wanted_state,
        wanted_at=row.wanted_at,
        wanted_deadline=row.wanted_deadline,
        state_reason=shown_reason(row.state_reason),
        host=row.host,
        owner_incarnation=row.owner_incarnation,
        run_scope=row.run_scope,
        attempts=tuple(attempts),
        before=_before(db, row) if row.state == ProcessState.SERIAL_WAIT else (),
        lost=tuple(lost),
        schedule_time=row.schedule_time,
        business_time=row.business_time,
        timezone_id=row.timezone_id,
        version=row.definition_version or version_in(row.name),
        latest_version=row.latest_version,
    )


def _before(db: Connection, row: AnyRow) -> tuple[Other, ...]:
    """Read live runs of the same definition, and those that have waited for longer."""
    live = [int(state) for state in LIVE_PROCESS_STATES if state is not ProcessState.SERIAL_WAIT]
    waits = process_instance.c.state == ProcessState.SERIAL_WAIT
    others = db.execute(
        select(process_instance.c.id, process_instance.c.state, process_instance.c.start_time)
        .where(process_instance.c.process_definition_id == row.process_definition_id)
        .where(process_instance.c.id != row.id)
        .where(
            or_(
                process_instance.c.state.in_(live),
                and_(waits, process_instance.c.id < row.id),
            )
        )
        .order_by(waits, process_instance.c.id)
        .limit(1000)
    )
    return tuple(
        Other(id=other.id, state=other.state, start_time=other.start_time) for other in others
    )


_ATTEMPT_COLUMNS: Final = tuple(
    task_instance.c[name]
    for name in (
        *("id", "process_instance_id", "name", "task_type", "attempt", "state", "submit_time"),
        *("start_time", "end_time", "host", "worker_incarnation", "wanted_state", "reason"),
        *("failure_reason", "progress", "retry_times", "retry_at", "due_at", "settled", "branch"),
        "evidence",
    )
)


def _attempt(row: AnyRow) -> Attempt:
    return Attempt(
        id=row.id,
        name=row.name,
        task_type=row.task_type,
        attempt=row.attempt,
        state=row.state,
        submit_time=row.submit_time,
        start_time=row.start_time,
        end_time=row.end_time,
        host=row.host,
        worker_incarnation=row.worker_incarnation,
        wanted_state=row.wanted_state,
        reason=shown_reason(row.reason),
        failure=reason_from(row.failure_reason),
        retry_times=row.retry_times,
        retry_at=row.retry_at,
        due_at=row.due_at,
        settled=row.settled,
        branch=row.branch,
        evidence=row.evidence,
        waits_at_manager=progress_from(row.progress).waiting,
    )


def _commands(
    db: Connection, which: Any, principal: Principal
) -> list[tuple[PendingCommand, bool]]:
    """Read waiting commands, each with True if the principal may see its definition.

    Otherwise nothing of that definition is told.
    """
    other = command.alias("other")
    ahead = (
        select(func.count())
        .select_from(other)
        .where(other.c.project_id == command.c.project_id, turn(other) < turn(command))
        .scalar_subquery()
    )
    rows = db.execute(
        select(
            command.c.id,
            command.c.command_type,
            command.c.process_definition_id,
            process_definition.c.name.label("definition_name"),
            process_definition.c.release_state,
            process_definition.c.flag,
            command.c.start_time,
            command.c.process_instance_id,
            command.c.parent_task_instance_id,
            command.c.project_id.label("charged_project"),
            ahead.label("ahead"),
            seen_projects(principal, process_definition.c.project_id).label("is_seen"),
        )
        .outerjoin_from(
            command,
            process_definition,
            process_definition.c.id == command.c.process_definition_id,
        )
        .where(which)
        .order_by(command.c.id)
    ).all()
    names = project_names(db, {row.charged_project for row in rows if row.is_seen})
    return [
        (
            PendingCommand(
                id=row.id,
                command_type=-1 if row.command_type is None else row.command_type,
                process_definition_id=row.process_definition_id if row.is_seen else None,
                definition_name=row.definition_name if row.is_seen else None,
                release_state=_release_state(row) if row.is_seen else _ONLINE,
                start_time=row.start_time,
                ahead=row.ahead,
                process_instance_id=row.process_instance_id,
                parent_task_instance_id=row.parent_task_instance_id,
                project_id=row.charged_project,
                project_name=names.get(row.charged_project) if row.is_seen else None,
            ),
            bool(row.is_seen),
        )
        for row in rows
    ]


def _release_state(row: AnyRow) -> int | None:
    # One that has been taken out of use can't be run, like one that is OFFLINE.
    return 0 if row.flag == 0 else row.release_state


def _pools(
    db: Connection, held: Collection[int], principal: Principal
) -> dict[int, tuple[PoolWait, ...]]:
    if not held:
        return {}
    rows = db.execute(
        select(
            task_group_queue.c.task_id,
            task_group_queue.c.group_id,
            task_group_queue.c.group_name,
            task_group_queue.c.weight,
            task_group.c.name,
            task_group.c.group_size,
        )
        .outerjoin_from(
            task_group_queue, task_group, task_group.c.id == task_group_queue.c.group_id
        )
        .where(task_group_queue.c.task_id.in_(held))
        .where(task_group_queue.c.status == -1)
        .order_by(task_group_queue.c.task_id, task_group_queue.c.id)
    ).all()
    users = pool_users(db, sorted({row.group_id for row in rows}), waiting=held)
    may_see = seen_instances(
        db, principal, {use.process_instance_id for _, use in users if use.holds}
    )
    holders: dict[int, list[Holder]] = {}
    hidden: Counter[int] = Counter()
    ahead: dict[tuple[int, int], int] = {}
    for group_id, use in users:
        if use.holds and use.process_instance_id not in may_see:
            hidden[group_id] += use.slots
        elif use.holds:
            holders.setdefault(group_id, []).append(
                Holder(
                    task_instance_id=use.task_instance_id,
                    task_name=use.task_name,
                    process_instance_id=use.process_instance_id,
                    slots=use.slots,
                    since=use.since,
                )
            )
        else:
            ahead[group_id, use.task_instance_id] = use.ahead
    found: dict[int, tuple[PoolWait, ...]] = {}
    for row in rows:
        wait = PoolWait(
            name=row.name or row.group_name or str(row.group_id),
            slots=row.weight,
            size=row.group_size,
            holders=tuple(holders.get(row.group_id, ())),
            hidden=hidden[row.group_id],
            ahead=ahead.get((row.group_id, row.task_id), 0),
        )
        found[row.task_id] = (*found.get(row.task_id, ()), wait)
    return found


def _queue(db: Connection, queued: Collection[int]) -> dict[int, QueuePlace]:
    if not queued:
        return {}
    rows = db.execute(
        select(
            task_instance.c.id,
            task_instance.c.worker_group_id.label("task_group_id"),
            process_instance.c.worker_group_id.label("process_group_id"),
            project_of_run(process_instance.c.id).label("project_id"),
            task_assignment.c.capacity,
        )
        .join_from(
            task_instance,
            process_instance,
            process_instance.c.id == task_instance.c.process_instance_id,
        )
        .outerjoin(task_assignment, task_assignment.c.task_id == task_instance.c.id)
        .where(task_instance.c.id.in_(queued))
    ).all()
    capacities = {row.id: row.capacity for row in rows if row.capacity is not None}
    surplus = surplus_slots(db) if capacities else {}
    groups = {
        row.id: max(0, effective_group(row.task_group_id, row.process_group_id)) for row in rows
    }
    known = {
        row.id: row
        for row in db.execute(
            select(worker_group.c.id, worker_group.c.name, worker_group.c.ip_list).where(
                worker_group.c.id.in_(set(groups.values()) - {0})
            )
        )
    }
    projects = {row.id: row.project_id or 0 for row in rows}
    names = project_names(db, set(projects.values()))
    ahead = _ahead(db, list(groups))
    places: dict[int, QueuePlace] = {}
    for task_id, group_id in groups.items():
        row = known.get(group_id)
        places[task_id] = QueuePlace(
            ahead=ahead.get(task_id, 0),
            group_id=group_id,
            group_name=None if row is None else row.name,
            addresses=_addresses(None if row is None else row.ip_list),
            project_id=projects[task_id],
            project_name=names.get(projects[task_id]),
            capacity=capacities.get(task_id, 1),
            surplus=surplus.get(projects[task_id], {}) if task_id in capacities else {},
        )
    return places


_GROUP: Final = func.greatest(
    func.coalesce(
        func.nullif(func.greatest(task_instance.c.worker_group_id, 0), 0),
        process_instance.c.worker_group_id,
    ),
    0,
)
# In the order in which workers take them. Counted by the server: a queue may be very long.
_PLACES: Final = (
    select(
        task_instance.c.id,
        func.row_number()
        .over(
            partition_by=_GROUP,
            order_by=(
                process_instance.c.process_instance_priority,
                IS_COMPLEMENT,
                process_instance.c.id,
                task_instance.c.task_instance_priority,
                task_instance.c.id,
            ),
        )
        .label("place"),
    )
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .where(task_instance.c.state == TaskState.SUBMITTED)
    .where(task_instance.c.flag == 1)
    .where(task_instance.c.task_type.not_in(sorted(MASTER_TASK_TYPES)))
    .subquery("places")
)


def _ahead(db: Connection, task_instance_ids: Collection[int]) -> dict[int, int]:
    """Count the attempts of the same group that workers take before each of these."""
    rows = db.execute(
        select(_PLACES.c.id, _PLACES.c.place).where(_PLACES.c.id.in_(task_instance_ids))
    )
    return {row.id: row.place - 1 for row in rows}


def _addresses(ip_list: str | None) -> tuple[str, ...]:
    return tuple(each.strip() for each in (ip_list or "").split(",") if each.strip())
