"""Process definitions in `t_ds_process_definition`: kept by (project, name), read, released.

The JSON is not interpreted here: `common.model.definitions` checks it before it is saved, and a row
typed by hand is checked when it is to run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Text,
    any_,
    bindparam,
    case,
    cast,
    func,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert

from common.errors import NotAllowedError
from common.model.date_rules import DateRule
from common.model.rights import Principal
from common.model.states import ReleaseState
from common.store.fixed_statement import FixedRead
from common.store.people.project_column import project_name
from common.store.people.rights import LARGEST_ID, seen_projects, told, told_seen
from common.store.tables import process_definition, project

DEFAULT_PROJECT: Final = 1
LARGEST_CODE: Final = 2**63 - 1

_IMPORT_LOCK = "orcaflow imports"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRow:
    """One process definition. `version` counts the changes of its JSON; `usable` is its `flag`.

    `code` names it in DolphinScheduler's API: its id, or the code that it was imported with.
    """

    id: int
    code: int
    project_id: int
    name: str
    version: int
    release_state: ReleaseState
    process_definition_json: str | None
    description: str | None
    global_params: str | None
    timeout_minutes: int
    tenant_id: int
    user_id: int
    usable: bool
    create_time: datetime
    update_time: datetime
    project_name: str | None = None
    """None in a row that a change returned."""
    date_rule: DateRule | None = None
    """The meaning of its complements' dates; None leaves that to the cluster."""


def save_definition(
    db: Connection,
    *,
    name: str,
    process_definition_json: str,
    at: datetime,
    project_id: int = DEFAULT_PROJECT,
    user_id: int = 1,
    description: str | None = None,
    global_params: str | None = None,
    timeout_minutes: int = 0,
    tenant_id: int = -1,
) -> DefinitionRow:
    """Insert the definition, or update the one of that project and name.

    A new one is OFFLINE and at version 1. An existing one keeps its creator and release state, and
    becomes usable again if it was not; its version grows by one only if the JSON, or the global
    parameters beside it, differ as text, so that importing the same file again makes no new
    version.
    """
    row = {
        "process_definition_json": process_definition_json,
        "description": description,
        "global_params": global_params,
        "timeout": timeout_minutes,
        "tenant_id": tenant_id,
        "update_time": at,
    }
    changed = process_definition.c.process_definition_json.is_distinct_from(
        process_definition_json
    ) | process_definition.c.global_params.is_distinct_from(global_params)
    statement = (
        insert(process_definition)
        .values(project_id=project_id, name=name, user_id=user_id, version=1, create_time=at, **row)
        .on_conflict_do_update(
            index_elements=["project_id", "name"],
            set_={
                **row,
                "flag": 1,
                "version": process_definition.c.version + case((changed, 1), else_=0),
            },
        )
        .returning(*_OWN_COLUMNS, null().label("project_name"))
    )
    return _definition(db.execute(statement).one())


def definition_by_id(db: Connection, definition_id: int) -> DefinitionRow | None:
    found = db.execute(select(*_COLUMNS).where(process_definition.c.id == definition_id)).first()
    return None if found is None else _definition(found)


def definitions_by_id(db: Connection, ids: Collection[int]) -> dict[int, DefinitionRow]:
    """Read the definitions with these ids, by id."""
    rows = db.execute(select(*_COLUMNS).where(process_definition.c.id.in_(ids)))
    return {row.id: _definition(row) for row in rows}


def id_of_code(db: Connection, code: int) -> int | None:
    """Return the id of the definition with this code."""
    if not 0 < code <= LARGEST_CODE:
        return None
    found: int | None = db.scalar(
        select(process_definition.c.id).where(process_definition.c.code == code)
    )
    return found


