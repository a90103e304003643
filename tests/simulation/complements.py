"""A second opinion on complements, in a few lines; shares none with the masters' rule."""

from __future__ import annotations

from common.model.complement_states import ComplementState, DateState
from common.model.states import ProcessState
from tests.memory.store import ComplementDateRecord, ComplementRecord, MemoryDatabase

_OVER = (ComplementState.SUCCESS, ComplementState.FAILURE, ComplementState.STOP)


def is_moving(database: MemoryDatabase, row: ComplementRecord) -> bool:
    """True if masters still have work on it, without a further request."""
    dates = database.dates(row.id)
    match ComplementState(row.state):
        case ComplementState.SUBMITTED:
            above = database.complements.get(row.after_id)
            return above is None or above.state in _OVER
        case ComplementState.RUNNING | ComplementState.READY_PAUSE:
            live = [
                date for date in dates if date.state in (DateState.SUBMITTED, DateState.RUNNING)
            ]
            may_begin = row.state == ComplementState.RUNNING and free_chains(row, dates) > 0
            return (
                not live
                or not all(_is_paused(database, date) for date in live)
                or (may_begin and any(date.state == DateState.PENDING for date in dates))
            )
        case ComplementState.READY_STOP:
            return True
        case ComplementState.FAILURE:
            return any(is_recovered(database, date) for date in dates)
        case _:
            return False


def free_chains(row: ComplementRecord, dates: list[ComplementDateRecord]) -> int:
    """The number of dates that may begin: under `stop`, each failed one ends its chain."""
    taken = [DateState.SUBMITTED, DateState.RUNNING]
    if row.on_failure == "stop":
        taken.append(DateState.FAILURE)
    return row.parallelism - sum(date.state in taken for date in dates)


def is_recovered(database: MemoryDatabase, date: ComplementDateRecord) -> bool:
    """True if a failed date's run is live again, or has succeeded since."""
    process = database.processes.get(date.process_instance_id)
    return (
        date.state == DateState.FAILURE
        and process is not None
        and (process.is_live or process.state == ProcessState.SUCCESS)
    )


def _is_paused(database: MemoryDatabase, date: ComplementDateRecord) -> bool:
    process = database.processes.get(date.process_instance_id)
    return process is not None and process.state == ProcessState.PAUSE
