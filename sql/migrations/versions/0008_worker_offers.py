"""Room in `t_ds_worker_server` for what workers tell of themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.alter_column("t_ds_worker_server", "host", type_=sa.String(255))
    op.alter_column("t_ds_worker_server", "res_info", type_=sa.Text())
    op.add_column("t_ds_worker_server", sa.Column("incarnation", sa.BigInteger(), nullable=True))
