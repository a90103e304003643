"""The ledger of commands: the outcome of each that is gone.

The commands that were refused before are entered from the error table, so that one list shows them
all. Those that were taken or dropped before have left nothing to enter. A command that waits during
the upgrade is taken afterwards like any other, and entered then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "t_ds_command_ledger",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("command_id", sa.Integer(), nullable=False),
        sa.Column("command_type", sa.Integer(), nullable=True),
        sa.Column("process_definition_id", sa.Integer(), nullable=True),
        sa.Column("process_instance_id", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.SmallInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("start_time", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "handled_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("host", sa.String(255), nullable=True),
        sa.PrimaryKeyConstraint("id", name="t_ds_command_ledger_pk"),
        sa.CheckConstraint("outcome IN (1, 2, 3)", name=op.f("t_ds_command_ledger_outcome_check")),
    )
    op.create_index("t_ds_command_ledger_command_id_idx", "t_ds_command_ledger", ["command_id"])
    op.create_index(
        "t_ds_command_ledger_without_effect_idx",
        "t_ds_command_ledger",
        ["id"],
        postgresql_where=sa.text("outcome <> 1"),
    )
    op.execute(
        "INSERT INTO t_ds_command_ledger (command_id, command_type, process_definition_id,"
        " process_instance_id, outcome, reason, start_time)"
        " SELECT command_id, command_type, process_definition_id, NULLIF(process_instance_id, 0),"
        " 3, message, start_time FROM t_ds_error_command ORDER BY id"
    )
