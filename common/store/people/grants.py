"""Statements by which people create, revoke and list grants of shared objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    and_,
    delete,
    false,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import insert

from common.model.grants import GrantKind
from common.model.rights import Action, Principal
from common.store.grants import is_granted, lends_files
from common.store.people.rights import LARGEST_ID, seen_projects, sees_shared
from common.store.tables import (
    datasource,
    environment,
    grant,
    project,
    task_group,
    tenant,
    worker_group,
)

_LARGEST_NUMBER: Final = 2**63 - 1
_NO_USER: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedObject:
    """An object that can be granted. `number` is the number in its grants."""

    kind: GrantKind
    id: int
    number: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectOfGrant:
    """A project to which an object is granted."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectGrants:
    """An object with the projects that may use it, ordered by name."""

    object: SharedObject
    projects: tuple[ProjectOfGrant, ...]


def lends(db: Connection, owner: int, project_id: int) -> bool:
    """Return True if tasks of a project may use the resources of a user."""
    if not 0 < owner <= LARGEST_ID:
        return False
    return bool(db.scalar(select(lends_files(literal(owner), literal(project_id)))))


def _columns(kind: GrantKind) -> tuple[Column[Any], Column[Any], Column[Any]]:
    """Return the columns of the id, of the number in grants, and of the name."""
    match kind:
        case GrantKind.TENANT:
            return tenant.c.id, tenant.c.id, tenant.c.tenant_code
        case GrantKind.DATASOURCE:
            return datasource.c.id, datasource.c.id, datasource.c.name
        case GrantKind.ENVIRONMENT:
            return environment.c.id, environment.c.code, environment.c.name
        case GrantKind.POOL:
            return task_group.c.id, task_group.c.id, task_group.c.name
        case GrantKind.WORKER_GROUP:
            return worker_group.c.id, worker_group.c.id, worker_group.c.name


def _objects(kind: GrantKind) -> Select[Any]:
    row_id, number, name = _columns(kind)
    return select(
        literal(int(kind)).label("kind"),
        row_id.label("id"),
        number.label("number"),
        name.label("name"),
    )


def objects_given(db: Connection, kind: GrantKind, given: str | int) -> list[SharedObject]:
    """List the objects with this name, or else the objects with this id or environment code."""
    row_id, number, name = _columns(kind)
    found: list[SharedObject] = []
    if isinstance(given, str) and "\0" not in given:
        rows = db.execute(_objects(kind).where(name == given).order_by(row_id))
        found = [_shared(row) for row in rows]
    digits = str(given)
    if found or not (digits.isascii() and digits.isdecimal()):
        return found
    wanted = int(digits[:20])
    if not 0 < wanted <= _LARGEST_NUMBER:
        return []
    is_it = number == wanted if wanted > LARGEST_ID else or_(row_id == wanted, number == wanted)
    return [_shared(row) for row in db.execute(_objects(kind).where(is_it).order_by(row_id))]


def object_names(db: Connection, kind: GrantKind) -> list[str]:
    """List the names of all objects of a kind."""
    _, _, name = _columns(kind)
    return list(db.scalars(select(name).order_by(name)))


def projects_given(db: Connection, principal: Principal, given: str | int) -> list[ProjectOfGrant]:
    """List the projects with this name that the principal sees, or else with this id."""
    seen = select(project.c.id, project.c.name).where(seen_projects(principal, project.c.id))
    rows: list[Any] = []
    if isinstance(given, str) and "\0" not in given:
        rows = list(db.execute(seen.where(project.c.name == given).order_by(project.c.id)))
    digits = str(given)
    if not rows and digits.isascii() and digits.isdecimal() and 0 < int(digits[:20]) <= LARGEST_ID:
        rows = list(db.execute(seen.where(project.c.id == int(digits))))
    return [ProjectOfGrant(id=row.id, name=row.name) for row in rows]


def project_name(db: Connection, project_id: int) -> str | None:
    """Return the name of a project."""
    found: str | None = db.scalar(select(project.c.name).where(project.c.id == project_id))
    return found


def add_grant(
    db: Connection, kind: GrantKind, number: int, *, project_id: int, user_id: int
) -> bool:
    """Insert a grant; False if it exists already."""
    added = db.execute(
        insert(grant)
        .values(object_type=int(kind), object_id=number, project_id=project_id, user_id=user_id)
        .on_conflict_do_nothing()
    )
    return added.rowcount == 1


