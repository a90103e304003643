"""Data sources, files and functions that definitions name."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, String, Table, Text

from common.model.streams.connections import KAFKA
from common.store.tables.columns import (
    code,
    known,
    metadata,
    not_empty,
    number,
    own_id,
    seen_by_reader,
    times,
)

datasource: Final = Table(
    "t_ds_datasource",
    metadata,
    own_id(),
    Column("name", String(64), nullable=False),
    Column("note", String(256)),
    code("type"),
    number("user_id", 1),
    Column("connection_params", Text, nullable=False),
    *times(),
    not_empty("name"),
    known("type", (*range(8), KAFKA)),
    info=seen_by_reader("id name type user_id create_time update_time"),
)

resource: Final = Table(
    "t_ds_resources",
    metadata,
    own_id(),
    Column("alias", String(64)),
    Column("file_name", String(64)),
    Column("description", String(256)),
    number("user_id", 1),
    code("type", 0),
    Column("size", BigInteger),
    *times(),
    number("pid", -1),
    Column("full_name", String(255)),
    code("is_directory", 0),
    known("type", range(2)),
    known("is_directory", range(2)),
    info=seen_by_reader(
        "id alias file_name user_id type size create_time update_time pid full_name is_directory",
    ),
)

udf: Final = Table(
    "t_ds_udfs",
    metadata,
    own_id(),
    number("user_id"),
    Column("func_name", String(100), nullable=False),
    Column("class_name", String(255), nullable=False),
    code("type"),
    Column("arg_types", String(255)),
    Column("database", String(255)),
    Column("description", String(255)),
    number("resource_id"),
    Column("resource_name", String(255), nullable=False),
    *times(),
    known("type", range(2)),
)

relation_resources_user: Final = Table(
    "t_ds_relation_resources_user",
    metadata,
    own_id(),
    number("user_id"),
    number("resources_id", nullable=True),
    number("perm", 1),
    *times(),
    info=seen_by_reader("id user_id resources_id perm create_time update_time"),
)

relation_udfs_user: Final = Table(
    "t_ds_relation_udfs_user",
    metadata,
    own_id(),
    number("user_id"),
    number("udf_id", nullable=True),
    number("perm", 1),
    *times(),
    info=seen_by_reader("id user_id udf_id perm create_time update_time"),
)

relation_datasource_user: Final = Table(
    "t_ds_relation_datasource_user",
    metadata,
    own_id(),
    number("user_id"),
    number("datasource_id", nullable=True),
    number("perm", 1),
    *times(),
    info=seen_by_reader("id user_id datasource_id perm create_time update_time"),
)
