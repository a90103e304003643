"""The version of the schema."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, String, Table, UniqueConstraint

from common.store.tables.columns import metadata, own_id, seen_by_reader

version: Final = Table(
    "t_ds_version",
    metadata,
    own_id(),
    Column("version", String(200), nullable=False),
    Column("oldest_code", String(200)),
    UniqueConstraint("version"),
    info=seen_by_reader("id version oldest_code"),
)
