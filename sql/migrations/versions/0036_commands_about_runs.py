"""An index of the commands that stop, pause or recover runs, apart from those of sub-processes."""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    op.execute(
        "CREATE INDEX t_ds_command_about_runs_idx ON t_ds_command (id)"
        " WHERE command_type IN (2, 8, 9)"
    )
