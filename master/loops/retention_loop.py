"""Deletes history that has reached the age of `master.retention_days`, one master at a time.

Each pass is one short transaction, and the loop rests four times as long as it took: a backlog of
years goes at a fifth of a core of the database at most. The first of the living masters does it;
two that disagree about who that is harm nobody, since rows are marked before they are deleted. A
master without a retention has no such loop. `common.purging` knows what goes and in which order.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from common.clock import Clock
from common.model.cluster import NodeKind
from common.purging import Purge
from common.registry.protocol import Membership
from common.retention import Pace, Step
from common.store.retention import History, RetentionStore
from master.identity import Identity

log = logging.getLogger(__name__)

_LEAST_REST: Final = timedelta(milliseconds=20)
_RESTS_FOR_EACH: Final = 4
_ELSEWHERE: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """`kept`: the age at which history is deleted. `interval`: between purges."""

    kept: timedelta
    interval: timedelta = timedelta(hours=1)


class RetentionLoop:
    """Runs on every master, and rests on all but one."""

    name = "retention"

    def __init__(
        self,
        store: RetentionStore,
        *,
        membership: Membership,
        identity: Identity,
        clock: Clock,
        config: RetentionConfig,
    ) -> None:
        self._store = store
        self._membership = membership
        self._identity = identity
        self._clock = clock
        self._config = config
        self._purge: Purge | None = None
        self._paces = dict.fromkeys(Step, Pace())

    def run_once(self) -> timedelta:
        """Carry out the next transaction of a purge, or begin one; return the time to rest."""
        node = self._identity.trusted()
        if node is None or node != min(self._membership.nodes(NodeKind.MASTER), default=node):
            self._purge = None
            return _ELSEWHERE
        if self._purge is None:
            self._purge = Purge(
                self._store,
                clock=self._clock,
                before=self._clock.now() - self._config.kept,
                # The ledger of commands has an age of its own.
                histories=tuple(each for each in History if each is not History.COMMANDS),
                paces=self._paces,
            )
        began = self._clock.monotonic()
        try:
            goes_on = self._purge.step()
        except BaseException:
            # The outcome is unknown; the next purge reads the tables.
            self._purge = None
            raise
        if goes_on:
            took = timedelta(seconds=self._clock.monotonic() - began)
            return max(_LEAST_REST, took * _RESTS_FOR_EACH)
        done, self._paces, self._purge = self._purge.done, self._purge.paces, None
        if done.rows:
            log.info(
                "old history was deleted",
                extra={
                    "rows": ", ".join(f"{table} {count}" for table, count in done.rows.items()),
                    "longest_ms": round(done.longest.total_seconds() * 1000),
                },
            )
        return self._config.interval
