"""Keeps this worker registered, and begins a new life when its session is lost.

A lost session means that others may run what runs here: everything is killed first, and only then
does the worker join again, as a new incarnation that holds nothing. At its very first join it
adopts what a former daemon at its address has left running. No threads and no time of its own: a
service or a simulator calls `run_once`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node, NodeKind
from common.registry.protocol import Membership, Standing
from common.store.worker.ports import TaskStore
from worker.attempts import LocalAttempts
from worker.identity import Identity

log = logging.getLogger(__name__)

_CHECK_INTERVAL = timedelta(milliseconds=500)
_CHECK_WHILE_KILLING = timedelta(milliseconds=20)
_LOST_WAIT = timedelta(seconds=30)


class HeartbeatLoop:
    """Watches this worker's own standing."""

    name = "heartbeat"

    def __init__(
        self,
        *,
        membership: Membership,
        identity: Identity,
        store: TaskStore,
        attempts: LocalAttempts,
        address: str,
        text: Callable[[], str],
        clock: Clock,
        interval: timedelta,
        lost_wait: timedelta = _LOST_WAIT,
    ) -> None:
        self._membership = membership
        self._identity = identity
        self._store = store
        self._attempts = attempts
        self._address = address
        self._text = text
        self._clock = clock
        self._interval = interval.total_seconds()
        self._lost_wait = lost_wait.total_seconds()
        self._beat_at = 0.0
        self._lost_at: float | None = None
        self._has_adopted = False
        self._unreachable = False

    def run_once(self) -> timedelta:
        """Look at the own standing, join or beat if it is time; how long to rest.

        Before the first join is done, `ServiceUnreachableError` passes through.
        """
        if not self._has_adopted:
            self._join_first()
            return _CHECK_INTERVAL
        try:
            rest = self._check_standing(self._clock.monotonic())
        except ServiceUnreachableError as error:
            # The rest stays short: that the session is lost must be noticed in time.
            if not self._unreachable:
                log.warning("registry or tables unreachable", extra={"cause": str(error)})
            self._unreachable = True
            return _CHECK_INTERVAL
        self._unreachable = False
        return rest

    def _check_standing(self, now: float) -> timedelta:
        if self._membership.standing() is Standing.LOST:
            if not self._is_empty(now):
                return _CHECK_WHILE_KILLING
            self._identity.become(None)
            self._join()
            self._lost_at = None
        elif now >= self._beat_at:
            self._membership.beat(self._text())
            self._beat_at = now + self._interval
        return _CHECK_INTERVAL

    def _is_empty(self, now: float) -> bool:
        """Kill the attempts; return True if none is left, or their time for that is over."""
        left = len(self._attempts.running())
        if self._lost_at is None:
            self._lost_at = now
            log.error("session was lost; this incarnation is over", extra={"attempts": left})
        if not left:
            return True
        # Every time: an attempt may have been started while the loss was noticed.
        self._attempts.kill_all()
        left = len(self._attempts.running())
        if left and now - self._lost_at < self._lost_wait:
            return False
        if left:
            log.error("attempts could not be killed in time", extra={"attempts": left})
        return True

    def _join_first(self) -> None:
        # So that nobody takes the former incarnation's attempts for lost between the two steps.
        with self._membership.adopting(self._address):
            self._join()
            node = self._identity.node
            leftovers = self._attempts.leftovers()
            adopted = self._store.adopt(node, leftovers) if leftovers and node else frozenset[int]()
            self._attempts.adopt(adopted)
        self._has_adopted = True
        if leftovers:
            log.info("leftovers adopted", extra={"found": len(leftovers), "adopted": len(adopted)})

    def _join(self) -> None:
        """Become an incarnation that nobody was before.

        After the registry was wiped its numbers start again, and a row of long ago may bear one.
        """
        # While the tables are away nothing can be held, so there is no use in becoming somebody.
        self._store.running(Node(address=self._address, incarnation=0))
        while True:
            node = self._membership.join(NodeKind.WORKER, self._address, self._text())
            if not self._store.running(node):
                break
            self._membership.leave()
        self._identity.become(node)
        self._beat_at = self._clock.monotonic() + self._interval
        log.info("joined", extra={"address": node.address, "incarnation": node.incarnation})
