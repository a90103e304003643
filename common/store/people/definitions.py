"""Process definitions in `t_ds_process_definition`: kept by (project, name), read, released.

What the JSON means is not read here: `common.model.definitions` checks it before it comes in, and
a row typed by hand is checked when it is to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, case, select, update
from sqlalchemy.dialects.postgresql import insert

from common.model.states import ReleaseState
from common.store.tables import process_definition

DEFAULT_PROJECT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRow:
    """One process definition. `version` counts the changes of its JSON; `usable` is its `flag`."""

    id: int
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
    """Insert the definition, or bring the one of that project and name to these values.

    A new one is OFFLINE and at version 1. An existing one keeps its creator and release state, and
    becomes usable again if it was not; its version grows by one only if the JSON differs as text,
    so that importing the same file again makes no new version.
    """
    row = {
        "process_definition_json": process_definition_json,
        "description": description,
        "global_params": global_params,
        "timeout": timeout_minutes,
        "tenant_id": tenant_id,
        "update_time": at,
    }
    changed = process_definition.c.process_definition_json.is_distinct_from(process_definition_json)
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
        .returning(*_COLUMNS)
    )
    return _definition(db.execute(statement).one())


def definition_by_id(db: Connection, definition_id: int) -> DefinitionRow | None:
    found = db.execute(select(*_COLUMNS).where(process_definition.c.id == definition_id)).first()
    return None if found is None else _definition(found)


def definition_by_name(
    db: Connection, name: str, *, project_id: int = DEFAULT_PROJECT
) -> DefinitionRow | None:
    found = db.execute(
        select(*_COLUMNS)
        .where(process_definition.c.project_id == project_id)
        .where(process_definition.c.name == name)
    ).first()
    return None if found is None else _definition(found)


def definitions(db: Connection, *, project_id: int | None = None) -> list[DefinitionRow]:
    """All of a project, or of all projects; by project, then name."""
    statement = select(*_COLUMNS).order_by(
        process_definition.c.project_id, process_definition.c.name
    )
    if project_id is not None:
        statement = statement.where(process_definition.c.project_id == project_id)
    return [_definition(row) for row in db.execute(statement)]


def set_release_state(
    db: Connection, definition_id: int, *, wanted: ReleaseState, at: datetime
) -> bool:
    """Whether this changed it; False if it already was so, or there is no such definition.

    Going ONLINE notifies the masters: a command may be waiting for just that.
    """
    changed = db.execute(
        update(process_definition)
        .where(process_definition.c.id == definition_id)
        .where(process_definition.c.release_state != wanted)
        .values(release_state=wanted, update_time=at)
    )
    return changed.rowcount == 1


_COLUMNS: Final = (
    process_definition.c.id,
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
)


def _definition(row: Row[*tuple[Any, ...]]) -> DefinitionRow:
    return DefinitionRow(
        id=row.id,
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
    )
