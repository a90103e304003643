"""The command line on a real database of its own, in the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest
from sqlalchemy import Engine

from common.store import schema
from common.store.connect import engine
from orcaflow.cli import main

Cli: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def db(database_url: str) -> Iterator[Engine]:
    """A database with the schema and nothing in it."""
    made = engine(database_url, pool_size=3)
    schema.upgrade(made, os_user="tester")
    yield made
    made.dispose()


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
    monkeypatch.setattr("orcaflow.reasoning.PATIENCE", timedelta(milliseconds=50))
    monkeypatch.setattr("orcaflow.rehearsing._PATIENCE", timedelta(milliseconds=50))
    # Long enough for a real master, too long for none.
    monkeypatch.setattr("orcaflow.asking.TAKEN_WITHIN", timedelta())

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
