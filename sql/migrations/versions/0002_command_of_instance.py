"""The command that began a process instance, so that its sender finds the run.

Runs of before have none: their commands are gone, and nobody can tell which they were. A command
that waits meanwhile is taken afterwards like any other, and its run names it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("t_ds_process_instance", sa.Column("command_id", sa.BigInteger(), nullable=True))
    op.create_index(
        "t_ds_process_instance_command_idx",
        "t_ds_process_instance",
        ["command_id"],
        postgresql_where=sa.text("command_id IS NOT NULL"),
    )
