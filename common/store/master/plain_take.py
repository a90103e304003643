"""Takes commands that begin runs in the plainest way, by two statements instead of seven.

Nearly all commands do: the run is not a child, not a date of a complement and not of a serial
definition, and its first step submits attempts to workers. The first statement looks at what waits,
with the definitions, and locks nothing. Between the two the runs are planned and their first steps
decided, under ids of which the sequence has been asked. The second one writes all, in the
transaction that a statement is: it locks the commands, deletes those whose *version* is still the
one that was seen, enters them into the ledger, and inserts the runs with their attempts. It counts
the rows of each kind and fails as a whole if one is missing, as when another master holds or has
taken a command, or somebody has changed it. The caller then takes the commands in the general way,
with the same ids.
Used by `common.store.master.commands` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    String,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.cluster import Node
from common.model.commands import Command, CommandRow, CommandType
from common.model.instances import Ownership
from common.model.plans import Begin, DefinitionSnapshot, Handled, Snapshot
from common.model.states import ExecutionType
from common.store.fixed_statement import FixedStatement
from common.store.master.attempts import place_in_queue, queue_entries
from common.store.master.beginnings import NEXT_RUN, is_serial, new_process_instance
from common.store.master.first_steps import loaded
from common.store.master.lanes import Served
from common.store.master.ledger import taken as entered_as_taken
from common.store.master.plain_save import (
    NEW_ATTEMPTS,
    NEW_COLUMNS,
    OF_RUN,
    HintTarget,
    attempt_values,
    channel_of,
    hint,
    no_hint,
    number_of,
    plain,
)
from common.store.master.ports import FirstStep, Saved, Step, Taken
from common.store.master.snapshots import DEFINITION_COLUMNS, definition_of
from common.store.master.waiting import (
    DATES_WAIT,
    FIRST_OTHERS,
    FIRST_STARTS,
    ROOMLESS_WAIT,
    VERSION,
    command_row,
)
from common.store.tables import (
    command,
    process_definition,
    process_instance,
    schedule_fire,
    task_instance,
)
from common.store.transaction import any_of, unnested

# Whatever is not of these, or not in the plainest way, gets no id of the sequence.
_PLAIN_TYPES: Final = (
    CommandType.START_PROCESS,
    CommandType.START_CURRENT_TASK_PROCESS,
    CommandType.SCHEDULER,
)

_DEFINITION: Final = "definition_"


def _looking(found: Select[Any], *besides: ColumnElement[Any]) -> FixedStatement:
    """Return the statement that reads these commands with their definitions."""
    seen = found.cte("seen")
    number = select(func.count()).select_from(seen).scalar_subquery()
    numbered = select(
        seen, func.row_number().over(partition_by=seen.c.process_definition_id).label("nth")
    ).subquery("numbered")
    can_be_plain = and_(
        numbered.c.command_type.in_(_PLAIN_TYPES),
        numbered.c.parent_task_instance_id == 0,
        func.coalesce(
            process_definition.c.execution_type, literal_column(f"{ExecutionType.PARALLEL:d}")
        )
        == ExecutionType.PARALLEL,
    )
    return FixedStatement(
        select(
            numbered,
            case((can_be_plain, NEXT_RUN)).label("run_id"),
            case((cast(bindparam("room_for_dates"), Integer) > number, DATES_WAIT)).label(
                "dates_wait"
            ),
            *besides,
            # Its texts may be long: they come once.
            *(
                case((numbered.c.nth == 1, each)).label(f"{_DEFINITION}{each.name}")
                for each in DEFINITION_COLUMNS
            ),
        )
        .join_from(
            numbered,
            process_definition,
            process_definition.c.id == numbered.c.process_definition_id,
            isouter=True,
        )
        .order_by(numbered.c.place, numbered.c.lane),
        prepared=True,
    )


# The usual case. It costs less than to read lanes, and no others wait if these are few.
_FEW: Final = _looking(FIRST_OTHERS)
_CROWD: Final = _looking(FIRST_STARTS, ROOMLESS_WAIT.label("roomless_wait"))

_ASKED: Final = unnested("asked", id=Integer, version=Text, run=Integer)
_LOCKED: Final = (
    select(command.c.id, VERSION)
    .where(command.c.id == any_of("ids"))
    .order_by(command.c.id)
    .with_for_update(skip_locked=True)
    .cte("locked")
)
_GONE: Final = (
    delete(command)
    .where(command.c.id == _LOCKED.c.id)
    .where(_ASKED.c.id == _LOCKED.c.id)
    .where(_ASKED.c.version == _LOCKED.c.version)
    .returning(
        command.c.id,
        command.c.command_type,
        command.c.process_definition_id,
        command.c.start_time,
        _ASKED.c.run,
    )
    .cte("gone")
)
_ENTERED: Final = entered_as_taken(_GONE)
_NOTED: Final = (
    update(schedule_fire)
    .where(_GONE.c.command_type == CommandType.SCHEDULER)
    .where(schedule_fire.c.command_id == _GONE.c.id)
    # Said so that the index of these is used, which leaves the others out.
    .where(schedule_fire.c.command_id != 0)
    .where(schedule_fire.c.process_instance_id == 0)
    .values(process_instance_id=_GONE.c.run)
    .returning(schedule_fire.c.id)
    .cte("noted")
)


def _array_type(name: str) -> Any:
    kind = process_instance.c[name].type
    # A cast to a text of limited length would cut it, where an INSERT refuses it.
    return ARRAY(Text() if isinstance(kind, String) else kind)


# The columns of `new_process_instance`, which the statement is written for.
_RUN_COLUMNS: Final = (
    "id",
    "name",
    "process_definition_id",
    "state",
    "recovery",
    "start_time",
    "run_times",
    "host",
    "owner_incarnation",
    "owner_epoch",
    "command_type",
    "command_param",
    "task_depend_type",
    "max_try_times",
    "failure_strategy",
    "warning_type",
    "warning_group_id",
    "schedule_time",
    "command_start_time",
    "global_params",
    "process_instance_json",
    "flag",
    "update_time",
    "is_sub_process",
    "executor_id",
    "locations",
    "connects",
    "history_cmd",
    "process_instance_priority",
    "worker_group_id",
    "timeout",
    "timeout_strategy",
    "tenant_id",
    "root_id",
    "parent_task_instance_id",
    "timezone_id",
    "business_time",
    "execution_type",
    "command_id",
)
_RUN: Final = (
    func.unnest(*(cast(bindparam(f"run_{name}"), _array_type(name)) for name in _RUN_COLUMNS))
    .table_valued(*(column(name, process_instance.c[name].type) for name in _RUN_COLUMNS))
    .render_derived(name="run")
)
_BEGUN: Final = (
    insert(process_instance)
    .from_select(list(_RUN_COLUMNS), select(*_RUN.c))
    .returning(
        process_instance.c.id,
        process_instance.c.process_instance_priority,
        process_instance.c.worker_group_id,
        process_instance.c.history_cmd,
        *(process_instance.c[name] for name in OF_RUN),
    )
    .cte("begun")
)
_MADE: Final = (
    insert(task_instance)
    .from_select(
        [*NEW_COLUMNS, *OF_RUN],
        select(
            *(NEW_ATTEMPTS.c[name] for name in NEW_COLUMNS), *(_BEGUN.c[name] for name in OF_RUN)
        )
        .join_from(NEW_ATTEMPTS, _BEGUN, _BEGUN.c.id == NEW_ATTEMPTS.c.process_instance_id)
        .order_by(NEW_ATTEMPTS.c.place),
    )
    .returning(
        task_instance.c.id,
        task_instance.c.process_instance_id,
        task_instance.c.task_instance_priority,
        task_instance.c.worker_group_id,
    )
    .cte("made")
)


_ALL_WRITTEN: Final = and_(
    number_of(_GONE) == cast(bindparam("runs"), Integer),
    number_of(_ENTERED) == cast(bindparam("runs"), Integer),
    number_of(_BEGUN) == cast(bindparam("runs"), Integer),
    number_of(_MADE) == cast(bindparam("attempts"), Integer),
)
_TAKEN: Final = (
    select(
        _BEGUN.c.id,
        _BEGUN.c.process_instance_priority,
        _BEGUN.c.worker_group_id,
        _BEGUN.c.history_cmd,
        _MADE.c.id.label("task_id"),
        _MADE.c.task_instance_priority.label("task_priority"),
        _MADE.c.worker_group_id.label("task_group_id"),
        # Divides by zero unless all is written: so nothing of it is.
        (literal(1, Integer) // case((_ALL_WRITTEN, 1), else_=0)).label("is_whole"),
        hint(_MADE, _BEGUN).label("hint"),
    )
    .join_from(_BEGUN, _MADE, _MADE.c.process_instance_id == _BEGUN.c.id, isouter=True)
    .order_by(_MADE.c.id)
)
_TAKE: Final = FixedStatement(_TAKEN, prepared=True)
_TAKE_FIRES: Final = FixedStatement(_TAKEN.add_cte(_NOTED), prepared=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A waiting command, the version of its row, and the id of the run that it is to begin."""

    row: CommandRow
    version: str
    run_id: int
    definition: DefinitionSnapshot | None

    def snapshot(self) -> Snapshot:
        """Return the planner's view of a command that can be plain."""
        return Snapshot(definition=self.definition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainBegin:
    """A run that is to begin, and the command that asks for it."""

    seen: Seen
    plan: Begin


def look(
    db: Connection,
    *,
    limit: int,
    room: int,
    spare: int,
    param_limit_bytes: int,
    served: Served,
    full: Sequence[int] | None = None,
) -> list[Seen]:
    """Return the commands that `lock_waiting` would lock; none if some can't be plain.

    Commands of the projects that are `full` are passed over. None: projects have no shares.
    """
    wanted = min(limit, room)
    if wanted <= 0:
        return []
    asked = {
        "param_limit": param_limit_bytes,
        "starts": wanted,
        "room_for_dates": min(spare, limit),
        "besides": [],
        "full": list(full or ()),
        **served.after(),
    }
    rows = _looked(db, asked, served, has_share=full is not None)
    if any(row.run_id is None or row.dates_wait for row in rows):
        return []
    definitions = {row.definition_id: _definition(row) for row in rows if row.nth == 1}
    return [
        Seen(
            row=command_row(row),
            version=row.version,
            run_id=row.run_id,
            definition=definitions.get(row.process_definition_id),
        )
        for row in rows
    ]


def _looked(db: Connection, asked: dict[str, Any], served: Served, *, has_share: bool) -> list[Any]:
    """Return the rows of the commands to take; none if others need no room."""
    wanted = asked["starts"]
    if not (served.is_crowded or has_share):
        rows = _FEW.rows(db, asked)
        if len(rows) < wanted:
            return rows
    rows = _CROWD.rows(db, asked)
    served.is_crowded = len(rows) == wanted
    return [] if any(row.roomless_wait for row in rows) else rows


def is_plain(found: Command) -> bool:
    """Return True if a command's plan depends on nothing but its definition."""
    return (
        found.command_type in _PLAIN_TYPES
        and found.process_instance_id is None
        and not found.parent_task_instance_id
        and not found.complement_date_id
    )


def begins_plainly(plan: Begin) -> bool:
    """Return True if nothing else has to be looked at or changed for this run to begin."""
    return plan.child_of is None and not plan.complement_date_id and not is_serial(plan)


def take_plainly(
    db: Connection,
    begins: Sequence[PlainBegin],
    *,
    node: Node,
    now: datetime,
    first_step: FirstStep,
    hint_to: HintTarget = no_hint,
) -> Taken | None:
    """Begin these, each with its first step; None if one of those is not plain.

    `DataError` or `IntegrityError` if nothing was written, since a row is not as it was seen.
    """
    owners = {
        each.seen.row.id: Ownership(
            process_instance_id=each.seen.run_id, host=node.address, epoch=1
        )
        for each in begins
    }
    steps = [
        step
        for each in begins
        if (
            step := first_step(
                loaded(each.plan, owners[each.seen.row.id], each.plan.command_param, now)
            )
        )
        is not None
    ]
    attempts = _attempts(steps)
    if attempts is None:
        return None
    runs = [
        new_process_instance(each.plan, command_id=each.seen.row.id, node=node, now=now)
        | {"id": each.seen.run_id}
        for each in begins
    ]
    channel = channel_of(hint_to, len(attempts))
    values = {
        "ids": [each.seen.row.id for each in begins],
        "asked_id": [each.seen.row.id for each in begins],
        "asked_version": [each.seen.version for each in begins],
        "asked_run": [each.seen.run_id for each in begins],
        "now": now,
        "host": node.address,
        "runs": len(begins),
        "attempts": len(attempts),
        "hint_channel": channel,
        **{f"run_{name}": [row[name] for row in runs] for name in _RUN_COLUMNS},
        **attempt_values(attempts),
    }
    has_fires = any(each.plan.command_type is CommandType.SCHEDULER for each in begins)
    rows = (_TAKE_FIRES if has_fires else _TAKE).rows(db, values)
    return Taken(
        handled=tuple(
            Handled(command_id=each.seen.row.id, plan=each.plan, ownership=owners[each.seen.row.id])
            for each in begins
        ),
        begun=frozenset(step.ownership for step in steps),
        saved=_saved(db, rows, hinted=channel is not None),
    )


def _attempts(steps: Sequence[Step]) -> list[Mapping[str, Any]] | None:
    if not steps:
        return []
    found = plain(steps)
    if found is None or found.ended:
        return None
    return list(found.new)


def _saved(db: Connection, rows: Sequence[Any], *, hinted: bool) -> Saved:
    offered = {
        row.task_id: place_in_queue(
            row, task_priority=row.task_priority, task_group_id=row.task_group_id
        )
        for row in rows
        if row.task_id is not None
    }
    (offers,) = queue_entries(db, [offered])
    return Saved(lost=frozenset(), offers=tuple(offers), kills=(), withdrawn=(), hinted=hinted)


def _definition(row: Any) -> DefinitionSnapshot | None:
    if row.definition_id is None:
        return None
    columns = {each.name: getattr(row, f"{_DEFINITION}{each.name}") for each in DEFINITION_COLUMNS}
    return definition_of(SimpleNamespace(**columns))
