"""The socket by which tasks ask their worker about datasets.

    task → worker   <attempt> <token> <bytes>\n<a JSON object of so many bytes>
    worker → task   <bytes>\n<a JSON object of so many bytes>

One request a connection. A request may wait for news: it is answered once there are any, or as
`unchanged` after some seconds, and takes no thread meanwhile. The token is the attempt's alone, in
its environment. It is valid while the attempt runs here and, in mode `tenant`, only for processes
of the attempt's account or of the daemon's. It is derived from a key of the daemons and survives a
restart of the daemon. One thread reads requests without blocking, and a few others answer them: a
task that sends half a request, or too many requests, does not delay other tasks.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Final

from common.clock import Clock
from worker.spark.host.folders import PASSABLE, PRIVATE, make_folder
from worker.workspace import Account

log = logging.getLogger(__name__)

SOCKET_VARIABLE: Final = "ORCAFLOW_DATASETS"
TOKEN_VARIABLE: Final = "ORCAFLOW_DATASETS_TOKEN"  # noqa: S105  # Its name.
MOST_BYTES: Final = 8 * 1024 * 1024

_HEAD: Final = re.compile(rb"([1-9][0-9]{0,9}) ([0-9a-f]{64}) ([1-9][0-9]{0,7})")
_LONGEST_HEAD: Final = 100
_MOST_LINKS: Final = 200
_MOST_OF_A_TASK: Final = 4
_THREADS: Final = 4
_PATIENCE_SECONDS: Final = 30.0
_PATIENCE: Final = timedelta(seconds=10)
_WAIT_SECONDS: Final = 10.0
_CREDENTIALS: Final = struct.Struct("3i")
_WRONG_TOKEN: Final = "the token is not that of the attempt"  # noqa: S105  # An answer.

Answer = Callable[[int, Account | None, bytes], Mapping[str, Any] | None]
"""Answers a request of an attempt; None if it waits for news."""


@dataclass(slots=True)
class _Link:
    """A connection of which a request is being read, or waits for news."""

    connection: socket.socket
    give_up_at: float
    read: bytearray
    task_id: int = 0
    """0 until its head was read."""
    length: int = 0
    news: int = 0
    """The number of the news that its last answer knew."""


class DatasetServer:
    """Blocks in `run_once` where other loops rest, so it needs a `stop` of its own."""

    name = "datasets"

    def __init__(
        self,
        folder: Path,
        *,
        key: bytes,
        answer: Answer,
        runs_here: Callable[[int], bool],
        uid_of: Callable[[int], int | None],
        clock: Clock,
        for_tenants: bool,
        patience: timedelta = _PATIENCE,
    ) -> None:
        """`for_tenants`: tasks run as other accounts, which may connect too.

        The connecting account must then be the attempt's, according to `uid_of`, or the daemon's.

        `patience` is the longest that a pass waits for requests.
        """
        self._key = key
        self._answer = answer
        self._runs_here = runs_here
        self._uid_of = uid_of
        self._clock = clock
        self._for_tenants = for_tenants
        self._patience = patience
        # The first pass waits for nobody: a daemon is ready once all of its loops have made one.
        self._waits = timedelta()
        self._stopping = False
        make_folder(folder, PASSABLE if for_tenants else PRIVATE)
        self.path = folder / "ask.sock"
        self._listener = _listening(self.path, 0o666 if for_tenants else 0o600)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._poll.register(self._wake, select.EPOLLIN)
        self._links: dict[int, _Link] = {}
        self._waiting: dict[int, _Link] = {}
        self._begin_to_wait: SimpleQueue[_Link] = SimpleQueue()
        self._news = 0
        self._answering: Counter[int] = Counter()
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="datasets")

    def variables(self, task_id: int) -> dict[str, str]:
        """Return the variables by which an attempt finds the socket and is known there."""
        return {SOCKET_VARIABLE: str(self.path), TOKEN_VARIABLE: self._token(task_id)}

    def answer_again(self) -> None:
        """Ask again for the answers to requests that wait for news; called by any thread."""
        with self._lock:
            self._news += 1
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """End the present wait and take no other request; called by another thread."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close everything, once what is being answered was; tasks ask again later."""
        self._pool.shutdown()
        self._take_in()
        for link in (*self._links.values(), *self._waiting.values()):
            self._drop(link)
        self._poll.close()
        self._listener.close()
        os.close(self._wake)

    def run_once(self) -> timedelta:
        """Wait for requests and have them answered; the first pass does not wait."""
        if self._stopping:
            return self._patience
        waits, self._waits = self._waits, self._patience
        for descriptor, _ in self._poll.poll(waits.total_seconds()):
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
            elif descriptor == self._listener.fileno():
                self._accept()
            elif (link := self._links.get(descriptor)) is not None:
                self._read(link)
            elif (link := self._waiting.get(descriptor)) is not None:
                self._drop(link)  # Its task has hung up; it has nothing more to say.
        self._take_in()
        for link in [each for each in self._waiting.values() if each.news != self._news]:
            self._forget(link)
            self._pool.submit(self._serve, link)
        now = self._clock.monotonic()
        for link in [each for each in self._links.values() if each.give_up_at <= now]:
            self._drop(link)
        for link in [each for each in self._waiting.values() if each.give_up_at <= now]:
            self._send_short(link, {"outcome": "unchanged"})
        return timedelta()

    def _take_in(self) -> None:
        """Take in the requests that wait for news."""
        while not self._begin_to_wait.empty():
            link = self._begin_to_wait.get()
            self._waiting[link.connection.fileno()] = link
            self._poll.register(link.connection, select.EPOLLIN | select.EPOLLRDHUP)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            log.warning("connection could not be taken", extra={"error": str(error)})
            return
        connection.setblocking(False)
        if len(self._links) >= _MOST_LINKS:
            # The one that has been silent longest; its task, if it is one, asks again.
            self._drop(next(iter(self._links.values())))
        give_up_at = self._clock.monotonic() + _PATIENCE_SECONDS
        link = _Link(connection, give_up_at, bytearray())
        self._links[connection.fileno()] = link
        self._poll.register(connection, select.EPOLLIN)

    def _read(self, link: _Link) -> None:
        most = link.length - len(link.read) if link.task_id else _LONGEST_HEAD
        try:
            part = link.connection.recv(min(most, 65_536))
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._drop(link)
            return
        link.read += part
        if not link.task_id and not self._read_head(link):
            return
        if len(link.read) >= link.length:
            # Its answer may wait for so long, however often it is asked for meanwhile.
            link.give_up_at = self._clock.monotonic() + _WAIT_SECONDS
            self._forget(link)
            self._pool.submit(self._serve, link)

    def _read_head(self, link: _Link) -> bool:
        """Read who asks; True once that is known and believed."""
        head, newline, rest = bytes(link.read).partition(b"\n")
        if not newline:
            if len(head) >= _LONGEST_HEAD:
                self._refuse(link, "this is no request")
            return False
        found = _HEAD.fullmatch(head)
        if found is None:
            self._refuse(link, "this is no request")
            return False
        task_id, length = int(found[1]), int(found[3])
        if not hmac.compare_digest(found[2].decode(), self._token(task_id)):
            self._refuse(link, _WRONG_TOKEN)
        elif not self._runs_here(task_id):
            self._refuse(link, f"attempt {task_id} does not run here any more")
        elif not self._is_of(task_id, link.connection):
            self._refuse(link, _WRONG_TOKEN)
        elif length > MOST_BYTES or len(rest) > length:
            self._refuse(link, f"a request may have {MOST_BYTES:,} bytes")
        elif not self._takes(task_id):
            self._refuse(link, "too many requests at once", outcome="unavailable")
        else:
            link.task_id, link.length, link.read = task_id, length, bytearray(rest)
            return True
        return False

    def _is_of(self, task_id: int, connection: socket.socket) -> bool:
        """Return whether the account of the other end may use the token of an attempt.

        All processes of an attempt run as its account. Another account must have read the token
        elsewhere, for example in a log.
        """
        if not self._for_tenants:
            return True
        account = _account_of(connection)
        return account is None or account.uid == self._uid_of(task_id)

    def _takes(self, task_id: int) -> bool:
        with self._lock:
            if self._answering[task_id] >= _MOST_OF_A_TASK:
                return False
            self._answering[task_id] += 1
            return True

    def _serve(self, link: _Link) -> None:
        """Answer a whole request, or have it wait; on a thread of the pool."""
        waits = False
        try:
            account = _account_of(link.connection) if self._for_tenants else None
            link.news = self._news
            answer = self._answer(link.task_id, account, bytes(link.read))
            waits = answer is None
            if answer is not None:
                link.connection.settimeout(_PATIENCE_SECONDS)
                _send(link.connection, answer)
        except OSError:
            pass  # Hung up; it asks again.
        finally:
            if not waits:
                self._done(link)
                link.connection.close()
        if waits:
            self._begin_to_wait.put(link)
            os.eventfd_write(self._wake, 1)

    def _refuse(self, link: _Link, reason: str, *, outcome: str = "refused") -> None:
        self._send_short(link, {"outcome": outcome, "reason": reason})

    def _send_short(self, link: _Link, answer: Mapping[str, Any]) -> None:
        # So short an answer never has to wait for room.
        with contextlib.suppress(OSError):
            _send(link.connection, answer)
        self._drop(link)

    def _drop(self, link: _Link) -> None:
        self._forget(link)
        if link.task_id:
            self._done(link)
        link.connection.close()

    def _forget(self, link: _Link) -> None:
        descriptor = link.connection.fileno()
        if self._links.pop(descriptor, None) is None:
            del self._waiting[descriptor]
        self._poll.unregister(link.connection)

    def _done(self, link: _Link) -> None:
        with self._lock:
            self._answering[link.task_id] -= 1
            if not self._answering[link.task_id]:
                del self._answering[link.task_id]

    def _token(self, task_id: int) -> str:
        return hmac.new(self._key, f"datasets {task_id}".encode(), hashlib.sha256).hexdigest()


def _listening(path: Path, mode: int) -> socket.socket:
    """A socket at this path, in place of what a former incarnation has left there."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # By its folder's descriptor: an address may have a hundred characters only.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        path.chmod(mode)
        listener.setblocking(False)
        listener.listen(_MOST_LINKS)
    except OSError:
        listener.close()
        raise
    return listener


def _send(connection: socket.socket, answer: Mapping[str, Any]) -> None:
    body = json.dumps(answer).encode()
    connection.sendall(b"%d\n%s" % (len(body), body))


def _account_of(connection: socket.socket) -> Account | None:
    """The account of the other end; None if it is the daemon's own."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, gid = _CREDENTIALS.unpack(found)
    if uid == os.geteuid():
        return None
    return Account(name=str(uid), uid=uid, gid=gid, groups=(gid,), home="/")
