"""Long requests: few places, an end of the work with its request, no delay for other users."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event

import psutil
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.bodies import SMALL_BODY
from api.heavy import PLACES_OF_A_USER, HeavyWork
from api.policy import BASE
from api.problems import TooManyError
from api.server import _HttpServer
from common.config import ApiConfig
from common.ports import free_port
from operations.session import Session
from operations.users import create_user
from tests.integration.api_tokens import token_header

ONE = {"processDefinitionJson": {"tasks": [{"name": "t", "type": "SHELLX", "nope": 1}]}}
LARGE = json.dumps([{"name": f"a{number}", **ONE} for number in range(500)]).encode()
"""Definitions that are large enough to be linted in a separate process."""


@pytest.fixture
def admin(owner: Session) -> dict[str, str]:
    return token_header(owner, "admin", role="admin")


@pytest.fixture
def port(app: FastAPI, client: TestClient) -> Iterator[int]:
    """Yield the port of a server with the application of the test."""
    settings = ApiConfig(port=free_port())
    server = _HttpServer(app, settings)
    server.start()
    pause = Event()
    while not server._server.started:
        assert server._thread.is_alive()
        pause.wait(0.01)
    yield settings.port
    server.stop()


def _sent(port: int, headers: dict[str, str], body: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(
        f"POST {BASE}/definitions/lint HTTP/1.1\r\nHost: localhost\r\n{head}"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return connection


def _linting() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if _is_lint(each)]


def _is_lint(process: psutil.Process) -> bool:
    try:
        return "api.lint_apart" in process.cmdline()
    except psutil.Error:
        return False  # It has ended.


def test_x66_a_user_has_few_long_requests_and_other_requests_are_served_meanwhile(
    app: FastAPI, client: TestClient, port: int, admin: dict[str, str]
) -> None:
    pause = Event()
    several = [_sent(port, admin, LARGE) for _ in range(8)]
    try:
        while len(running := _linting()) < PLACES_OF_A_USER:
            pause.wait(0.01)
        for process in running:
            process.suspend()  # Otherwise they would end too early.
        answers = []
        waiting = list(several)
        while len(answers) < 8 - PLACES_OF_A_USER:
            for each in list(waiting):
                each.settimeout(0.05)
                try:
                    answers.append(each.recv(65_536))
                except TimeoutError:
                    continue
                waiting.remove(each)
            pause.wait(0.01)
        assert all(each.startswith(b"HTTP/1.1 429") for each in answers)
        assert all(b"\r\nretry-after: " in each for each in answers)
        assert client.get("/livez").status_code == 200
        made = client.post(f"{BASE}/pools", json={"name": "p", "size": 1}, headers=admin)
        assert made.status_code == 201, made.text
    finally:
        for each in several:
            each.close()
    # No client waits for the result, so the server ends the work.
    _, alive = psutil.wait_procs(running, timeout=10)
    assert alive == []
    while app.state.heavy._taken:
        pause.wait(0.01)


def test_x66_lint_is_for_authors_of_a_project(
    client: TestClient, owner: Session, admin: dict[str, str]
) -> None:
    create_user(owner, "ada", is_admin=False, password=None, tenant=None)
    path = f"{BASE}/definitions/lint"
    assert (
        client.post(
            path, content=b"{}", headers=token_header(owner, "ada", role="admin")
        ).status_code
        == 403
    )
    assert client.post(path, content=b"{}", headers=admin).status_code == 200


def test_x66_a_large_text_is_linted_as_a_small_one(
    client: TestClient, admin: dict[str, str]
) -> None:
    task = {"name": "t", "type": "SHELL", "params": {"rawScript": "echo"}}
    made = {"name": "a", "processDefinitionJson": {"tasks": [task]}}
    large = {**made, "description": "x" * 100}
    padded = json.dumps(large).encode() + b" " * 3 * SMALL_BODY
    path = f"{BASE}/definitions/lint"
    found = client.post(path, content=padded, headers=admin)
    assert found.json() == client.post(path, json=large, headers=admin).json()
    wrong = client.post(path, params={"map": "x"}, content=padded, headers=admin)
    assert wrong.status_code == 422


def test_x66_the_places_of_a_server_are_more_than_those_of_a_user() -> None:
    heavy = HeavyWork()
    with ExitStack() as stack:
        for user_id in (1, 1, 2, 2, 3, 3):
            stack.enter_context(heavy.place(user_id))
        for user_id in (1, 4):
            with pytest.raises(TooManyError):
                stack.enter_context(heavy.place(user_id))
    with heavy.place(1), heavy.place(4):
        assert heavy._taken.total() == 2
    with heavy.place(1), heavy.place(1), pytest.raises(TooManyError), heavy.place(1):
        pass
