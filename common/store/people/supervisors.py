"""Supervisors of streams as people submit, suspend, terminate and see them.

Every change of a specification is a row more; the row of the supervisor names the newest, and its
lock orders changes that are made at once. A request waits in a row of its own for the keeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, and_, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.masking import shown_reason
from common.model.rights import Principal
from common.model.streams.requests import RequestKind
from common.store.people.project_column import project_name
from common.store.people.rights import seen_projects
from common.store.tables import (
    process_instance,
    stream_task,
    supervisor,
    supervisor_command,
    supervisor_runtime,
    task_instance,
)
from common.store.transaction import AnyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorView:
    """A supervisor as its row has it. `document` is its specification, None for a tombstone.

    `active`: a master looks after it, or is to; `owner` is the one that does.
    """

    id: str
    version: int
    project_id: int
    process_definition_id: int
    document: Mapping[str, Any] | None
    suspended: bool
    active: bool
    owner: str | None
    epoch: int
    state: str
    detailed_state: str
    healthy: bool
    recent_errors: Sequence[Mapping[str, Any]]
    status: Mapping[str, Any]
    create_time: datetime
    update_time: datetime
    project_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView:
    """One version of a specification."""

    id: str
    version: int
    document: Mapping[str, Any] | None
    suspended: bool
    create_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTaskView:
    """A task of a supervisor, with the run and the attempt that it is."""

    name: str
    group_id: int
    assignment: Mapping[str, Any]
    orders: Mapping[str, Any]
    status: Mapping[str, Any] | None
    status_time: datetime | None
    ending_reason: str | None
    process_instance_id: int | None
    task_instance_id: int | None
    state: int | None
    host: str | None
    start_time: datetime | None
    create_time: datetime
    end_time: datetime | None = None
    failure: str | None = None
    """The reason of an attempt that has failed."""


_NEWEST: Final = and_(
    supervisor.c.id == supervisor_runtime.c.id, supervisor.c.version == supervisor_runtime.c.version
)
_VIEW: Final = select(
    supervisor_runtime,
    supervisor.c.spec,
    supervisor.c.suspended,
    supervisor.c.create_time,
    project_name(supervisor_runtime.c.project_id),
).join_from(supervisor_runtime, supervisor, _NEWEST)


def supervisor_named(
    db: Connection, supervisor_id: str, *, lock: bool = False
) -> SupervisorView | None:
    """Return a supervisor; with `lock`, no other changes it until the transaction ends."""
    if lock:
        # First alone: a join that has waited for its lock would show the former version.
        db.execute(
            select(supervisor_runtime.c.id)
            .where(supervisor_runtime.c.id == supervisor_id)
            .with_for_update()
        )
    row = db.execute(_VIEW.where(supervisor_runtime.c.id == supervisor_id)).first()
    return None if row is None else _view(row)


def supervisors(
    db: Connection, principal: Principal, *, after: str = "", limit: int | None = None
) -> list[SupervisorView]:
    """Return the supervisors that the principal sees, by id, behind one; terminated ones too."""
    rows = db.execute(
        _VIEW.where(seen_projects(principal, supervisor_runtime.c.project_id))
        .where(supervisor_runtime.c.id > after)
        .order_by(supervisor_runtime.c.id)
        .limit(limit)
    )
    return [_view(row) for row in rows]


def active_supervisors(db: Connection, project_id: int) -> list[SupervisorView]:
    """List the supervisors of a project that have not ended, also suspended ones."""
    rows = db.execute(
        _VIEW.where(supervisor_runtime.c.project_id == project_id).where(
            supervisor_runtime.c.active
        )
    )
    return [_view(row) for row in rows]


def make_supervisor(
    db: Connection, supervisor_id: str, *, project_id: int, process_definition_id: int
) -> bool:
    """Make the row of a new supervisor, without a version yet; False if there is one."""
    made = db.execute(
        pg_insert(supervisor_runtime)
        .values(
            id=supervisor_id,
            version=0,
            project_id=project_id,
            process_definition_id=process_definition_id,
        )
        .on_conflict_do_nothing(index_elements=["id"])
    )
    return made.rowcount == 1


def add_version(
    db: Connection,
    supervisor_id: str,
    *,
    version: int,
    document: Mapping[str, Any] | None,
    suspended: bool,
    user_id: int,
    process_definition_id: int | None = None,
) -> None:
    """Insert a version and make it the newest; without a document it is a tombstone.

    Within the lock of `supervisor_named`. Any but a tombstone has somebody look after the
    supervisor from now on.
    """
    db.execute(
        insert(supervisor).values(
            id=supervisor_id,
            version=version,
            spec=None if document is None else dict(document),
            suspended=suspended,
            tombstone=document is None,
            user_id=user_id,
        )
    )
    columns: dict[str, Any] = {"version": version}
    if document is not None:
        columns["active"] = True
    if process_definition_id is not None:
        columns["process_definition_id"] = process_definition_id
    db.execute(
        update(supervisor_runtime).where(supervisor_runtime.c.id == supervisor_id).values(columns)
    )


def put_request(
    db: Connection, supervisor_id: str, kind: RequestKind, body: Mapping[str, Any], *, user_id: int
) -> int:
    """Put a request to a supervisor; return its id."""
    made: int = db.execute(
        insert(supervisor_command)
        .values(supervisor=supervisor_id, kind=kind.value, body=dict(body), user_id=user_id)
        .returning(supervisor_command.c.id)
    ).scalar_one()
    return made


def waiting_requests(db: Connection, supervisor_id: str) -> int:
    """Count the requests to a supervisor that no master has carried out yet."""
    of_it = supervisor_command.c.supervisor == supervisor_id
    return db.scalar(select(func.count()).select_from(supervisor_command).where(of_it)) or 0


def versions(db: Connection, supervisor_id: str) -> list[VersionView]:
    """Return the versions of a supervisor's specification, the newest first."""
    rows = db.execute(
        select(supervisor)
        .where(supervisor.c.id == supervisor_id)
        .order_by(supervisor.c.version.desc())
    )
    return [_version(row) for row in rows]


