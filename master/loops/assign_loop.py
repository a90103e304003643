"""Chooses workers for tasks that ask for it, and offers each to its worker alone.

The tables say what asks, who was chosen and when; living workers and their room come from their
heartbeats. Any master may choose for all: a lock in the tables decides between two. A master that
dies between the choice and the entry in the queue leaves the row, from which the owner's repair of
the queue makes the entry.
"""

from __future__ import annotations

import logging
from datetime import UTC, timedelta
from functools import partial

from common.clock import Clock
from common.model.cluster import Heartbeat, NodeKind
from common.model.workers import WorkerStatus
from common.registry.protocol import Membership
from common.store.master.assignment_ports import AssignmentStore
from common.store.master.ports import Saved
from master.identity import Identity
from master.logic.assignment import AssignmentConfig, decide
from master.loops.queue_loop import QueueLoop

log = logging.getLogger(__name__)

_INTERVAL = timedelta(seconds=5)
"""The loop is woken by what asks; looks find what a master that died before its choice has left."""
_WITHOUT_SESSION = timedelta(seconds=1)
_WAITING = timedelta(milliseconds=250)


class AssignLoop:
    """Woken after a save or a release of attempts that ask, and at ends while some wait."""

    name = "assign"

    def __init__(
        self,
        store: AssignmentStore,
        *,
        membership: Membership,
        identity: Identity,
        clock: Clock,
        queue: QueueLoop,
        config: AssignmentConfig | None = None,
    ) -> None:
        self._store = store
        self._membership = membership
        self._identity = identity
        self._clock = clock
        self._queue = queue
        self._config = config or AssignmentConfig()
        self.is_waiting = False
        """True if the last pass left attempts without a worker."""

    def run_once(self) -> timedelta:
        """Choose workers for what asks; return the time to rest."""
        if self._identity.trusted() is None:
            self.is_waiting = False
            return _WITHOUT_SESSION
        if not self._store.is_asked():
            self.is_waiting = False
            return _INTERVAL
        made = self._store.assign(
            partial(decide, workers=self._living(), config=self._config),
        )
        if made.offers or made.withdrawn:
            self._queue.add(
                Saved(lost=frozenset(), offers=made.offers, kills=(), withdrawn=made.withdrawn)
            )
            log.info(
                "workers chosen",
                extra={
                    "attempts": {each.task_instance_id: each.worker for each in made.offers},
                    "taken_back": [each.task_instance_id for each in made.withdrawn],
                },
            )
        self.is_waiting = made.waiting
        return _WAITING if made.waiting else _INTERVAL

    def _living(self) -> dict[str, WorkerStatus]:
        """Return the living workers that tell their room, by address."""
        found: dict[str, WorkerStatus] = {}
        for node, text in self._membership.heartbeats(NodeKind.WORKER).items():
            beat = Heartbeat.parse(text, zone=UTC)
            if beat is not None and beat.status is not None:
                found[node.address] = beat.status
        return found
