"""The accounts of people, by which they are known here and their tasks run."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
)

from common.store.tables.columns import (
    code,
    known,
    metadata,
    not_empty,
    number,
    own_id,
    seen_by_reader,
    time,
    time_now,
    times,
)

tenant: Final = Table(
    "t_ds_tenant",
    metadata,
    own_id(),
    Column("tenant_code", String(64), nullable=False),
    Column("tenant_name", String(64)),
    Column("description", String(256)),
    number("queue_id", 1),
    *times(),
    not_empty("tenant_code"),
    info=seen_by_reader("id tenant_code tenant_name description queue_id create_time update_time"),
)

queue: Final = Table(
    "t_ds_queue",
    metadata,
    own_id(),
    Column("queue_name", String(64)),
    Column("queue", String(64)),
    *times(),
    info=seen_by_reader("id queue_name queue create_time update_time"),
)

user: Final = Table(
    "t_ds_user",
    metadata,
    own_id(),
    Column("user_name", String(64), nullable=False),
    Column("user_password", String(255)),
    code("user_type", 1),
    Column("email", String(64)),
    Column("phone", String(11)),
    number("tenant_id", 0),
    *times(),
    Column("queue", String(64)),
    code("state", 1),
    UniqueConstraint("user_name", name="user_name_unique"),
    not_empty("user_name"),
    known("user_type", range(2)),
    known("state", range(2)),
    info=seen_by_reader("id user_name user_type state tenant_id create_time update_time"),
)

session: Final = Table(
    "t_ds_session",
    metadata,
    Column("id", String(64), primary_key=True),
    number("user_id", nullable=True),
    Column("ip", String(45)),
    time("last_login_time"),
    time("expire_time"),
)

access_token: Final = Table(
    "t_ds_access_token",
    metadata,
    own_id(),
    number("user_id", nullable=True),
    Column("token", String(64)),
    time("expire_time"),
    *times(),
    Column("name", String(100)),
    number("scopes", 15),
    Column("projects", ARRAY(Integer)),
    time("last_used"),
    CheckConstraint("scopes BETWEEN 0 AND 15", name="scopes"),
)
Index("t_ds_access_token_token_idx", access_token.c.token)

# By which a login provider knows a user: its own name for somebody, which it gives nobody else.
user_identity: Final = Table(
    "t_ds_user_identity",
    metadata,
    Column("issuer", String(255), primary_key=True),
    Column("subject", String(255), primary_key=True),
    Column("user_id", Integer, ForeignKey(user.c.id, ondelete="CASCADE"), nullable=False),
    time_now("create_time"),
)
Index("t_ds_user_identity_user_id_idx", user_identity.c.user_id)

# Failed log-ins in a row, by account and by address: the next is admitted after `blocked_until`.
login_failure: Final = Table(
    "t_ds_login_failure",
    metadata,
    Column("subject", String(128), primary_key=True),
    number("failures", 0),
    time("blocked_until"),
    time_now("update_time"),
)