def codes_of(db: Connection, principal: Principal, ids: Collection[int]) -> dict[int, int]:
    """Read the codes of definitions that the principal sees, by id."""
    rows = db.execute(
        select(process_definition.c.id, process_definition.c.code)
        .where(process_definition.c.id.in_([each for each in ids if each <= LARGEST_ID]))
        .where(seen_projects(principal, process_definition.c.project_id))
    )
    return {row.id: row.code for row in rows}


def keep_code(db: Connection, definition_id: int, code: int) -> bool:
    """Let a definition keep the code of its export; False if that may be an id, or is taken.

    Within an import (`lock_imports`), so that no other takes the code at the same time.
    """
    if not LARGEST_ID < code <= LARGEST_CODE:
        return False
    taken = select(process_definition.c.id).where(process_definition.c.code == code)
    if db.scalar(taken) is not None:
        return False
    changed = db.execute(
        update(process_definition).where(process_definition.c.id == definition_id).values(code=code)
    )
    return changed.rowcount == 1


def definition_by_name(
    db: Connection, name: str, *, project_id: int = DEFAULT_PROJECT
) -> DefinitionRow | None:
    found = db.execute(
        select(*_COLUMNS)
        .where(process_definition.c.project_id == project_id)
        .where(process_definition.c.name == name)
    ).first()
    return None if found is None else _definition(found)


def definition_page(
    db: Connection,
    principal: Principal,
    *,
    name: str | None = None,
    search: str | None = None,
    project_id: int | None = None,
    after: int = 0,
    limit: int,
) -> list[DefinitionRow]:
    """List the definitions that the principal sees by id, from the one after `after` on.

    `search` is part of their names, in any case. Those of all names and projects come without
    their JSON, which may be large.
    """
    is_told = not principal.owns_database and principal.projects is None
    if name is None and search is None and project_id is None and is_told:
        values = {"after": after, "limit": limit, **told(principal)}
        return [_definition(row) for row in _page().rows(db, values)]
    statement = (
        select(*_COLUMNS)
        .where(seen_projects(principal, process_definition.c.project_id))
        .where(process_definition.c.id > after)
        .order_by(process_definition.c.id)
        .limit(limit)
    )
    if name is not None:
        statement = statement.where(process_definition.c.name == name)
    if search is not None:
        within = process_definition.c.name.icontains(search, autoescape=True)
        statement = statement.where(within)
    if project_id is not None:
        statement = statement.where(process_definition.c.project_id == project_id)
    return [_definition(row) for row in db.execute(statement)]


@cache
def _page() -> FixedRead:
    seen = told_seen(process_definition.c.project_id)
    columns = [
        null().label(each.name) if each is process_definition.c.process_definition_json else each
        for each in _COLUMNS
    ]
    return FixedRead(
        select(*columns)
        .where(seen)
        .where(process_definition.c.id > bindparam("after", type_=Integer))
        .order_by(process_definition.c.id)
        .limit(bindparam("limit", type_=BigInteger))
    )


def definitions(db: Connection, *, project_id: int | None = None) -> list[DefinitionRow]:
    """List the definitions of a project, or of all projects; by project, then name."""
    statement = select(*_COLUMNS).order_by(
        process_definition.c.project_id, process_definition.c.name
    )
    if project_id is not None:
        statement = statement.where(process_definition.c.project_id == project_id)
    return [_definition(row) for row in db.execute(statement)]


def definition_names(db: Connection, principal: Principal) -> list[str]:
    """List the names of the definitions that the principal sees."""
    statement = select(process_definition.c.name).order_by(process_definition.c.id)
    return list(
        db.scalars(statement.where(seen_projects(principal, process_definition.c.project_id)))
    )


def rename_definition(db: Connection, definition_id: int, name: str) -> None:
    db.execute(
        update(process_definition).where(process_definition.c.id == definition_id).values(name=name)
    )


