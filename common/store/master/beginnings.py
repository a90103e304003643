"""Makes new process instances: plain ones, those of a serial definition, and sub processes.

Part of the transaction that takes commands. Instances are inserted together, except those of serial
definitions, each of which depends on the other live runs. If an attempt or a date of a complement
waits for the instance, that row is *claimed* first. Used by `common.store.master.commands` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    Connection,
    Integer,
    Text,
    bindparam,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from common.model.cluster import Node
from common.model.command_param import CommandParam
from common.model.commands import CommandType
from common.model.instances import Ownership
from common.model.plans import Begin, ChildOf, Drop, Handled, Reject
from common.model.states import (
    LIVE_PROCESS_STATES,
    ExecutionType,
    ProcessState,
    TaskState,
)
from common.store.master.complement_dates import claim_dates, note_runs_of_dates
from common.store.master.save import RUN_COLUMNS
from common.store.master.schedules import note_runs_of_fires
from common.store.master.serial import DISPLACED, other_live_runs, want_stopped
from common.store.master.trees import SUB_PROCESS
from common.store.tables import process_instance, relation_process_instance, task_instance
from common.store.transaction import (
    AnyRow,
    any_of,
    lock_in_time,
    passes,
    refusal,
    storable,
    unnested,
)

# What a new instance becomes of, by the id of its command, and what it has become.
Begins: TypeAlias = Mapping[int, Begin]
Begun: TypeAlias = dict[int, "Created"]

_PARENTS: Final = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .order_by(task_instance.c.id)
)
_CLAIM_PARENTS: Final = (
    update(task_instance)
    .where(task_instance.c.id == any_of("ids"))
    .where(task_instance.c.state == TaskState.SUBMITTED)
    .where(task_instance.c.flag == 1)
    .where(task_instance.c.task_type == SUB_PROCESS)
    .where(
        exists()
        .where(process_instance.c.id == task_instance.c.process_instance_id)
        .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    )
    .values(state=int(TaskState.RUNNING), start_time=bindparam("now"))
    .returning(task_instance.c.id)
)
_CREATED: Final = unnested("created", task_id=Integer, child_id=Integer, param=Text)
_RELATE: Final = (
    update(relation_process_instance)
    .where(relation_process_instance.c.parent_task_instance_id == _CREATED.c.task_id)
    .values(process_instance_id=_CREATED.c.child_id)
)
_NAME_CHILDREN: Final = (
    update(process_instance)
    .where(process_instance.c.id == _CREATED.c.child_id)
    .values(command_param=func.coalesce(_CREATED.c.param, process_instance.c.command_param))
)


NEXT_RUN: Final = func.nextval(func.pg_get_serial_sequence(process_instance.name, "id"))
_NEXT_RUNS: Final = select(NEXT_RUN).select_from(
    func.generate_series(1, bindparam("number", type_=Integer))
)
_INSERT: Final = insert(process_instance).returning(*RUN_COLUMNS, sort_by_parameter_order=True)


class BatchRefusedError(Exception):
    """PostgreSQL refused one of a batch's new rows, without naming it."""


def refused(cause: str) -> Reject:
    """Return the rejection of a plan whose row PostgreSQL refuses."""
    return Reject(reason=storable(f"PostgreSQL refused the process instance: {cause}"))


def not_wanted(complement_date_id: int) -> Drop:
    """Return the drop of a plan for a date that was given up, or begun by another command."""
    return Drop(
        reason=f"date {complement_date_id} of a complement does not wait for this command any more"
    )


def not_waiting(child_of: ChildOf) -> Drop:
    """Return the drop of a plan for a child that no attempt waits for any more (trap T36c)."""
    return Drop(reason=f"task instance {child_of.task_instance_id} does not wait for it any more")


