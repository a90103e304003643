"""Selects waiting commands round-robin by project.

A *lane* is the waiting commands of one project of one kind (`CommandLane`), in the order of their
turns. The first command of each lane comes before the second one of any lane. The first lane is the
one behind the project that was served last (`Served`), so this also holds if each take has room
for a single run. An index contains the lanes, so a take reads few commands of a long queue.
Used by `common.store.master`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sqlalchemy import (
    CTE,
    ColumnElement,
    Integer,
    ScalarSelect,
    Select,
    all_,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.store.command_turns import ROOMLESS_COMMANDS
from common.store.tables import TURN_OF_COMMAND, CommandLane, command


class LaneRow(Protocol):
    """The columns of a command that determine its lane."""

    @property
    def command_type(self) -> int | None: ...

    @property
    def parent_task_instance_id(self) -> int: ...

    @property
    def complement_date_id(self) -> int: ...

    @property
    def project_id(self) -> int: ...


def lane_of(row: LaneRow) -> CommandLane | None:
    """Return the kind of lane of a command; None if it is taken before all lanes."""
    if row.command_type in ROOMLESS_COMMANDS:
        return None
    if row.parent_task_instance_id:
        return CommandLane.CHILD
    return CommandLane.DATE if row.complement_date_id else CommandLane.START


@dataclass(slots=True)
class Served:
    """The project that one master served last, for each kind of lane."""

    last: dict[CommandLane, int] = field(default_factory=dict)
    is_crowded: bool = False
    """True if the last look of this master found as many commands as it can take."""

    def note(self, rows: Iterable[LaneRow]) -> None:
        """Note the projects of commands that were taken, in the order of the take."""
        for row in rows:
            lane = lane_of(row)
            if lane is not None:
                self.last[lane] = row.project_id

    def after(self) -> dict[str, int]:
        """Return the values of the parameters of the statements that read lanes."""
        return {_after(lane): self.last.get(lane, 0) for lane in CommandLane}


def _number_of(parameter: str) -> ColumnElement[int]:
    return cast(bindparam(parameter), Integer)


def _after(lane: CommandLane) -> str:
    return f"after_{lane.name.lower()}"


BESIDES: Final = command.c.id != all_(cast(bindparam("besides"), ARRAY(Integer)))
"""Excludes commands that are known already. Its form does not depend on their number."""

_MOST_READ: Final = literal_column("2", Integer)
"""The maximum of rows that a page reads, as a multiple of it. Short lanes can make it smaller."""

_FULL: Final = cast(bindparam("full"), ARRAY(Integer))
IN_LANE: Final = (text(TURN_OF_COMMAND), command.c.process_instance_priority, command.c.id)
"""The order of the commands of one lane."""


def first_of(
    lane: CommandLane,
    *columns: ColumnElement[Any],
    page: str,
    has_full: bool,
    which: Iterable[Any] = (),
) -> Select[Any]:
    """Select these columns of the first commands of all lanes of this kind, round-robin.

    It selects at most `page` commands. `place` is the number of a command in its lane, and `lane`
    the number of the lane. With `has_full`, the projects of the parameter `full` are passed over.
    """
    walk = _walk(lane, page, has_full=has_full)
    wanted = _number_of(page)
    number = func.greatest(func.max(walk.c.number), literal_column("1"))
    lanes = select(number).correlate(None).scalar_subquery()
    found = (
        select(*columns, func.row_number().over(order_by=IN_LANE).label("place"))
        .where(_condition(lane, command), command.c.project_id == walk.c.project)
        .where(BESIDES, *which)
        .order_by(*IN_LANE)
        # Every other lane has at least one command.
        .limit(func.least(wanted, wanted - lanes + 1, (_MOST_READ * wanted).op("/")(lanes)))
        .correlate(walk)
    )
    if has_full:
        found = found.where(walk.c.project != all_(_FULL))
    firsts = found.lateral(f"{lane.name.lower()}_first")
    return (
        select(*firsts.c, walk.c.number.label("lane"))
        .join_from(walk, firsts, true())
        .order_by(firsts.c.place, walk.c.number)
        .limit(wanted)
    )


def _walk(lane: CommandLane, page: str, *, has_full: bool) -> CTE:
    """Return the projects with such commands in their cyclic order, each by one index probe.

    It ends after `page` projects that are not full, or before its first project.
    """
    name = lane.name.lower()
    start = _next(lane, _number_of(_after(lane))).subquery(f"{name}_start")
    walk = select(
        start.c.project,
        start.c.project.label("begin"),
        _number(start.c.project, has_full=has_full).label("number"),
    ).cte(f"{name}_walk", recursive=True)
    after = _next(lane, walk.c.project).lateral(f"{name}_step")
    step = (
        select(
            after.c.project,
            walk.c.begin,
            walk.c.number + _number(after.c.project, has_full=has_full),
        )
        .join_from(walk, after, true())
        .where(after.c.project != walk.c.begin)
        .where(walk.c.number < _number_of(page))
    )
    return walk.union_all(step)


def _next(lane: CommandLane, project: ColumnElement[int]) -> Select[Any]:
    """Select the next project in the cyclic order; NULL if no command waits."""
    found = func.coalesce(_least(lane, project), _least(lane, None))
    # With OFFSET, PostgreSQL evaluates it once, and not for each of its uses.
    return select(found.label("project")).offset(literal_column("0"))


def _least(lane: CommandLane, above: ColumnElement[int] | None) -> ScalarSelect[Any]:
    found = select(command.c.project_id).where(_condition(lane, command))
    if above is not None:
        found = found.where(command.c.project_id > above)
    return (
        found.order_by(command.c.project_id)
        .limit(literal_column("1"))
        .correlate_except(command)
        .scalar_subquery()
    )


def waits(lane: CommandLane) -> ColumnElement[bool]:
    """Return whether a command of this kind waits, by one index probe."""
    # Not EXISTS: without the order, a plan for an empty table may read an index of all commands.
    of = command.alias(f"{lane.name.lower()}_waiting")
    found = (
        select(of.c.project_id)
        .where(_condition(lane, of))
        .order_by(of.c.project_id)
        .limit(literal_column("1"))
        .scalar_subquery()
    )
    return found.is_not(None)


def _condition(lane: CommandLane, of: Any) -> Any:
    # As text: the planner has to recognize the condition of the index.
    return text(lane.condition(of.name))


def _number(project: ColumnElement[int], *, has_full: bool) -> ColumnElement[int]:
    one: ColumnElement[int] = literal_column("1", Integer)
    if not has_full:
        return one
    return case((project == any_(_FULL), literal_column("0", Integer)), else_=one)
