"""The arithmetic of the strains, and the link that delays statements, without a cluster."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.bench.strains.lost import most_in_a_second
from tests.bench.strains.slow_link import SlowLink, slow_link
from tests.bench.strains.soak import slope

DELAY_SECONDS = 0.05


@pytest.fixture
def link() -> Iterator[SlowLink]:
    """A link to a server that sends back what it is sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        with slow_link(*server.getsockname()) as made:
            yield made


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        while message := connection.recv(1024):
            connection.sendall(message)


def test_a_message_is_passed_on_after_the_delay_and_its_answer_too(link: SlowLink) -> None:
    with socket.create_connection(("127.0.0.1", link.port)) as client:
        link.delay = DELAY_SECONDS
        for message in (b"first", b"second"):
            began = time.monotonic()
            client.sendall(message)
            assert client.recv(1024) == message
            assert time.monotonic() - began >= DELAY_SECONDS
    assert link.messages == 2


def test_the_most_moments_within_a_second_are_counted() -> None:
    assert most_in_a_second([]) == 0
    assert most_in_a_second([1.0, 1.5, 1.9, 2.0, 5.0]) == 3
    assert most_in_a_second([float(n) for n in range(5)]) == 1


def test_a_slope_is_that_of_the_line_through_the_samples() -> None:
    assert slope([0.0, 10.0, 20.0], [5.0, 6.0, 7.0]) == pytest.approx(0.1)
    assert slope([3.0], [7.0]) == 0
