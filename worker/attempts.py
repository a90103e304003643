"""The port between the worker's loops and the processes that run attempts.

The supervisor fulfils it with real processes, the simulator in memory. Nothing here decides
anything. An *attempt* is one task instance in the hands of this worker, from `start` until its end
is handed to the callback that the implementation was given (`Ended`), exactly once for every
start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from common.store.worker.ports import AttemptEnd, ClaimedTask

Ended: TypeAlias = Callable[[AttemptEnd], None]
"""Receives the end of an attempt whose processes are gone or given up. It must not wait."""

Started: TypeAlias = Callable[[int, int, float], None]
"""Receives the start of an attempt that has run a while: id, the leader's pid and start time."""


class Attempts(Protocol):
    """The attempts that run on this worker. Every method may be called from any thread."""

    def start(self, task: ClaimedTask) -> None:
        """Run an attempt. Never raises: what can't be started ends as FAILURE with the reason."""
        ...

    def kill(self, task_instance_id: int) -> None:
        """End an attempt and all its processes: TERM, a grace period, KILL. It then ends as KILL.

        Harmless when repeated. Unknown ids are remembered, since a kill may overtake the start.
        """
        ...

    def abandon(self, task_instance_id: int) -> None:
        """End an attempt at once, without a grace period: others may run its task now.

        It ends as NEED_FAULT_TOLERANCE, since nobody asked for the task to be stopped. Harmless
        when repeated, and for an id that does not run here.
        """
        ...

    def kill_all(self) -> None:
        """Abandon every attempt: others may start the same tasks soon."""
        ...

    def running(self) -> frozenset[int]:
        """The attempts that were started and whose end has not been told yet."""
        ...

    def yielding(self) -> frozenset[int]:
        """Those of `running` that belong to complements; what was adopted is counted too."""
        ...

    def waiting(self) -> int:
        """The number of attempts whose start waits for that of others; about, at any moment."""
        ...


class LocalAttempts(Attempts, Protocol):
    """Attempts whose processes and results outlive the daemon that started them."""

    def leftovers(self) -> tuple[int, ...]:
        """Attempts of a former incarnation at this address that have left something here."""
        ...

    def adopt(self, adopted: Collection[int]) -> None:
        """Go on with these leftovers, and end every other before this returns (or give up on it).

        Called once, before anything else is asked; the ends of what has ended come at once.
        """
        ...

    def facts_files(self) -> Mapping[int, Path]:
        """Return the facts file of each live attempt that may have a Spark application."""
        ...

    def forget(self, ends: Iterable[AttemptEnd]) -> None:
        """These ends stand in the tables, or nobody wants them: nothing need be kept for them."""
        ...
