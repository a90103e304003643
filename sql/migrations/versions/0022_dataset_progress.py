"""Offsets of datasets tell since when they stand, and their movement is called out."""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"

_STATEMENTS = (
    """
    ALTER TABLE t_ds_dataset_offsets
        ADD COLUMN update_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL
    """,
    """
CREATE FUNCTION orcaflow_offsets_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.update_time := now();
    PERFORM pg_notify('orcaflow_dataset', NEW.dataset);
    RETURN NEW;
END $$
    """,
    """
    CREATE TRIGGER orcaflow_dataset_published
        BEFORE INSERT OR UPDATE ON t_ds_dataset_offsets
        FOR EACH ROW
        EXECUTE FUNCTION orcaflow_offsets_moved()
    """,
    """
CREATE FUNCTION orcaflow_notify_supervisor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], NEW.supervisor);
    RETURN NULL;
END $$
    """,
    """
    CREATE TRIGGER orcaflow_stream_task_came
        AFTER INSERT ON t_ds_stream_task
        FOR EACH ROW
        EXECUTE FUNCTION orcaflow_notify_supervisor('orcaflow_dataset')
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
