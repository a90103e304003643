"""The versions of definitions, for ever: each as it was when the next one took its place."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"

_STATEMENT = """
    CREATE TABLE t_ds_process_definition_log (
        process_definition_id INTEGER NOT NULL,
        version INTEGER NOT NULL,
        document TEXT NOT NULL,
        user_id INTEGER,
        user_name VARCHAR(64),
        note VARCHAR(255),
        create_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT t_ds_process_definition_log_pk PRIMARY KEY (process_definition_id, version),
        CONSTRAINT t_ds_process_definition_log_process_definition_id_fk
            FOREIGN KEY(process_definition_id)
            REFERENCES t_ds_process_definition (id) ON DELETE CASCADE
    )
    """


def upgrade() -> None:
    op.execute(_STATEMENT)
