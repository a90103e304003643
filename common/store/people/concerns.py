"""Finds the concerns of an overview in the tables: what needs a person. Read only.

One statement for each kind, each limited. A principal sees the concerns of the projects that it may
see.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    Select,
    and_,
    bindparam,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import distinct_on

from common.masking import shown_reason
from common.model.commands import CommandOutcome
from common.model.complement_states import ComplementState, DateState
from common.model.concerns import COMMAND_PATIENCE, RECENT, Concern, ConcernKind
from common.model.rights import Principal
from common.model.schedules import FireOutcome
from common.model.states import ProcessState, ReleaseState, TaskState
from common.store.people.project_column import project_name
from common.store.people.rights import SeenRead
from common.store.tables import (
    LAST_RUN,
    WITHOUT_EFFECT,
    command,
    command_ledger,
    complement,
    complement_date,
    process_definition,
    process_instance,
    schedule,
    schedule_fire,
    supervisor_runtime,
    task_instance,
)
from common.store.transaction import AnyRow

Seen: TypeAlias = Callable[[ColumnElement[Any]], ColumnElement[bool]]
"""The condition that the principal may see a project."""

_RECENT: Final = bindparam("recent", type_=DateTime(timezone=True))
_PUT_BEFORE: Final = bindparam("put_before", type_=DateTime(timezone=True))
_COUNTED: Final = 1_000
"""Failed dates, missed fires and waiting commands are counted up to this number."""
_LEDGER_LINES: Final = 1_000
"""The newest lines of commands without effect among which refusals are looked for."""
_DONE: Final = (DateState.SUCCESS.value, DateState.SKIPPED.value)


def concerns(db: Connection, principal: Principal, *, now: datetime, limit: int) -> list[Concern]:
    """Return what the principal's projects show, at most `limit` of each kind, newest first."""
    values = {"limit": limit, "recent": now - RECENT, "put_before": now - COMMAND_PATIENCE}
    return [
        _concern(row) for read in _reads() for row in read.rows(db, principal, values) if row.number
    ]


def _no_master(seen: Seen) -> Select[Any]:
    waiting = (
        select(command.c.update_time)
        .outerjoin_from(
            command, process_definition, process_definition.c.id == command.c.process_definition_id
        )
        .where(seen(process_definition.c.project_id))
        .where(command.c.update_time < _PUT_BEFORE)
        .limit(_COUNTED)
        .subquery()
    )
    return _columns(
        ConcernKind.NO_MASTER, since=func.min(waiting.c.update_time), count=func.count()
    ).select_from(waiting)


def _missing_workers(seen: Seen) -> Select[Any]:
    return (
        _columns(
            ConcernKind.MISSING_WORKER,
            name=task_instance.c.host,
            since=func.min(task_instance.c.lost_at),
            count=func.count(),
        )
        .join_from(
            task_instance,
            process_instance,
            process_instance.c.id == task_instance.c.process_instance_id,
        )
        .outerjoin(process_definition, _DEFINITION_OF_RUN)
        .where(task_instance.c.lost_at.is_not(None))
        .where(task_instance.c.state == TaskState.RUNNING)
        .where(seen(process_definition.c.project_id))
        .group_by(task_instance.c.host)
        .order_by(func.min(task_instance.c.lost_at).desc())
    )


def _failed_runs(seen: Seen) -> Select[Any]:
    run = process_instance.alias("run")
    last = (
        select(run.c.id, run.c.state, run.c.state_reason, run.c.end_time)
        .where(run.c.process_definition_id == process_definition.c.id)
        # The condition of the index that holds these alone, as the index has it.
        .where(text(LAST_RUN))
        .order_by(run.c.id.desc())
        .limit(1)
        .correlate(process_definition)
        .lateral("last_run")
    )
    return (
        _columns(
            ConcernKind.FAILED_RUN,
            id=last.c.id,
            since=last.c.end_time,
            reason=last.c.state_reason,
            of_definition=True,
        )
        .join_from(process_definition, last, true())
        .where(last.c.state == ProcessState.FAILURE)
        .where(seen(process_definition.c.project_id))
        .order_by(last.c.id.desc())
    )


