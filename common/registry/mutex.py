"""Locks below `lock/`: ephemeral, sequential znodes, first come first served, as Curator's are.

Taking a free lock is one round trip, since the request for the other places is sent right behind
the one that enqueues. Releasing does not wait. Not re-entrant: taking a held lock again never
succeeds.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import WatchedEvent

from common.registry.session import Session

FOLDER = "lock"


class ZookeeperMutex:
    """Mutual exclusion on ZooKeeper."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @contextmanager
    def hold(self, name: str, *, timeout: timedelta) -> Iterator[bool]:
        """Enter with True when held, with False when `timeout` went by."""
        folder = self._session.path(FOLDER, name)
        place = self._take(folder, self._session.now() + timeout.total_seconds())
        if place is None:
            yield False
            return
        try:
            yield True
        finally:
            self._session.take_back(f"{folder}/{place}")

    def _take(self, folder: str, deadline: float) -> str | None:
        """Stand in line until first; the name of our place there, or None when it took too long."""
        token = uuid.uuid4().hex
        try:
            with self._session.asking() as client:
                place, line = self._stand_in_line(client, folder, token)
                while (ahead := _next_ahead(line, place)) is not None:
                    if not self._wait_for(client, f"{folder}/{ahead}", deadline):
                        self._session.take_back(f"{folder}/{place}")
                        return None
                    line = self._session.answer(client.get_children_async(folder))
                    if place not in line:
                        # Wiped while we waited, so the line is a new one.
                        return None
                return place
        except BaseException:
            # The place may have been taken or not; a forgotten place would block all others.
            self._session.repair_later(token, partial(self._leave_line, folder=folder, token=token))
            raise

    def _stand_in_line(self, client: KazooClient, folder: str, token: str) -> tuple[str, list[str]]:
        for is_last in (False, True):
            # kazoo answers a plain `create` by way of another thread, a transaction directly.
            transaction = client.transaction()
            transaction.create(f"{folder}/_c_{token}-lock-", ephemeral=True, sequence=True)
            created = transaction.commit_async()
            line = client.get_children_async(folder)
            (path,) = self._session.answer(created)
            if not isinstance(path, Exception):
                return path.rpartition("/")[2], self._session.answer(line)
            if is_last or not isinstance(path, NoNodeError):
                raise path
            self._session.answer(client.ensure_path_async(folder))
        raise AssertionError("the second attempt answers or raises")

    def _wait_for(self, client: KazooClient, path: str, deadline: float) -> bool:
        """Wait for the place ahead to be given up; True if it was in time."""
        if self._session.now() >= deadline:
            return False
        gone = threading.Event()

        def fired(_: WatchedEvent) -> None:
            gone.set()

        if self._session.answer(client.exists_async(path, watch=fired)) is None:
            return True
        return gone.wait(max(0.0, deadline - self._session.now()))

    def _leave_line(self, client: KazooClient, *, folder: str, token: str) -> None:
        try:
            for name in self._session.answer(client.get_children_async(folder)):
                if token in name:
                    self._session.answer(client.delete_async(f"{folder}/{name}"))
        except NoNodeError:
            pass


def _next_ahead(line: list[str], place: str) -> str | None:
    """Return the place directly ahead; watching only that one avoids needless wakes."""
    own = _number(place)
    numbered = [(number, name) for name in line if (number := _number(name)) is not None]
    ahead = [(number, name) for number, name in numbered if own is not None and number < own]
    return max(ahead)[1] if ahead else None


def _number(name: str) -> int | None:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else None
