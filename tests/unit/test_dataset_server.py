"""The socket of datasets: its loop, and requests that wait for news."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from tests.simulation.virtual_clock import VirtualClock
from worker.datasets.server import TOKEN_VARIABLE, DatasetServer

DAY = timedelta(days=1)
NEWS = {"outcome": "wanted"}
TENANT, OTHER = 65_534, 65_533
ASK = """
import os, socket, sys
os.setresgid(*[int(sys.argv[3])] * 3)
os.setresuid(*[int(sys.argv[3])] * 3)
asked = socket.socket(socket.AF_UNIX)
asked.connect(f"/proc/self/fd/{sys.argv[1]}/ask.sock")
asked.sendall(sys.argv[2].encode())
print(asked.makefile().read())
"""


class Served:
    """A server whose loop runs. A question waits as long as there are no `news`."""

    def __init__(self, folder: Path, *, for_tenants: bool = False) -> None:
        self.clock = VirtualClock()
        self.asked: SimpleQueue[int] = SimpleQueue()
        self.news: Mapping[str, Any] | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        """Called between an answer and its end."""
        self.server = DatasetServer(
            folder,
            key=b"k" * 32,
            answer=self._answer,
            runs_here=lambda _task: True,
            clock=self.clock,
            for_tenants=for_tenants,
            patience=DAY,
            uid_of=lambda _task: TENANT,
        )
        self._is_over = False
        self._thread = threading.Thread(target=self._serve)

    def _answer(self, task_id: int, _account: object, _body: bytes) -> Mapping[str, Any] | None:
        answer = self.news
        self.meanwhile()
        self.asked.put(task_id)
        return answer

    def _serve(self) -> None:
        while not self._is_over:
            self.server.run_once()

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.server.stop()
        if self._thread.is_alive():
            self._thread.join()
        self.server.close()

    @contextmanager
    def asking(self, task_id: int = 7) -> Iterator[socket.socket]:
        """Ask a question; the connection, from which the answer may be read."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(self.server.path))
            connection.sendall(
                f"{task_id} {self.server.variables(task_id)[TOKEN_VARIABLE]} 2\n{{}}".encode()
            )
            yield connection


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    try:
        yield made
    finally:
        made.end()


def answer_in(connection: socket.socket) -> Any:
    """Return the answer that comes; None if the server hangs up."""
    with connection.makefile("rb") as read:
        length = read.readline()
        return json.loads(read.read(int(length))) if length else None


def test_the_first_pass_waits_for_no_request_so_that_its_daemon_is_ready_soon(
    served: Served,
) -> None:
    assert served.server.run_once() == timedelta()


def test_a_request_that_waits_is_answered_when_there_are_news(served: Served) -> None:
    served.begin()
    with served.asking() as waiting, served.asking(8) as other:
        assert {served.asked.get(), served.asked.get()} == {7, 8}
        # News that are none for it have it asked again, and wait on.
        served.server.answer_again()
        assert {served.asked.get(), served.asked.get()} == {7, 8}
        served.news = NEWS
        served.server.answer_again()
        assert answer_in(waiting) == answer_in(other) == NEWS


def test_news_between_the_answer_and_the_wait_are_not_missed(served: Served) -> None:
    def come() -> None:
        served.meanwhile = lambda: None
        served.news = NEWS
        served.server.answer_again()

    served.meanwhile = come
    served.begin()
    with served.asking() as waiting:
        assert answer_in(waiting) == NEWS


def test_a_request_that_waits_takes_no_thread_and_ends_after_some_seconds(served: Served) -> None:
    served.begin()
    with ExitStack() as stack:
        waiting = [stack.enter_context(served.asking(each)) for each in range(1, 11)]
        for _ in waiting:
            served.asked.get()
        served.news = NEWS
        with served.asking(20) as connection:
            assert answer_in(connection) == NEWS
        served.clock.move_to(timedelta(seconds=60))
        # Anything that comes has the loop look at the time.
        with served.asking(20) as connection:
            assert answer_in(connection) == NEWS
        assert [answer_in(each) for each in waiting] == [{"outcome": "unchanged"}] * 10


def test_a_task_that_hangs_up_waits_no_more_and_may_ask_again(served: Served) -> None:
    served.begin()
    for _ in range(20):  # Of one task four at once are taken.
        with served.asking() as connection:
            served.asked.get()
            connection.shutdown(socket.SHUT_WR)
            assert answer_in(connection) is None


def test_a_server_that_ends_hangs_up_on_those_that_wait(served: Served) -> None:
    served.begin()
    with served.asking() as connection:
        served.asked.get()
        served.end()
        assert answer_in(connection) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other accounts")
def test_a_token_is_of_no_use_to_another_account_than_its_attempt_s(tmp_path: Path) -> None:
    served = Served(tmp_path, for_tenants=True)
    served.news = NEWS
    served.begin()
    folder = os.open(served.server.path.parent, os.O_PATH)
    token = served.server.variables(7)[TOKEN_VARIABLE]

    def asked_by(account: int, token: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-I", "-c", ASK, str(folder), f"7 {token} 2\n{{}}", str(account)],
            pass_fds=[folder],
            capture_output=True,
            check=True,
        )
        return json.loads(done.stdout.partition(b"\n")[2])

    try:
        assert asked_by(TENANT, token) == NEWS
        assert asked_by(OTHER, token) == asked_by(OTHER, "0" * 64)
        with served.asking() as of_the_worker:
            assert answer_in(of_the_worker) == NEWS
    finally:
        os.close(folder)
        served.end()
