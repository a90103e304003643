"""Listens to the database's notifications, so that loops need not poll; touches no row.

The triggers of the schema (`common.store.schema`) notify these *channels*:

- `orcaflow_command`: a command was inserted, or a definition went ONLINE for which one may wait.
  The payload is empty.
- `orcaflow_task`: an attempt has ended that its owner has not settled. The payload is a JSON array:
  `[process instance, task instance, attempt, state, end in seconds, name, has output, failure
  reason or null]`. The owner needs no query unless there is an output.
- `orcaflow_wanted`: a pause or stop is wanted. The payload is the process instance's id.
- `orcaflow_process`: a process instance has ended. The payload is its id.
- `orcaflow_schedule`: a schedule was added, or has changed. The payload is empty.
- `orcaflow_complement`: a complement was added, or something is wanted of one. The payload is
  empty.
- `orcaflow_hold`: a pool has another size, so that attempts may be released. The payload is
  empty.
- `orcaflow_worker`: the mode of a worker has changed. The payload is empty.
- `orcaflow_dataset`: the offsets of a dataset's stream have moved, or another task is to read it.
  The payload is the dataset's name.

A notification only wakes early: each listener must also poll the tables now and then. The one after
a (re)connection has an empty channel and means that any other may have been missed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self

import psycopg2
from psycopg2 import sql

from common.clock import Clock, SystemClock
from common.errors import ServiceUnreachableError
from common.model.cluster import QueueEntry
from common.model.instances import TaskReport
from common.model.retry_policy import reason_from
from common.model.states import TaskState
from common.store.connect import connect

_FIRST_DELAY: Final = 0.05
_LONGEST_DELAY: Final = 5.0
_LARGEST_ID: Final = 2**31 - 1
_MOST_DIGITS: Final = 10


class Channel(StrEnum):
    """The notification channels of the schema's triggers."""

    COMMAND = "orcaflow_command"
    TASK = "orcaflow_task"
    WANTED = "orcaflow_wanted"
    PROCESS = "orcaflow_process"
    HOLD = "orcaflow_hold"
    SCHEDULE = "orcaflow_schedule"
    COMPLEMENT = "orcaflow_complement"
    WORKER = "orcaflow_worker"
    DATASET = "orcaflow_dataset"


ORDERS: Final = "orders"
"""The payload that tells a worker of orders to a task of a stream or topology which it runs."""


def hint_channel(address: str) -> str:
    """Return the channel on which the worker at this address is told of new attempts.

    The payload is names of queue entries with a space between each two, or `ORDERS`.
    """
    return f"orcaflow_hint_{hashlib.blake2b(address.encode(), digest_size=12).hexdigest()}"


