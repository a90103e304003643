"""Writes in memory the first steps of new runs, in the transaction that makes the runs."""

from __future__ import annotations

from dataclasses import replace

from common.model.plans import Begin
from common.store.master.ports import FirstStep, LoadedRun, Taken
from common.store.transaction import StoreConflictError
from tests.memory.database import Transaction
from tests.memory.reading import process_row
from tests.memory.saving import Writing


def write_first_steps(tx: Transaction, taken: Taken, first_step: FirstStep) -> Taken:
    """Write them all, or none if one is refused."""
    owned = [
        one.ownership
        for one in taken.handled
        if isinstance(one.plan, Begin) and one.ownership is not None
    ]
    database, before = tx.database, tx.by
    loaded = [
        LoadedRun(
            ownership=ownership,
            process=process_row(database, database.processes.the(ownership.process_instance_id)),
            tasks=(),
        )
        for ownership in owned
    ]
    steps = [step for run in loaded if (step := first_step(run)) is not None]
    writing = Writing(tx)
    try:
        with tx.savepoint():
            for step in steps:
                writing.step(step)
    except StoreConflictError:
        return taken
    finally:
        tx.by = before
    begun = frozenset(step.ownership for step in steps)
    return replace(taken, begun=begun, saved=writing.saved())
