"""Pages by number, as DolphinScheduler's clients ask for them: rows of a project, and their total.

The work is bounded: no more than `MOST_COUNTED` rows are counted or passed over. The rows
themselves are read by `common.store.people.views` and its siblings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Integer,
    Select,
    any_,
    bindparam,
    cast,
    func,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.rights import Principal
from common.store.people.definitions import DefinitionRow, definitions_by_id
from common.store.people.projects import containing
from common.store.people.rights import SeenRead
from common.store.people.schedule_views import ScheduleView, schedules
from common.store.people.views import (
    ProcessInstanceView,
    TaskInstanceView,
    process_instances,
    task_instances,
)
from common.store.tables import (
    complement_date,
    process_definition,
    process_instance,
    schedule,
    task_instance,
    user,
)

MOST_COUNTED: Final = 100_000
_ESCAPE: Final = "\\"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The rows from `offset` on, `limit` at most. A `total` that is known is not counted again."""

    offset: int
    limit: int
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunName:
    """The name of a run, and its definition."""

    name: str
    process_definition_id: int


def definition_slice(
    db: Connection, project_id: int, wanted: Slice, *, search: str | None = None
) -> tuple[list[DefinitionRow], int]:
    """List definitions of a project, the newest first, and count them all."""
    statement = (
        select(process_definition.c.id)
        .where(process_definition.c.project_id == project_id)
        .order_by(process_definition.c.id.desc())
    )
    if search:
        like = process_definition.c.name.ilike(containing(search), escape=_ESCAPE)
        statement = statement.where(like)
    ids, total = _ids(db, statement, wanted)
    found = definitions_by_id(db, ids)
    return [found[each] for each in ids if each in found], total


