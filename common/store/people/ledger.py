"""Reads the outcomes of commands: those that wait, and the lines of the ledger of those gone.

Each reads within a transaction of its caller. `common.store.master.ledger` writes the lines.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    FromClause,
    Integer,
    Select,
    Text,
    bindparam,
    case,
    func,
    literal,
    select,
    text,
)

from common.masking import shown_reason
from common.model.commands import CommandOutcome
from common.model.rights import DATABASE, Principal
from common.store.command_turns import turn
from common.store.connect import EARLIEST, LATEST
from common.store.fixed_statement import FixedRead
from common.store.people.rights import seen_projects, told, told_seen
from common.store.tables import (
    WITHOUT_EFFECT,
    command,
    command_ledger,
    error_command,
    process_definition,
    process_instance,
)
from common.store.transaction import AnyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandView:
    """A command with its outcome, which is None while it waits for a master.

    `start_time` is when it was put and `handled_at` when a master, `host`, has handled it.
    """

    id: int
    command_type: int | None
    process_definition_id: int | None
    definition_name: str | None
    outcome: CommandOutcome | None
    reason: str | None
    process_instance_id: int | None
    start_time: datetime | None
    handled_at: datetime | None
    host: str | None


def _fetchable(moment: ColumnElement[Any]) -> ColumnElement[Any]:
    """The time, or NULL for one that a `datetime` can't hold: rows are typed by anybody."""
    return case((moment.between(literal(EARLIEST), literal(LATEST)), moment), else_=None)


_DEFINITION: Final = select(
    process_definition.c.id, process_definition.c.name, process_definition.c.project_id
).subquery("definition")
_WAITING: Final = select(
    command.c.id,
    command.c.command_type,
    command.c.process_definition_id,
    _DEFINITION.c.name.label("definition_name"),
    func.nullif(command.c.process_instance_id, 0).label("process_instance_id"),
    _fetchable(command.c.start_time).label("start_time"),
).outerjoin_from(command, _DEFINITION, _DEFINITION.c.id == command.c.process_definition_id)
_GONE: Final = select(
    command_ledger.c.command_id.label("id"),
    command_ledger.c.command_type,
    command_ledger.c.process_definition_id,
    process_definition.c.name.label("definition_name"),
    command_ledger.c.outcome,
    command_ledger.c.reason,
    command_ledger.c.process_instance_id,
    _fetchable(command_ledger.c.start_time).label("start_time"),
    command_ledger.c.handled_at,
    command_ledger.c.host,
).outerjoin_from(
    command_ledger,
    process_definition,
    process_definition.c.id == command_ledger.c.process_definition_id,
)
_REFUSED: Final = select(
    error_command.c.command_id.label("id"),
    error_command.c.command_type,
    error_command.c.process_definition_id,
    process_definition.c.name.label("definition_name"),
    error_command.c.message,
    func.nullif(error_command.c.process_instance_id, 0).label("process_instance_id"),
    _fetchable(error_command.c.start_time).label("start_time"),
).outerjoin_from(
    error_command,
    process_definition,
    process_definition.c.id == error_command.c.process_definition_id,
)

# Of a command that left no line: what the instance that it began tells.
_BEGUN: Final = select(
    process_instance.c.command_id.label("id"),
    literal(None, Integer).label("command_type"),
    process_instance.c.process_definition_id,
    process_definition.c.name.label("definition_name"),
    literal(int(CommandOutcome.TAKEN)).label("outcome"),
    literal(None, Text).label("reason"),
    process_instance.c.id.label("process_instance_id"),
    process_instance.c.command_start_time.label("start_time"),
    literal(None, DateTime).label("handled_at"),
    literal(None, Text).label("host"),
).outerjoin_from(
    process_instance,
    process_definition,
    process_definition.c.id == process_instance.c.process_definition_id,
)


def find_command(db: Connection, command_id: int) -> CommandView | None:
    """Read a command with its outcome; None if none of this id waits or is on record."""
    # In this order: a command is gone in the same moment in which its line is there, so that one
    # that was seen gone has left what can be seen.
    waiting = db.execute(_WAITING.where(command.c.id == command_id)).first()
    if waiting is not None:
        return _waiting(waiting)
    # The newest, should the ids of commands have been started anew.
    gone = db.execute(
        _GONE.where(command_ledger.c.command_id == command_id)
        .order_by(command_ledger.c.id.desc())
        .limit(1)
    ).first()
    if gone is not None:
        return _gone(gone)
    # Its line has been forgotten, or the command is older than the ledger.
    refused = db.execute(
        _REFUSED.where(error_command.c.command_id == command_id)
        .order_by(error_command.c.id.desc())
        .limit(1)
    ).first()
    if refused is not None:
        return _refused(refused)
    begun = db.execute(
        _BEGUN.where(process_instance.c.command_id == command_id)
        .order_by(process_instance.c.id.desc())
        .limit(1)
    ).first()
    return None if begun is None else _gone(begun)


