"""Keeps this worker registered, and begins a new life when its session is lost.

A lost session stops nothing that runs: the worker goes on reporting as its former incarnation, its
attempts are watched by `look_loop` and `lease_loop`, and as soon as ZooKeeper answers it joins as a
new incarnation that takes the attempts over. At its very first join it adopts what a former daemon
at its address has left running. Once joined it records its offer in the tables, and now and
then again, since somebody may have removed the row. It keeps the *mode* that administrators have
given this worker, which it reads before its first claim, when it is told of a change, and now and
then. No threads and no time of its own: a service or a simulator calls `run_once`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node, NodeKind
from common.model.offers import Offer
from common.model.workers import WorkerMode
from common.registry.protocol import Membership, Standing
from common.store.worker.ports import TaskStore
from worker.attempts import LocalAttempts
from worker.identity import Identity

log = logging.getLogger(__name__)

_CHECK_INTERVAL = timedelta(milliseconds=500)
_OFFER_INTERVAL_SECONDS = 600.0
_MODE_INTERVAL_SECONDS = 60.0


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
        offer: Callable[[], Offer],
        clock: Clock,
        interval: timedelta,
        taken_over: Callable[[], None] = lambda: None,
        mode_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`taken_over` is called once the attempts belong to a new incarnation."""
        self._membership = membership
        self._identity = identity
        self._store = store
        self._attempts = attempts
        self._address = address
        self._text = text
        self._offer = offer
        self._clock = clock
        self._interval = interval.total_seconds()
        self._taken_over = taken_over
        self._mode_changed = mode_changed
        self.mode = WorkerMode.ENABLED
        """The mode that this worker obeys."""
        self._mode_at = 0.0
        self._was_told = False
        self._beat_at = 0.0
        self._offer_at = 0.0
        self._has_adopted = False
        self._joined: Node | None = None
        self._is_cut_off = False
        self._unreachable = False

    def read_mode_again(self) -> None:
        """Read the mode at the next pass, since it may have changed; from any thread."""
        self._was_told = True

    def run_once(self) -> timedelta:
        """Look at the own standing, join or beat if it is time; how long to rest.

        Before the first join is done, `ServiceUnreachableError` passes through.
        """
        if not self._has_adopted:
            self._join_first()
            return _CHECK_INTERVAL
        try:
            self._check_standing(self._clock.monotonic())
        except ServiceUnreachableError as error:
            # The rest stays short, so that work goes on soon after the servers are back.
            if not self._unreachable:
                log.warning("registry or tables unreachable", extra={"cause": str(error)})
            self._unreachable = True
            return _CHECK_INTERVAL
        self._unreachable = False
        return _CHECK_INTERVAL

    def _check_standing(self, now: float) -> None:
        self._read_mode(now)
        if self._membership.standing_of(self._identity.node) is Standing.LOST:
            if not self._is_cut_off:
                self._is_cut_off = True
                left = len(self._attempts.running())
                log.error("session was lost; attempts go on", extra={"attempts": left})
            self._join_again()
        elif now >= self._beat_at:
            self._membership.beat(self._text())
            self._beat_at = now + self._interval
        # Last, and not while joining: nothing but people's sight of this worker depends on it.
        if now >= self._offer_at and self._identity.node is not None:
            self._store.record_offer(self._identity.node, self._offer())
            self._offer_at = now + _OFFER_INTERVAL_SECONDS

    def _read_mode(self, now: float) -> None:
        if not self._was_told and now < self._mode_at:
            return
        # Before the look: what changes during it is looked at once more.
        self._was_told = False
        try:
            mode = self._store.mode(self._address)
        except ServiceUnreachableError:
            self._was_told = True
            raise
        self._mode_at = now + _MODE_INTERVAL_SECONDS
        if mode is not self.mode:
            log.info("mode changed", extra={"mode": mode.value, "former": self.mode.value})
            self.mode = mode
            # The heartbeat tells others of it.
            self._beat_at = now
            self._mode_changed()

    def _join_first(self) -> None:
        # Before it can claim anything.
        self._read_mode(self._clock.monotonic())
        # So that nobody takes the former incarnation's attempts for lost between the two steps.
        with self._membership.adopting(self._address):
            node = self._incarnation()
            leftovers = self._attempts.leftovers()
            if leftovers:
                self._store.adopt(node, leftovers)
            # Not the answer, which a lost connection may have cost at an earlier pass.
            adopted = frozenset(self._store.running(node)) if leftovers else frozenset[int]()
            self._attempts.adopt(adopted)
            self._identity.become(node)
        self._joined = None
        self._has_adopted = True
        self._taken_over()
        if leftovers:
            log.info("leftovers adopted", extra={"found": len(leftovers), "adopted": len(adopted)})

    def _join_again(self) -> None:
        """Become a new incarnation, and take over what the former one holds.

        Until then the former one reports; in between nobody does, because the rows change hands.
        """
        # While the tables are away nothing can be held, so there is no use in becoming somebody.
        self._tables_answer()
        with self._membership.adopting(self._address):
            node = self._incarnation()
            self._identity.become(None)
            taken = self._store.take_over(node)
            self._identity.become(node)
        self._joined = None
        self._is_cut_off = False
        if taken:
            log.info("attempts taken over", extra={"attempts": len(taken)})
        self._taken_over()

    def _incarnation(self) -> Node:
        """Return the incarnation that an unfinished pass has joined as, or a new one."""
        if self._joined is None or self._membership.standing_of(self._joined) is Standing.LOST:
            self._joined = self._join()
        return self._joined

    def _join(self) -> Node:
        """Become an incarnation that nobody was before.

        After the registry was wiped its numbers start again, and a row of long ago may bear one.
        """
        self._tables_answer()
        while True:
            node = self._membership.join(NodeKind.WORKER, self._address, self._text())
            if not self._store.running(node):
                break
            self._membership.leave()
        self._offer_at = 0.0
        self._beat_at = self._clock.monotonic() + self._interval
        log.info("joined", extra={"address": node.address, "incarnation": node.incarnation})
        return node

    def _tables_answer(self) -> None:
        self._store.running(Node(address=self._address, incarnation=0))
