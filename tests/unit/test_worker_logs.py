"""Logs of other hosts: who may ask, what a worker hands over, and what a reader believes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from common.log_access import (
    LogAccessError,
    LogGuard,
    LogKeyError,
    LogQuestion,
    read_key,
    token,
)
from operations.log_pieces import Piece
from operations.worker_calls import WorkerCallError
from operations.worker_logs import ask
from tests.log_workers import CLUSTER, KEY, Worker

NOW = 1_800_000_000.0
QUESTION = LogQuestion(instance=12, task=34, start=5, most=100, wait_seconds=3)


def signed(**changes: object) -> str:
    asked = {"key": KEY, "cluster": CLUSTER, "question": QUESTION, "now": NOW, **changes}
    return token(**asked)  # type: ignore[arg-type]


def test_a_token_is_good_for_its_question_once() -> None:
    guard = LogGuard(KEY, cluster=CLUSTER)
    allowed = signed()
    guard.check(allowed, QUESTION, now=NOW + 29)
    with pytest.raises(LogAccessError, match="used already"):
        guard.check(allowed, QUESTION, now=NOW + 29)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (signed(key=bytes(32)), "not of this cluster"),
        (signed(cluster="beef"), "not of this cluster"),
        (signed(question=replace(QUESTION, task=35)), "not of this cluster"),
        (signed(question=replace(QUESTION, start=0)), "not of this cluster"),
        (signed(now=NOW - 31), "clocks differ by 31 s"),
        (signed(now=NOW + 31), "clocks differ by -31 s"),
        (signed().replace("Orcaflow-Log", "Bearer"), "a token is needed"),
        ("", "a token is needed"),
    ],
)
def test_any_other_token_is_refused(header: str, why: str) -> None:
    with pytest.raises(LogAccessError, match=why):
        LogGuard(KEY, cluster=CLUSTER).check(header, QUESTION, now=NOW)


def test_what_is_signed_is_read_as_it_was_meant() -> None:
    assert LogQuestion.read(QUESTION.query()) == QUESTION


@pytest.mark.parametrize(
    "query",
    [
        "",
        "instance=1",
        "instance=0&task=1",
        "instance=../1&task=2",
        "instance=%2e%2e%2f&task=2",
        "instance=1&task=2%00",
        "instance=1&task=2&task=3",
        "instance=1&task=2&path=/etc/passwd",
        "instance=1&task=2&max=262145",
        "instance=1&task=2&wait=21",
        "instance=1&task=99999999999999999999",
        "instance=1&task=2&from=-1",
        "instance=1&task=２",
        "instance=1&task=2" + "&" * 300,
    ],
)
def test_x1_a_question_is_made_of_ids_and_small_numbers(query: str) -> None:
    """X1."""
    with pytest.raises(ValueError, match=r"\w"):
        LogQuestion.read(query)


def test_a_key_is_made_once_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "log.key"
    with pytest.raises(LogKeyError, match=r"copy .* from the worker's host"):
        read_key(path)
    made = read_key(path, makes=True)
    assert read_key(path, makes=True) == read_key(path) == made
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    path.chmod(0o640)
    with pytest.raises(LogKeyError, match="chmod 600"):
        read_key(path)
    path.chmod(0o600)
    path.write_text("nonsense")
    with pytest.raises(LogKeyError, match="holds no key"):
        read_key(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "7" / "12" / "34.log"
    path.parent.mkdir(parents=True)
    path.write_bytes("eins\nzwei\nfünf\n".encode())
    (tmp_path / "logs" / "1").mkdir()
    (tmp_path / "logs" / "3").write_text("no folder")
    return tmp_path / "logs"


@pytest.fixture
def worker(root: Path) -> Iterator[Worker]:
    made = Worker(root)
    yield made
    made.close()


def test_a_log_is_read_from_a_worker_as_from_a_file(worker: Worker, root: Path) -> None:
    log = worker.log()
    assert log.read() == "eins\nzwei\nfünf\n"
    assert log.read() == ""
    with (root / "7" / "12" / "34.log").open("ab") as writer:
        writer.write(b"sechs")
    assert "".join(log.rest()) == "sechs"
    again = worker.log()
    again.skip_to_last(2)
    # The size as of its opening counts.
    assert "".join(again.rest()) == "fünf\nsechs"
    assert worker.ask(start=5, most=4) == Piece(b"zwei", 21, 5)
    assert worker.ask(start=1000) == Piece(b"", 21, 21)


def test_who_waits_is_answered_when_there_is_something(worker: Worker, root: Path) -> None:
    worker.running.add(34)
    answers: list[Piece] = []
    asking = threading.Thread(
        target=lambda: answers.append(worker.ask(start=16, wait_seconds=20)), daemon=True
    )
    asking.start()
    assert worker.woken.wait(30)
    worker.logs.run_once()
    assert answers == []
    with (root / "7" / "12" / "34.log").open("ab") as writer:
        writer.write(b"six")
    worker.logs.run_once()
    asking.join(30)
    assert answers == [Piece(b"six", 19, 16)]


def test_who_waits_for_an_attempt_that_ends_is_answered_too(worker: Worker) -> None:
    worker.running.add(34)
    answers: list[Piece] = []
    asking = threading.Thread(
        target=lambda: answers.append(worker.ask(start=16, wait_seconds=20)), daemon=True
    )
    asking.start()
    assert worker.woken.wait(30)
    worker.running.clear()
    worker.logs.run_once()
    asking.join(30)
    assert answers == [Piece(b"", 16, 16)]


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _link_on_the_way(path: Path) -> None:
    other = path.parent.with_name("other")
    path.parent.rename(other)
    (other / path.name).write_text("secret")
    path.parent.symlink_to(other)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("put", [_link, _link_on_the_way, _pipe, lambda _: None])
def test_x1_what_stands_in_place_of_a_log_is_not_handed_over(
    worker: Worker, root: Path, put: Callable[[Path], None]
) -> None:
    """X1."""
    path = root / "7" / "12" / "34.log"
    path.unlink()
    put(path)
    with pytest.raises(WorkerCallError, match="refuses: there is no such log here"):
        worker.log()


def test_a_worker_of_another_cluster_hands_nothing_over(worker: Worker) -> None:
    with pytest.raises(WorkerCallError, match="refuses: the token is not of this cluster"):
        ask(worker.address, LogQuestion(instance=12, task=34), key=KEY, cluster="beef")


def test_the_port_serves_what_it_did(worker: Worker) -> None:
    with socket.create_connection(("127.0.0.1", worker.server.port), timeout=30) as connection:
        connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert b'{"status": "ok"}' in connection.makefile("rb").read()


_HEAD = b"HTTP/1.0 200 OK\r\nLog-Size: "


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (_HEAD + b"10\r\n\r\n" + b"x" * 1_000_000, "something else than was asked for"),
        (_HEAD + b"10\r\nContent-Length: 4294967296\r\n\r\n" + b"x" * 1_000_000, "something else"),
        (_HEAD + b"-1\r\n\r\n", "something else"),
        (_HEAD + b"9" * 40 + b"\r\n\r\n", "something else"),
        (_HEAD + b"9" * 19 + b"\r\n\r\n", "something else"),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", "something else"),
        (b"HTTP/1.0 500 Oops\r\n\r\n" + b"[" * 100_000, "refuses: HTTP 500"),
        (b"GARBAGE\r\n\r\n", "does not answer"),
        (b"", "does not answer"),
    ],
)
def test_a_worker_that_lies_is_not_believed(sent: bytes, why: str) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def lie() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                try:
                    connection.sendall(sent)
                except OSError:
                    return  # The reader has hung up, as it should.

        thread = threading.Thread(target=lie, daemon=True)
        thread.start()
        stack.callback(thread.join, 30)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(WorkerCallError, match=why):
            ask(address, LogQuestion(instance=1, task=2, most=1000), key=KEY, cluster=CLUSTER)


def test_a_worker_that_is_gone_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(WorkerCallError, match=f"{address} does not answer"):
        ask(address, LogQuestion(instance=1, task=2), key=KEY, cluster=CLUSTER)


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.0 200 OK\r\nLog-Si", _HEAD + b"9\r\n\r\nx"])
def test_a_worker_that_does_not_go_on_is_not_waited_for(sent: bytes) -> None:
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def begin() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(sent)
                while connection.recv(10_000):
                    """Until the reader hangs up."""

        thread = threading.Thread(target=begin, daemon=True)
        thread.start()
        stack.callback(thread.join, 30)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        question = LogQuestion(instance=1, task=2, most=1000)
        patience = timedelta(milliseconds=50)
        with pytest.raises(WorkerCallError, match="answers too slowly"):
            ask(address, question, key=KEY, cluster=CLUSTER, patience=patience)
