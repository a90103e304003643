"""Real servers for every test: one PostgreSQL and one ZooKeeper a session, in a temporary home.

All xdist workers share them: the first that asks starts them, the last that ends stops them. A test
gets a database of its own (`database_url`) and a node of its own (`zk_root`), so none sees another's.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import psycopg2
import pytest

from common.embedded.addresses import PostgresAddress, ZookeeperAddress
from common.embedded.postgres import EmbeddedPostgres
from common.embedded.zookeeper import EmbeddedZookeeper

Address = TypeVar("Address")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperRoot:
    """Where a test may do in ZooKeeper as it likes."""

    hosts: str
    root: str


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_the_caller() -> Iterator[None]:
    """Forget the ORCAFLOW_… variables of whoever runs the tests: they must not steer them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ORCAFLOW_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def server_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the session's servers, the same for all xdist workers."""
    base = tmp_path_factory.getbasetemp()
    # Each xdist worker has a folder of its own inside the session's.
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "servers"
    home.mkdir(exist_ok=True)
    return home


@pytest.fixture(scope="session")
def postgres(server_home: Path) -> Iterator[PostgresAddress]:
    """The session's PostgreSQL. For a database to use, ask for `database_url`."""
    server = EmbeddedPostgres(server_home)
    with _shared(server_home / "postgres.users", server.start, server.stop) as address:
        yield address


@pytest.fixture(scope="session")
def zookeeper(server_home: Path) -> Iterator[ZookeeperAddress]:
    """The session's ZooKeeper. For a node to use, ask for `zk_root`."""
    server = EmbeddedZookeeper(server_home)
    with _shared(server_home / "zookeeper.users", server.start, server.stop) as address:
        yield address


@pytest.fixture
def new_database(postgres: PostgresAddress) -> Iterator[Callable[..., str]]:
    """Makes databases on demand, copied from `template` if one is named; gives their URLs."""
    made: list[str] = []

    def make(template: str = "template1") -> str:
        name = f"test_{uuid.uuid4().hex[:16]}"
        _administer(postgres, f'CREATE DATABASE {name} TEMPLATE "{template}"')
        made.append(name)
        return replace(postgres, dbname=name).url

    yield make
    for name in made:
        _administer(postgres, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def database_url(new_database: Callable[..., str]) -> str:
    """A fresh, empty database, as an SQLAlchemy URL."""
    return new_database()


@pytest.fixture
def zk_root(zookeeper: ZookeeperAddress) -> ZookeeperRoot:
    """A node that nobody else uses; it does not exist yet."""
    return ZookeeperRoot(hosts=zookeeper.hosts, root=f"/test-{uuid.uuid4().hex[:16]}")


def _administer(postgres: PostgresAddress, statement: str) -> None:
    connection = psycopg2.connect(postgres.dsn)
    try:
        # Databases can't be made or dropped inside a transaction.
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
    finally:
        connection.close()


@contextmanager
def _shared(
    users: Path, start: Callable[[], Address], stop: Callable[[], None]
) -> Iterator[Address]:
    """Use a server together with the other workers; the last one to leave stops it."""
    with _counted(users, 1):
        address = start()
    try:
        yield address
    finally:
        with _counted(users, -1) as left:
            if left == 0:
                stop()


@contextmanager
def _counted(users: Path, change: int) -> Iterator[int]:
    """Change the number of users and hold it, so that nobody starts while another stops."""
    with users.open("a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        count = int(file.read() or 0) + change
        file.truncate(0)
        file.write(str(count))
        file.flush()
        yield count
