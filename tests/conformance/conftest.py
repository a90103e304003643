"""The stores in both shapes: in memory and on one PostgreSQL database, emptied for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, text

from common.embedded.addresses import PostgresAddress
from common.store import schema
from common.store.connect import connect, engine
from common.store.listen import Channel
from tests.conformance.store_tables import MemoryTables, PostgresTables, Tables


@pytest.fixture(scope="session")
def postgres_tables(postgres: PostgresAddress) -> Iterator[PostgresTables]:
    """One database for all tests: emptying it costs a tenth of a new one."""
    name = f"test_store_{uuid.uuid4().hex[:12]}"
    server = create_engine(
        postgres.url.replace("postgresql://", "postgresql+psycopg2://"),
        isolation_level="AUTOCOMMIT",
    )
    with server.connect() as db:
        db.execute(text(f"CREATE DATABASE {name}"))
    url = replace(postgres, dbname=name).url
    made = engine(url)
    schema.upgrade(made, os_user="tester")
    listener = connect(url)
    with listener.cursor() as cursor:
        for channel in Channel:
            cursor.execute(f"LISTEN {channel}")
    yield PostgresTables(made, listener)
    listener.close()
    made.dispose()
    with server.connect() as db:
        db.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture(params=["memory", "postgresql"])
def db(request: pytest.FixtureRequest) -> Tables:
    if request.param == "memory":
        return MemoryTables()
    tables: PostgresTables = request.getfixturevalue("postgres_tables")
    tables.empty()
    return tables
