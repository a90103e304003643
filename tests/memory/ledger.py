"""The ledger of commands in memory: each that is deleted has one line."""

from __future__ import annotations

from datetime import datetime

from common.model.plans import LedgerLine
from common.store.transaction import storable
from tests.memory.database import Transaction
from tests.memory.rows import CommandRecord, LedgerRecord


def enter(
    tx: Transaction, row: CommandRecord, line: LedgerLine, *, host: str | None, now: datetime
) -> None:
    """Delete a command and enter its outcome."""
    tx.delete(tx.database.commands, row.id)
    tx.insert(
        tx.database.ledger,
        LedgerRecord(
            command_id=row.id,
            command_type=row.command_type,
            process_definition_id=row.process_definition_id,
            process_instance_id=line.process_instance_id,
            outcome=int(line.outcome),
            reason=None if line.reason is None else storable(line.reason),
            start_time=row.start_time,
            handled_at=now,
            host=host,
        ),
    )
