"""Shared objects and their grants to projects, for tests of access to them."""

from __future__ import annotations

import secrets
from typing import Any, Final

from sqlalchemy import Connection, Engine, insert, select

from common.model.grants import KINDS, GrantKind
from common.store import tables as t
from operations.projects import create_project
from operations.session import Session

OBJECTS: Final = {
    GrantKind.TENANT: (t.tenant, {"tenant_code": "theirs"}),
    GrantKind.DATASOURCE: (
        t.datasource,
        {"name": "theirs", "type": 1, "connection_params": '{"url": "sqlite:///a.db"}'},
    ),
    GrantKind.ENVIRONMENT: (t.environment, {"name": "theirs", "config": "export A_TOKEN=x"}),
    GrantKind.POOL: (t.task_group, {"name": "theirs", "group_size": 1, "user_id": 0}),
    GrantKind.WORKER_GROUP: (t.worker_group, {"name": "theirs"}),
}
"""An object of each kind that only the other project may use."""


def objects_of_others(owner: Session) -> dict[GrantKind, int]:
    """Create the objects, grant them to a new project `other`, and return their numbers."""
    other = create_project(owner, "other", description=None).id
    numbers = {}
    with owner.engine.begin() as connection:
        for kind, (table, values) in OBJECTS.items():
            column = table.c.code if kind is GrantKind.ENVIRONMENT else table.c.id
            made = insert(table).values(values).returning(column)
            numbers[kind] = connection.execute(made).scalar_one()
            grant_to(connection, kind, numbers[kind], other)
    return numbers


def grant_to(connection: Connection, kind: GrantKind, number: int, project: int) -> None:
    given = {"object_type": int(kind), "object_id": number, "project_id": project}
    connection.execute(insert(t.grant).values(given))


def grant_objects(db: Engine, objects: dict[str, Any], project: int) -> None:
    """Grant the shared objects of a world to its project."""
    with db.begin() as connection:
        for word, kind in KINDS.items():
            if word not in objects:
                continue
            number = objects[word]
            if kind is GrantKind.ENVIRONMENT:
                row = t.environment.c
                number = connection.scalar(select(row.code).where(row.id == number))
            connection.execute(
                insert(t.grant).values(object_type=kind, object_id=number, project_id=project)
            )


def a_shared_object(db: Engine, word: str, project: int) -> int:
    """Create an object with a unique name and grant it to the project; return its id."""
    name = f"fresh-{secrets.token_hex(4)}"
    statements = {
        "tenant": insert(t.tenant).values(tenant_code=name),
        "worker-group": insert(t.worker_group).values(name=name),
        "environment": insert(t.environment).values(name=name),
        "pool": insert(t.task_group).values(name=name, group_size=1),
    }
    made = statements[word]
    with db.begin() as connection:
        number: int = connection.execute(made.returning(made.table.c.id)).scalar_one()
    grant_objects(db, {word: number}, project)
    return number
