"""The key of the seals in tags of Spark applications, and the last attempt that may lack one."""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0039"

_STATEMENTS = (
    """
    ALTER TABLE t_ds_cluster
        ADD COLUMN tag_key VARCHAR(64)
            DEFAULT md5(gen_random_uuid()::text) || md5(gen_random_uuid()::text) NOT NULL,
        ADD COLUMN unsealed_until BIGINT DEFAULT 0 NOT NULL
    """,
    """
    UPDATE t_ds_cluster
    SET unsealed_until = COALESCE((SELECT max(id) FROM t_ds_task_instance), 0)
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
