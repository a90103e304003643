"""Real databases and a warm Spark host for the tests of this folder, and the command line in-process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from sqlalchemy import Engine, make_url

from common.config import Config, DatabaseConfig, ZookeeperConfig
from common.embedded.addresses import PostgresAddress
from common.store.connect import engine
from operations.session import Session
from orcaflow.cli.app import main
from tests.conftest import MIGRATED, Databases
from tests.integration.shared_databases import MigratedDatabase, PlainDatabase
from tests.integration.worker_host import Signpost
from tests.simulation.virtual_clock import VirtualClock

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from httpx import Response

    from tests.integration.rights_mistakes import Plants
    from tests.integration.spark_host import SparkHost

Cli: TypeAlias = Callable[..., tuple[int, str, str]]


@contextmanager
def _shared(
    databases: Databases, postgres: PostgresAddress, *template: str
) -> Iterator[PostgresAddress]:
    with databases.some() as make:
        yield replace(postgres, dbname=make_url(make(*template)).database or "")


@pytest.fixture(scope="session")
def _migrated(databases: Databases, postgres: PostgresAddress) -> Iterator[MigratedDatabase]:
    with (
        _shared(databases, postgres, MIGRATED) as address,
        closing(MigratedDatabase(address)) as shared,
    ):
        yield shared


@pytest.fixture
def emptied_url(_migrated: MigratedDatabase) -> str:
    """A database with the schema and nothing in it, which tests have one after the other."""
    _migrated.empty()
    return _migrated.url


@pytest.fixture(scope="session")
def _plain(databases: Databases, postgres: PostgresAddress) -> Iterator[PlainDatabase]:
    with _shared(databases, postgres) as address, closing(PlainDatabase(address)) as shared:
        yield shared


@pytest.fixture
def plain_url(_plain: PlainDatabase) -> str:
    """A database with nothing in it, which tests have one after the other."""
    _plain.empty()
    return _plain.url


@pytest.fixture
def db(emptied_url: str) -> Iterator[Engine]:
    """A database with the schema and nothing in it."""
    made = engine(emptied_url, pool_size=3)
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def url(databases: Databases) -> Iterator[str]:
    """One database with the schema for a whole module, whose tests clear or share its rows."""
    with databases.some() as make:
        yield make(MIGRATED)


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHost]:
    """One Spark host for all modules that only run tasks on it: each server costs twenty seconds."""
    # Here, since it brings PySpark and pandas with it, which the tests that wait long don't need.
    from tests.integration.spark_host import WARM_PROFILES, spark_host

    with spark_host(tmp_path_factory.mktemp("warm"), WARM_PROFILES) as made:
        yield made


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLAlchemy's events hear of the statements too that the driver executes for itself."""
    monkeypatch.setattr(
        "common.store.fixed_statement.rows_alone",
        lambda db, statement, values, **_: list(db.exec_driver_sql(statement, dict(values))),
    )


@pytest.fixture
def signpost(tmp_path: Path) -> Iterator[Signpost]:
    signpost = Signpost(tmp_path / "signpost")
    yield signpost
    signpost.close()


@pytest.fixture
def zone_name() -> str:
    """The cluster's zone; a module may override it."""
    return "UTC"


