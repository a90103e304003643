"""Decides what to do about workers that hold attempts and are missing in the registry.

Pure. A worker that is missing has lost its session, or ZooKeeper has lost the worker. When this
master itself has just come back to ZooKeeper, the workers get the *return grace* to do the same.
After that a missing worker's attempts are marked in their rows, which the worker can see, and
`common.model.leases.GRACE` after the marks stand they are failed over. A worker that is back, as
another incarnation, takes its attempts over and so away from this. Times are readings of the
monotonic clock of this master; nothing is remembered across a doubt about its own session.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from common.model.cluster import Node
from common.model.leases import GRACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The workers whose attempts are to be marked, and those whose attempts to fail over.

    `look_again`: the time after which something else may be due; None if nothing will be.
    """

    mark: tuple[Node, ...]
    fail_over: tuple[Node, ...]
    look_again: timedelta | None


class Absences:
    """The absences that one master has seen since it has trusted its session."""

    def __init__(self, *, return_grace: timedelta, grace: timedelta = GRACE) -> None:
        self._return_grace = return_grace.total_seconds()
        self._grace = grace.total_seconds()
        self._master: Node | None = None
        self._trusted_since = 0.0
        self._marked: dict[Node, float] = {}

    def doubt(self) -> None:
        """Forget everything: this master's own session is in doubt."""
        self._master = None
        self._marked.clear()

    def due(self, missing: Collection[Node], *, master: Node, now: float) -> Due:
        """Decide about the workers that are missing now, for a master that is trusted now."""
        if master != self._master:
            self._master, self._trusted_since = master, now
            self._marked.clear()
        # A number may come again after ZooKeeper was wiped, and then means another worker.
        self._marked = {worker: at for worker, at in self._marked.items() if worker in missing}
        rest = self._trusted_since + self._return_grace - now
        if rest > 0:
            return Due(mark=(), fail_over=(), look_again=_seconds(rest) if missing else None)
        ripe = {worker for worker, at in self._marked.items() if now - at >= self._grace}
        waits = [
            at + self._grace - now for worker, at in self._marked.items() if worker not in ripe
        ]
        return Due(
            mark=tuple(sorted(worker for worker in missing if worker not in self._marked)),
            fail_over=tuple(sorted(ripe)),
            look_again=_seconds(min(waits)) if waits else None,
        )

    def marked(self, worker: Node, *, now: float) -> None:
        """Note that the marks of this worker's attempts stand; `now` is after the answer."""
        self._marked[worker] = now


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)
