"""The command that began a process instance, so that its sender finds the run.

Earlier runs keep NULL: their commands are deleted rows. A command that waits during the upgrade is
taken afterwards like any other, and its run names it.
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
