"""The connections to Kafka: rows of `t_ds_datasource` that supervisors name.

For people, masters and workers, only this module looks up a connection by its name. It requires a
grant to the project. The values are encrypted (`common.datasource_keys`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, literal, select

from common.model.grants import GrantKind
from common.model.streams.connections import KAFKA
from common.store.grants import is_granted
from common.store.tables import datasource, supervisor_runtime

_MOST_NAME: Final = 64


def kafka_connection(db: Connection, name: str, *, project_id: int) -> str | None:
    """Return `connection_params` of a connection that a project may use, or None."""
    if "\0" in name or len(name) > _MOST_NAME:
        return None
    rows = db.scalars(
        select(datasource.c.connection_params)
        .where(datasource.c.name == name)
        .where(datasource.c.type == KAFKA)
        .where(is_granted(GrantKind.DATASOURCE, datasource.c.id, literal(project_id)))
    ).all()
    # Names of rows that were inserted by hand may not be unique.
    return rows[0] if len(rows) == 1 else None


def connection_of_supervisor(db: Connection, supervisor_id: str, name: str) -> str | None:
    """Return the same for the project of a supervisor; None for an unknown supervisor."""
    project_id = db.scalar(
        select(supervisor_runtime.c.project_id).where(supervisor_runtime.c.id == supervisor_id)
    )
    return None if project_id is None else kafka_connection(db, name, project_id=project_id)
