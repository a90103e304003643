"""Runs and attempts that did not simply succeed, found among a million that did.

The indexes hold none of the successes, so that nothing is written for these.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_index(
        "t_ds_process_instance_rare_end_idx",
        "t_ds_process_instance",
        ["state", "id"],
        postgresql_where=sa.text("state IN (3, 5, 6, 9, 13)"),
    )
    op.create_index(
        "t_ds_task_instance_rare_end_idx",
        "t_ds_task_instance",
        ["state", "id"],
        postgresql_where=sa.text("state IN (3, 5, 6, 8, 9, 13)"),
    )
