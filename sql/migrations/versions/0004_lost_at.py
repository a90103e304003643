"""The time since which an attempt's worker has been missing, before the attempt is failed over.

Attempts that run during the upgrade have none: no master has missed their workers yet.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column(
        "t_ds_task_instance", sa.Column("lost_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.create_index(
        "t_ds_task_instance_lost_idx",
        "t_ds_task_instance",
        ["id"],
        postgresql_where=sa.text("lost_at IS NOT NULL"),
    )
