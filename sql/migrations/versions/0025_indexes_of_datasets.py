"""Indexes for the greatest version of a dataset, and for what was allocated in a chunk of time."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"

_STATEMENTS = (
    "CREATE INDEX t_ds_segment_version_idx ON t_ds_segment (dataset, version)",
    "CREATE INDEX t_ds_pending_segment_version_idx ON t_ds_pending_segment (dataset, version)",
    """
    CREATE INDEX t_ds_pending_segment_interval_idx
        ON t_ds_pending_segment USING gist (interval)
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
