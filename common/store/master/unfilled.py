"""Finds waiting commands of projects that may take more room, however many others are ahead.

A scan in the order of turns would read all commands of a full project first. Instead, the waiting
definitions are found by an index, one probe each, and only the first commands of those definitions
that belong to other projects are read. Used by `common.store.master.waiting`.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    all_,
    and_,
    bindparam,
    cast,
    func,
    lateral,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.store.command_turns import ROOMLESS_COMMANDS, is_date
from common.store.project_slots import project_of_definition
from common.store.tables import WAITED_DEFINITION, command, turn_of_command, waited_definition

_WAITING: Final = command.alias("waiting")
_NEXT: Final = command.alias("next_waiting")


def _definition(of: Any) -> ColumnElement[int]:
    return literal_column(waited_definition(of.name), Integer)


def _is_top(of: Any) -> ColumnElement[bool]:
    # The condition of the index.
    found: ColumnElement[bool] = of.c.parent_task_instance_id == literal_column("0")
    return found


_FIRST_DEFINITION: Final = (
    select(func.min(literal_column(WAITED_DEFINITION, Integer)).label("id"))
    .select_from(command)
    .where(text("t_ds_command.parent_task_instance_id = 0"))
    .cte("waited_definitions", recursive=True)
)
_DEFINITIONS: Final = _FIRST_DEFINITION.union_all(
    select(
        select(func.min(_definition(_NEXT)))
        .where(_is_top(_NEXT))
        .where(_definition(_NEXT) > _FIRST_DEFINITION.c.id)
        .correlate(_FIRST_DEFINITION)
        .scalar_subquery()
    ).where(_FIRST_DEFINITION.c.id.is_not(None))
)
_PROJECT: Final = func.coalesce(project_of_definition(_DEFINITIONS.c.id), literal_column("0"))
# The planner must not look projects up for definitions that no command waits for.
_OF_OTHERS: Final = (
    select(_DEFINITIONS.c.id)
    .where(_DEFINITIONS.c.id.is_not(None))
    .where(all_(cast(bindparam("full"), ARRAY(Integer))) != _PROJECT)
    .cte("of_others")
    .prefix_with("MATERIALIZED")
)


def _needs_room(of: Any) -> ColumnElement[bool]:
    kind = func.coalesce(of.c.command_type, literal_column("-1"))
    return and_(_is_top(of), kind.not_in(ROOMLESS_COMMANDS))


def unfilled(*, dates: bool) -> ColumnElement[Any]:
    """Return the ids of the first `page` commands of projects that are not `full`.

    These commands need room; the caller finds the others. `besides` are excluded.
    """
    turn: ColumnElement[Any] = literal_column(f"({turn_of_command(_WAITING.name)})")
    order = (turn, _WAITING.c.process_instance_priority, _WAITING.c.id)
    is_wanted = is_date(_WAITING) if dates else ~is_date(_WAITING)
    first = lateral(
        select(
            _WAITING.c.id,
            turn.label("turn"),
            _WAITING.c.process_instance_priority.label("priority"),
        )
        .where(_definition(_WAITING) == _OF_OTHERS.c.id)
        .where(_needs_room(_WAITING), is_wanted)
        .where(_WAITING.c.id != all_(cast(bindparam("besides"), ARRAY(Integer))))
        .order_by(*order)
        .limit(bindparam("page"))
        .correlate(_OF_OTHERS),
        name="first_waiting",
    )
    return func.array(
        select(first.c.id)
        .join_from(_OF_OTHERS, first, true())
        .order_by(first.c.turn, first.c.priority, first.c.id)
        .limit(bindparam("page"))
        .scalar_subquery()
    )
