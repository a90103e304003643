"""The offsets of supervisors with a pattern of topics, by topic and partition."""

from __future__ import annotations

from alembic import op

revision = "0038"
down_revision = "0037"

_STATEMENTS = (
    """
    CREATE TABLE t_ds_dataset_topic_offsets (
        dataset VARCHAR(255) NOT NULL,
        stream VARCHAR(255) NOT NULL,
        partition INTEGER NOT NULL,
        "offset" BIGINT NOT NULL,
        max_event_time TIMESTAMP WITH TIME ZONE,
        version BIGINT DEFAULT 1 NOT NULL,
        update_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT t_ds_dataset_topic_offsets_pk PRIMARY KEY (dataset, stream, partition),
        CONSTRAINT t_ds_dataset_topic_offsets_dataset_not_empty_check CHECK (dataset <> '')
    )
    """,
    """
    CREATE TRIGGER orcaflow_dataset_topic_published
        BEFORE INSERT OR UPDATE ON t_ds_dataset_topic_offsets
        FOR EACH ROW
        EXECUTE FUNCTION orcaflow_offsets_moved()
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
