"""The failures of attempts on workers, by project. The former version has another table."""

from __future__ import annotations

from alembic import op

revision = "0041"
down_revision = "0040"

_STATEMENTS = (
    """
    CREATE TABLE t_ds_project_failures (
        project_id INTEGER NOT NULL,
        worker VARCHAR(255) NOT NULL,
        failures INTEGER DEFAULT 0 NOT NULL,
        until TIMESTAMP WITH TIME ZONE,
        CONSTRAINT t_ds_project_failures_pk PRIMARY KEY (project_id, worker)
    )
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
