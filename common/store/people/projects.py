"""Projects as people see them, with what they may do there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from common.model.reach import ShareKind
from common.model.rights import Action, Principal
from common.model.states import LIVE_PROCESS_STATES
from common.store.people.definitions import LARGEST_CODE
from common.store.people.rights import SeenRead, actions_in, seen_projects
from common.store.people.shares import delete_shares_of
from common.store.tables import (
    dataset,
    definition_draft,
    definition_proposal,
    process_definition,
    process_instance,
    project,
    relation_project_user,
    stream_task,
    supervisor,
    supervisor_runtime,
    topology,
    user,
)

_owner = user.alias("owner")
_ESCAPE: Final = "\\"
_ENABLED: Final = 1


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
    review_since: datetime | None
    create_time: datetime
    update_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectName:
    """A project by its id, its code and its name, without a count of its contents."""

    id: int
    code: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A user with the actions that the grants in a project add up to."""

    user_id: int
    user_name: str
    is_enabled: bool
    actions: int


def project_with_name(db: Connection, principal: Principal, name: str) -> ProjectName | None:
    """Read the project of this name; None if there is none that the principal sees."""
    return _project_name(_by_name().rows(db, principal, {"name": name}))


def project_with_code(db: Connection, principal: Principal, code: int) -> ProjectName | None:
    """Read the project of this code; None if there is none that the principal sees."""
    if code > LARGEST_CODE:
        return None
    return _project_name(_by_code().rows(db, principal, {"code": code}))


def project_with_id(db: Connection, principal: Principal, project_id: int) -> ProjectName | None:
    """Read the project with this id, if the principal sees it."""
    return _project_name(_by_id().rows(db, principal, {"id": project_id}))


@cache
def _by_id() -> SeenRead:
    return _name_read(project.c.id == bindparam("id", type_=Integer))


@cache
def _by_name() -> SeenRead:
    return _name_read(project.c.name == bindparam("name", type_=Text))


@cache
def _by_code() -> SeenRead:
    return _name_read(project.c.code == bindparam("code", type_=BigInteger))


def _name_read(is_it: ColumnElement[bool]) -> SeenRead:
    statement = select(project.c.id, project.c.code, project.c.name).where(is_it)
    return SeenRead(lambda seen: statement.where(seen(project.c.id)).order_by(project.c.id))


def _project_name(rows: list[Any]) -> ProjectName | None:
    return ProjectName(**rows[0]._asdict()) if rows else None


