"""Kills this worker's attempts before others may begin the same tasks.

A worker without a session goes on with its attempts while its lease lasts
(`common.model.leases`); `worker.loops.look_loop` renews it. This loop asks no server, so that none
that keeps silent can hold it up. No threads and no time of its own: a service or a simulator calls
`run_once`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from common.clock import Clock
from common.model.cluster import Node
from common.model.leases import Lease
from common.registry.protocol import Membership, Standing
from worker.attempts import Attempts

log = logging.getLogger(__name__)

_IDLE = timedelta(seconds=1)
_WATCHFUL = timedelta(milliseconds=250)


class LeaseLoop:
    """Compares the clock with the lease while the worker has no session."""

    name = "lease"

    def __init__(
        self,
        *,
        lease: Lease,
        membership: Membership,
        attempts: Attempts,
        node: Callable[[], Node | None],
        clock: Clock,
    ) -> None:
        self._lease = lease
        self._membership = membership
        self._attempts = attempts
        self._node = node
        self._clock = clock
        self._was_over = False
        self._has_killed = False

    def run_once(self) -> timedelta:
        """Kill what must not run any more; how long to rest. Never waits."""
        now = self._clock.monotonic()
        if self._holds_session():
            self._was_over = self._has_killed = False
            return _IDLE
        if not self._lease.is_over(now):
            self._was_over = False
            return _WATCHFUL
        # Seen twice, so that a daemon that was frozen may look at the rows before it kills.
        if not self._was_over:
            self._was_over = True
            return _WATCHFUL
        attempts = len(self._attempts.running())
        if attempts:
            if not self._has_killed:
                self._has_killed = True
                log.error(
                    "attempts are killed: there is no session, and their rows can't be read or"
                    " show that masters miss this worker",
                    extra={"attempts": attempts},
                )
            # Every time: an attempt may have been started while the session was being lost.
            self._attempts.kill_all()
        return _WATCHFUL

    def _holds_session(self) -> bool:
        """Return True while the incarnation that holds the attempts has its session."""
        node = self._node()
        seen = None if node is None else self._membership.present(node)
        if seen is None:
            return False
        # Nobody missed it then, and whoever misses it later has to mark the attempts first.
        self._lease.renew(seen)
        return self._membership.standing_of(node) is not Standing.LOST
