"""Turns of users: one user's requests leave the server to the others, at every API and page."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from select import select
from threading import Event

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, text

from api.cookies import COOKIE
from api.policy import BASE
from api.server import _HttpServer
from api.turns import TURNS_OF_A_USER, Turns
from common.clock import processor_seconds
from common.config import ApiConfig
from common.ports import free_port
from common.store.connect import engine
from operations.session import Session
from operations.users import create_user, grant
from tests.builders import a_definition_json
from tests.integration.api_tokens import token_header
from tests.integration.cli_rows import a_definition
from tests.integration.console_visits import PASSWORD, logged_in
from tests.simulation.virtual_clock import VirtualClock

pytestmark = pytest.mark.usefixtures("at_console")
MANY = 12
"""The requests of one user: more than the server has connections to the database."""
CONNECTIONS = 6
WAITING = text(
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@dataclass(frozen=True, kw_only=True)
class People:
    """Two authors by their tokens, and a definition of their project."""

    amy: dict[str, str]
    pat: dict[str, str]
    definition: int


@pytest.fixture
def people(owner: Session, db: Engine, client: TestClient) -> People:
    for name in ("amy", "pat"):
        create_user(owner, name, is_admin=False, password=PASSWORD, tenant=None)
        grant(owner, name, project="default", role="author")
    return People(
        amy=token_header(owner, "amy", role="author"),
        pat=token_header(owner, "pat", role="author"),
        definition=a_definition(
            db, process_definition_json=a_definition_json("a >> b"), project_id=1, user_id=1
        ),
    )


@pytest.fixture
def port(app: FastAPI, client: TestClient, emptied_url: str) -> Iterator[int]:
    """Yield the port of a server with the application of the test, and a pool as large as usual."""
    made = engine(emptied_url, pool_size=CONNECTIONS, max_overflow=0, by_statement=True)
    app.state.engine = made
    settings = ApiConfig(port=free_port())
    server = _HttpServer(app, settings)
    server.start()
    pause = Event()
    while not server._server.started:
        assert server._thread.is_alive()
        pause.wait(0.01)
    yield settings.port
    server.stop()
    made.dispose()


def _sent(port: int, headers: dict[str, str], path: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
    return connection


def _user_id(client: TestClient, headers: dict[str, str]) -> int:
    number: int = client.get(f"{BASE}/me", headers=headers).json()["id"]
    return number


def test_x110_another_user_is_served_before_the_many_requests_of_one(
    client: TestClient, db: Engine, port: int, people: People
) -> None:
    path = f"{BASE}/definitions/{people.definition}/versions"
    with db.connect() as holder:
        holder.execute(text("LOCK TABLE t_ds_process_definition_log IN ACCESS EXCLUSIVE MODE"))
        several = [_sent(port, people.amy, path) for _ in range(MANY)]
        with db.connect() as look:
            while look.execute(WAITING).scalar_one() < TURNS_OF_A_USER:
                look.rollback()
                answered, _, _ = select(several, [], [], 0.01)
                assert not answered
        # None of the requests before it is answered yet.
        run = {"definition_id": people.definition}
        answer = client.post(f"{BASE}/instances", json=run, headers=people.pat)
        assert answer.status_code == 202, answer.text
        holder.rollback()
    assert [each.recv(12) for each in several] == [b"HTTP/1.1 200"] * MANY
    for each in several:
        each.close()


def test_x110_long_reads_of_one_user_take_the_turns_of_that_user_alone(
    app: FastAPI, client: TestClient, people: People
) -> None:
    path = f"{BASE}/definitions/{people.definition}"
    other = _user_id(client, people.pat)
    # As if each read took thousands of times as long.
    app.state.turns = Turns(
        clock=VirtualClock(),
        processor=lambda thread: 10_000 * processor_seconds(thread),
        longest_wait_seconds=0,
    )
    with app.state.turns.turn(other):
        pass
    with ThreadPoolExecutor(MANY) as threads:
        answers = list(threads.map(lambda _: client.get(path, headers=people.amy), range(MANY)))
    codes = [each.status_code for each in answers]
    assert 1 <= codes.count(200) <= TURNS_OF_A_USER
    assert codes.count(200) + codes.count(429) == MANY
    refused = next(each for each in answers if each.status_code == 429)
    assert int(refused.headers["Retry-After"]) > 1
    assert "share of the server's processor" in refused.json()["detail"]
    assert client.get(path, headers=people.pat).status_code == 200


def test_x110_every_api_and_every_page_needs_a_turn(
    app: FastAPI, client: TestClient, people: People
) -> None:
    cookie = logged_in(client, "amy")
    amy, pat, definition = people.amy, people.pat, people.definition
    clock, charged = VirtualClock(), [0.0]
    turns = app.state.turns = Turns(
        clock=clock, processor=lambda _thread: charged[0], longest_wait_seconds=0
    )
    own = {"Cookie": f"{COOKIE}={cookie}"}
    reads = [
        (f"{BASE}/definitions/{definition}", amy, pat),
        (f"{BASE}/definitions/{definition}/versions", amy, pat),
        ("/dolphinscheduler/projects?pageNo=1&pageSize=1", amy, pat),
        ("/druid/indexer/v1/tasks", amy, pat),
        (f"/definitions/{definition}", own, None),
        (f"/definitions/{definition}/edit", own, None),
    ]
    before = [client.get(path, headers=headers).status_code for path, headers, _ in reads]
    assert 429 not in before
    with turns.turn(_user_id(client, amy)):
        charged[0] += 10
    assert client.get(reads[0][0], headers=pat).status_code == 200
    for path, headers, others in reads:
        answer = client.get(path, headers=headers)
        assert answer.status_code == 429, path
        assert answer.headers["Retry-After"] == "12", path
        if others is not None:
            assert client.get(path, headers=others).status_code == 200, path
    clock.move_to(timedelta(seconds=30))
    after = [client.get(path, headers=headers).status_code for path, headers, _ in reads]
    assert after == before
