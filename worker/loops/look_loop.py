"""Watches the rows of this worker's attempts while its session is in doubt.

The rows decide what may go on: an attempt that was given to others is ended at once, one whose kill
is wanted is killed, and as long as no master has missed this worker the lease of all is renewed
(`common.model.leases`). It asks PostgreSQL alone, since ZooKeeper may keep silent. No threads and
no time of its own: a service or a simulator calls `run_once`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.leases import Lease
from common.registry.protocol import Membership, Standing
from common.store.worker.ports import TaskStore
from worker.attempts import Attempts

log = logging.getLogger(__name__)

_IDLE = timedelta(seconds=1)
_LOOK_INTERVAL = timedelta(milliseconds=500)


class LookLoop:
    """Looks twice a second, unless the session is trusted."""

    name = "look"

    def __init__(
        self,
        *,
        lease: Lease,
        store: TaskStore,
        membership: Membership,
        attempts: Attempts,
        node: Callable[[], Node | None],
        address: str,
        clock: Clock,
    ) -> None:
        self._lease = lease
        self._store = store
        self._membership = membership
        self._attempts = attempts
        self._node = node
        self._address = address
        self._clock = clock
        self._unreachable = False

    def run_once(self) -> timedelta:
        """Look at the rows if need be; how long to rest."""
        if self._is_trusted():
            return _IDLE
        # First what runs, then the rows: whatever ran before the look had its row before that.
        running = sorted(self._attempts.running())
        if not running:
            return _LOOK_INTERVAL
        try:
            self._look(running)
        except ServiceUnreachableError as error:
            # The rest stays short: the lease runs out soon.
            if not self._unreachable:
                log.warning("rows of attempts can't be read", extra={"cause": str(error)})
            self._unreachable = True
        else:
            self._unreachable = False
        return _LOOK_INTERVAL

    def _is_trusted(self) -> bool:
        return self._membership.standing_of(self._node()) is Standing.TRUSTED

    def _look(self, running: list[int]) -> None:
        sent = self._clock.monotonic()
        rows = self._store.kept(self._address, running)
        for task_instance_id in running:
            row = rows.get(task_instance_id)
            if row is not None and row.kill_wanted:
                self._attempts.kill(task_instance_id)
            elif row is None and task_instance_id in self._attempts.running():
                log.warning(
                    "attempt was given to others", extra={"task_instance_id": task_instance_id}
                )
                self._attempts.abandon(task_instance_id)
        if not any(row.lost for row in rows.values()):
            self._lease.renew(sent)
