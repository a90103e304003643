"""Keeps this master registered, and ends an incarnation that others may count as dead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from common.errors import ServiceUnreachableError
from common.model.cluster import Node, NodeKind
from common.registry.protocol import Membership, Standing
from master.identity import Identity
from master.loops.run_worker import RunWorker

log = logging.getLogger(__name__)


class HeartbeatLoop:
    """Beats while trusted. When the session may be lost, forgets the runs and joins again.

    `is_clean` is true if no row in the tables names the node yet: after the registry was wiped its
    numbers start again, and an incarnation must never be mistaken for an earlier one.
    """

    name = "heartbeat"

    def __init__(
        self,
        *,
        membership: Membership,
        identity: Identity,
        runs: RunWorker,
        address: str,
        text: Callable[[], str],
        is_clean: Callable[[Node], bool],
        joined: Callable[[], None] = lambda: None,
        interval: timedelta = timedelta(seconds=10),
        check_interval: timedelta = timedelta(seconds=1),
    ) -> None:
        """`joined` is called each time that this master has become another incarnation."""
        self._membership = membership
        self._identity = identity
        self._runs = runs
        self._address = address
        self._text = text
        self._is_clean = is_clean
        self._joined = joined
        self._passes = max(1, round(interval / check_interval))
        self._check_interval = check_interval
        self._passed = 0
        self._unreachable = False

    def run_once(self) -> timedelta:
        """Check this master's standing, and send the heartbeat if it is due.

        While ZooKeeper is away the rest stays short, so that work goes on soon after its return.
        """
        try:
            self._check_standing()
        except ServiceUnreachableError as error:
            if not self._unreachable:
                log.warning("registry or tables unreachable", extra={"cause": str(error)})
            self._unreachable = True
        else:
            self._unreachable = False
        return self._check_interval

    def _check_standing(self) -> None:
        if self._identity.node is None:
            self.join()
        elif self._membership.standing_of(self._identity.node) is Standing.LOST:
            log.error("session was lost; this incarnation is over")
            self._identity.become(None)
            self._runs.forget_all()
            self.join()
        else:
            self._passed += 1
            if self._passed >= self._passes:
                self._passed = 0
                self._membership.beat(self._text())

    def join(self) -> None:
        """Become an incarnation that never existed before.

        Raises `ServiceUnreachableError`; `AddressInUseError` is one.
        """
        while True:
            node = self._membership.join(NodeKind.MASTER, self._address, self._text())
            if self._is_clean(node):
                break
            self._membership.leave()
        self._identity.become(node)
        self._passed = 0
        log.info("joined", extra={"address": node.address, "incarnation": node.incarnation})
        self._runs.check_tables()
        self._joined()
