"""An index of waiting commands by definition, to skip those of projects that hold their share."""

from __future__ import annotations

from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.execute(
        """
        CREATE INDEX t_ds_command_definition_idx ON t_ds_command (
        (COALESCE(process_definition_id, 0)),
        ((LEAST(update_time, TIMESTAMPTZ '9999-01-01 00:00:00+00') AT TIME ZONE 'UTC')
        + LEAST(GREATEST(COALESCE(process_instance_priority, 2), 0), 4) * INTERVAL '1 minute'),
        process_instance_priority, id)
        WHERE parent_task_instance_id = 0
        """
    )
