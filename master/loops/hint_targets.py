"""Chooses the worker that is told of new attempts first: at once, before they are in the queue.

Only a few attempts at a time are hinted at, and only while few runs are under way: where much is to
be done the queue is faster, since each worker takes many of its entries together. Workers take
turns; disabled and reserved workers are left out. A hint does not bind the worker, which may be
full or have other attempts waiting for its slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, timedelta
from itertools import count

from common.errors import ServiceUnreachableError
from common.model.cluster import Heartbeat, Node, NodeKind
from common.model.workers import WorkerMode, shunned
from common.registry.protocol import Membership

MOST_ATTEMPTS = 4
"""The most attempts that one hint names."""
_MOST_RUNS = 8
_LONG = timedelta(minutes=1)


class HintTargets:
    """Keeps the addresses of the living workers; `channel` may be called from any thread."""

    name = "hint-targets"

    def __init__(
        self,
        membership: Membership,
        modes: Callable[[], Mapping[str, WorkerMode]] = dict,
    ) -> None:
        """`modes` reads those of workers; it may raise `ServiceUnreachableError`."""
        self._membership = membership
        self._modes = modes
        self._addresses: tuple[str, ...] = ()
        self._changed = True
        self._turns = count()
        self.active: Callable[[], int] = lambda: 0
        """Counts the runs that are under way."""
        self.wake: Callable[[], None] = lambda: None
        membership.watch(NodeKind.WORKER, self._note)

    def target(self, attempts: int) -> str | None:
        """Return the address of the worker to be told of so many; None if there is none."""
        addresses = self._addresses
        if not (addresses and 0 < attempts <= MOST_ATTEMPTS) or self.active() > _MOST_RUNS:
            return None
        return addresses[next(self._turns) % len(addresses)]

    def run_once(self) -> timedelta:
        """Look for the living workers if they may have changed."""
        if self._changed:
            # Before the look: what changes during it is looked at once more.
            self._changed = False
            try:
                workers = self._membership.nodes(NodeKind.WORKER)
                beats = self._membership.heartbeats(NodeKind.WORKER)
                modes = self._modes()
            except ServiceUnreachableError:
                self._changed = True
                raise
            addresses = sorted(node.address for node in workers)
            out = shunned(addresses, modes).keys() | _reserved(beats)
            self._addresses = tuple(each for each in addresses if each not in out)
        return _LONG

    def look_again(self) -> None:
        """Look again soon: workers or their modes may have changed; from any thread."""
        self._note()

    def _note(self) -> None:
        """Called on the registry's thread."""
        self._changed = True
        self.wake()


def _reserved(beats: Mapping[Node, str]) -> set[str]:
    """Return the addresses of reserved workers, which take no tasks without a group."""
    read = {node.address: Heartbeat.parse(text, zone=UTC) for node, text in beats.items()}
    return {
        address
        for address, beat in read.items()
        if beat is not None and beat.status is not None and beat.status.is_reserved
    }
