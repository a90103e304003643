"""The environments of schedules and complements, which their runs have as others have by command.

Daemons of before read neither column: runs that they begin meanwhile have no environment of these.
"""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    for table in ("t_ds_schedules", "t_ds_complement"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN environment_code BIGINT DEFAULT '-1' NOT NULL")