def _failed_dates(seen: Seen) -> Select[Any]:
    later, redone = complement.alias("later"), complement_date.alias("redone")
    is_redone = (
        select(literal(1))
        .join_from(later, redone, redone.c.complement_id == later.c.id)
        .where(later.c.process_definition_id == complement.c.process_definition_id)
        .where(later.c.id > complement.c.id)
        .where(redone.c.schedule_time == complement_date.c.schedule_time)
        .where(redone.c.state.in_(_DONE))
        .correlate(complement, complement_date)
        .exists()
    )
    undone = (
        select(complement_date.c.id)
        .where(complement_date.c.complement_id == complement.c.id)
        .where(
            or_(
                complement_date.c.state == DateState.FAILURE.value,
                # A failed date has kept it from its start.
                and_(
                    complement.c.state == ComplementState.FAILURE,
                    complement_date.c.state == DateState.PENDING.value,
                ),
            )
        )
        .where(~is_redone)
        .limit(_COUNTED)
        .correlate(complement)
        .subquery()
    )
    number = select(func.count().label("number")).select_from(undone).lateral("counted")
    return (
        _columns(
            ConcernKind.FAILED_DATES,
            id=complement.c.id,
            since=complement.c.update_time,
            count=number.c.number,
            reason=complement.c.state_reason,
            of_definition=True,
        )
        .join_from(complement, number, true())
        .join(process_definition, process_definition.c.id == complement.c.process_definition_id)
        # A person has cancelled the others, or they are a success.
        .where(complement.c.state.not_in((ComplementState.STOP, ComplementState.SUCCESS)))
        .where(number.c.number > 0)
        .where(seen(process_definition.c.project_id))
        .order_by(complement.c.id.desc())
    )


def _paused_runs(seen: Seen) -> Select[Any]:
    return (
        _columns(
            ConcernKind.PAUSED_RUN,
            id=process_instance.c.id,
            since=process_instance.c.end_time,
            reason=process_instance.c.state_reason,
            of_definition=True,
        )
        .outerjoin_from(process_instance, process_definition, _DEFINITION_OF_RUN)
        .where(process_instance.c.state == ProcessState.PAUSE)
        .where(process_instance.c.parent_task_instance_id == 0)
        .where(seen(process_definition.c.project_id))
        .order_by(process_instance.c.id.desc())
    )


def _unhealthy_supervisors(seen: Seen) -> Select[Any]:
    return (
        _columns(
            ConcernKind.UNHEALTHY_SUPERVISOR,
            name=supervisor_runtime.c.id,
            project=project_name(supervisor_runtime.c.project_id),
            since=supervisor_runtime.c.update_time,
            reason=supervisor_runtime.c.detailed_state,
        )
        .where(supervisor_runtime.c.active)
        .where(~supervisor_runtime.c.healthy)
        .where(seen(supervisor_runtime.c.project_id))
        .order_by(supervisor_runtime.c.id)
    )


def _refused_commands(seen: Seen) -> Select[Any]:
    newest = (
        select(command_ledger)
        # The condition of the index that holds the few of these, as the index has it.
        .where(text(WITHOUT_EFFECT))
        .order_by(command_ledger.c.id.desc())
        .limit(_LEDGER_LINES)
        .subquery("newest")
    )
    run = process_instance.alias("run")
    last_start = (
        select(run.c.start_time)
        .where(run.c.process_definition_id == newest.c.process_definition_id)
        .order_by(run.c.id.desc())
        .limit(1)
        .correlate(newest)
        .scalar_subquery()
    )
    refused = (
        select(newest)
        .where(newest.c.outcome == CommandOutcome.REFUSED)
        .where(newest.c.handled_at > _RECENT)
        .where(func.coalesce(last_start < newest.c.handled_at, True))
        .ext(distinct_on(newest.c.process_definition_id))
        .order_by(newest.c.process_definition_id, newest.c.id.desc())
        .subquery("refused")
    )
    return (
        _columns(
            ConcernKind.REFUSED_COMMAND,
            id=refused.c.command_id,
            since=refused.c.handled_at,
            reason=refused.c.reason,
            of_definition=True,
        )
        .outerjoin_from(
            refused, process_definition, process_definition.c.id == refused.c.process_definition_id
        )
        .where(seen(process_definition.c.project_id))
        .order_by(refused.c.id.desc())
    )


