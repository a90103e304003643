"""Connections that give way while the database works, in and outside greenlets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing

import psycopg2
import pytest
from psycopg2.extensions import make_dsn
from sqlalchemy import make_url, text
from sqlalchemy.exc import IntegrityError, ProgrammingError

from api.greenlets import Greenlets
from common.errors import ConfigurationError, ServiceUnreachableError
from common.store.connect import Engine, engine
from common.store.yielding import YieldingConnection

_PROJECTS = text("SELECT count(*) FROM t_ds_project WHERE name = 'yield'")
_ADD = text("INSERT INTO t_ds_project (id, name, user_id) VALUES (:id, 'yield', 1)")
_LOCK, _UNLOCK = text("SELECT pg_advisory_lock(7)"), text("SELECT pg_advisory_unlock(7)")


@pytest.fixture
def yielding(emptied_url: str) -> Iterator[Engine]:
    made = engine(
        emptied_url, max_overflow=-1, by_statement=True, connection_factory=YieldingConnection
    )
    made.connect().close()
    yield made
    made.dispose()


def projects(db: Engine) -> int:
    with db.connect() as link:
        found: int = link.execute(_PROJECTS).scalar_one()
        return found


def side_by_side(scene: Callable[[Greenlets[object]], Awaitable[object]], number: int = 2) -> None:
    async def begin() -> None:
        await scene(Greenlets(asyncio.get_running_loop(), number))

    asyncio.run(begin())


def test_a_transaction_is_committed_or_rolled_back_as_a_whole(yielding: Engine, db: Engine) -> None:
    with yielding.begin() as link:
        link.execute(_ADD, {"id": 101})
        link.execute(_ADD, {"id": 102})
        assert projects(db) == 0
    assert projects(db) == 2
    link = yielding.connect()
    link.connection.driver_connection.autocommit = False
    link.execute(_ADD, {"id": 103})
    with pytest.raises(IntegrityError):
        link.execute(_ADD, {"id": 101})
    link.close()
    assert projects(db) == projects(yielding) == 2
    with yielding.connect() as link:
        link.execute(_ADD, {"id": 104})
        assert projects(db) == 3


def test_a_mistake_ends_its_statement_alone(yielding: Engine) -> None:
    with yielding.connect() as link:
        with pytest.raises(ProgrammingError):
            link.execute(text("SELECT nothing"))
        assert link.execute(_PROJECTS).scalar_one() == 0


def test_a_greenlet_that_waits_lets_another_go_on(yielding: Engine, db: Engine) -> None:
    done: list[str] = []

    def wait() -> None:
        with yielding.connect() as link:
            link.execute(_LOCK)
            link.execute(_UNLOCK)
        done.append("waited")

    def read() -> None:
        done.append(f"read {projects(yielding)}")

    async def scene(greenlets: Greenlets[object]) -> None:
        with db.connect() as holder:
            holder.execute(_LOCK)
            waiting = greenlets.begin(wait)
            await greenlets.begin(read)
            await greenlets.begin(read)
            assert done == ["read 0", "read 0"]
            holder.execute(_UNLOCK)
        await waiting

    side_by_side(scene)
    assert done[2:] == ["waited"]


def test_a_lost_connection_is_told_and_replaced(yielding: Engine, db: Engine) -> None:
    def read() -> object:
        return projects(yielding)

    def lose() -> object:
        with yielding.connect() as link:
            backend = link.execute(text("SELECT pg_backend_pid()")).scalar_one()
            with db.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": backend})
            with pytest.raises(ServiceUnreachableError):
                link.execute(_PROJECTS)
        return "lost"

    async def scene(greenlets: Greenlets[object]) -> None:
        assert [await greenlets.begin(each) for each in (lose, read)] == ["lost", 0]
        assert await asyncio.gather(*(greenlets.begin(read) for _ in range(20))) == [0] * 20

    side_by_side(scene, 4)


def test_a_refused_connection_is_told_in_its_greenlet(emptied_url: str) -> None:
    address = make_url(emptied_url).set(database="away").render_as_string(hide_password=False)
    refused = engine(address, by_statement=True, connection_factory=YieldingConnection)

    def read() -> object:
        try:
            return projects(refused)
        except ConfigurationError as error:
            return str(error)

    async def scene(greenlets: Greenlets[object]) -> None:
        assert "does not exist" in str(await greenlets.begin(read))

    side_by_side(scene)


def test_a_server_that_says_nothing_is_given_up() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        dsn = make_dsn(host="127.0.0.1", port=port, dbname="x", connect_timeout=1)
        with pytest.raises(psycopg2.OperationalError, match="timeout expired"):
            YieldingConnection(dsn)


@pytest.mark.parametrize("factory", [None, YieldingConnection])
@pytest.mark.parametrize("by_statement", [False, True])
def test_connections_that_the_server_has_closed_are_replaced_before_they_are_used(
    emptied_url: str,
    db: Engine,
    by_statement: bool,
    factory: type[YieldingConnection] | None,
) -> None:
    """A restart of the server closes all of them."""
    made = engine(emptied_url, by_statement=by_statement, connection_factory=factory)
    own = text("SELECT pg_backend_pid()")
    with made.connect() as one, made.connect() as other:
        former = [link.execute(own).scalar_one() for link in (one, other)]
    gone = text("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(:former)")
    with db.connect() as link:
        for pid in former:
            # It waits for the end of the other process.
            link.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": pid})
        assert link.execute(gone, {"former": former}).scalar_one() == 0
    with made.connect() as one, made.connect() as other:
        now = [link.execute(own).scalar_one() for link in (one, other)]
    assert not set(now) & set(former)
    made.dispose()
