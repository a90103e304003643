"""Grants of all shared objects to the default project, for tests that insert them with SQL."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

GRANT_ALL: Final = """
    INSERT INTO t_ds_grant (object_type, object_id, project_id)
    SELECT 1, id, 1 FROM t_ds_tenant UNION ALL SELECT 2, id, 1 FROM t_ds_datasource
    UNION ALL SELECT 3, code, 1 FROM t_ds_environment UNION ALL SELECT 4, id, 1 FROM t_ds_task_group
    UNION ALL SELECT 5, id, 1 FROM t_ds_worker_group
    ON CONFLICT DO NOTHING
"""
SHARED: Final = (
    "t_ds_tenant",
    "t_ds_datasource",
    "t_ds_environment",
    "t_ds_task_group",
    "t_ds_worker_group",
)
"""The tables of shared objects."""


def grant_all(db: Connection) -> None:
    """Grant each shared object to the default project."""
    db.exec_driver_sql(GRANT_ALL)


def names_shared(statement: str) -> bool:
    """Return True if a statement names a table of shared objects."""
    return any(name in statement for name in SHARED)