def all_versions(db: Connection, principal: Principal) -> list[VersionView]:
    """Return those of all supervisors that the principal sees, by id."""
    rows = db.execute(
        select(supervisor)
        .join(supervisor_runtime, supervisor_runtime.c.id == supervisor.c.id)
        .where(seen_projects(principal, supervisor_runtime.c.project_id))
        .order_by(supervisor.c.id, supervisor.c.version.desc())
    )
    return [_version(row) for row in rows]


def open_tasks(db: Connection, supervisor_id: str) -> list[StreamTaskView]:
    """Return the tasks of a supervisor that have not ended, or that a group still has."""
    newest = (
        select(
            task_instance.c.id,
            task_instance.c.state,
            task_instance.c.host,
            task_instance.c.start_time,
            task_instance.c.end_time,
            task_instance.c.reason,
        )
        .where(task_instance.c.process_instance_id == process_instance.c.id)
        .where(task_instance.c.flag == 1)
        .order_by(task_instance.c.id.desc())
        .limit(1)
        .correlate(process_instance)
        .lateral("newest")
    )
    rows = db.execute(
        select(
            stream_task,
            process_instance.c.id.label("run_id"),
            newest.c.id.label("attempt"),
            newest.c.state,
            newest.c.host,
            newest.c.start_time,
            newest.c.end_time,
            newest.c.reason,
        )
        .select_from(
            stream_task.outerjoin(
                process_instance, process_instance.c.command_id == stream_task.c.command_id
            ).outerjoin(newest, newest.c.id.is_not(None))
        )
        .where(stream_task.c.supervisor == supervisor_id)
        .where(stream_task.c.closed.is_(False))
        .order_by(stream_task.c.group_id, stream_task.c.id)
    )
    return [
        StreamTaskView(
            name=row.name,
            group_id=row.group_id,
            assignment=row.assignment,
            orders=row.orders,
            status=row.status if row.task_instance_id == row.attempt else None,
            status_time=row.status_time,
            ending_reason=shown_reason(row.ending_reason),
            process_instance_id=row.run_id,
            task_instance_id=row.attempt,
            state=row.state,
            host=row.host,
            start_time=row.start_time,
            create_time=row.create_time,
            end_time=row.end_time,
            failure=shown_reason(row.reason),
        )
        for row in rows
    ]


def _version(row: AnyRow) -> VersionView:
    return VersionView(
        id=row.id,
        version=row.version,
        document=row.spec,
        suspended=row.suspended,
        create_time=row.create_time,
    )


def _view(row: AnyRow) -> SupervisorView:
    return SupervisorView(
        id=row.id,
        version=row.version,
        project_id=row.project_id,
        process_definition_id=row.process_definition_id,
        document=row.spec,
        suspended=row.suspended,
        active=row.active,
        owner=row.owner,
        epoch=row.epoch,
        state=row.state,
        detailed_state=row.detailed_state,
        healthy=row.healthy,
        recent_errors=row.recent_errors,
        status=row.status,
        create_time=row.create_time,
        update_time=row.update_time,
        project_name=row.project_name,
    )
