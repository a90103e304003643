"""The port between the worker's loops and the processes that run attempts.

The supervisor fulfils it with real processes, the simulator in memory. Nothing here decides anything.
An *attempt* is one task instance in the hands of this worker, from `start` until its end is handed to
the callback that the implementation was given (`Ended`), exactly once for every start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from common.store.protocol import AttemptEnd, ClaimedTask

Ended: TypeAlias = Callable[[AttemptEnd], None]
"""Told of an attempt whose processes are gone, on a thread of the implementation's: it must not wait."""


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

    def kill_all(self) -> None:
        """End everything at once: the session is lost, and others may start the same tasks now.

        These attempts end as NEED_FAULT_TOLERANCE, since nobody asked for the tasks to be stopped.
        """
        ...

    def running(self) -> frozenset[int]:
        """The attempts that were started and whose end has not been told yet."""
        ...