def list_commands(
    db: Connection,
    *,
    waiting: bool = True,
    outcomes: Collection[CommandOutcome] = tuple(CommandOutcome),
    definition_name: str | None = None,
    limit: int,
    principal: Principal = DATABASE,
) -> list[CommandView]:
    """List commands, the newest first: those that wait, and those gone with these outcomes.

    Only those that wait: in the order in which masters take them. A principal sees those that name
    a definition of its projects.
    """
    if not outcomes:
        ordered = (
            _of(_WAITING, _DEFINITION, definition_name, principal)
            .order_by(turn(command))
            .limit(limit)
        )
        return [_waiting(row) for row in db.execute(ordered)] if waiting else []
    found: list[CommandView] = []
    of_all = waiting and definition_name is None and len(set(outcomes)) == len(CommandOutcome)
    if of_all and principal.projects is None and not principal.owns_database:
        values = {**told(principal), "limit": limit}
        found += [_waiting(row) for row in _newest_waiting().rows(db, values)]
        found += [_gone(row) for row in _newest_gone().rows(db, values)]
        return sorted(found, key=lambda each: each.id, reverse=True)[:limit]
    if waiting:
        newest = (
            _of(_WAITING, _DEFINITION, definition_name, principal)
            .order_by(command.c.id.desc())
            .limit(limit)
        )
        found += [_waiting(row) for row in db.execute(newest)]
    gone = (
        _of(_GONE, process_definition, definition_name, principal)
        .order_by(command_ledger.c.id.desc())
        .limit(limit)
    )
    if CommandOutcome.TAKEN not in outcomes:
        # The condition of the index that holds the few of these, written as it has it.
        gone = gone.where(text(WITHOUT_EFFECT))
    if len(set(outcomes)) < len(CommandOutcome):
        gone = gone.where(command_ledger.c.outcome.in_(sorted(outcomes)))
    found += [_gone(row) for row in db.execute(gone)]
    return sorted(found, key=lambda each: each.id, reverse=True)[:limit]


@cache
def _newest_waiting() -> FixedRead:
    seen = _WAITING.where(told_seen(_DEFINITION.c.project_id))
    return FixedRead(seen.order_by(command.c.id.desc()).limit(bindparam("limit", type_=BigInteger)))


@cache
def _newest_gone() -> FixedRead:
    seen = _GONE.where(told_seen(process_definition.c.project_id))
    return FixedRead(
        seen.order_by(command_ledger.c.id.desc()).limit(bindparam("limit", type_=BigInteger))
    )


def _of(
    statement: Select[Any],
    definition: FromClause,
    definition_name: str | None,
    principal: Principal,
) -> Select[Any]:
    if not principal.sees_all:
        statement = statement.where(seen_projects(principal, definition.c.project_id))
    if definition_name is None:
        return statement
    return statement.where(definition.c.name == definition_name)


def _waiting(row: AnyRow) -> CommandView:
    return CommandView(
        id=row.id,
        command_type=row.command_type,
        process_definition_id=row.process_definition_id,
        definition_name=row.definition_name,
        outcome=None,
        reason=None,
        process_instance_id=row.process_instance_id,
        start_time=row.start_time,
        handled_at=None,
        host=None,
    )


def _gone(row: AnyRow) -> CommandView:
    return CommandView(
        id=row.id,
        command_type=row.command_type,
        process_definition_id=row.process_definition_id,
        definition_name=row.definition_name,
        outcome=CommandOutcome(row.outcome),
        reason=shown_reason(row.reason),
        process_instance_id=row.process_instance_id,
        start_time=row.start_time,
        handled_at=row.handled_at,
        host=row.host,
    )


def _refused(row: AnyRow) -> CommandView:
    return CommandView(
        id=row.id,
        command_type=row.command_type,
        process_definition_id=row.process_definition_id,
        definition_name=row.definition_name,
        outcome=CommandOutcome.REFUSED,
        reason=shown_reason(row.message) or "no reason was given",
        process_instance_id=row.process_instance_id,
        start_time=row.start_time,
        handled_at=None,
        host=None,
    )
