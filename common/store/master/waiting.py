"""Selects the commands that a master takes now, and locks their rows.

Statements are made once: to write such a select anew for each take costs more than to run it. Used
by `common.store.master.commands` and `common.store.master.plain_take`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    Text,
    all_,
    and_,
    any_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.commands import RESTARTING_COMMANDS, CommandRow
from common.model.slot_share import RoomShare, SlotShare
from common.model.states import FINISHED_TASK_STATES, LIVE_PROCESS_STATES, ProcessState, TaskState
from common.store.command_turns import ROOMLESS_COMMANDS, is_date
from common.store.connect import EARLIEST, LATEST
from common.store.fixed_statement import FixedStatement
from common.store.master.unfilled import unfilled
from common.store.project_slots import PROJECT_OF_COMMAND
from common.store.tables import (
    TURN_OF_COMMAND,
    command,
    process_instance,
    relation_process_instance,
    task_instance,
)
from common.store.transaction import AnyRow

_EARLIEST: Final = literal(EARLIEST)
_LATEST: Final = literal(LATEST)
_COLUMNS: Final = tuple(field.name for field in fields(CommandRow))


def _fetchable(moment: Any) -> Any:
    """The time, or NULL for one that a `datetime` can't hold and that `bad_time` reports."""
    return case((moment.between(_EARLIEST, _LATEST), moment), else_=None).label(moment.name)


def _bad_time(*moments: Any) -> Any:
    return case(
        *(
            (
                not_(moment.between(_EARLIEST, _LATEST)),
                func.concat(literal(f"{moment.name} is "), cast(moment, Text)),
            )
            for moment in moments
        ),
        else_=None,
    ).label("bad_time")


# A run that is recovered may, like a sub process, hold what those that took all room wait for.
def _without_room(of: Any) -> ColumnElement[bool]:
    return or_(of.c.command_type.in_(ROOMLESS_COMMANDS), of.c.parent_task_instance_id != 0)


_NEEDS_NO_ROOM: Final = _without_room(command)
# A date of a complement takes only room that nothing else does, so that no live run waits for it.
_IS_DATE: Final = is_date(command)
# The command for a child that was given up and has not ended yet: its owner is stopping it, or will
# do so, seeing that nobody waits for it any more. Not even fetched meanwhile, so that such commands
# never take the place of one that the child's end depends on, as the recovery of its lost master.
_CHILD: Final = process_instance.alias("child")
_WANTING: Final = task_instance.alias("wanting")
_FORMER: Final = task_instance.alias("former")
_GIVEN_UP: Final = (
    exists()
    .where(_FORMER.c.id == _CHILD.c.parent_task_instance_id)
    .where(_FORMER.c.state.in_(FINISHED_TASK_STATES))
)
_STILL_ENDING: Final = (
    select(_CHILD.c.id)
    .join_from(
        relation_process_instance,
        _CHILD,
        _CHILD.c.id == relation_process_instance.c.process_instance_id,
    )
    .join(_WANTING, _WANTING.c.id == relation_process_instance.c.parent_task_instance_id)
    .where(relation_process_instance.c.parent_task_instance_id == command.c.parent_task_instance_id)
    .where(_WANTING.c.state == TaskState.SUBMITTED)
    .where(_CHILD.c.state.in_(LIVE_PROCESS_STATES))
    .where(
        or_(
            _CHILD.c.state == ProcessState.READY_STOP,
            _CHILD.c.wanted_state.in_((ProcessState.STOP, ProcessState.FAILURE)),
            _GIVEN_UP,
        )
    )
    .limit(1)
    .correlate(command)
    # Looked up for the few commands concerned; as EXISTS it might be made a set of all there are.
    .scalar_subquery()
)
_HAS_NOT_TO_WAIT: Final = or_(
    command.c.parent_task_instance_id == 0,
    command.c.command_type.not_in(RESTARTING_COMMANDS),
    _STILL_ENDING.is_(None),
)


# Found by indexes that hold nothing else. In the order of turns, a planner without statistics, as
# of a table that is empty whenever it is analyzed, would read all commands that wait for room to
# find them: 20 ms of ten thousand, each time. Commands about runs are found apart from children, of
# which hundreds of thousands may wait, because a stop may be for the run that starts them.
_ROOMLESS_AT_ONCE: Final = 1_000
_ABOUT_RUNS: Final = command.c.command_type.in_(ROOMLESS_COMMANDS)