def resolve_references(
    db: Connection, definition_id: int, *, version: int, document: str, tenant_id: int
) -> None:
    """Store the ids that the names in a definition resolve to; its meaning does not change.

    Raises `NotAllowedError` if the definition has another version.
    """
    changed = db.execute(
        update(process_definition)
        .where(process_definition.c.id == definition_id)
        .where(process_definition.c.version == version)
        .values(process_definition_json=document, tenant_id=tenant_id)
    )
    if changed.rowcount != 1:
        raise NotAllowedError("the definition was changed at the same time; try again")


def set_release_state(
    db: Connection, definition_id: int, *, wanted: ReleaseState, at: datetime
) -> bool:
    """Release or withdraw a definition; False if it already was so, or does not exist.

    Going ONLINE notifies the masters: a command may be waiting for just that.
    """
    changed = db.execute(
        update(process_definition)
        .where(process_definition.c.id == definition_id)
        .where(process_definition.c.release_state != wanted)
        .values(release_state=wanted, update_time=at)
    )
    return changed.rowcount == 1


_OWN_COLUMNS: Final = (
    process_definition.c.id,
    process_definition.c.code,
    process_definition.c.project_id,
    process_definition.c.name,
    process_definition.c.version,
    process_definition.c.release_state,
    process_definition.c.process_definition_json,
    process_definition.c.description,
    process_definition.c.global_params,
    process_definition.c.timeout,
    process_definition.c.tenant_id,
    process_definition.c.user_id,
    process_definition.c.flag,
    process_definition.c.create_time,
    process_definition.c.update_time,
    process_definition.c.complement_date_rule,
)
_COLUMNS: Final = (*_OWN_COLUMNS, project_name(process_definition.c.project_id))