def remove_grant(db: Connection, kind: GrantKind, number: int, *, project_id: int) -> bool:
    """Delete a grant; False if it does not exist."""
    gone = db.execute(
        delete(grant)
        .where(grant.c.object_type == int(kind))
        .where(grant.c.object_id == number)
        .where(grant.c.project_id == project_id)
    )
    return gone.rowcount == 1


def object_grants(
    db: Connection,
    kinds: Collection[GrantKind],
    *,
    number: int | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> list[ObjectGrants]:
    """List the objects of these kinds by kind and name; with `number`, only the object it names.

    With `after` they are ordered by id, starting after that id.
    """
    rows: list[Any] = []
    for kind in kinds:
        statement = _objects(kind).limit(limit)
        row_id, its_number, name = _columns(kind)
        if number is not None:
            statement = statement.where(its_number == number)
        order = (name, its_number) if after is None else (row_id,)
        if after is not None:
            statement = statement.where(row_id > after)
        rows += db.execute(statement.order_by(*order)).all()
    given = (
        select(grant.c.object_type, grant.c.object_id, project.c.id, project.c.name)
        .join_from(grant, project, project.c.id == grant.c.project_id)
        .where(grant.c.object_type.in_([int(kind) for kind in kinds]))
        .order_by(project.c.name, project.c.id)
    )
    if number is not None:
        given = given.where(grant.c.object_id == number)
    elif after is not None:
        given = given.where(grant.c.object_id.in_([row.number for row in rows]))
    holders: dict[tuple[int, int], list[ProjectOfGrant]] = {}
    for row in db.execute(given):
        holder = ProjectOfGrant(id=row.id, name=row.name)
        holders.setdefault((row.object_type, row.object_id), []).append(holder)
    return [
        ObjectGrants(object=_shared(row), projects=tuple(holders.get((row.kind, row.number), ())))
        for row in rows
    ]


def granted_names(
    db: Connection, kind: GrantKind, project_id: int
) -> Mapping[str, tuple[int, ...]]:
    """Return the numbers of the objects of a kind that a project may use, by their names."""
    _, number, name = _columns(kind)
    found: dict[str, tuple[int, ...]] = {}
    rows = db.execute(
        select(name.label("name"), number.label("number"))
        .where(is_granted(kind, number, literal(project_id)))
        .order_by(number)
    )
    for row in rows:
        found[row.name] = (*found.get(row.name, ()), row.number)
    return found


def granted_numbers_named(db: Connection, kind: GrantKind, project_id: int) -> dict[int, str]:
    """Return the names of the objects of a kind that a project may use, by their numbers."""
    names = granted_names(db, kind, project_id)
    return {number: name for name, numbers in names.items() for number in numbers}


def granted_numbers(db: Connection, project_id: int) -> Mapping[GrantKind, frozenset[int]]:
    """Return the numbers of all objects that a project may use, by kind, with one statement."""
    found: dict[GrantKind, set[int]] = {kind: set() for kind in GrantKind}
    granted = select(grant.c.object_type, grant.c.object_id)
    for row in db.execute(granted.where(grant.c.project_id == project_id)):
        found[GrantKind(row.object_type)].add(row.object_id)
    return {kind: frozenset(numbers) for kind, numbers in found.items()}


def is_shown(kind: GrantKind, principal: Principal | None) -> ColumnElement[bool]:
    """Build the condition of lists: the principal sees this object of the kind's table.

    Users see the objects granted to projects that they see, and pools that they created;
    administrators see all objects. Without a principal the condition is true: for checks of the
    whole table with results that no user sees.
    """
    if principal is None:
        return true()
    _, number, _ = _columns(kind)
    granted = (
        select(grant.c.object_id)
        .where(grant.c.object_type == int(kind))
        .where(seen_projects(principal, grant.c.project_id))
    )
    is_maker: ColumnElement[bool] = false()
    if kind is GrantKind.POOL and principal.scope & Action.VIEW:
        is_maker = and_(task_group.c.user_id == principal.user_id, task_group.c.user_id > _NO_USER)
    return or_(sees_shared(principal), number.in_(granted), is_maker)


def _shared(row: Any) -> SharedObject:
    return SharedObject(kind=GrantKind(row.kind), id=row.id, number=row.number, name=row.name)
