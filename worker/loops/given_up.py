"""Hands back the claims whose attempts this worker does not start.

If a session ends before the tables have answered a claim, the attempt must not start. The row then
names the incarnation that claimed it or, after a take-over, the present one. This makes the row
SUBMITTED again and then puts its queue entry back, so any worker may claim the attempt. Otherwise
the row would wait for a failover, and look like an attempt of a lost worker. The claim loop calls
it, so it needs no thread and no clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

from common.model.cluster import Node, QueueEntry
from common.registry.protocol import TaskQueue
from common.store.worker.ports import TaskStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Claim:
    entry: QueueEntry
    node: Node
    claimed_at: datetime


class GivenUpClaims:
    """The claims to hand back: first their rows, then their queue entries."""

    def __init__(
        self, *, store: TaskStore, queue: TaskQueue, node: Callable[[], Node | None]
    ) -> None:
        self._store = store
        self._queue = queue
        self._node = node
        self._claims: dict[int, _Claim] = {}
        self._to_offer: tuple[QueueEntry, ...] = ()

    def add(self, entries: Collection[QueueEntry], node: Node, claimed_at: datetime | None) -> None:
        """Add claims that `node` made at this time; None if it sent no claim to the tables."""
        log.warning(
            "claims were not started, because the session ended", extra={"attempts": len(entries)}
        )
        if claimed_at is None:
            self._to_offer += tuple(entries)
            return
        # A new dictionary, since another thread may read the present one.
        self._claims = self._claims | {
            entry.task_instance_id: _Claim(entry, node, claimed_at) for entry in entries
        }

    def ids(self) -> frozenset[int]:
        """Return the attempts with rows that may still show a claim; from any thread."""
        return frozenset(self._claims)

    def hand_back_rows(self) -> bool:
        """Make the rows claimable again; return False if some have to wait for a take-over.

        `ServiceUnreachableError` passes through, and the next call does the same again.
        """
        if not self._claims:
            return True
        present = self._node()
        nodes = {claim.node for claim in self._claims.values()}
        if present is not None:
            nodes.add(present)
        handed_back = self._store.hand_back(
            nodes, {task_id: claim.claimed_at for task_id, claim in self._claims.items()}
        )
        # If the identity is still the same, no take-over has come between the look and the answer.
        is_sure = present is not None and self._node() == present
        settled = frozenset(self._claims) if is_sure else handed_back
        self._to_offer += tuple(self._claims[task_id].entry for task_id in sorted(settled))
        self._claims = {
            task_id: claim for task_id, claim in self._claims.items() if task_id not in settled
        }
        if handed_back:
            log.info("claims handed back", extra={"task_instance_ids": sorted(handed_back)})
        return not self._claims

    @property
    def has_entries(self) -> bool:
        """True if queue entries wait to be put back."""
        return bool(self._to_offer)

    def put_entries_back(self) -> None:
        """Put the queue entries back. An entry without a SUBMITTED row starts nothing."""
        self._queue.offer(self._to_offer)
        self._to_offer = ()
