"""The version of the definition that a restart has given a run; NULL: the one in its name."""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.execute("ALTER TABLE t_ds_process_instance ADD COLUMN definition_version INTEGER")