@pytest.fixture
def config(db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Settings whose ZooKeeper is away, which is found out at once."""
    monkeypatch.setattr("operations.explaining.PATIENCE", timedelta(milliseconds=1))
    monkeypatch.setattr("api.routes.cluster.PATIENCE", timedelta(milliseconds=1))
    url = db.url.set(drivername="postgresql").render_as_string(hide_password=False)
    return Config(
        home=tmp_path,
        time_zone="UTC",
        database=DatabaseConfig(url=url),
        zookeeper=ZookeeperConfig(hosts="127.0.0.1:1"),
    )


@pytest.fixture
def owner(config: Config, db: Engine) -> Session:
    """A session of the owner of the database."""
    made = Session()
    made.__dict__.update(config=config, engine=db)
    return made


@pytest.fixture(scope="session")
def app() -> FastAPI:
    """The application, which takes longer to build than most tests: each test gives it its own."""
    # Here: most modules need no web framework.
    from api.app import build

    made = build(Config(), engine("postgresql+psycopg2://nobody@127.0.0.1:1/none"), version="1")
    made.state.streams.end_all(b"")  # A client of tests reads an answer to its end.
    return made


@pytest.fixture
def client(app: FastAPI, config: Config, emptied_url: str) -> Iterator[TestClient]:
    """Somebody who asks the application, which reads statement by statement, as it is served."""
    from fastapi.testclient import TestClient

    from api.known_tokens import KnownTokens
    from api.pace import Pace
    from api.reach import reach_of
    from api.turns import Turns
    from common.store.yielding import YieldingConnection

    made = engine(emptied_url, pool_size=3, by_statement=True)
    reading = engine(
        emptied_url, pool_size=3, by_statement=True, connection_factory=YieldingConnection
    )
    reading.connect().close()
    app.state.config, app.state.engine, app.state.reading_engine = config, made, reading
    app.state.reach = reach_of(config.api)
    app.state.pace = Pace(per_second=0, clock=VirtualClock())
    app.state.turns = Turns(clock=VirtualClock())
    app.state.known_tokens = KnownTokens(clock=VirtualClock(), seconds=0)
    app.state.patience_seconds = 60
    yield TestClient(app, base_url="http://127.0.0.1:12345", raise_server_exceptions=False)
    app.state.reading_engine = None
    reading.dispose()
    made.dispose()


@pytest.fixture
def at_console(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has logging in take no time, waits for no master, and follows no redirect."""
    from api.console.pages import begin
    from operations import log_ins, passwords
    from tests.integration.console_visits import CHEAP

    monkeypatch.setattr(passwords, "hashed", CHEAP.hash)
    monkeypatch.setattr(passwords, "is_outdated", lambda _: False)
    monkeypatch.setattr(log_ins, "_NOBODYS", CHEAP.hash("nobody's"))
    monkeypatch.setattr(begin, "WAIT_SECONDS", 0.0)
    client.follow_redirects = False


@pytest.fixture
def ada(at_console: None, client: TestClient, owner: Session) -> str:
    """The session of somebody who is admin of the default project."""
    from tests.integration.console_visits import session_of

    return session_of(client, owner, "ada", "admin")


@pytest.fixture
def audited(client: TestClient, db: Engine) -> Iterator[None]:
    """Each order by a token that was carried out, or refused for its rights, has its line."""
    from tests.integration.api_worlds import orders_without_a_line

    answers: list[Response] = []
    client.event_hooks = {"response": [answers.append]}
    yield
    assert orders_without_a_line(db, answers) == []


@pytest.fixture
def plants(app: FastAPI) -> Iterator[Plants]:
    """Checks of rights that can be left out, one at a time, once the application has them all."""
    from tests.integration.rights_mistakes import planting

    with planting() as made:
        yield made


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
    # Nothing listens there: the living daemons can't be read, which the output says.
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", "127.0.0.1:1")
    monkeypatch.setattr("operations.explaining.PATIENCE", timedelta(milliseconds=50))
    monkeypatch.setattr("operations.worker_slots._PATIENCE", timedelta(milliseconds=50))
    # Long enough for a real master, too long for none.
    monkeypatch.setattr("orcaflow.cli.waiting.TAKEN_WITHIN", timedelta())

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FastAPI, str]]:
    """Run an api-server in a thread for all tests of a module; each test sets the database."""
    import threading

    import uvicorn

    from api.app import build, openapi
    from api.server import listen

    app = build(Config(), engine("postgresql+psycopg2://nobody@127.0.0.1:1/none"), version="0.0.7")
    openapi(app)  # It takes a second, and is cached.
    with listen("127.0.0.1", 0) as place:
        place.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        thread = threading.Thread(target=lambda: server.run(sockets=[place]), daemon=True)
        thread.start()
        yield app, f"http://127.0.0.1:{place.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def cli_owner(cli: Cli, db: Engine) -> Session:
    """Return a session of the database owner with the settings of the command line."""
    from common.config import load

    made = Session()
    made.__dict__.update(config=load(), engine=db)
    return made


@pytest.fixture
def token_of(cli_owner: Session, tmp_path: Path) -> Callable[[str], str]:
    """Return a function that creates a token for a user and stores it in a file."""
    from operations.tokens import create_token

    def make(user: str) -> str:
        made = create_token(
            cli_owner,
            user,
            name="test",
            role="admin",
            projects=(),
            life=timedelta(days=1),
            now=datetime.now(UTC),
        )
        path = tmp_path / f"{user}.token"
        path.touch(mode=0o600)
        path.write_text(f"{made.text}\n", encoding="utf-8")
        return str(path)

    return make


@pytest.fixture
def remote(
    *,
    cli: Cli,
    db: Engine,
    served: tuple[FastAPI, str],
    cli_owner: Session,
    token_of: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    """Return a function that runs a command over HTTP as an administrator."""
    app, url = served
    app.state.config, app.state.engine = cli_owner.config, db
    monkeypatch.setattr("api.routes.cluster.PATIENCE", timedelta(milliseconds=50))
    monkeypatch.setattr("orcaflow.cli.waiting._BEGUN_WITHIN", timedelta())
    token = token_of("admin")
    return lambda *arguments: cli("--server", url, "--token-file", token, *arguments)
