"""Fails over the attempts and runs of daemons that are gone.

Level, not edge: it compares the owners in the tables with the living daemons at an interval; a
watch merely wakes it early. Tasks come before runs, so that a run that is taken over sees the state
of its attempts (trap T77).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from common.clock import Clock
from common.model.cluster import NodeKind
from common.registry.protocol import Membership, Mutex
from common.store.master.ports import FailoverStore
from master.identity import Identity

log = logging.getLogger(__name__)

MUTEX = "failover/masters"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverConfig:
    """The interval of comparison between tables and living daemons, if no watch fires."""

    interval: timedelta = timedelta(seconds=2)


class FailoverLoop:
    """Runs on every master; a mutex avoids double work, the SQL makes double work harmless."""

    name = "failover"

    def __init__(
        self,
        store: FailoverStore,
        *,
        mutex: Mutex,
        membership: Membership,
        identity: Identity,
        clock: Clock,
        config: FailoverConfig | None = None,
    ) -> None:
        self._store = store
        self._mutex = mutex
        self._membership = membership
        self._identity = identity
        self._clock = clock
        self._config = config or FailoverConfig()

    def run_once(self) -> timedelta:
        """Fail over all that a dead owner holds; return the time to rest."""
        node = self._identity.trusted()
        if node is None:
            return self._config.interval
        orphaned = self._store.recover_ownerless(now=self._clock.now())
        if orphaned:
            log.warning("runs without an owner are to be recovered", extra={"count": orphaned})
        # The tables first: an owner joined before it owned anything there, so one that is missing
        # from the registry when it is read later is gone for good.
        workers, masters = self._store.task_owners(), self._store.run_owners() - {node}
        if not workers and not masters:
            return self._config.interval
        alive = self._membership.nodes(NodeKind.MASTER)
        if node not in alive:
            # A registry that does not know this master was wiped; it can't say who is dead.
            return self._config.interval
        dead_workers = workers - self._membership.nodes(NodeKind.WORKER) if workers else workers
        dead_masters = masters - alive
        if not dead_workers and not dead_masters:
            return self._config.interval
        with self._mutex.hold(MUTEX, timeout=self._config.interval) as held:
            if held:
                now = self._clock.now()
                for worker in sorted(dead_workers):
                    if self._membership.is_adopting(worker.address):
                        continue
                    count = self._store.fail_tasks_over(worker, now=now)
                    _log_failover("tasks of a lost worker were failed over", worker.address, count)
                for master in sorted(dead_masters):
                    count = self._store.recover_runs(master, now=now)
                    _log_failover(
                        "runs of a lost master are to be recovered", master.address, count
                    )
        return self._config.interval


def _log_failover(what: str, address: str, count: int) -> None:
    if count:
        log.warning(what, extra={"address": address, "count": count})