def _ids(which: ColumnElement[bool]) -> Any:
    return func.array(
        select(command.c.id)
        .where(which, ~_IS_DATE, _HAS_NOT_TO_WAIT)
        .order_by(command.c.id)
        .limit(_ROOMLESS_AT_ONCE)
        .scalar_subquery()
    )


_ROOMLESS: Final = func.array_cat(_ids(_ABOUT_RUNS), _ids(_NEEDS_NO_ROOM))


_SIZE: Final = func.coalesce(func.octet_length(command.c.command_param), 0)
# Not `NOT IN`, so that the statement is the same however many they are.
_BESIDES: Final = command.c.id != all_(cast(bindparam("besides"), ARRAY(Integer)))
# Read with the other commands, to spare a question that is nearly always answered with nothing.
DATES_WAIT: Final = (
    exists().select_from(command.alias("of_date")).where(text("of_date.complement_date_id <> 0"))
)


def _first(
    which: ColumnElement[bool],
    *besides: ColumnElement[Any],
    before: tuple[ColumnElement[Any], ...] = (),
) -> Select[Any]:
    """Select the first `page` of these, by `before` and their turns."""
    return (
        select(
            command.c.id,
            command.c.command_type,
            command.c.process_definition_id,
            # A text of megabytes is not even fetched: its size alone condemns it.
            case((bindparam("param_limit") < _SIZE, None), else_=command.c.command_param).label(
                "command_param"
            ),
            _SIZE.label("param_bytes"),
            command.c.task_depend_type,
            command.c.failure_strategy,
            command.c.warning_type,
            command.c.warning_group_id,
            _fetchable(command.c.schedule_time),
            _fetchable(command.c.start_time),
            command.c.executor_id,
            command.c.process_instance_priority,
            command.c.worker_group_id,
            command.c.parent_task_instance_id,
            command.c.complement_date_id,
            _bad_time(command.c.schedule_time, command.c.start_time),
            *besides,
        )
        .where(which)
        .where(_HAS_NOT_TO_WAIT)
        .order_by(*before, text(TURN_OF_COMMAND), command.c.process_instance_priority, command.c.id)
        .limit(bindparam("page"))
    )


def _locked(
    which: ColumnElement[bool],
    *besides: ColumnElement[Any],
    before: tuple[ColumnElement[Any], ...] = (),
) -> FixedStatement:
    return FixedStatement(_first(which, *besides, before=before).with_for_update(skip_locked=True))


_OTHERS: Final = _locked(and_(~_IS_DATE, _BESIDES), DATES_WAIT.label("dates_wait"))
_BEHIND: Final = _locked(
    and_(command.c.id == any_(_ROOMLESS), _BESIDES), before=(case((_ABOUT_RUNS, 0), else_=1),)
)
_DATES: Final = _locked(_IS_DATE)
# The same with the project of each command, for a master in which a project could exceed its share.
# The others leave full projects out, so `_BEHIND` finds their commands that need no room. They find
# dates by an index, so nothing has to be read beforehand to know if any dates wait.
_SHARED_OTHERS: Final = _locked(and_(~_IS_DATE, _BESIDES), PROJECT_OF_COMMAND)
_UNFILLED_OTHERS: Final = _locked(command.c.id == any_(unfilled(dates=False)), PROJECT_OF_COMMAND)
_UNFILLED_DATES: Final = _locked(command.c.id == any_(unfilled(dates=True)), PROJECT_OF_COMMAND)

ROOMLESS_WAIT: Final = exists().where(_without_room(command.alias("roomless")))
VERSION: Final = cast(literal_column(f"{command.name}.xmin"), Text).label("version")
"""The version of a command's row: another one after any change."""
FIRST_OTHERS: Final = _first(~_IS_DATE, VERSION, literal_column(TURN_OF_COMMAND).label("turn"))
"""The first `page` commands that are for no date of a complement, not locked, and their turns."""


