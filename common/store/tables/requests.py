"""The requests of people: the audit of them, and the answers to those that may be repeated."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Identity, Index, Integer, String, Table, Text

from common.store.tables.columns import known_words, metadata, number, time_now, word

# Written in the transaction of the change that it records; a trigger refuses later changes of it.
audit_log: Final = Table(
    "t_ds_audit_log",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    time_now("at"),
    number("user_id", nullable=True),
    Column("user_name", String(64), nullable=False),
    number("token_id", nullable=True),
    Column("address", String(45)),
    Column("action", String(64), nullable=False),
    Column("object_type", String(32), nullable=False),
    number("object_id", nullable=True),
    Column("object_name", String(255)),
    number("project_id", nullable=True),
    word("outcome"),
    Column("request", String(64)),
    Column("detail", Text),
    known_words("outcome", ("done", "refused")),
)
Index("t_ds_audit_log_at_idx", audit_log.c.at)

# The answers to requests that may be repeated; a repetition within a day gets the first answer.
idempotency_key: Final = Table(
    "t_ds_idempotency_key",
    metadata,
    Column("user_id", Integer, primary_key=True, autoincrement=False),
    Column("idempotency_key", String(255), primary_key=True),
    Column("request_sha256", String(64), nullable=False),
    number("command_id"),
    time_now("create_time"),
)
Index("t_ds_idempotency_key_create_time_idx", idempotency_key.c.create_time)
