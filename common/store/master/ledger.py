"""Enters commands that are gone into their ledger, and forgets old lines.

A command is deleted and entered by one statement, in the transaction that writes its effect: none
vanishes without a line, and none has two. `common.store.people.ledger` reads the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    CTE,
    Connection,
    DateTime,
    Integer,
    SmallInteger,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal,
    null,
    select,
)

from common.model.commands import CommandOutcome
from common.model.plans import LedgerLine
from common.store.fixed_statement import FixedStatement
from common.store.tables import command, command_ledger
from common.store.transaction import StoreConflictError, storable, unnested

_FORGOTTEN_AT_ONCE: Final = 1_000

_COLUMNS: Final = (
    "command_id",
    "command_type",
    "process_definition_id",
    "start_time",
    "process_instance_id",
    "outcome",
    "reason",
    "handled_at",
    "host",
)
_DONE: Final = unnested("done", id=Integer, run=Integer, outcome=SmallInteger, reason=Text)
_GONE: Final = (
    delete(command)
    .where(command.c.id == _DONE.c.id)
    .returning(
        command.c.id,
        command.c.command_type,
        command.c.process_definition_id,
        command.c.start_time,
        _DONE.c.run,
        _DONE.c.outcome,
        _DONE.c.reason,
    )
    .cte("gone")
)
_ENTER: Final = FixedStatement(
    insert(command_ledger).from_select(
        _COLUMNS,
        select(
            *_GONE.c, cast(bindparam("now"), DateTime(timezone=True)), cast(bindparam("host"), Text)
        ).order_by(_GONE.c.id),
    )
)

_OLDEST: Final = (
    select(command_ledger.c.id, command_ledger.c.handled_at)
    .order_by(command_ledger.c.id)
    .limit(_FORGOTTEN_AT_ONCE)
    .subquery("oldest")
)
_FORGET: Final = delete(command_ledger).where(
    command_ledger.c.id.in_(
        # Few are looked at, though none may be old: lines are written in the order of time.
        select(_OLDEST.c.id).where(_OLDEST.c.handled_at < bindparam("before"))
    )
)


def enter(db: Connection, lines: Sequence[LedgerLine], *, host: str, now: datetime) -> None:
    """Delete these commands and enter each. `StoreConflictError` if one is gone already."""
    if not lines:
        return
    values: dict[str, Any] = {
        "done_id": [each.command_id for each in lines],
        "done_run": [each.process_instance_id for each in lines],
        "done_outcome": [int(each.outcome) for each in lines],
        "done_reason": [None if each.reason is None else storable(each.reason) for each in lines],
    }
    entered = _ENTER.execute(db, values | {"host": host, "now": now}).rowcount
    if entered != len(lines):
        # The rows are locked, so this can't be; but if it were, a command would be run twice.
        raise StoreConflictError(f"{len(lines)} commands were taken, {entered} deleted")


def taken(gone: CTE) -> CTE:
    """Return the entries of commands that were carried out, given their deletion.

    That returns the columns of a line: `run` is the instance concerned. The statement names the
    time as `now` and the master as `host`.
    """
    lines = select(
        gone.c.id,
        gone.c.command_type,
        gone.c.process_definition_id,
        gone.c.start_time,
        gone.c.run,
        literal(int(CommandOutcome.TAKEN), SmallInteger),
        cast(null(), Text),
        cast(bindparam("now"), DateTime(timezone=True)),
        cast(bindparam("host"), Text),
    ).order_by(gone.c.id)
    entered = insert(command_ledger).from_select(_COLUMNS, lines)
    return entered.returning(command_ledger.c.id).cte("entered")


def withdrawn(free: CTE) -> tuple[CTE, CTE]:
    """Return the deletion of the commands of dates that `free` names, and its entries.

    The statement names the time as `now`.
    """
    deleted = (
        delete(command)
        .where(command.c.id == free.c.id)
        .returning(
            command.c.id,
            command.c.command_type,
            command.c.process_definition_id,
            command.c.start_time,
            command.c.complement_date_id,
        )
        .cte("deleted")
    )
    lines = select(
        deleted.c.id,
        deleted.c.command_type,
        deleted.c.process_definition_id,
        deleted.c.start_time,
        cast(null(), Integer),
        literal(int(CommandOutcome.DROPPED), SmallInteger),
        func.concat(
            "date ", deleted.c.complement_date_id, " was withdrawn: its complement begins no more"
        ),
        cast(bindparam("now"), DateTime(timezone=True)),
        cast(null(), Text),
    ).order_by(deleted.c.id)
    return deleted, insert(command_ledger).from_select(_COLUMNS, lines).cte("entered")


def forget(db: Connection, *, before: datetime) -> bool:
    """Delete old lines, so many at once; True if there may be more of them."""
    return db.execute(_FORGET, {"before": before}).rowcount == _FORGOTTEN_AT_ONCE
