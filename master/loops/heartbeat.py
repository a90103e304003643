"""Keeps this master registered, and ends an incarnation that others may count as dead.

A master that reaches ZooKeeper but not the database counts as alive, and its runs stall. So it says
in its heartbeat for how long the database has been away. After its *database patience* it leaves,
if another master reaches the database, and joins again when the database answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, timedelta

from common.errors import ServiceUnreachableError
from common.model.cluster import Heartbeat, Node, NodeKind
from common.registry.protocol import Membership, Standing
from master.identity import Identity
from master.loops.database_loop import NOTICED
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
        database_away: Callable[[], timedelta] = timedelta,
        database_patience: timedelta = timedelta(seconds=15),
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
        self._database_away = database_away
        self._database_patience = database_patience
        self._passes = max(1, round(interval / check_interval))
        self._check_interval = check_interval
        self._passed = 0
        self._unreachable = False
        self._shown_away = False
        self._was_patient_enough = False
        self._is_retiring = False

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
        away = self._database_away()
        if self._identity.node is None:
            self._return(away)
        elif self._membership.standing_of(self._identity.node) is Standing.LOST:
            log.error("session was lost; this incarnation is over")
            self._end()
            self._return(away)
        elif self._has_to_leave(away):
            log.error(
                "the database is out of reach, and another master reaches it; this incarnation is"
                " over",
                extra={"seconds": round(away.total_seconds())},
            )
            self._end()
            self._return(away)
        else:
            self._beat(away)

    def _beat(self, away: timedelta) -> None:
        self._passed += 1
        shows_away = away >= NOTICED
        if self._passed >= self._passes or shows_away is not self._shown_away:
            self._membership.beat(self._text())
            self._passed = 0
            self._shown_away = shows_away

    def _has_to_leave(self, away: timedelta) -> bool:
        if away < self._database_patience:
            self._was_patient_enough = False
            return False
        if not self._was_patient_enough:
            # A daemon that was frozen queries the database again first.
            self._was_patient_enough = True
            return False
        return self._another_reaches_the_database()

    def _another_reaches_the_database(self) -> bool:
        for node, text in self._membership.heartbeats(NodeKind.MASTER).items():
            beat = Heartbeat.parse(text, zone=UTC)
            if node != self._identity.node and beat is not None and beat.database_away is None:
                return True
        return False

    def _end(self) -> None:
        self._identity.become(None)
        self._runs.forget_all()
        self._is_retiring = True

    def _return(self, away: timedelta) -> None:
        """Join again, or hold nothing in ZooKeeper until the database answers.

        Joined without the database, this master would keep others from its runs.
        """
        if away < NOTICED:
            self.join()
        elif self._is_retiring:
            self._membership.retire()
            self._is_retiring = False

    def join(self) -> None:
        """Become an incarnation that never existed before.

        Raises `ServiceUnreachableError`; `AddressInUseError` is one.
        """
        # Query the tables before other daemons can see this master.
        self._is_clean(Node(address=self._address, incarnation=0))
        while True:
            node = self._membership.join(NodeKind.MASTER, self._address, self._text())
            if self._is_clean(node):
                break
            self._membership.leave()
        self._identity.become(node)
        self._passed = 0
        self._shown_away = self._was_patient_enough = self._is_retiring = False
        log.info("joined", extra={"address": node.address, "incarnation": node.incarnation})
        self._runs.check_tables()
        self._joined()
