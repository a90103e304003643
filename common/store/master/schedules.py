"""Fires the schedules that are due and keeps the ledger of their fires.

The planner that is passed in decides on the due fires; here its plan only becomes rows, and the
ledger's unique key lets none come twice. Used by the schedule loop of a master, and where its
commands are carried out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Engine,
    Integer,
    Text,
    bindparam,
    case,
    exists,
    func,
    insert,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert

from common.errors import SchedulerError
from common.model.commands import CommandType
from common.model.schedules import (
    Fire,
    FireOutcome,
    FirePlan,
    FirePlanner,
    Schedule,
)
from common.model.states import (
    TaskDependType,
)
from common.store.master.ports import Fired, ScheduleStore
from common.store.schedules import IS_ONLINE, SCHEDULES, schedule_of
from common.store.tables import command, schedule, schedule_fire
from common.store.transaction import (
    AnyRow,
    storable,
    transaction,
    unnested,
    unstorable,
)

log = logging.getLogger(__name__)

# A statement has a time limit, and a transaction holds its locks: schedules that were down for long
# may have a thousand fires each.
_MOST_FIRES: Final = 20_000

_MOMENT: Final = DateTime(timezone=True)
_CAN_FIRE: Final = IS_ONLINE & schedule.c.fault.is_(None)
_DUE: Final = (
    SCHEDULES.where(_CAN_FIRE)
    .where(
        or_(
            schedule.c.counted_from.is_not(None),
            schedule.c.next_fire_time <= bindparam("now", type_=_MOMENT),
        )
    )
    .order_by(func.coalesce(schedule.c.next_fire_time, schedule.c.counted_from), schedule.c.id)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(of=schedule, key_share=True, skip_locked=True)
)
# Two questions, not one: so each finds the partial index that is made for it.
_NEXT_DUE: Final = select(
    func.least(
        select(func.min(schedule.c.next_fire_time)).where(_CAN_FIRE).scalar_subquery(),
        case(
            (
                exists().where(_CAN_FIRE).where(schedule.c.counted_from.is_not(None)),
                bindparam("now", type_=_MOMENT),
            ),
            else_=null(),
        ),
    )
)

_FIRE: Final = unnested(
    "fire",
    schedule_id=Integer,
    fire_time=_MOMENT,
    outcome=Text,
    definition_id=Integer,
    reason=Text,
)
_NOTE_FIRES: Final = (
    pg_insert(schedule_fire)
    .from_select(
        [
            "schedule_id",
            "fire_time",
            "outcome",
            "process_definition_id",
            "reason",
            "create_time",
        ],
        select(
            _FIRE.c.schedule_id,
            _FIRE.c.fire_time,
            _FIRE.c.outcome,
            _FIRE.c.definition_id,
            _FIRE.c.reason,
            bindparam("now", type_=_MOMENT),
        ),
    )
    .on_conflict_do_nothing(index_elements=[schedule_fire.c.schedule_id, schedule_fire.c.fire_time])
    .returning(
        schedule_fire.c.id,
        schedule_fire.c.schedule_id,
        schedule_fire.c.fire_time,
        schedule_fire.c.outcome,
    )
)
_PUT: Final = insert(command).returning(command.c.id, sort_by_parameter_order=True)

_CAUSED: Final = unnested("caused", fire_id=BigInteger, command_id=Integer)
_NOTE_COMMANDS: Final = (
    update(schedule_fire)
    .where(schedule_fire.c.id == _CAUSED.c.fire_id)
    .values(command_id=_CAUSED.c.command_id)
)
_CREATED: Final = unnested("created", command_id=Integer, run_id=Integer)
_NOTE_RUNS: Final = (
    update(schedule_fire)
    .where(schedule_fire.c.command_id == _CREATED.c.command_id)
    # Said so that the index of these is used, which leaves the others out.
    .where(schedule_fire.c.command_id != 0)
    .where(schedule_fire.c.process_instance_id == 0)
    .values(process_instance_id=_CREATED.c.run_id)
)

_MOVED: Final = unnested("moved", id=Integer, next_fire_time=_MOMENT)
_MOVE_ON: Final = (
    update(schedule)
    .where(schedule.c.id == _MOVED.c.id)
    .values(counted_from=null(), next_fire_time=_MOVED.c.next_fire_time)
)
_SPOILT: Final = unnested("spoilt", id=Integer, fault=Text)
# Nothing else: whoever takes the fault away has it go on from where it was.
_FIND_FAULT: Final = (
    update(schedule).where(schedule.c.id == _SPOILT.c.id).values(fault=_SPOILT.c.fault)
)


class PostgresScheduleStore(ScheduleStore):
    """`ScheduleStore` on PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def fire(self, *, planner: FirePlanner, now: datetime, limit: int) -> Fired:
        with transaction(self._engine) as db:
            rows = db.execute(_DUE, {"now": now, "limit": max(0, limit)}).all()
            planned = _planned(rows, planner)
            noted = _note_fires(db, planned, now)
            commands = _put_commands(db, planned, noted, now)
            _move_on(db, planned)
            next_due = db.scalar(_NEXT_DUE, {"now": now})
        return Fired(commands=commands, fires=len(noted), next_due=next_due)


