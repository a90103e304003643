"""Users with a state, tokens with scopes, sessions that expire, and the audit of changes.

Passwords of before stay as they are, and let nobody in: they are no hashes of argon2id. Tokens of
before were stored as they are, and so match no hash of one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_KEEP_AUDIT = """\
CREATE FUNCTION orcaflow_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('orcaflow.retention', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
        MESSAGE = 't_ds_audit_log is only added to: ' || TG_OP || ' is refused';
END $$"""
_AUDIT_KEPT = """\
CREATE TRIGGER orcaflow_audit_kept
    BEFORE UPDATE OR DELETE OR TRUNCATE ON t_ds_audit_log
    FOR EACH STATEMENT
    EXECUTE FUNCTION orcaflow_keep_audit()"""


def upgrade() -> None:
    op.alter_column("t_ds_user", "user_password", type_=sa.String(255))
    op.add_column(
        "t_ds_user",
        sa.Column("state", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
    )
    op.create_check_constraint(op.f("t_ds_user_state_check"), "t_ds_user", "state IN (0, 1)")
    op.add_column("t_ds_session", _moment("expire_time"))
    for column in (
        sa.Column("name", sa.String(100), nullable=True),
        sa.Column("scopes", sa.Integer(), server_default=sa.text("15"), nullable=False),
        sa.Column("projects", sa.ARRAY(sa.Integer()), nullable=True),
        _moment("last_used"),
    ):
        op.add_column("t_ds_access_token", column)
    op.create_check_constraint(
        op.f("t_ds_access_token_scopes_check"), "t_ds_access_token", "scopes BETWEEN 0 AND 15"
    )
    op.create_index("t_ds_access_token_token_idx", "t_ds_access_token", ["token"])
    _create_audit()
    _create_request_tables()


def _create_audit() -> None:
    op.create_table(
        "t_ds_audit_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        _moment_now("at"),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("user_name", sa.String(64), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=True),
        sa.Column("address", sa.String(45), nullable=True),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("object_type", sa.String(32), nullable=False),
        sa.Column("object_id", sa.Integer(), nullable=True),
        sa.Column("object_name", sa.String(255), nullable=True),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("request", sa.String(64), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="t_ds_audit_log_pk"),
        sa.CheckConstraint(
            "outcome IN ('done', 'refused')", name=op.f("t_ds_audit_log_outcome_check")
        ),
    )
    op.create_index("t_ds_audit_log_at_idx", "t_ds_audit_log", ["at"])
    op.execute(_KEEP_AUDIT)
    op.execute(_AUDIT_KEPT)


def _create_request_tables() -> None:
    op.create_table(
        "t_ds_idempotency_key",
        sa.Column("user_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("idempotency_key", sa.String(255), nullable=False),
        sa.Column("request_sha256", sa.String(64), nullable=False),
        sa.Column("command_id", sa.Integer(), nullable=False),
        _moment_now("create_time"),
        sa.PrimaryKeyConstraint("user_id", "idempotency_key", name="t_ds_idempotency_key_pk"),
    )
    op.create_index("t_ds_idempotency_key_create_time_idx", "t_ds_idempotency_key", ["create_time"])
    op.create_table(
        "t_ds_login_failure",
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        _moment("blocked_until"),
        _moment_now("update_time"),
        sa.PrimaryKeyConstraint("subject", name="t_ds_login_failure_pk"),
    )


def _moment(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=True)


def _moment_now(name: str) -> sa.Column[object]:
    return sa.Column(
        name, sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
    )
