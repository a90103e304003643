"""Runs of a definition that take turns, and the runs that block each other, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from common.model.states import ExecutionType, ProcessState
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.rows import ProcessRecord

NOT_BEGUN = "stopped before its turn came"


def others_live(
    database: MemoryDatabase, definition_id: int, *, apart_from: int = 0
) -> list[ProcessRecord]:
    """The live top-level runs of a definition, waiting ones too, oldest first."""
    return [
        process
        for process in database.processes
        if process.process_definition_id == definition_id
        and process.is_live
        and not process.is_sub_process
        and process.id != apart_from
    ]


def is_serial_no_more(database: MemoryDatabase, process: ProcessRecord) -> bool:
    """True if no other run blocks it, since its definition is parallel by now.

    The overlap policy of its schedule holds regardless of the definition.
    """
    definition = database.definitions.get(process.process_definition_id)
    return (
        process.execution_type is None
        and definition is not None
        and definition.execution_type == ExecutionType.PARALLEL
    )


def end_waiting(tx: Transaction, process: ProcessRecord, now: datetime, **columns: Any) -> None:
    """Stop a run that waits for its turn; what it has promised its tasks is given up."""
    stopped = {
        "state": int(ProcessState.STOP),
        "end_time": now,
        "state_reason": process.state_reason or NOT_BEGUN,
        "duration_from": after_waiting(process, now),
    }
    tx.update(tx.database.processes, process.id, **columns, **stopped, update_time=now)
    for task in tx.database.attempts(process.id):
        if task.flag == 1 and task.retry_at is not None:
            tx.update(tx.database.tasks, task.id, retry_at=None)


def without_idle_time(process: ProcessRecord, since: datetime | None, now: datetime) -> datetime:
    """The start of a run's duration after it was idle between these moments."""
    idle = max(timedelta(), now - (since or now))
    return max(process.start_time, process.duration_from or process.start_time) + idle


def after_waiting(process: ProcessRecord, now: datetime) -> datetime:
    """The start of a run's duration after it has waited for its turn until now."""
    return without_idle_time(process, process.restart_time or process.start_time, now)


def ask_to_stop(
    tx: Transaction, processes: Sequence[ProcessRecord], now: datetime, *, reason: str
) -> None:
    """Request a stop of these runs, except of those with an intent to stop or to fail."""
    for process in processes:
        if process.wanted_state not in (ProcessState.STOP, ProcessState.FAILURE):
            tx.update(
                tx.database.processes,
                process.id,
                wanted_state=int(ProcessState.STOP),
                wanted_at=now,
                update_time=now,
                state_reason=reason,
            )
