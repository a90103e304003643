"""The order of the waiting commands of one project, for queries of people.

Dates of complements come last, however long they waited: they use the room that no other run needs.
For the others a minute of waiting counts as much as a level of priority (trap T68). Masters read
the same order from an index, and serve the projects round-robin (`common.store.master.lanes`).
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    and_,
    case,
    func,
    literal_column,
    tuple_,
)

from common.model.commands import INTENT_COMMANDS, CommandType
from common.store.tables import turn_of_command

ROOMLESS_COMMANDS: Final = (CommandType.RECOVER_TOLERANCE_FAULT_PROCESS, *INTENT_COMMANDS)
"""The commands that need no room. A run that is recovered may hold what others wait for."""

_LAST: Final = 2**31 - 1


def is_date(of: Any) -> ColumnElement[bool]:
    """Return whether a command of this table, or alias of it, is for a date of a complement."""
    return and_(
        of.c.complement_date_id != 0,
        of.c.parent_task_instance_id == 0,
        func.coalesce(of.c.command_type, -1).not_in(ROOMLESS_COMMANDS),
    )


def turn(of: Any) -> Any:
    """Return the place of a command of this table, or alias, in the order: smaller is first."""
    return tuple_(
        case((is_date(of), 1), else_=0),
        literal_column(f"({turn_of_command(of.name)})"),
        # A row without a priority sorts as NULL does, behind those of its turn.
        func.coalesce(of.c.process_instance_priority, literal_column(str(_LAST), Integer)),
        of.c.id,
    )
