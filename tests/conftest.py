"""Real servers for every test: one PostgreSQL and one ZooKeeper, in a temporary home.

The xdist workers and the parallel runs of `bin/test` share them. The first run starts them, and the
last run stops them. A test
gets a database of its own (`database_url`, or `migrated_url` with the schema in it) and a node of its
own (`zk_root`), so none sees another's. The schema is migrated once; each further database with it is
a copy. The server syncs nothing to disk: tests about durability start servers of their own. It vacuums
nothing by itself, for the template can't be copied while a vacuum is connected to it.
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import hypothesis
import psycopg2
import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from common.embedded.addresses import (
    OWNER,
    SUPERUSER,
    PostgresAddress,
    ZookeeperAddress,
    zookeeper_address,
)
from common.embedded.postgres import EmbeddedPostgres
from common.embedded.zookeeper import EmbeddedZookeeper
from common.embedded.zookeeper_rights import as_super
from common.store import schema
from common.store.connect import engine
from tests.budget import Budget
from tests.lanes import Lanes
from tests.light_postgres import lighten
from tests.system import cluster, command_line

Address = TypeVar("Address")

STARTED_WITHIN = timedelta(minutes=3)
"""Far more than the start of a server takes on a busy machine."""

_SERVERS = os.environ.get("ORCAFLOW_TEST_SERVERS")
"""The home of the servers that several runs of pytest share; None for servers of this run."""

MIGRATED = "migrated"
"""The database that all others with the schema are copied from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperRoot:
    """A node of ZooKeeper that belongs to one test."""

    hosts: str
    root: str


class Databases:
    """Makes databases of the session's server, and drops them."""

    def __init__(self, postgres: PostgresAddress) -> None:
        self._postgres = postgres

    @contextmanager
    def some(self) -> Iterator[Callable[..., str]]:
        """A function that makes a database and returns its URL; all are dropped at the end."""
        made: list[str] = []

        def make(template: str = "template1") -> str:
            name = f"test_{uuid.uuid4().hex[:16]}"
            administer(
                self._postgres,
                # Files are copied in less time than they are logged.
                f'CREATE DATABASE {name} TEMPLATE "{template}" STRATEGY file_copy OWNER {OWNER}',
            )
            made.append(name)
            return replace(self._postgres, dbname=name).url

        try:
            yield make
        finally:
            for name in made:
                administer(self._postgres, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: of all the objects that are made, nearly all stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()  # Later collections pass over what stays.


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budget())
    config.pluginmanager.register(Lanes())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and not hasattr(config, "workerinput"):
        # A job in the background hears no Ctrl-C: told to end, it stops its servers all the same.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    # To look for garbage as often as a daemon does takes a fifteenth of the simulation's time.
    gc.set_threshold(100_000, 20, 20)
    # A busy machine is slow, and no test may fail for that.
    hypothesis.settings.register_profile(
        "unhurried",
        hypothesis.settings(),
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("unhurried")


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_the_caller() -> Iterator[None]:
    """Forget the ORCAFLOW_… variables of whoever runs the tests: they must not steer them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ORCAFLOW_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def server_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the servers: the same for all xdist workers, and for all runs of `bin/test`."""
    if _SERVERS is not None:
        home = Path(_SERVERS)
        home.mkdir(exist_ok=True)
        return home
    base = tmp_path_factory.getbasetemp()
    # Each xdist worker has a folder of its own inside the session's.
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "servers"
    home.mkdir(exist_ok=True)
    return home


@pytest.fixture(autouse=True, scope="session")
def _furnished_homes(server_home: Path) -> Iterator[None]:
    """Private clusters get a copy of data that is made once, by the first that needs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "FURNISHED", server_home.with_name("furnished"))
        patch.setattr(command_line, "STARTED", server_home.with_name("started"))
        yield


@pytest.fixture(scope="session")
def postgres(server_home: Path) -> Iterator[PostgresAddress]:
    """The session's PostgreSQL. For a database to use, ask for `database_url`."""
    server = EmbeddedPostgres(server_home, start_within=STARTED_WITHIN)

    def start() -> PostgresAddress:
        is_first = not server.is_running()
        address = server.start()
        if is_first:
            lighten(address, "synchronous_commit", "autovacuum")
            _make_template(address)
        return address

    with _shared(server_home / "postgres.users", start, partial(server.stop, now=True)) as address:
        yield address


@pytest.fixture(scope="session")
def zookeeper(server_home: Path) -> Iterator[ZookeeperAddress]:
    """The session's ZooKeeper. For a node to use, ask for `zk_root`.

    Unlike a home's own it is open to all: tests about its rights start servers of their own.
    """
    server = EmbeddedZookeeper(server_home, start_within=STARTED_WITHIN)

    def start() -> ZookeeperAddress:
        if server.is_running():
            return zookeeper_address(server_home)
        address = server.start()
        with closing(as_super(server_home, address.hosts)) as client:
            client.set_acls("/", OPEN_ACL_UNSAFE)
            client.stop()
        return address

    with _shared(server_home / "zookeeper.users", start, server.stop) as address:
        yield address


@pytest.fixture(scope="session")
def databases(postgres: PostgresAddress) -> Databases:
    """The maker of databases, for fixtures that outlive a test; else there is `new_database`."""
    return Databases(postgres)


@pytest.fixture
def new_database(databases: Databases) -> Iterator[Callable[..., str]]:
    """Makes databases on demand, copied from `template` if one is named; gives their URLs."""
    with databases.some() as make:
        yield make


@pytest.fixture
def database_url(new_database: Callable[..., str]) -> str:
    """A fresh, empty database, as an SQLAlchemy URL."""
    return new_database()


@pytest.fixture
def migrated_url(new_database: Callable[..., str]) -> str:
    """A fresh database with the schema and nothing in it, as an SQLAlchemy URL."""
    return new_database(template=MIGRATED)


@pytest.fixture
def zk_root(zookeeper: ZookeeperAddress) -> ZookeeperRoot:
    """A node that nobody else uses; it does not exist yet."""
    return ZookeeperRoot(hosts=zookeeper.hosts, root=f"/test-{uuid.uuid4().hex[:16]}")


def _make_template(postgres: PostgresAddress) -> None:
    # A worker that was through before the others began has stopped the server and left its own.
    administer(postgres, f"DROP DATABASE IF EXISTS {MIGRATED}")
    administer(postgres, f"CREATE DATABASE {MIGRATED} OWNER {OWNER}")
    migrated = engine(replace(postgres, dbname=MIGRATED).url)
    schema.upgrade(migrated, os_user="tester")
    # A database is copied only while nobody is connected to it.
    migrated.dispose()


def administer(postgres: PostgresAddress, statement: str) -> None:
    connection = psycopg2.connect(postgres.seen_by(SUPERUSER).dsn)
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
