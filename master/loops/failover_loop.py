"""Fails over the attempts and runs of daemons that are gone.

Level, not edge: it compares the owners in the tables with the living daemons at an interval; a
watch merely wakes it early. Tasks come before runs, so that a run that is taken over sees the state
of its attempts (trap T77). Attempts of a worker that is missing are marked first and failed over
after a grace, for the worker may be alive and have lost its session alone
(`master.logic.absences`). Runs need no grace: the next owner's epoch fences the former one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from common.clock import Clock
from common.model.cluster import Node, NodeKind
from common.model.leases import GRACE
from common.registry.protocol import Membership, Mutex
from common.store.master.ports import FailoverStore
from master.identity import Identity
from master.logic.absences import Absences

log = logging.getLogger(__name__)

MUTEX = "failover/masters"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverConfig:
    """The interval of comparison between tables and living daemons, if no watch fires.

    `return_grace` is the time that workers have to come back, too, once this master has. `grace` is
    part of the protocol and no setting.
    """

    interval: timedelta = timedelta(seconds=2)
    return_grace: timedelta = timedelta(seconds=10)
    grace: timedelta = GRACE


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
        self._absences = Absences(return_grace=self._config.return_grace, grace=self._config.grace)

    def run_once(self) -> timedelta:
        """Mark or fail over all that a missing owner holds; return the time to rest."""
        node = self._identity.trusted()
        if node is None:
            self._absences.doubt()
            return self._config.interval
        orphaned = self._store.recover_ownerless(now=self._clock.now())
        if orphaned:
            log.warning("runs without an owner are to be recovered", extra={"count": orphaned})
        # The tables first: an owner joined before it owned anything there, so one that is missing
        # from the registry when it is read later is gone for good.
        workers, masters = self._store.task_owners(), self._store.run_owners() - {node}
        if not workers and not masters:
            self._absences.due((), master=node, now=self._clock.monotonic())
            return self._config.interval
        alive = self._membership.nodes(NodeKind.MASTER)
        if node not in alive:
            # A registry that does not know this master was wiped; it can't say who is missing.
            self._absences.doubt()
            return self._config.interval
        missing = workers - self._membership.nodes(NodeKind.WORKER) if workers else workers
        dead_masters = masters - alive
        due = self._absences.due(missing, master=node, now=self._clock.monotonic())
        rest = self._config.interval
        if due.look_again is not None:
            rest = min(rest, due.look_again)
        if due.mark or due.fail_over or dead_masters:
            with self._mutex.hold(MUTEX, timeout=self._config.interval) as held:
                if held:
                    self._mark(due.mark)
                    self._fail_over(due.fail_over)
                    self._recover(dead_masters)
        return rest

    def _mark(self, workers: Collection[Node]) -> None:
        for worker in workers:
            if self._membership.is_adopting(worker.address):
                continue
            count = self._store.mark_lost(worker, now=self._clock.now())
            self._absences.marked(worker, now=self._clock.monotonic())
            _log_failover("tasks of a missing worker were marked", worker.address, count)

    def _fail_over(self, workers: Collection[Node]) -> None:
        for worker in workers:
            if self._membership.is_adopting(worker.address):
                continue
            # What it claimed after the marks: it has lost its lease, whatever it holds.
            self._store.mark_lost(worker, now=self._clock.now())
            count = self._store.fail_tasks_over(worker, now=self._clock.now())
            _log_failover("tasks of a lost worker were failed over", worker.address, count)

    def _recover(self, masters: Collection[Node]) -> None:
        for master in sorted(masters):
            count = self._store.recover_runs(master, now=self._clock.now())
            _log_failover("runs of a lost master are to be recovered", master.address, count)


def _log_failover(what: str, address: str, count: int) -> None:
    if count:
        log.warning(what, extra={"address": address, "count": count})