def note_runs_of_fires(db: Connection, runs: Mapping[int, int]) -> None:
    """Record new process instances in the ledger, by the ids of their commands."""
    db.execute(
        _NOTE_RUNS, {"created_command_id": list(runs), "created_run_id": list(runs.values())}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The rows to write for one schedule; `schedule` is None if its row can't be read."""

    schedule_id: int
    schedule: Schedule | None
    plan: FirePlan


def _planned(rows: Sequence[AnyRow], planner: FirePlanner) -> list[_Planned]:
    """Plan the first of these schedules, as many as keep the fires within one pass's limit."""
    planned: list[_Planned] = []
    fires = 0
    for row in rows:
        if fires >= _MOST_FIRES:
            break
        planned.append(_plan(row, planner))
        fires += len(planned[-1].plan.fires)
    return planned


def _plan(row: AnyRow, planner: FirePlanner) -> _Planned:
    try:
        found = schedule_of(row)
    except ValueError as error:
        # Somebody has lifted a constraint: the others fire all the same.
        return _faulty(row.id, f"the row can't be read: {error}")
    try:
        plan = planner(found)
    except SchedulerError as error:
        return _faulty(row.id, str(error))
    except Exception as error:
        # A mistake of ours must not hold up the other schedules for ever.
        log.exception("schedule could not be planned", extra={"schedule_id": row.id})
        return _faulty(row.id, f"planning failed: {type(error).__name__}: {error}")
    if plan.fault is not None:
        return _faulty(row.id, plan.fault)
    if cause := unstorable({"command_param": plan.command_param}):
        return _faulty(row.id, f"start_params can't be kept in a command: {cause}")
    return _Planned(schedule_id=row.id, schedule=found, plan=plan)


def _faulty(schedule_id: int, fault: str) -> _Planned:
    plan = FirePlan(fault=storable(fault))
    return _Planned(schedule_id=schedule_id, schedule=None, plan=plan)


def _note_fires(db: Connection, planned: Sequence[_Planned], now: datetime) -> list[AnyRow]:
    """Write the ledger; return the rows that it did not have."""
    fires = [(one, fire) for one in planned for fire in one.plan.fires]
    if not fires:
        return []
    columns = {
        "fire_schedule_id": [one.schedule_id for one, _ in fires],
        "fire_fire_time": [fire.fire_time for _, fire in fires],
        "fire_outcome": [fire.outcome.value for _, fire in fires],
        "fire_definition_id": [
            0 if one.schedule is None else one.schedule.process_definition_id for one, _ in fires
        ],
        "fire_reason": [_reason(fire) for _, fire in fires],
    }
    return list(db.execute(_NOTE_FIRES, columns | {"now": now}))


def _reason(fire: Fire) -> str | None:
    return None if fire.reason is None else storable(fire.reason)


def _put_commands(
    db: Connection, planned: Sequence[_Planned], noted: Sequence[AnyRow], now: datetime
) -> int:
    """Put a command for each new fired row of the ledger, the oldest first; return the number."""
    by_id = {one.schedule_id: one for one in planned}
    fired = sorted(
        (row for row in noted if row.outcome == FireOutcome.FIRED),
        key=lambda row: (row.fire_time, row.id),
    )
    if not fired:
        return 0
    ids = db.scalars(_PUT, [_command(by_id[row.schedule_id], row, now) for row in fired]).all()
    db.execute(
        _NOTE_COMMANDS,
        {"caused_fire_id": [row.id for row in fired], "caused_command_id": list(ids)},
    )
    return len(ids)


def _command(one: _Planned, fired: AnyRow, now: datetime) -> dict[str, Any]:
    found = one.schedule
    assert found is not None, "what can't be read does not fire"
    return {
        "command_type": int(CommandType.SCHEDULER),
        "process_definition_id": found.process_definition_id,
        "command_param": one.plan.command_param,
        "task_depend_type": int(TaskDependType.TASK_POST),
        "failure_strategy": int(found.failure_strategy),
        "warning_type": int(found.warning_type),
        "warning_group_id": found.warning_group_id,
        "schedule_time": fired.fire_time.astimezone(UTC),
        "start_time": now,
        "update_time": now,
        "executor_id": found.user_id,
        "process_instance_priority": int(found.priority),
        "worker_group_id": found.worker_group_id,
    }


def _move_on(db: Connection, planned: Sequence[_Planned]) -> None:
    moved = [one for one in planned if one.plan.fault is None]
    if moved:
        times = [one.plan.next_fire_time for one in moved]
        ids = [one.schedule_id for one in moved]
        db.execute(_MOVE_ON, {"moved_id": ids, "moved_next_fire_time": times})
    spoilt = {one.schedule_id: one.plan.fault for one in planned if one.plan.fault is not None}
    if spoilt:
        db.execute(_FIND_FAULT, {"spoilt_id": list(spoilt), "spoilt_fault": list(spoilt.values())})
