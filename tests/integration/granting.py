"""Shared objects of another project, and their grants, for tests of the doors to them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, insert

from common.model.grants import GrantKind
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
    """Make the objects, grant them to a new project `other`, and return their numbers."""
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
