"""Indexes for the overview: last runs of definitions, their complements, and missed fires."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.execute(
        """
        CREATE INDEX t_ds_process_instance_last_idx ON t_ds_process_instance
        (process_definition_id, id)
        WHERE state IN (6, 7) AND parent_task_instance_id = 0
        AND split_part(coalesce(history_cmd, ''), ',', 1) <> 'COMPLEMENT_DATA'
        """
    )
    op.execute(
        """
        CREATE INDEX t_ds_schedule_fire_missed_idx ON t_ds_schedule_fire (fire_time)
        WHERE outcome = 'missed'
        """
    )
    op.execute(
        "CREATE INDEX t_ds_complement_definition_idx ON t_ds_complement (process_definition_id, id)"
    )
