"""Selects the commands that a master takes now, and locks their rows.

Statements are made once: to write such a select anew for each take costs more than to run it. Used
by `common.store.master.commands` and `common.store.master.plain_take`.
"""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    Text,
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
    true,
    union_all,
)

from common.model.commands import RESTARTING_COMMANDS, CommandRow
from common.model.slot_share import RoomShare, SlotShare
from common.model.states import FINISHED_TASK_STATES, LIVE_PROCESS_STATES, ProcessState, TaskState
from common.store.command_turns import ROOMLESS_COMMANDS, is_date
from common.store.connect import EARLIEST, LATEST
from common.store.fixed_statement import FixedStatement
from common.store.master.lanes import BESIDES, IN_LANE, Served, first_of, waits
from common.store.tables import (
    CommandLane,
    command,
    process_instance,
    relation_process_instance,
    task_instance,
)
from common.store.transaction import AnyRow

_EARLIEST: Final = literal(EARLIEST)
_LATEST: Final = literal(LATEST)
_COLUMNS: Final = tuple(field.name for field in fields(CommandRow))
_VALUES: Final = attrgetter(*_COLUMNS)


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


_SIZE: Final = func.coalesce(func.octet_length(command.c.command_param), 0)
_COMMAND: Final = (
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
    command.c.project_id,
    _bad_time(command.c.schedule_time, command.c.start_time),
)
_ABOUT_RUNS: Final = command.c.command_type.in_(ROOMLESS_COMMANDS)
_ZERO: Final = literal_column("0", Integer)
_LIMIT: Final = cast(bindparam("limit"), Integer)


def _place(of: Select[Any], kind: int) -> Select[Any]:
    """Select the ids of these, with their places in a batch of several kinds."""
    found = of.subquery(f"of_kind_{kind}")
    number = literal_column(str(kind), Integer)
    return select(found.c.id, found.c.place, number.label("kind"), found.c.lane)


def _locked(chosen: Select[Any], *besides: ColumnElement[Any]) -> FixedStatement:
    """Lock the chosen commands; a row without an `id` is locked by another transaction."""
    found = chosen.cte("chosen")
    row = (
        select(*_COMMAND)
        .where(command.c.id == found.c.id)
        .with_for_update(skip_locked=True)
        .correlate(found)
        .lateral("taken")
    )
    return FixedStatement(
        select(found.c.id.label("chosen_id"), *row.c, *besides)
        .join_from(found, row, true(), isouter=True)
        .order_by(found.c.place, found.c.kind, found.c.lane, found.c.id),
        # To plan it takes longer than to execute it.
        prepared=True,
    )


DATES_WAIT: Final = waits(CommandLane.DATE)
_FIRST: Final = _place(
    select(command.c.id, _ZERO.label("place"), _ZERO.label("lane"))
    .where(_ABOUT_RUNS, BESIDES)
    # By an index that holds nothing else.
    .order_by(command.c.id)
    .limit(_LIMIT),
    0,
)
_CHILDREN: Final = _place(
    first_of(
        CommandLane.CHILD, command.c.id, page="limit", has_full=False, which=(_HAS_NOT_TO_WAIT,)
    ),
    1,
)
_STARTS: Final = _place(first_of(CommandLane.START, command.c.id, page="starts", has_full=True), 2)
_ALL: Final = union_all(_FIRST, _CHILDREN, _STARTS).subquery("waiting")
_OTHERS: Final = _locked(
    select(*_ALL.c).order_by(_ALL.c.place, _ALL.c.kind, _ALL.c.lane, _ALL.c.id).limit(_LIMIT),
    # Read with the others, to spare a query that nearly always finds nothing.
    DATES_WAIT.label("dates_wait"),
)
_DATES: Final = _locked(
    _place(first_of(CommandLane.DATE, command.c.id, page="starts", has_full=True), 0)
)

