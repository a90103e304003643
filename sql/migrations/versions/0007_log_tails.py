"""The ends of failed attempts' logs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "t_ds_task_log_tail",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("task_instance_id", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("tail", sa.LargeBinary(), nullable=False),
        sa.Column(
            "create_time",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["task_instance_id"],
            ["t_ds_task_instance.id"],
            name=op.f("t_ds_task_log_tail_task_instance_id_fk"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("t_ds_task_log_tail_pk")),
        sa.UniqueConstraint(
            "task_instance_id", name=op.f("t_ds_task_log_tail_task_instance_id_key")
        ),
    )