def lock_waiting(
    db: Connection,
    *,
    limit: int,
    room: int,
    spare: int,
    param_limit_bytes: int,
    share: RoomShare | None = None,
) -> list[CommandRow]:
    """Select the commands to handle now: all others in order, then dates of complements.

    No more rows are locked than there is room for: a full master that takes one of thousands
    at a time would write to fifty for each. If the limit is not enough for all, commands about
    runs go first, then children, then commands that need room.
    """
    asked = {"param_limit": param_limit_bytes}
    rows: list[CommandRow] = []
    others = _Pages(_OTHERS, _SHARED_OTHERS, _UNFILLED_OTHERS, share.live if share else None)
    dates_may_wait = may_be_more = True
    # Each of those found may need room: what the others leave of it is for those behind them.
    while (
        may_be_more and (wanted := min(limit - len(rows), room - sum(map(_needs_room, rows)))) > 0
    ):
        found, may_be_more = others.next(db, asked | {"page": wanted}, besides=rows)
        rows += map(command_row, found)
        dates_may_wait = share is not None or not found or found[-1].dates_wait
    if may_be_more or others.has_left_out:
        besides = [row.id for row in rows]
        behind = _BEHIND.execute(db, asked | {"besides": besides, "page": limit})
        rows = _within(limit, rows, [command_row(row) for row in behind])
    left = min(spare - sum(map(_needs_room, rows)), limit - len(rows))
    dates = _Pages(_DATES, _UNFILLED_DATES, _UNFILLED_DATES, share.dates if share else None)
    while dates_may_wait and left > 0:
        found, may_be_more = dates.next(db, asked | {"page": left}, besides=rows)
        rows += map(command_row, found)
        left -= len(found)
        dates_may_wait = share is not None and may_be_more
    return rows


class _Pages:
    """The pages of commands that a take reads, as the share of the room allows."""

    def __init__(
        self,
        plain: FixedStatement,
        shared: FixedStatement,
        unfilled: FixedStatement,
        share: SlotShare | None,
    ) -> None:
        self._plain = plain
        self._shared = shared
        self._unfilled = unfilled
        self._share = None if share is None else share.copy()
        self._refused: list[int] = []
        self.has_left_out = False
        """True if commands of full projects were left out, including STOP and the like."""

    def next(
        self, db: Connection, asked: dict[str, Any], *, besides: Sequence[CommandRow]
    ) -> tuple[Sequence[AnyRow], bool]:
        """Lock the next page; return the commands to handle, and True if more may follow."""
        share = self._share
        values = asked | {"besides": [row.id for row in besides] + self._refused}
        if share is None:
            rows = self._plain.execute(db, values).all()
            return rows, len(rows) == asked["page"]
        full = share.full()
        self.has_left_out = self.has_left_out or bool(full)
        statement = self._unfilled if full else self._shared
        rows = statement.execute(db, values | {"full": full}).all()
        allowed = [not _needs_room(row) or share.take(row.charged_project) for row in rows]
        taken = [row for row, is_allowed in zip(rows, allowed, strict=True) if is_allowed]
        self._refused += [
            row.id for row, is_allowed in zip(rows, allowed, strict=True) if not is_allowed
        ]
        # Commands may name a definition of another project than their run's. A page of these alone
        # is the last one.
        has_progress = bool(taken) or share.full() != full
        return taken, has_progress and len(rows) == asked["page"]


def command_row(row: AnyRow) -> CommandRow:
    """Return the command's row, of one that is selected here."""
    return CommandRow(**{name: getattr(row, name) for name in _COLUMNS})


def _within(
    limit: int, first: Sequence[CommandRow], behind: Sequence[CommandRow]
) -> list[CommandRow]:
    """Return as many of these as the limit allows, in order.

    Commands about runs go first, then children, then commands that need room.
    """
    rows = [*first, *behind]
    chosen = {row.id for row in sorted(rows, key=_rank)[:limit]}
    return [row for row in rows if row.id in chosen]


def _rank(row: CommandRow) -> int:
    if row.command_type in ROOMLESS_COMMANDS:
        return 0
    return 2 if _needs_room(row) else 1


def _needs_room(row: CommandRow | AnyRow) -> bool:
    return row.command_type not in ROOMLESS_COMMANDS and row.parent_task_instance_id == 0
