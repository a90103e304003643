"""Real databases for the tests of this folder, and the command line on one, in the test's process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest
from sqlalchemy import Engine, create_engine, text

from common.embedded.addresses import PostgresAddress
from common.store import schema
from common.store.connect import engine
from orcaflow.cli.app import main

Cli: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def db(database_url: str) -> Iterator[Engine]:
    """A database with the schema and nothing in it."""
    made = engine(database_url, pool_size=3)
    schema.upgrade(made, os_user="tester")
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def url(postgres: PostgresAddress) -> Iterator[str]:
    """One database with the schema for a whole module, whose tests clear or share its rows."""
    name = f"test_module_{uuid.uuid4().hex[:12]}"
    server = create_engine(
        postgres.url.replace("postgresql://", "postgresql+psycopg2://"),
        isolation_level="AUTOCOMMIT",
    )
    with server.connect() as db:
        db.execute(text(f"CREATE DATABASE {name}"))
    made = replace(postgres, dbname=name).url
    upgraded = engine(made)
    schema.upgrade(upgraded, os_user="tester")
    upgraded.dispose()
    yield made
    with server.connect() as db:
        db.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture
def zone_name() -> str:
    """The cluster's zone; a module may have another."""
    return "UTC"


@pytest.fixture
def cli(
    db: Engine,
    zone_name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    """Runs a command: exit code, standard output, standard error."""
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path / "home"))
    url = db.url.set(drivername="postgresql").render_as_string(hide_password=False)
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", url)
    monkeypatch.setenv("ORCAFLOW_TIME_ZONE", zone_name)
    # Nobody listens there: who is alive can't be asked, and that is said.
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", "127.0.0.1:1")
    monkeypatch.setattr("operations.explaining.PATIENCE", timedelta(milliseconds=50))
    monkeypatch.setattr("operations.simulating._PATIENCE", timedelta(milliseconds=50))
    # Long enough for a real master, too long for none.
    monkeypatch.setattr("operations.instance_commands.TAKEN_WITHIN", timedelta())

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