def instance_slice(
    db: Connection,
    project_id: int,
    wanted: Slice,
    *,
    definition_id: int | None = None,
    states: Sequence[int] = (),
    search: str | None = None,
    host: str | None = None,
    executor: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[list[ProcessInstanceView], int]:
    """List runs of a project's definitions, the newest first, and count them all."""
    statement = (
        select(process_instance.c.id)
        .where(process_instance.c.process_definition_id == _definitions_in(db, project_id))
        .order_by(process_instance.c.id.desc())
    )
    if definition_id is not None:
        statement = statement.where(process_instance.c.process_definition_id == definition_id)
    if states:
        statement = statement.where(process_instance.c.state.in_(states))
    if search:
        like = process_instance.c.name.ilike(containing(search), escape=_ESCAPE)
        statement = statement.where(like)
    if host:
        like = process_instance.c.host.ilike(containing(host), escape=_ESCAPE)
        statement = statement.where(like)
    if executor:
        named = select(user.c.id).where(user.c.user_name == executor)
        statement = statement.where(process_instance.c.executor_id.in_(named))
    if since is not None:
        statement = statement.where(process_instance.c.start_time >= since)
    if until is not None:
        statement = statement.where(process_instance.c.start_time <= until)
    ids, total = _ids(db, statement, wanted)
    return process_instances(db, ids=ids, limit=len(ids)), total


def task_slice(
    db: Connection,
    project_id: int,
    wanted: Slice,
    *,
    process_instance_id: int | None = None,
    states: Sequence[int] = (),
    search: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[list[TaskInstanceView], int]:
    """List the valid attempts of a project's runs, the newest first, and count them all."""
    statement = (
        select(task_instance.c.id)
        .join(process_instance, process_instance.c.id == task_instance.c.process_instance_id)
        .where(process_instance.c.process_definition_id == _definitions_in(db, project_id))
        .where(task_instance.c.flag == 1)
        .order_by(task_instance.c.id.desc())
    )
    if process_instance_id is not None:
        statement = statement.where(task_instance.c.process_instance_id == process_instance_id)
    if states:
        statement = statement.where(task_instance.c.state.in_(states))
    if search:
        like = task_instance.c.name.ilike(containing(search), escape=_ESCAPE)
        statement = statement.where(like)
    if since is not None:
        statement = statement.where(task_instance.c.start_time >= since)
    if until is not None:
        statement = statement.where(task_instance.c.start_time <= until)
    ids, total = _ids(db, statement, wanted)
    return list(reversed(task_instances(db, ids=ids))), total


def schedule_slice(
    db: Connection,
    project_id: int,
    wanted: Slice,
    *,
    definition_id: int | None = None,
    search: str | None = None,
) -> tuple[list[ScheduleView], int]:
    """List the schedules of a project's definitions, the newest first, and count them all."""
    statement = (
        select(schedule.c.id)
        .join(process_definition, process_definition.c.id == schedule.c.process_definition_id)
        .where(process_definition.c.project_id == project_id)
        .order_by(schedule.c.id.desc())
    )
    if definition_id is not None:
        statement = statement.where(schedule.c.process_definition_id == definition_id)
    if search:
        like = process_definition.c.name.ilike(containing(search), escape=_ESCAPE)
        statement = statement.where(like)
    ids, total = _ids(db, statement, wanted)
    return list(reversed(schedules(db, ids=ids))), total


def run_names(db: Connection, principal: Principal, ids: Collection[int]) -> dict[int, RunName]:
    """Read the names of runs by their ids; those that the principal does not see are left out."""
    rows = _run_names().rows(db, principal, {"ids": sorted(ids)}) if ids else ()
    return {
        row.id: RunName(name=row.name, process_definition_id=row.process_definition_id)
        for row in rows
    }


@cache
def _run_names() -> SeenRead:
    row = process_instance.c
    statement = (
        select(row.id, row.name, row.process_definition_id)
        .outerjoin_from(
            process_instance,
            process_definition,
            process_definition.c.id == row.process_definition_id,
        )
        .where(row.id == any_(bindparam("ids", type_=ARRAY(Integer))))
    )
    return SeenRead(lambda seen: statement.where(seen(process_definition.c.project_id)))


def instances_of_command(db: Connection, command_id: int) -> list[int]:
    """Return the ids of the runs that a command began."""
    return list(
        db.scalars(
            select(process_instance.c.id)
            .where(process_instance.c.command_id == command_id)
            .order_by(process_instance.c.id)
        )
    )


def instances_of_complement(db: Connection, complement_id: int, *, limit: int) -> list[int]:
    """Return the ids of the runs that a complement has begun so far, at most `limit`."""
    return list(
        db.scalars(
            select(complement_date.c.process_instance_id)
            .where(complement_date.c.complement_id == complement_id)
            .where(complement_date.c.process_instance_id != 0)
            .order_by(complement_date.c.position)
            .limit(limit)
        )
    )


def _definitions_in(db: Connection, project_id: int) -> Any:
    """Read the definitions of a project, one of which a row is to be of.

    By their ids PostgreSQL can tell how many rows they have; of the project of a few definitions,
    which nothing analyzes, it expects hardly any, and sorts a million to find the newest ten.
    """
    ids = db.scalars(
        select(process_definition.c.id).where(process_definition.c.project_id == project_id)
    )
    return any_(cast(literal("{" + ",".join(map(str, ids)) + "}"), ARRAY(Integer)))


def _ids(db: Connection, statement: Select[Any], wanted: Slice) -> tuple[list[int], int]:
    ids: list[int] = []
    if wanted.limit and wanted.offset < MOST_COUNTED:
        ids = list(db.scalars(statement.offset(wanted.offset).limit(wanted.limit)))
        if len(ids) < wanted.limit and (ids or not wanted.offset):
            # The last page tells the rest.
            return ids, min(wanted.offset + len(ids), MOST_COUNTED)
    if wanted.total is not None:
        return ids, wanted.total
    bounded = statement.order_by(None).limit(MOST_COUNTED).subquery()
    return ids, db.scalar(select(func.count()).select_from(bounded)) or 0