def read_hint(payload: str) -> tuple[QueueEntry, ...]:
    """Read a payload of a hint channel; whatever is no name of an entry is left out."""
    entries = (QueueEntry.parse(name) for name in payload.split(" "))
    return tuple(entry for entry in entries if entry is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One notification on a channel."""

    channel: str
    payload: str

    @property
    def is_reminder(self) -> bool:
        """True if anything may have been missed, so that all tables must be read again."""
        return self.channel == ""


_REMINDER: Final = Notification(channel="", payload="")


def read_task_report(payload: str) -> TaskReport:
    """Read the end of an attempt from a payload of `orcaflow_task`; `ValueError` if it is none.

    Any role can notify any channel, so a report is a hint: a save acts on it only if the row
    agrees.
    """
    try:
        process_instance_id, task_instance_id, attempt, state, seconds, name, has_output, why = (
            json.loads(payload)
        )
        return TaskReport(
            process_instance_id=_id(process_instance_id),
            task_instance_id=_id(task_instance_id),
            name=str(name),
            attempt=_id(attempt),
            state=TaskState(state),
            end_time=datetime.fromtimestamp(seconds, UTC),
            has_output=bool(has_output),
            failure=reason_from(why),
        )
    except (TypeError, OverflowError, OSError, RecursionError) as error:
        raise ValueError(f"no report: {payload[:80]!r}") from error


def read_id(payload: str) -> int | None:
    """Read a payload that is the id of a row; None for any other."""
    # Python refuses to convert thousands of digits, and PostgreSQL refuses ids above 31 bits.
    is_number = payload.isascii() and payload.isdigit() and len(payload) <= _MOST_DIGITS
    return int(payload) if is_number and 0 < int(payload) <= _LARGEST_ID else None


def _id(value: object) -> int:
    """Return an id that a column can hold; `ValueError` for any other value."""
    if type(value) is not int or not 0 < value <= _LARGEST_ID:
        raise ValueError("no id")
    return value


class Notifications:
    """A connection that listens, and reconnects when it is lost.

    One thread waits and closes; any thread may `wake` it. Nothing is connected before the first
    `wait`, which therefore returns a reminder first.
    """

    def __init__(
        self,
        url: str,
        channels: Sequence[str],
        *,
        application_name: str = "orcaflow-listen",
        connect_timeout: timedelta = timedelta(seconds=3),
        clock: Clock | None = None,
    ) -> None:
        self._url = url
        self._channels = tuple(channels)
        self._application_name = application_name
        self._connect_timeout = connect_timeout
        self._clock = clock or SystemClock()
        self._connection: Any = None
        self._delay = 0.0
        self._next_attempt = self._clock.monotonic()
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._waker, selectors.EVENT_READ)

    @property
    def is_connected(self) -> bool:
        """True if the last `wait` left a connection that listens."""
        return self._connection is not None

    def wait(self, timeout: timedelta) -> list[Notification]:
        """Return notifications as soon as there are any; none after `timeout` or a `wake`.

        While the server can't be reached this waits between attempts, and returns nothing. It
        raises only errors that no waiting resolves (`ConfigurationError`).
        """
        deadline = self._clock.monotonic() + timeout.total_seconds()
        while self._connection is not None:
            # What came in with the answer to LISTEN is in memory, where no selector sees it.
            news = self._take()
            if news:
                return news
            ready = self._select(deadline)
            if self._waker in ready or not ready:
                return []
            # Something can be read, which need not be news: the end of the connection, for one.
            if not self._read():
                self._lose_connection()
        return self._wait_for_connection(deadline)

    def wake(self) -> None:
        """Make the present or the next `wait` return at once. Safe from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._waker, 1)

    def close(self) -> None:
        """Close the connection. Only the waiting thread may do it, after its last `wait`."""
        if self._connection is not None:
            self._lose_connection()
        if self._waker >= 0:
            self._selector.close()
            os.close(self._waker)
            self._waker = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for_connection(self, deadline: float) -> list[Notification]:
        while True:
            if self._waker in self._select(min(deadline, self._next_attempt)):
                return []
            if self._clock.monotonic() >= self._next_attempt and self._connect():
                return [_REMINDER]
            if self._clock.monotonic() >= deadline:
                return []

    def _connect(self) -> bool:
        try:
            connection = connect(
                self._url,
                application_name=self._application_name,
                connect_timeout=self._connect_timeout,
            )
        except ServiceUnreachableError:
            self._postpone()
            return False
        try:
            with connection.cursor() as cursor:
                for channel in self._channels:
                    cursor.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except psycopg2.Error:
            connection.close()
            self._postpone()
            return False
        self._connection = connection
        self._selector.register(connection.fileno(), selectors.EVENT_READ)
        self._delay = 0.0
        return True

    def _postpone(self) -> None:
        self._delay = min(max(self._delay * 2, _FIRST_DELAY), _LONGEST_DELAY)
        self._next_attempt = self._clock.monotonic() + self._delay

    def _lose_connection(self) -> None:
        # By key: psycopg2 no longer tells the number of a socket that it has closed itself.
        for key in list(self._selector.get_map().values()):
            if key.fd != self._waker:
                self._selector.unregister(key.fd)
        self._connection.close()
        self._connection = None
        self._next_attempt = self._clock.monotonic()

    def _select(self, until: float) -> set[int]:
        """Wait for the socket, a `wake` or that moment; return the ready ones. Takes the `wake`."""
        ready = {
            key.fd for key, _ in self._selector.select(max(0.0, until - self._clock.monotonic()))
        }
        if self._waker in ready:
            os.eventfd_read(self._waker)
        return ready

    def _read(self) -> bool:
        """Read what the socket has; False if the connection is lost."""
        try:
            self._connection.poll()
        except psycopg2.Error:
            return False
        return not self._connection.closed

    def _take(self) -> list[Notification]:
        taken = [
            Notification(channel=notify.channel, payload=notify.payload)
            for notify in self._connection.notifies
        ]
        self._connection.notifies.clear()
        return taken