_ROOMLESS: Final = command.alias("roomless")
ROOMLESS_WAIT: Final = exists().where(
    or_(_ROOMLESS.c.command_type.in_(ROOMLESS_COMMANDS), _ROOMLESS.c.parent_task_instance_id != 0)
)
VERSION: Final = cast(literal_column(f"{command.name}.xmin"), Text).label("version")
"""The version of a command's row: another one after any change."""
FIRST_STARTS: Final = first_of(CommandLane.START, *_COMMAND, VERSION, page="starts", has_full=True)
"""The commands that `lock_waiting` locks if only starts wait, not locked."""
FIRST_OTHERS: Final = (
    select(
        *_COMMAND,
        VERSION,
        func.row_number().over(order_by=IN_LANE).label("place"),
        _ZERO.label("lane"),
    )
    .where(~is_date(command), _HAS_NOT_TO_WAIT)
    .order_by(*IN_LANE)
    .limit(cast(bindparam("starts"), Integer))
)
"""The first commands of any kind that are for no date of a complement, not locked.

If there are fewer than `starts`, no others wait.
"""

_MOST_PAGES: Final = 10
"""The number of times that a take reads on behind rows that it can't have."""


def lock_waiting(
    db: Connection,
    *,
    limit: int,
    room: int,
    spare: int,
    param_limit_bytes: int,
    served: Served,
    share: RoomShare | None = None,
) -> list[CommandRow]:
    """Select the commands to handle now, and lock them.

    Commands about runs come first, then children and starts, then dates of complements, each
    round-robin by project. No more rows are locked than there is room for: a full master that
    takes one of thousands at a time would write to fifty for each.
    """
    batch = _Batch(db, param_limit_bytes=param_limit_bytes, served=served)
    rows, dates_wait = batch.lock(
        _OTHERS, limit=limit, room=room, share=None if share is None else share.live
    )
    left = min(spare - sum(map(_needs_room, rows)), limit - len(rows))
    if dates_wait and left > 0:
        dates, _ = batch.lock(
            _DATES, limit=left, room=left, share=None if share is None else share.dates
        )
        rows += dates
    return rows


class _Batch:
    """The commands that one take locks, page by page."""

    def __init__(self, db: Connection, *, param_limit_bytes: int, served: Served) -> None:
        self._db = db
        self._param_limit = param_limit_bytes
        self._served = served

    def lock(
        self, statement: FixedStatement, *, limit: int, room: int, share: SlotShare | None
    ) -> tuple[list[CommandRow], bool]:
        """Return the locked rows within the share, and False if no date waits."""
        share = None if share is None else share.copy()
        rows: list[CommandRow] = []
        seen: list[int] = []
        dates_wait = True
        for _ in range(_MOST_PAGES):
            left = limit - len(rows)
            values = {
                "param_limit": self._param_limit,
                "limit": left,
                "starts": max(0, min(left, room - sum(map(_needs_room, rows)))),
                "besides": seen,
                "full": [] if share is None else share.full(),
                **self._served.after(),
            }
            found = statement.rows_within(self._db, values)
            free = (command_row(row) for row in found if row.id is not None)
            taken = [row for row in free if _is_within(share, row)]
            self._served.note(taken)
            rows += taken
            seen += [row.chosen_id for row in found]
            if statement is _OTHERS and found:
                dates_wait = found[-1].dates_wait
            if len(taken) == len(found):
                break
        return rows, dates_wait


def _is_within(share: SlotShare | None, row: CommandRow) -> bool:
    return share is None or not _needs_room(row) or share.take(row.project_id)


def command_row(row: AnyRow) -> CommandRow:
    """Return the command's row, of one that is selected here."""
    return CommandRow(**dict(zip(_COLUMNS, _VALUES(row), strict=True)))


def _needs_room(row: CommandRow) -> bool:
    return row.command_type not in ROOMLESS_COMMANDS and row.parent_task_instance_id == 0
