"""Stores and registry in both shapes: in memory, and on real servers.

The stores share one PostgreSQL database, which is emptied for each test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from common.store.connect import connect, engine
from common.store.listen import Channel, hint_channel
from common.store.master.commands import PostgresCommandStore
from tests.conformance.registries import InMemory, OnZookeeper, Server
from tests.conformance.store_tables import (
    MOST_SUB_PROCESSES,
    PARAM_LIMIT,
    WORKER,
    MemoryTables,
    PostgresTables,
    Tables,
)
from tests.conftest import MIGRATED, Databases


@pytest.fixture(scope="session")
def postgres_tables(databases: Databases) -> Iterator[PostgresTables]:
    """One database for all tests, since emptying it takes a tenth of the time of a new one."""
    with databases.some() as make:
        url = make(MIGRATED)
        made = engine(url)
        listener = connect(url)
        with listener.cursor() as cursor:
            for channel in (*Channel, hint_channel(WORKER.address)):
                cursor.execute(f"LISTEN {channel}")
        yield PostgresTables(made, listener)
        listener.close()
        made.dispose()


@pytest.fixture
def emptied_tables(postgres_tables: PostgresTables) -> PostgresTables:
    """The shared database without rows, and a store of commands that has served no project."""
    postgres_tables.empty()
    postgres_tables.commands = PostgresCommandStore(
        postgres_tables.engine,
        param_limit_bytes=PARAM_LIMIT,
        hint_to=lambda _: postgres_tables.hinted,
        most_sub_processes=MOST_SUB_PROCESSES,
    )
    return postgres_tables


@pytest.fixture(params=["memory", "postgresql"])
def db(request: pytest.FixtureRequest) -> Tables:
    if request.param == "memory":
        return MemoryTables()
    tables: PostgresTables = request.getfixturevalue("emptied_tables")
    return tables


@pytest.fixture(params=["memory", "zookeeper"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made: InMemory | OnZookeeper
    if request.param == "memory":
        made = InMemory()
    else:
        made = OnZookeeper(request.getfixturevalue("zk_root"))
    yield made
    made.close()
