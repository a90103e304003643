"""The names by which providers of log-ins know users."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "t_ds_user_identity",
        sa.Column("issuer", sa.String(255), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column(
            "create_time",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["t_ds_user.id"],
            name=op.f("t_ds_user_identity_user_id_fk"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("issuer", "subject", name=op.f("t_ds_user_identity_pk")),
    )
    op.create_index("t_ds_user_identity_user_id_idx", "t_ds_user_identity", ["user_id"])