def _missed_fires(seen: Seen) -> Select[Any]:
    run = process_instance.alias("run")
    has_run = (
        select(run.c.id)
        .where(run.c.process_definition_id == schedule_fire.c.process_definition_id)
        .where(
            func.coalesce(run.c.business_time, run.c.schedule_time, run.c.start_time)
            == schedule_fire.c.fire_time
        )
        .correlate(schedule_fire)
        .exists()
    )
    missed = (
        select(
            schedule_fire.c.schedule_id,
            func.count().label("number"),
            func.max(schedule_fire.c.fire_time).label("last"),
            func.max(schedule_fire.c.reason).label("reason"),
        )
        .where(schedule_fire.c.outcome == literal_column(f"'{FireOutcome.MISSED.value}'"))
        .where(schedule_fire.c.fire_time > _RECENT)
        .where(~has_run)
        .group_by(schedule_fire.c.schedule_id)
        .subquery("missed")
    )
    return (
        _columns(
            ConcernKind.MISSED_FIRES,
            id=schedule.c.id,
            since=missed.c.last,
            count=missed.c.number,
            reason=missed.c.reason,
            of_definition=True,
        )
        .join_from(missed, schedule, schedule.c.id == missed.c.schedule_id)
        .join(process_definition, process_definition.c.id == schedule.c.process_definition_id)
        .where(seen(process_definition.c.project_id))
        .order_by(missed.c.last.desc(), schedule.c.id)
    )


def _faulty_schedules(seen: Seen) -> Select[Any]:
    return (
        _columns(
            ConcernKind.FAULTY_SCHEDULE,
            id=schedule.c.id,
            since=schedule.c.update_time,
            reason=schedule.c.fault,
            of_definition=True,
        )
        .outerjoin_from(
            schedule,
            process_definition,
            process_definition.c.id == schedule.c.process_definition_id,
        )
        .where(schedule.c.release_state == ReleaseState.ONLINE)
        .where(schedule.c.fault.is_not(None))
        .where(seen(process_definition.c.project_id))
        .order_by(schedule.c.id.desc())
    )


_DEFINITION_OF_RUN: Final = process_definition.c.id == process_instance.c.process_definition_id


def _columns(
    kind: ConcernKind,
    *,
    id: ColumnElement[Any] | None = None,  # noqa: A002  # The column's name.
    name: ColumnElement[Any] | None = None,
    project: ColumnElement[Any] | None = None,
    since: ColumnElement[Any] | None = None,
    count: ColumnElement[Any] | None = None,
    reason: ColumnElement[Any] | None = None,
    of_definition: bool = False,
) -> Select[Any]:
    """Select the columns of a concern; `of_definition` adds the definition and its project."""
    definition = process_definition.c
    if of_definition:
        project = project_name(definition.project_id)
    return select(
        literal(kind.value).label("kind"),
        (null() if id is None else id).label("id"),
        (null() if name is None else name).label("name"),
        (definition.id if of_definition else null()).label("definition_id"),
        (definition.name if of_definition else null()).label("definition"),
        (null() if project is None else project).label("project"),
        (null() if since is None else since).label("since"),
        (literal(1) if count is None else count).label("number"),
        (null() if reason is None else reason).label("reason"),
    )


def _concern(row: AnyRow) -> Concern:
    return Concern(
        kind=ConcernKind(row.kind),
        id=row.id,
        name=row.name,
        process_definition_id=row.definition_id,
        definition=row.definition,
        project=row.project,
        since=row.since,
        count=row.number,
        reason=shown_reason(row.reason),
    )


def _limited(build: Callable[[Seen], Select[Any]], seen: Seen) -> Select[Any]:
    return build(seen).limit(bindparam("limit", type_=BigInteger))


@cache
def _reads() -> tuple[SeenRead, ...]:
    return tuple(
        SeenRead(partial(_limited, build))
        for build in (
            _no_master,
            _missing_workers,
            _failed_runs,
            _failed_dates,
            _paused_runs,
            _unhealthy_supervisors,
            _refused_commands,
            _missed_fires,
            _faulty_schedules,
        )
    )
