"""The load of reads and the readers of events, without a cluster."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.bench.front.load import Load, put
from tests.bench.front.streams import Arrival, Streams
from tests.bench.front.watched import delays_of

_GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
_BAD = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_EVENTS = (
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2b\r\nevent: snapshot\ndata: {}\n\n\r\n1d\r\nevent: task\ndata: "
    ),
    b'{"id":1}\n\n\r\n',
)


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server: paths tell the answer, which comes in two parts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def _serve(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        while asked := connection.recv(4096):
            if asked.startswith(b"GET /events"):
                for part in _EVENTS:
                    connection.sendall(part)
                continue
            answer = _GOOD if asked.startswith(b"GET /good") else _BAD
            connection.sendall(answer[:20])
            connection.sendall(answer[20:])


def test_a_load_counts_the_times_of_good_answers_and_names_the_others(port: int) -> None:
    seen = put(Load(port=port, tokens=("t",), paths=("/good", "/bad"), rate=1000, seconds=0.02))
    assert len(seen.times_ms) == 10
    assert len(seen.errors) == 10
    assert all(each.startswith("/bad: b'HTTP/1.1 404") for each in seen.errors)


def test_events_are_read_between_the_lines_of_chunks(port: int) -> None:
    with Streams(port, [("/events", "t")] * 2) as streams:
        seen = streams.until(lambda seen: len(seen) == 4, within=10)
    assert sorted((each.stream, each.kind, str(each.document)) for each in seen) == [
        (stream, *event)
        for stream in (0, 1)
        for event in (("snapshot", "{}"), ("task", "{'id': 1}"))
    ]


def test_the_delay_of_an_event_counts_from_the_first_that_tells_of_a_start_or_an_end() -> None:
    def told(at: float, state: str, start: str | None, end: str | None) -> Arrival:
        document = {"id": 1, "state": {"name": state}, "start": start, "end": end}
        return Arrival(0, at, "task", document)

    start, end = "1970-01-01T00:01:40Z", "1970-01-01T00:01:41Z"
    seen = [
        told(99.9, "SUBMITTED_SUCCESS", None, None),
        told(100.1, "RUNNING", start, None),
        told(100.5, "RUNNING", start, None),
        told(101.25, "SUCCESS", start, end),
    ]
    assert [round(each) for each in delays_of(seen, since=0)] == [100, 250]
    assert [round(each) for each in delays_of(seen, since=100.5)] == [250]
