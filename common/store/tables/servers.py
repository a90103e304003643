"""Daemons, the groups of workers, environments, and the cluster itself."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from common.model.workers import WorkerMode
from common.store.tables.columns import (
    code_is_no_other_id,
    known_words,
    metadata,
    not_empty,
    number,
    own_code,
    own_id,
    seen_by_reader,
    time,
    time_now,
    times,
    word,
)

worker_group: Final = Table(
    "t_ds_worker_group",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("name", String(256), nullable=False),
    Column("ip_list", String(256)),
    *times(),
    not_empty("name"),
    info=seen_by_reader("id name ip_list create_time update_time"),
)

# Variables that tasks are started with. A row that is written without a code has its id as one.
environment: Final = Table(
    "t_ds_environment",
    metadata,
    own_id(),
    own_code(),
    Column("name", String(100), nullable=False),
    Column("config", Text, nullable=False, server_default=""),
    Column("description", String(255)),
    number("operator", 1),
    *times(),
    UniqueConstraint("code"),
    UniqueConstraint("name"),
    not_empty("name"),
    code_is_no_other_id(),
    info=seen_by_reader("id code name description operator create_time update_time"),
)

# The groups whose workers have what an environment names. People read it; it holds nothing back.
environment_worker_group_relation: Final = Table(
    "t_ds_environment_worker_group_relation",
    metadata,
    own_id(),
    Column(
        "environment_code",
        BigInteger,
        ForeignKey("t_ds_environment.code", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("worker_group", String(255), nullable=False),
    number("operator", 1),
    *times(),
    UniqueConstraint(
        "environment_code",
        "worker_group",
        # Its own name would be longer than PostgreSQL takes.
        name="t_ds_environment_worker_group_relation_group_key",
    ),
    info=seen_by_reader("id environment_code worker_group operator create_time update_time"),
)

# One row: what this database is called in places that others use too, as the tags of Spark
# applications, and the secret key of these tags. Both are random and never change, so that they
# outlive moves and new names. Only daemons may read the key: no view of the reading role shows it.
cluster: Final = Table(
    "t_ds_cluster",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False, server_default="1"),
    Column(
        "token",
        String(12),
        nullable=False,
        server_default=text("substr(md5(gen_random_uuid()::text), 1, 12)"),
    ),
    Column(
        "tag_key",
        String(64),
        nullable=False,
        server_default=text("md5(gen_random_uuid()::text) || md5(gen_random_uuid()::text)"),
    ),
    # The last attempt that a former version may have started, with a tag without a seal.
    Column("unsealed_until", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("id = 1", name="t_ds_cluster_one"),
)

# Kept for compatibility: no daemon reads or writes it, servers are listed from ZooKeeper.
master_server: Final = Table(
    "t_ds_master_server",
    metadata,
    own_id(),
    Column("host", String(45)),
    number("port", nullable=True),
    Column("zk_directory", String(64)),
    Column("res_info", String(256)),
    time("create_time"),
    time("last_heartbeat_time"),
    info=seen_by_reader("id host port zk_directory create_time last_heartbeat_time"),
)

# The mode of the worker at an address, or of all at a host that have none of their own. A worker
# without a row is enabled; the row outlives the worker.
worker_mode: Final = Table(
    "t_ds_worker_mode",
    metadata,
    Column("worker", String(255), primary_key=True),
    word("mode"),
    Column("reason", String(255)),
    Column("user_name", String(64)),
    time_now("update_time"),
    not_empty("worker"),
    known_words("mode", WorkerMode),
    info=seen_by_reader(
        "worker mode user_name update_time",
        masked="reason",
    ),
)

worker_server: Final = Table(
    "t_ds_worker_server",
    metadata,
    own_id(),
    Column("host", String(255)),
    number("port", nullable=True),
    Column("zk_directory", String(64)),
    Column("res_info", Text),
    time("create_time"),
    time("last_heartbeat_time"),
    Column("incarnation", BigInteger),
    info=seen_by_reader(
        "id host port zk_directory res_info create_time last_heartbeat_time incarnation"
    ),
)