def new_process_instance(
    plan: Begin, *, command_id: int, node: Node, now: datetime
) -> dict[str, Any]:
    """Return the columns of a new process instance (contract §3.5), owned by `node`."""
    child_of = plan.child_of
    return {
        "name": plan.name,
        "process_definition_id": plan.process_definition_id,
        "state": int(ProcessState.RUNNING),
        "recovery": 0,
        "start_time": now,
        "run_times": 1,
        "host": node.address,
        "owner_incarnation": node.incarnation,
        "owner_epoch": 1,
        "command_type": int(plan.command_type),
        "command_param": plan.command_param,
        "task_depend_type": int(plan.task_depend_type),
        "max_try_times": 0,
        "failure_strategy": int(plan.failure_strategy),
        "warning_type": int(plan.warning_type),
        "warning_group_id": plan.warning_group_id,
        "schedule_time": plan.schedule_time,
        "command_start_time": plan.command_start_time,
        "global_params": plan.global_params,
        "process_instance_json": plan.process_instance_json,
        "flag": 1,
        "update_time": now,
        "is_sub_process": 0 if child_of is None else 1,
        "executor_id": plan.executor_id,
        "locations": plan.locations,
        "connects": plan.connects,
        "history_cmd": plan.command_type.name,
        "process_instance_priority": int(plan.priority),
        "worker_group_id": plan.worker_group_id,
        "timeout": plan.timeout_minutes,
        "timeout_strategy": int(plan.timeout_strategy),
        "tenant_id": plan.tenant_id,
        "root_id": 0 if child_of is None else child_of.root_id,
        "parent_task_instance_id": 0 if child_of is None else child_of.task_instance_id,
        "timezone_id": plan.timezone_id,
        "business_time": plan.business_time,
        "execution_type": int(plan.execution_type) if plan.is_serial_by_schedule else None,
        # Of the command that began it: a recovery leaves it.
        "command_id": command_id,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The result of a `Begin`, and the instance that it made, whoever owns that.

    `discarded` is the reason why that instance has ended at once. `run` is set if it begins now.
    """

    handled: Handled
    process_instance_id: int | None = None
    discarded: str | None = None
    run: NewRun | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run that begins now: what it was made of, and the columns that saves read of its row."""

    plan: Begin
    command_param: str
    row: AnyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginner:
    """The owner of new instances, the time of their start, and ids that wait for some of them.

    `run_ids`: by command, what the sequence has given for a run that was not begun then.
    """

    node: Node
    now: datetime
    run_ids: Mapping[int, int] = field(default_factory=dict)

    def row(self, command_id: int, plan: Begin) -> dict[str, Any]:
        """Return the columns of a new instance owned by this master."""
        row = new_process_instance(plan, command_id=command_id, node=self.node, now=self.now)
        run_id = self.run_ids.get(command_id)
        return row if run_id is None else row | {"id": run_id}

    def begun(self, command_id: int, run: NewRun) -> Created:
        """Return the result for a new instance owned by this master."""
        owned = Ownership(process_instance_id=run.row.id, host=self.node.address, epoch=1)
        handled = Handled(command_id=command_id, plan=run.plan, ownership=owned)
        return Created(handled=handled, process_instance_id=run.row.id, run=run)


def begin_together(db: Connection, beginner: Beginner, begins: Begins) -> Begun:
    """Begin as many as possible in one statement. Raises `BatchRefusedError` if one is refused."""
    wanted = claim_parents(
        db, [plan.child_of for plan in begins.values() if plan.child_of], now=beginner.now
    )
    serial = {command_id: plan for command_id, plan in begins.items() if is_serial(plan)}
    others = {command_id: plan for command_id, plan in begins.items() if command_id not in serial}
    dates = _dates(others)
    awaited = claim_dates(db, dates, now=beginner.now)
    begun: Begun = {}
    plans: dict[int, Begin] = {}
    for command_id, plan in others.items():
        if command_id in dates and command_id not in awaited:
            begun[command_id] = _not_begun(command_id, not_wanted(plan.complement_date_id))
        elif plan.child_of is None:
            plans[command_id] = plan
        elif plan.child_of.task_instance_id in wanted:
            # Of two commands for one child, which only a person can write, the first has it.
            wanted.remove(plan.child_of.task_instance_id)
            plans[command_id] = plan
        else:
            begun[command_id] = _not_begun(command_id, not_waiting(plan.child_of))
    try:
        begun |= _begin_now(db, beginner, plans)
    except (DBAPIError, ValueError) as error:
        if passes(error):
            raise
        raise BatchRefusedError from error
    return begun | begin_one_by_one(db, beginner, serial)


def begin_one_by_one(db: Connection, beginner: Beginner, begins: Begins) -> Begun:
    """Begin each by itself, so that a refused one does not affect the others."""
    begun: Begun = {}
    for command_id, plan in begins.items():
        try:
            with db.begin_nested():
                begun[command_id] = _begin(db, beginner, command_id, plan)
        except (DBAPIError, ValueError) as error:
            if passes(error):
                raise
            begun[command_id] = _not_begun(command_id, refused(refusal(error)))
    return begun


def note_runs(db: Connection, begins: Begins, begun: Begun) -> None:
    """Record the new instances in the rows that asked for them: dates and fires."""
    made = {
        command_id: made_run.process_instance_id
        for command_id, made_run in begun.items()
        if made_run.process_instance_id is not None
    }
    dates = {
        begins[command_id].complement_date_id: run_id
        for command_id, run_id in made.items()
        if begins[command_id].complement_date_id
    }
    if dates:
        note_runs_of_dates(db, dates)
    fires = {
        command_id: run_id
        for command_id, run_id in made.items()
        if begins[command_id].command_type is CommandType.SCHEDULER
        and begins[command_id].child_of is None
    }
    if fires:
        note_runs_of_fires(db, fires)


def lock_parents(db: Connection, task_instance_ids: Collection[int]) -> frozenset[int]:
    """Lock the parents in order of id, as every transaction that locks several attempts does.

    Returns the ids of those that stay locked elsewhere, which can't get a child now.
    """
    return lock_in_time(db, _PARENTS, task_instance_ids)


def claim_parents(db: Connection, children: Sequence[ChildOf], *, now: datetime) -> set[int]:
    """0 → 1 for the attempts that want these children; return the ids that still waited."""
    if not children:
        return set()
    ids = sorted({child_of.task_instance_id for child_of in children})
    return set(db.scalars(_CLAIM_PARENTS, {"ids": ids, "now": now}))


def relate(db: Connection, children: Mapping[int, ChildOf]) -> None:
    """Record the children in the relation rows of their parents' attempts."""
    db.execute(_RELATE, _created_values(children))


def _created_values(
    children: Mapping[int, ChildOf], params: Sequence[str | None] | None = None
) -> dict[str, list[Any]]:
    return {
        "created_task_id": [child_of.task_instance_id for child_of in children.values()],
        "created_child_id": list(children),
        "created_param": list(params or [None] * len(children)),
    }


def is_serial(plan: Begin) -> bool:
    """Return True if a new run must look for other live runs of its definition."""
    return plan.child_of is None and plan.execution_type is not ExecutionType.PARALLEL


def _begin(db: Connection, beginner: Beginner, command_id: int, plan: Begin) -> Created:
    if plan.child_of is not None and not claim_parents(db, [plan.child_of], now=beginner.now):
        return _not_begun(command_id, not_waiting(plan.child_of))
    dates = _dates({command_id: plan})
    if dates and not claim_dates(db, dates, now=beginner.now):
        return _not_begun(command_id, not_wanted(plan.complement_date_id))
    if is_serial(plan) and (others := other_live_runs(db, plan.process_definition_id)):
        held = _held(db, beginner, command_id, plan, others)
        instance_id = _insert(db, [held])[0].id
        handled = Handled(command_id=command_id, plan=plan)
        return Created(
            handled=handled,
            process_instance_id=instance_id,
            discarded=held.get("state_reason"),
        )
    return _begin_now(db, beginner, {command_id: plan})[command_id]


def _not_begun(command_id: int, plan: Drop | Reject) -> Created:
    return Created(handled=Handled(command_id=command_id, plan=plan))


def _dates(begins: Begins) -> dict[int, int]:
    """Return the dates of complements that wait for these, by the ids of the commands."""
    return {
        command_id: plan.complement_date_id
        for command_id, plan in begins.items()
        if plan.complement_date_id
    }


def _begin_now(db: Connection, beginner: Beginner, plans: Begins) -> Begun:
    """Insert runs that may begin at once, their parents having been claimed."""
    if not plans:
        return {}
    rows = _insert(db, [beginner.row(command_id, plan) for command_id, plan in plans.items()])
    runs = [_new_run(plan, row) for plan, row in zip(plans.values(), rows, strict=True)]
    children = {run.row.id: run.plan.child_of for run in runs if run.plan.child_of is not None}
    if children:
        relate(db, children)
        params = [run.command_param for run in runs if run.row.id in children]
        db.execute(_NAME_CHILDREN, _created_values(children, params))
    return {
        command_id: beginner.begun(command_id, run)
        for command_id, run in zip(plans, runs, strict=True)
    }


def _new_run(plan: Begin, row: AnyRow) -> NewRun:
    param = plan.command_param
    if plan.child_of is not None:
        param = CommandParam.as_stored(param).of_child(row.id).text()
    return NewRun(plan=plan, command_param=param, row=row)


def _held(
    db: Connection,
    beginner: Beginner,
    command_id: int,
    plan: Begin,
    others: Sequence[int],
) -> dict[str, Any]:
    """Return the columns of a run that can't begin while others of its definition are live."""
    held = beginner.row(command_id, plan) | {
        "host": None,
        "owner_incarnation": None,
        "owner_epoch": 0,
    }
    if plan.execution_type is ExecutionType.SERIAL_DISCARD:
        return held | {
            "state": int(ProcessState.STOP),
            "end_time": beginner.now,
            "state_reason": discarded(others),
        }
    if plan.execution_type is ExecutionType.SERIAL_PRIORITY:
        want_stopped(db, dict.fromkeys(others, DISPLACED), now=beginner.now)
    return held | {"state": int(ProcessState.SERIAL_WAIT)}


def discarded(others: Sequence[int]) -> str:
    """Return the reason why a run of a SERIAL_DISCARD definition does not begin."""
    return f"discarded: process instance {others[0]} of this definition is still live"


def _insert(db: Connection, rows: list[dict[str, Any]]) -> Sequence[AnyRow]:
    nameless = [row for row in rows if "id" not in row]
    if 0 < len(nameless) < len(rows):  # A statement names the same columns for all of its rows.
        ids = db.scalars(_NEXT_RUNS, {"number": len(nameless)})
        for row, run_id in zip(nameless, ids, strict=True):
            row["id"] = run_id
    return db.execute(_INSERT, rows).all()
