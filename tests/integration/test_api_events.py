"""Streams of events over a socket, with the rows and the notifications of a real database."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, event, update

from api.live.looker import CHANNELS, LiveLoop
from api.live.streams import MOST_OF_USER, MOST_STREAMS, Streams
from api.pace import Pace
from api.policy import BASE
from api.server import _HttpServer
from common.clock import SystemClock
from common.config import ApiConfig
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.listen import Notifications
from operations.live import WatchedTables
from operations.session import Session
from operations.tokens import create_token, revoke_token
from operations.users import create_user, grant
from tests.bounds import step_within
from tests.builders import a_definition_json
from tests.integration.cli_rows import a_definition, an_attempt, an_instance


class Server:
    """A server whose looker is stepped by hand."""

    def __init__(self, app: FastAPI, db: Engine, url: str) -> None:
        self.streams: Streams = app.state.streams
        self.looker = LiveLoop(
            self.streams,
            WatchedTables(db),
            lambda: Notifications(url, CHANNELS),
            clock=SystemClock(),
        )
        self.http = _HttpServer(app, ApiConfig(port=0))
        self.url = f"http://127.0.0.1:{self.http._socket.getsockname()[1]}"

    def step_until(self, done: Callable[[], bool], awaited: str) -> None:
        step_within(done, self.looker.run_once, awaited=awaited)

    @contextmanager
    def reading(self, headers: dict[str, str], topics: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """Read the events of a stream, stepping the looker until each is there."""
        address = f"{self.url}{BASE}/events?topics={topics}"
        with httpx.stream("GET", address, headers=headers, timeout=30) as answer:
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
            yield self._events(answer)

    def _events(self, answer: httpx.Response) -> Iterator[tuple[str, Any]]:
        lines = answer.iter_lines()
        (stream,) = self.streams.all()
        sent: list[bytes] = []
        take = stream.mailbox.take
        # Counts what the server has taken to send.
        stream.mailbox.take = lambda: sent.append(take()) or sent[-1]  # type: ignore[method-assign,func-returns-value]
        read: list[str] = []
        while True:
            self.step_until(
                lambda: b"".join(sent).count(b"\n\n") > len(read), f"event {len(read) + 1}"
            )
            kind, data, _ = (next(lines) for _ in range(3))
            read.append(kind)
            yield kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@pytest.fixture
def server(app: FastAPI, owner: Session, db: Engine) -> Iterator[Server]:
    app.state.config, app.state.engine, app.state.streams = owner.config, db, Streams()
    app.state.pace = Pace(per_second=0, clock=SystemClock())
    made = Server(app, db, owner.config.database.url)
    made.http.start()
    with closing(made.looker):
        yield made
    app.state.streams.end_all(b"")
    made.http.stop()


@pytest.fixture
def run(db: Engine) -> int:
    definition = a_definition(db, process_definition_json=a_definition_json("a >> b"))
    return an_instance(db, ProcessState.RUNNING, process_definition_id=definition)


def a_token(owner: Session, user: str) -> tuple[int, dict[str, str]]:
    life = timedelta(days=1)
    now = datetime.now(UTC)
    made = create_token(owner, user, name="t", role="admin", projects=(), life=life, now=now)
    return made.view.id, {"Authorization": f"Bearer {made.text}"}


def ends(db: Engine, table: Any, number: int, state: int) -> None:
    with db.begin() as connection:
        connection.execute(
            update(table)
            .where(table.c.id == number)
            .values(state=state, end_time=datetime.now(UTC))
        )


def test_a_stream_tells_all_and_then_every_change(
    server: Server, owner: Session, db: Engine, run: int
) -> None:
    task = an_attempt(
        db, run, TaskState.RUNNING, name="a", host="w:1", worker_incarnation=1, flag=1
    )
    _, headers = a_token(owner, "admin")
    with server.reading(headers, f"instance:{run},overview") as events:
        kind, snapshot = next(events)
        assert kind == "snapshot"
        (shown,) = snapshot["instances"]
        assert (shown["id"], shown["state"]["name"], shown["tasks"]) == (run, "RUNNING", [task, 1])
        assert [each["id"] for each in snapshot["overview"]["instances"]] == [run]
        ends(db, t.task_instance, task, TaskState.SUCCESS)
        kind, told = next(events)
        assert (kind, told["id"], told["state"]["name"]) == ("task", task, "SUCCESS")
        other = an_attempt(db, run, TaskState.SUCCESS, name="b", flag=1, settled=True)
        kind, told = next(events)
        assert (kind, told["id"], told["name"]) == ("task", other, "b")
        ends(db, t.process_instance, run, ProcessState.SUCCESS)
        kind, told = next(events)
        assert (kind, told["id"], told["state"]["name"]) == ("instance", run, "SUCCESS")
    server.step_until(lambda: server.streams.all() == [], "all streams closed")


def test_a_revoked_token_ends_its_stream_and_opens_no_other(
    server: Server, owner: Session, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_user(owner, "ada", is_admin=False, password=None, tenant=None)
    grant(owner, "ada", project="default", role="viewer")
    token, headers = a_token(owner, "ada")
    address = f"{server.url}{BASE}/events?topics=instance:{run}"
    with server.reading(headers, f"instance:{run}") as events:
        assert next(events)[0] == "snapshot"
        grant(owner, "ada", project="default", role="none")
        assert next(events) == ("end", {"reason": "not-found"})
    assert httpx.get(address, headers=headers).status_code == 404
    grant(owner, "ada", project="default", role="viewer")
    with server.reading(headers, f"instance:{run}") as events:
        assert next(events)[0] == "snapshot"
        revoke_token(owner, token)
        assert next(events) == ("end", {"reason": "unauthenticated"})
    assert httpx.get(address, headers=headers).status_code == 401


def test_without_a_watcher_no_statement_runs_and_with_many_one_a_look(
    server: Server, owner: Session, db: Engine, run: int
) -> None:
    statements: list[str] = []
    event.listen(db, "before_cursor_execute", lambda *given: statements.append(str(given[2])))
    for _ in range(3):
        assert server.looker.run_once() > timedelta(minutes=1)
    assert statements == []
    _, headers = a_token(owner, "admin")
    address = f"{server.url}{BASE}/events?topics=instance:{run}"
    with httpx.Client(headers=headers, timeout=60) as client:
        opened = [
            client.send(client.build_request("GET", address), stream=True)
            for _ in range(MOST_OF_USER)
        ]
        refused = client.get(address)
        assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too-many")
        assert int(refused.headers["retry-after"]) > 0
        streams = server.streams.all()
        server.step_until(
            lambda: not any(each.mailbox.wants_snapshot for each in streams), "snapshots for all"
        )
        looks = [each for each in statements if "t_ds_task_instance.progress" in each]
        asked = len(statements)
        server.looker.run_once()
        assert len(looks) == 1
        # One question for all, and now and then one for the rights of their user.
        assert len(statements) - asked <= 3
        for answer in opened:
            answer.close()
        server.step_until(lambda: server.streams.all() == [], "all streams closed")
    server.looker.run_once()
    asked = len(statements)
    assert server.looker.run_once() > timedelta(minutes=1)
    assert len(statements) == asked


def test_x30_of_300_streams_200_are_served_and_the_others_told_when_to_come_again(
    server: Server, owner: Session, run: int
) -> None:
    server.streams.seats._most_of_user = 1_000
    _, headers = a_token(owner, "admin")
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    asked = f"GET {BASE}/events?topics=instance:{run} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n"
    address = ("127.0.0.1", server.http._socket.getsockname()[1])
    with ExitStack() as stack:
        # All at once; of those that are served, nobody reads more than the first line.
        opened = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(300)]
        for each in opened:
            each.sendall(asked.encode())
        first = [each.recv(12) for each in opened]
        assert Counter(first) == {b"HTTP/1.1 200": MOST_STREAMS, b"HTTP/1.1 429": 100}
        refused = opened[first.index(b"HTTP/1.1 429")].recv(65_536)
        assert b"retry-after: " in refused
        # Others are answered meanwhile, and one look serves all who watch.
        assert httpx.get(f"{server.url}{BASE}/instances/{run}", headers=headers).status_code == 200
        server.looker.run_once()
        assert not any(each.mailbox.wants_snapshot for each in server.streams.all())
    server.step_until(lambda: server.streams.all() == [], "all streams closed")
