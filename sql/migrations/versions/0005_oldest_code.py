"""The oldest code that works with the schema, and no lost workers of attempts that never had one.

`oldest_code` lets daemons of the former version start beside newer ones until all are replaced. The
caller writes its value.

`lost_at` was also set of SUB_PROCESS attempts that a stop had given up. No worker has processes of
such an attempt, so nobody would ever have cleared it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("t_ds_version", sa.Column("oldest_code", sa.String(200), nullable=True))
    op.execute(
        "UPDATE t_ds_task_instance SET lost_at = NULL"
        " WHERE lost_at IS NOT NULL AND worker_incarnation IS NULL"
    )