def projects(
    db: Connection,
    principal: Principal,
    *,
    search: str | None = None,
    name: str | None = None,
    code: int | None = None,
    project_id: int | None = None,
    after: int = 0,
    offset: int = 0,
    limit: int | None,
) -> tuple[list[ProjectView], int]:
    """List projects that the principal sees by id, at most `limit`; and count them all.

    Those behind the id `after`, those whose names contain `search`, or the one with this name, code
    or id.
    """
    seen = actions_in(principal, project.c.id)
    statement = (
        select(project, _owner.c.user_name, seen.label("actions"))
        .outerjoin_from(project, _owner, _owner.c.id == project.c.user_id)
        .where(seen.op("&")(int(Action.VIEW)) != 0)
        .where(project.c.id > after)
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
            review_since=row.review_since,
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


def lock_project(db: Connection, project_id: int) -> None:
    """Lock a project: nothing else changes it before the end of the transaction."""
    db.execute(select(project.c.id).where(project.c.id == project_id).with_for_update())


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The name of a project, and since when it asks for a review; None: it does not."""

    name: str
    since: datetime | None


def review_of(db: Connection, project_id: int) -> Review | None:
    """Read if a project asks for a review; None if there is no such project."""
    found = db.execute(
        select(project.c.name, project.c.review_since).where(project.c.id == project_id)
    ).first()
    return None if found is None else Review(name=found.name, since=found.review_since)


def lock_projects(db: Connection) -> None:
    """Serialize the naming of projects: no key keeps a name from standing twice."""
    db.execute(select(func.pg_advisory_xact_lock(func.hashtext("orcaflow projects"))))


def edit_project(
    db: Connection,
    project_id: int,
    *,
    name: str,
    description: str | None,
    review_since: datetime | None,
    at: datetime,
) -> bool:
    """Set the name, the description and the review; False if another project has the name."""
    other = select(project.c.id).where(project.c.name == name).where(project.c.id != project_id)
    if db.scalar(other) is not None:
        return False
    changed = db.execute(
        update(project)
        .where(project.c.id == project_id)
        .values(name=name, description=description, review_since=review_since, update_time=at)
    )
    return changed.rowcount == 1


def definitions_in(db: Connection, project_id: int, *, limit: int) -> list[str]:
    """List the names of some definitions of a project."""
    return list(
        db.scalars(
            select(process_definition.c.name)
            .where(process_definition.c.project_id == project_id)
            .order_by(process_definition.c.id)
            .limit(limit)
        )
    )


def hold_project(db: Connection, project_id: int) -> None:
    """Lock a project until the transaction ends; other rows may refer to it meanwhile."""
    row = project.c.id
    db.execute(select(row).where(row == project_id).with_for_update(key_share=True))


def active_supervisors_in(db: Connection, project_id: int) -> list[str]:
    """List the supervisors of a project that have not ended."""
    return list(
        db.scalars(
            select(supervisor_runtime.c.id)
            .where(supervisor_runtime.c.project_id == project_id)
            .where(supervisor_runtime.c.active)
            .order_by(supervisor_runtime.c.id)
        )
    )


def live_topologies_in(db: Connection, project_id: int) -> list[str]:
    """List the topologies of a project that were not killed."""
    return list(
        db.scalars(
            select(topology.c.name)
            .where(topology.c.project_id == project_id)
            .where(topology.c.wanted["killed"].astext.is_distinct_from("true"))
            .order_by(topology.c.name)
        )
    )


def delete_project(db: Connection, project_id: int) -> bool:
    """Delete a project with its grants; False if it is gone already.

    Its supervisors and topologies, which have ended, go with their histories, and its datasets are
    nobody's.
    """
    ended = (
        select(supervisor_runtime.c.id)
        .where(supervisor_runtime.c.project_id == project_id)
        .scalar_subquery()
    )
    db.execute(delete(stream_task).where(stream_task.c.supervisor.in_(ended)))
    db.execute(delete(supervisor).where(supervisor.c.id.in_(ended)))
    owned = delete(dataset).where(dataset.c.project_id == project_id).returning(dataset.c.id)
    delete_shares_of(db, ShareKind.DATASET, db.scalars(owned).all())
    for table in (
        supervisor_runtime,
        topology,
        relation_project_user,
        definition_draft,
        definition_proposal,
    ):
        db.execute(delete(table).where(table.c.project_id == project_id))
    return db.execute(delete(project).where(project.c.id == project_id)).rowcount == 1


def project_ids(db: Connection, principal: Principal, name: str) -> list[int]:
    """List the ids of the projects of this name that the principal sees, the smallest first."""
    return list(
        db.scalars(
            select(project.c.id)
            .where(project.c.name == name)
            .where(seen_projects(principal, project.c.id))
            .order_by(project.c.id)
        )
    )


def project_names(db: Connection, principal: Principal) -> list[str]:
    """List the names of the projects that the principal sees."""
    return list(
        db.scalars(
            select(project.c.name)
            .where(seen_projects(principal, project.c.id))
            .order_by(project.c.id)
        )
    )


def members_of(db: Connection, project_id: int) -> list[MemberView]:
    """List the users with a grant in the project by id; administrators need none."""
    rows = db.execute(
        select(
            user.c.id,
            user.c.user_name,
            user.c.state,
            func.bit_or(relation_project_user.c.perm).label("actions"),
        )
        .join_from(relation_project_user, user, user.c.id == relation_project_user.c.user_id)
        .where(relation_project_user.c.project_id == project_id)
        .group_by(user.c.id)
        .order_by(user.c.id)
    )
    return [
        MemberView(
            user_id=row.id,
            user_name=row.user_name,
            is_enabled=row.state == _ENABLED,
            actions=row.actions,
        )
        for row in rows
    ]


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
