"""The first schema: all tables, indexes and triggers, and the rows that every installation needs.

The DDL stands beside this module, frozen as text: a migration must go on doing what it did, while
`common/store/tables` moves on.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import context, op

revision = "0001"
down_revision = None

# Rows with which a definition and a command typed by hand need nothing else. There is no default
# password: NULL lets nobody in.
_SEED = (
    "INSERT INTO t_ds_queue (id, queue_name, queue) VALUES (1, 'default', 'default')",
    (
        "INSERT INTO t_ds_tenant (id, tenant_code, tenant_name, queue_id)"
        " VALUES (1, :os_user, :os_user, 1)"
    ),
    "INSERT INTO t_ds_user (id, user_name, user_type, tenant_id) VALUES (1, 'admin', 0, 1)",
    (
        "INSERT INTO t_ds_alertgroup (id, group_name, description)"
        " VALUES (1, 'default admin warning group', 'default admin warning group')"
    ),
    "INSERT INTO t_ds_project (id, name, user_id) VALUES (1, 'default', 1)",
    "INSERT INTO t_ds_cluster (id) VALUES (1)",
)
_SEEDED = ("t_ds_queue", "t_ds_tenant", "t_ds_user", "t_ds_alertgroup", "t_ds_project")


def upgrade() -> None:
    ddl = Path(__file__).with_name("0001_first_schema.sql").read_text(encoding="utf-8")
    op.get_bind().exec_driver_sql(ddl)
    os_user = context.config.attributes["os_user"]
    for row in _SEED:
        statement = sa.text(f"{row} ON CONFLICT (id) DO NOTHING")
        if ":os_user" in row:
            statement = statement.bindparams(sa.bindparam("os_user", os_user, sa.String(64)))
        op.execute(statement)
    for name in _SEEDED:
        last = sa.func.max(sa.column("id", sa.Integer))
        sequence = sa.func.pg_get_serial_sequence(name, "id")
        op.execute(sa.select(sa.func.setval(sequence, last)).select_from(sa.table(name)))