def _definition(row: Any) -> DefinitionRow:
    return DefinitionRow(
        id=row.id,
        code=row.code,
        project_id=row.project_id,
        name=row.name,
        version=row.version,
        release_state=ReleaseState(row.release_state),
        process_definition_json=row.process_definition_json,
        description=row.description,
        global_params=row.global_params,
        timeout_minutes=row.timeout,
        tenant_id=row.tenant_id,
        user_id=row.user_id,
        usable=row.flag == 1,
        create_time=row.create_time,
        update_time=row.update_time,
        project_name=row.project_name,
        date_rule=None if row.complement_date_rule is None else DateRule(row.complement_date_rule),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDefinition:
    """A definition as others refer to it, with its JSON."""

    id: int
    project_id: int
    project_name: str | None
    name: str
    process_definition_json: str | None


def lock_imports(db: Connection) -> None:
    """Serialize imports: two at once could make a cycle that neither has alone."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _IMPORT_LOCK})


def new_definition_id(db: Connection) -> int:
    """Draw an id for a definition, to be referred to before the definition exists."""
    drawn: int = db.execute(
        select(func.nextval(func.pg_get_serial_sequence(process_definition.name, "id")))
    ).scalar_one()
    return drawn


def insert_definition(
    db: Connection,
    *,
    definition_id: int,
    project_id: int,
    name: str,
    process_definition_json: str,
    at: datetime,
    user_id: int = 1,
    description: str | None = None,
    global_params: str | None = None,
    timeout_minutes: int = 0,
    tenant_id: int = -1,
) -> bool:
    """Insert a definition, OFFLINE and at version 1; False if its name has been taken meanwhile."""
    made = db.execute(
        insert(process_definition)
        .values(
            id=definition_id,
            project_id=project_id,
            name=name,
            user_id=user_id,
            version=1,
            process_definition_json=process_definition_json,
            description=description,
            global_params=global_params,
            timeout=timeout_minutes,
            tenant_id=tenant_id,
            create_time=at,
            update_time=at,
        )
        .on_conflict_do_nothing(index_elements=["project_id", "name"])
    )
    return made.rowcount == 1


def keep_drawing(
    db: Connection, definition_id: int, *, locations: str | None, connects: str | None
) -> None:
    """Store a definition's layout for a front end; None leaves a column as it is."""
    values = {
        name: value
        for name, value in (("locations", locations), ("connects", connects))
        if value is not None
    }
    if values:
        db.execute(
            update(process_definition)
            .where(process_definition.c.id == definition_id)
            .values(**values)
        )


def drawing(db: Connection, definition_id: int) -> tuple[str | None, str | None]:
    """Return the locations and connects of a definition."""
    found = db.execute(
        select(process_definition.c.locations, process_definition.c.connects).where(
            process_definition.c.id == definition_id
        )
    ).first()
    return (None, None) if found is None else (found.locations, found.connects)


def set_execution_type(db: Connection, definition_id: int, *, wanted: int, at: datetime) -> bool:
    """Set the execution type; False if it already was this one."""
    changed = db.execute(
        update(process_definition)
        .where(process_definition.c.id == definition_id)
        .where(process_definition.c.execution_type != wanted)
        .values(execution_type=wanted, update_time=at)
    )
    return changed.rowcount == 1


def set_date_rule(db: Connection, definition_id: int, *, wanted: DateRule, at: datetime) -> None:
    """Set the meaning of the dates of its complements."""
    db.execute(
        update(process_definition)
        .where(process_definition.c.id == definition_id)
        .where(process_definition.c.complement_date_rule.is_distinct_from(wanted.value))
        .values(complement_date_rule=wanted.value, update_time=at)
    )


def execution_types(
    db: Connection, ids: Collection[int], *, principal: Principal | None = None
) -> dict[int, int]:
    """Read the execution types of definitions by id; of those alone that the principal sees."""
    row = process_definition.c
    statement = select(row.id, row.execution_type).where(row.id.in_(ids))
    if principal is not None:
        statement = statement.where(seen_projects(principal, row.project_id))
    return {each.id: each.execution_type for each in db.execute(statement)}


def execution_type_of(db: Connection, definition_id: int) -> int:
    found: int | None = db.scalar(
        select(process_definition.c.execution_type).where(process_definition.c.id == definition_id)
    )
    return found or 0


def definitions_named(db: Connection, names: Collection[str]) -> list[NamedDefinition]:
    """List the definitions with one of these names; the default project's first."""
    return _named_definitions(db, process_definition.c.name.in_(names)) if names else []


def definitions_with_ids(db: Connection, ids: Collection[int]) -> list[NamedDefinition]:
    return _named_definitions(db, process_definition.c.id.in_(ids)) if ids else []


def definitions_with_codes(db: Connection, codes: Collection[int]) -> list[NamedDefinition]:
    """List the definitions in whose JSON one of these codes stands, be it as their own or not."""
    texts = [f'%"code": {code}%' for code in codes]
    column = process_definition.c.process_definition_json
    return _named_definitions(db, column.like(any_(cast(texts, ARRAY(Text))))) if texts else []


def definitions_of_codes(db: Connection, codes: Collection[int]) -> dict[int, NamedDefinition]:
    """Read the definitions that have these codes, by them."""
    wanted = [each for each in codes if 0 < each <= LARGEST_CODE]
    if not wanted:
        return {}
    ids = {
        row.id: row.code
        for row in db.execute(
            select(process_definition.c.id, process_definition.c.code).where(
                process_definition.c.code.in_(wanted)
            )
        )
    }
    return {ids[row.id]: row for row in definitions_with_ids(db, sorted(ids))}


def _named_definitions(db: Connection, which: ColumnElement[bool]) -> list[NamedDefinition]:
    return [
        NamedDefinition(
            id=row.id,
            project_id=row.project_id,
            project_name=row.project_name,
            name=row.name,
            process_definition_json=row.process_definition_json,
        )
        for row in db.execute(
            select(
                process_definition.c.id,
                process_definition.c.project_id,
                project.c.name.label("project_name"),
                process_definition.c.name,
                process_definition.c.process_definition_json,
            )
            .outerjoin_from(
                process_definition, project, project.c.id == process_definition.c.project_id
            )
            .where(which)
            .order_by(process_definition.c.project_id, process_definition.c.id)
        )
    ]
