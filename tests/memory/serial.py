"""Runs of a definition of which only one may go on at a time: who is in whose way, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from common.model.states import ExecutionType, ProcessState
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.rows import ProcessRecord

NOT_BEGUN = "stopped before its turn came"


def others_live(
    database: MemoryDatabase, definition_id: int, *, apart_from: int = 0
) -> list[ProcessRecord]:
    """The live runs of a definition that are no sub processes, waiting ones too, oldest first."""
    return [
        process
        for process in database.processes
        if process.process_definition_id == definition_id
        and process.is_live
        and not process.is_sub_process
        and process.id != apart_from
    ]


def is_serial_no_more(database: MemoryDatabase, process: ProcessRecord) -> bool:
    """True if no other run is in its way, since its definition is parallel by now.

    What its schedule says of other runs holds whatever becomes of the definition.
    """
    definition = database.definitions.get(process.process_definition_id)
    return (
        process.execution_type is None
        and definition is not None
        and definition.execution_type == ExecutionType.PARALLEL
    )


def ask_to_stop(tx: Transaction, processes: Sequence[ProcessRecord], now: datetime) -> None:
    """Want a stop of these runs, save of those of which one, or a failure, is wanted already."""
    for process in processes:
        if process.wanted_state not in (ProcessState.STOP, ProcessState.FAILURE):
            tx.update(
                tx.database.processes,
                process.id,
                wanted_state=int(ProcessState.STOP),
                wanted_at=now,
                update_time=now,
            )
