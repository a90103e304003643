"""Connections that let other greenlets of their thread go on while the database works.

A greenlet that executes a statement switches to its parent and says what it waits for: a
`Readiness`, or work that would hold up the thread (a `Blocking`). The parent switches back when the
socket is ready, or with what the work has returned or raised (`api.greenlets`). Outside a greenlet
a connection waits as any other does.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import psycopg2
from greenlet import getcurrent
from psycopg2.extensions import (
    POLL_OK,
    POLL_READ,
    TRANSACTION_STATUS_IDLE,
    connection,
    cursor,
    parse_dsn,
)

Blocking: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Readiness:
    """A socket that has to be ready, for `select.EPOLLIN` or `select.EPOLLOUT`."""

    descriptor: int
    events: int


class YieldingConnection(connection):
    """A connection of psycopg2 that gives way, for `common.store.connect:engine`.

    Transactions are those of any other: the first statement begins one, unless `autocommit` is set.
    """

    def __init__(self, dsn: str, **_: Any) -> None:
        """Connect in another thread: names are looked up meanwhile."""
        self._is_alone = False
        _elsewhere(lambda: self._connect(dsn))

    def _connect(self, dsn: str) -> None:
        super().__init__(dsn, async_=1)
        self.cursor_factory = _YieldingCursor
        # libpq leaves this limit, which is that of each host, to whoever polls.
        given = parse_dsn(dsn)
        hosts = 1 + given.get("host", "").count(",")
        limit = int(given.get("connect_timeout", 0)) * hosts
        ends_at = time.monotonic() + limit
        while (wanted := self._wanted()) is not None:
            left = max(0.0, ends_at - time.monotonic()) if limit else None
            if not _wait_in_thread(wanted, left):
                self.close()
                raise psycopg2.OperationalError("connection to server failed: timeout expired")

    @property
    def autocommit(self) -> bool:
        """Each statement is a transaction of its own."""
        return self._is_alone

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._is_alone = value

    def commit(self) -> None:
        """Commit the transaction, if there is one."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Roll the transaction back, if there is one."""
        self._end("ROLLBACK")

    def has_to_begin(self) -> bool:
        """Return True if the next statement is the first of a transaction."""
        return not self._is_alone and self._is_idle()

    def wait(self) -> None:
        """Return when the statement that was sent is done; raise the error of one that failed."""
        while (wanted := self._wanted()) is not None:
            parent = getcurrent().parent
            if parent is None:
                _wait_in_thread(wanted, None)
            else:
                parent.switch(wanted)

    def _wanted(self) -> Readiness | None:
        state = self.poll()
        if state == POLL_OK:
            return None
        return Readiness(self.fileno(), select.EPOLLIN if state == POLL_READ else select.EPOLLOUT)

    def _is_idle(self) -> bool:
        return self.get_transaction_status() == TRANSACTION_STATUS_IDLE

    def _end(self, statement: str) -> None:
        if not self._is_idle():
            with self.cursor() as ending:
                ending.execute(statement)


class _YieldingCursor(cursor):
    def execute(self, query: Any, vars: Any = None) -> None:  # noqa: A002  # psycopg2's own name.
        link: Any = self.connection
        if link.has_to_begin():
            super().execute("BEGIN")
            link.wait()
        super().execute(query, vars)
        link.wait()


def _wait_in_thread(wanted: Readiness, seconds: float | None) -> bool:
    """Wait for a socket, and all of the thread with it; False if it takes longer."""
    waiting = select.poll()
    waiting.register(wanted.descriptor, wanted.events)
    return bool(waiting.poll(None if seconds is None else 1000 * seconds))


def _elsewhere(work: Blocking) -> None:
    parent = getcurrent().parent
    if parent is None:
        work()
    else:
        parent.switch(work)
