"""An index of the live sub-processes of a tree, to limit their number."""

from __future__ import annotations

from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.execute(
        "CREATE INDEX t_ds_process_instance_tree_idx ON t_ds_process_instance (root_id)"
        " WHERE root_id <> 0 AND state IN (0, 1, 2, 4, 10, 11, 12, 14)"
    )
