"""Runs that take room in a master, and the ids of runs that another thread may add to meanwhile.

Used by the run worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from common.model.control import Dependent, SubProcess
from common.model.instances import Ownership
from master.engine.run import ProcessRun


def takes_room(run: ProcessRun) -> bool:
    """Return True unless a run only waits for other runs."""
    waiting = (SubProcess, Dependent)
    return (
        not run.live
        or bool(run.retries)
        or any(not isinstance(run.tasks[name].node.control, waiting) for name in run.live)
    )


def ownerships_of(runs: Iterable[ProcessRun]) -> tuple[Ownership, ...]:
    """Return the ownerships of runs, which are copied in one go first."""
    return tuple(run.ownership for run in tuple(runs))


def ids_of(owned: Iterable[Ownership]) -> Iterator[int]:
    """Yield the ids of the runs."""
    return (each.process_instance_id for each in owned)
