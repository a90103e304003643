"""The modes that administrators give workers, and their notification."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"

_STATEMENTS = (
    """
    CREATE TABLE t_ds_worker_mode (
        worker VARCHAR(255) NOT NULL,
        mode VARCHAR(16) NOT NULL,
        reason VARCHAR(255),
        user_name VARCHAR(64),
        update_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT t_ds_worker_mode_pk PRIMARY KEY (worker),
        CONSTRAINT t_ds_worker_mode_worker_not_empty_check CHECK (worker <> ''),
        CONSTRAINT t_ds_worker_mode_mode_check CHECK (mode IN ('enabled', 'lazy', 'disabled'))
    )
    """,
    """
    CREATE TRIGGER orcaflow_worker_mode_changed
        AFTER INSERT OR UPDATE OR DELETE ON t_ds_worker_mode
        FOR EACH STATEMENT
        EXECUTE FUNCTION orcaflow_notify('orcaflow_worker')
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
