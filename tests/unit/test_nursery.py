"""The tests' own nursery of daemons, spoken to as its process speaks."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator

import pytest

from tests.system.nursery import Nursery

PID = 4711


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The tests' end of a link, and the nursery's."""
    link, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with link, other:
        yield link, other


def test_a_fork_with_the_pid_of_a_former_one_runs(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    link, other = ends
    nursery = Nursery(link)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        other.send(json.dumps({"pid": PID, "number": 1}).encode())
        _, former = nursery.fork("master.server", (), {}, (null, null))
        other.send(json.dumps({"number": 1, "code": -9}).encode())
        other.send(json.dumps({"pid": PID, "number": 2}).encode())
        pid, later = nursery.fork("master.server", (), {}, (null, null))
    finally:
        os.close(null)

    assert (pid, nursery.code_of(former), nursery.code_of(later)) == (PID, -9, None)
