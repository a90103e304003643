"""The project that each dataset is of: that of its supervisor, or of the first task to publish."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"

_STATEMENTS = (
    """
    CREATE TABLE t_ds_dataset (
        name VARCHAR(255) NOT NULL,
        project_id INTEGER NOT NULL,
        create_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT t_ds_dataset_pk PRIMARY KEY (name),
        CONSTRAINT t_ds_dataset_name_not_empty_check CHECK (name <> '')
    )
    """,
    """
    INSERT INTO t_ds_dataset (name, project_id) SELECT id, project_id FROM t_ds_supervisor_runtime
    """,
    # Of one whose tasks are gone nobody knows the project: it is left to administrators.
    """
    INSERT INTO t_ds_dataset (name, project_id)
    SELECT DISTINCT ON (segment.dataset) segment.dataset, definition.project_id
    FROM t_ds_segment AS segment
    JOIN t_ds_task_instance AS task ON task.id = segment.task_id
    JOIN t_ds_process_instance AS run ON run.id = task.process_instance_id
    JOIN t_ds_process_definition AS definition ON definition.id = run.process_definition_id
    ORDER BY segment.dataset, segment.created
    ON CONFLICT (name) DO NOTHING
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
