"""Connections to Kafka: data sources of type 100, which supervisors name."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.execute("ALTER TABLE t_ds_datasource DROP CONSTRAINT t_ds_datasource_type_check")
    op.execute(
        "ALTER TABLE t_ds_datasource ADD CONSTRAINT t_ds_datasource_type_check"
        " CHECK (type IN (0, 1, 2, 3, 4, 5, 6, 7, 100))"
    )
