"""Projects as people see them, with what they may do there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Select, func, insert, select

from common.model.rights import Action, Principal
from common.model.states import LIVE_PROCESS_STATES
from common.store.people.definitions import LARGEST_CODE
from common.store.people.rights import actions_in
from common.store.tables import process_definition, process_instance, project, user

_owner = user.alias("owner")
_ESCAPE: Final = "\\"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectView:
    """A project; `code` names it in DolphinScheduler's API. `actions` are those of who asks."""

    id: int
    code: int
    name: str
    description: str | None
    user_id: int
    user_name: str | None
    actions: Action
    definitions: int
    live_instances: int
    create_time: datetime
    update_time: datetime


def projects(
    db: Connection,
    principal: Principal,
    *,
    search: str | None = None,
    name: str | None = None,
    code: int | None = None,
    project_id: int | None = None,
    offset: int = 0,
    limit: int,
) -> tuple[list[ProjectView], int]:
    """List projects that the principal sees by id, at most `limit`; and count them all.

    Those whose names contain `search`, or the one with this name, code or id.
    """
    seen = actions_in(principal, project.c.id)
    statement = (
        select(project, _owner.c.user_name, seen.label("actions"))
        .outerjoin_from(project, _owner, _owner.c.id == project.c.user_id)
        .where(seen.op("&")(int(Action.VIEW)) != 0)
    )
    if search:
        statement = statement.where(project.c.name.ilike(containing(search), escape=_ESCAPE))
    if name is not None:
        statement = statement.where(project.c.name == name)
    if code is not None:
        statement = statement.where(project.c.code == (code if code <= LARGEST_CODE else 0))
    if project_id is not None:
        statement = statement.where(project.c.id == project_id)
    rows = db.execute(statement.order_by(project.c.id).offset(offset).limit(limit)).all()
    total = db.scalar(select(func.count()).select_from(statement.subquery())) or 0
    ids = [row.id for row in rows]
    definitions = _counts(db, _definitions(ids))
    live = _counts(db, _live(ids))
    return [
        ProjectView(
            id=row.id,
            code=row.code,
            name=row.name,
            description=row.description,
            user_id=row.user_id,
            user_name=row.user_name,
            actions=Action(row.actions),
            definitions=definitions.get(row.id, 0),
            live_instances=live.get(row.id, 0),
            create_time=row.create_time,
            update_time=row.update_time,
        )
        for row in rows
    ], total


def create_project(
    db: Connection, name: str, *, description: str | None, user_id: int
) -> int | None:
    """Insert a project and return its id; None if there is one of that name."""
    if db.scalar(select(project.c.id).where(project.c.name == name)) is not None:
        return None
    made: int = db.execute(
        insert(project)
        .values(name=name, description=description, user_id=user_id)
        .returning(project.c.id)
    ).scalar_one()
    return made


def containing(text: str) -> str:
    """Return the pattern of LIKE for texts that contain this one."""
    plain = text.replace(_ESCAPE, _ESCAPE * 2).replace("%", r"\%").replace("_", r"\_")
    return f"%{plain}%"


def _counts(db: Connection, statement: Select[Any]) -> dict[int, int]:
    return {row.project_id: row.number for row in db.execute(statement)}


def _definitions(ids: list[int]) -> Select[Any]:
    return (
        select(process_definition.c.project_id, func.count().label("number"))
        .where(process_definition.c.project_id.in_(ids))
        .group_by(process_definition.c.project_id)
    )


def _live(ids: list[int]) -> Select[Any]:
    return (
        select(process_definition.c.project_id, func.count().label("number"))
        .join_from(
            process_instance,
            process_definition,
            process_definition.c.id == process_instance.c.process_definition_id,
        )
        .where(process_definition.c.project_id.in_(ids))
        .where(process_instance.c.state.in_([int(each) for each in LIVE_PROCESS_STATES]))
        .group_by(process_definition.c.project_id)
    )
