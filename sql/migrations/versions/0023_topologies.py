"""Topologies: what people want of them, the last report of each, and their versions."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"

_STATEMENTS = (
    """
    CREATE TABLE t_ds_topology (
        name VARCHAR(255) NOT NULL,
        project_id INTEGER DEFAULT 1 NOT NULL,
        process_definition_id INTEGER NOT NULL,
        version INTEGER DEFAULT 0 NOT NULL,
        generation INTEGER DEFAULT 1 NOT NULL,
        wanted JSONB DEFAULT '{}' NOT NULL,
        report JSONB,
        report_time TIMESTAMP WITH TIME ZONE,
        task_instance_id INTEGER,
        create_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        update_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT t_ds_topology_pk PRIMARY KEY (name),
        CONSTRAINT t_ds_topology_name_not_empty_check CHECK (name <> ''),
        CONSTRAINT t_ds_topology_generation_check CHECK (generation >= 1)
    )
    """,
    """
    CREATE TABLE t_ds_topology_version (
        topology VARCHAR(255) NOT NULL,
        version INTEGER NOT NULL,
        code JSONB NOT NULL,
        graph JSONB NOT NULL,
        user_id INTEGER,
        create_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
        CONSTRAINT t_ds_topology_version_pk PRIMARY KEY (topology, version),
        CONSTRAINT t_ds_topology_version_topology_fk
            FOREIGN KEY(topology) REFERENCES t_ds_topology (name) ON DELETE CASCADE,
        CONSTRAINT t_ds_topology_version_version_check CHECK (version >= 1)
    )
    """,
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
