"""Free ports for servers that open them later."""

from __future__ import annotations

import socket
import subprocess
import sys
from datetime import timedelta

import pytest

from common import ports
from common.port_marks import PortMarks
from common.ports import LOOPBACK, free_port, is_left_free, is_port_free


def test_a_free_port_is_none_of_those_that_the_kernel_gives_to_connections() -> None:
    first, last = ports._connections()
    assert all(not first <= free_port() <= last for _ in range(20))


def test_a_port_is_not_given_twice_though_nobody_listens_at_it_yet() -> None:
    given = [free_port() for _ in range(50)]
    assert len(set(given)) == 50


def test_a_port_that_somebody_has_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as held:
        # As servers do it: connections of a former one may still be passing away.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((ports.LOOPBACK, port := free_port()))
        held.listen()
        assert not is_port_free(port)
        monkeypatch.setattr(ports, "_in_random_order", lambda _: range(port, port + 3))
        monkeypatch.setattr(ports, "_marks", PortMarks())
        another = free_port()
        assert port != another != free_port([another])


def test_a_port_that_another_process_has_chosen_and_not_opened_is_passed_over() -> None:
    chosen = "from common.ports import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", chosen], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert is_port_free(port)
        assert not ports._marks.mark(port)
        other.kill()
    assert ports._marks.mark(port)


@pytest.mark.parametrize(
    ("first", "last", "chosen"),
    [
        (32_768, 60_999, range(20_000, 30_000)),
        (25_000, 60_999, range(20_000, 25_000)),
        (1_024, 65_000, range(65_001, 65_536)),
        (1_024, 19_999, range(20_000, 30_000)),
        (1_024, 65_535, range(20_000, 30_000)),
    ],
)
def test_the_ports_to_choose_from_lie_outside_of_those_of_connections_if_these_leave_any(
    first: int, last: int, chosen: range
) -> None:
    assert ports._candidates(first, last) == chosen


def test_the_port_of_a_killed_daemon_is_waited_for_but_not_for_long() -> None:
    # What its last child does before it runs its own program: it has the same socket.
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        listening.listen()
        port = listening.getsockname()[1]
        copy = listening.dup()
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            copy.close()

    assert not is_left_free(port, within=timedelta(0), pause=lambda _seconds: None)
    assert is_left_free(port, pause=pause)
    assert len(waits) == 3
    assert is_left_free(port, pause=pause)
    assert len(waits) == 3
