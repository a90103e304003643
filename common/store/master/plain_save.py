"""Writes a plain save by one statement: ends that are settled, first attempts for workers, and runs
that succeed without anybody being told.

Nearly all saves are such. A statement is a transaction of its own, so this one takes one round trip
where `common.store.master.save` takes five. It locks, compares, writes and counts the same; if one
row is not as its owner believes, it fails as a whole and says nothing more. The caller then saves
the steps by that module, which names what is wrong. Used by `common.store.master.runs`; the first
steps of new runs are written by `common.store.master.plain_take`, with the same attempts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    CTE,
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    DateTime,
    Float,
    Integer,
    SmallInteger,
    Text,
    and_,
    bindparam,
    case,
    cast,
    column,
    false,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from common.model.cluster import ANY_WORKER
from common.model.commands import CommandType
from common.model.decisions import (
    FinishProcess,
    FinishTask,
    PassForbidden,
    SkipTask,
    SubmitTask,
)
from common.model.instances import Ownership
from common.model.states import LIVE_PROCESS_STATES, ProcessState, TaskState, WarningType
from common.store.fixed_statement import FixedStatement
from common.store.listen import hint_channel
from common.store.master.attempts import USES_POOLS, place_in_queue, queue_entries
from common.store.master.endings import OTHERS_MAY_WAIT
from common.store.master.ports import Saved, Step
from common.store.master.save import ownership_of
from common.store.master.submissions import attempt_columns, first_state, is_for_workers
from common.store.tables import process_instance, task_instance
from common.store.transaction import any_of, unnested, unstorable

# With the numbers of ends and of new attempts, which are to be counted again.
_STEP: Final = unnested(
    "step",
    run_id=Integer,
    host=Text,
    epoch=BigInteger,
    ends=Integer,
    begins=Integer,
    over_at=DateTime(timezone=True),
)
_RUN: Final = (
    select(
        process_instance.c.id,
        process_instance.c.host,
        process_instance.c.owner_epoch,
        process_instance.c.state,
        process_instance.c.process_definition_id,
        process_instance.c.executor_id,
        process_instance.c.process_instance_priority,
        process_instance.c.worker_group_id,
        process_instance.c.history_cmd,
        process_instance.c.warning_type,
        process_instance.c.is_sub_process,
        process_instance.c.parent_task_instance_id,
    )
    .where(process_instance.c.id == any_of("ids"))
    .order_by(process_instance.c.id)
    .with_for_update(key_share=True)
    .cte("run")
)
_AS_OWNED: Final = and_(
    _RUN.c.id == _STEP.c.run_id,
    _RUN.c.host == _STEP.c.host,
    _RUN.c.owner_epoch == _STEP.c.epoch,
)
# `is_worth_an_alert` of a success, or the end of a child for which an attempt waits.
_IS_ENDS_TO_TELL: Final = or_(
    and_(
        _RUN.c.is_sub_process == 0,
        _RUN.c.warning_type.in_((int(WarningType.SUCCESS), int(WarningType.ALL))),
    ),
    _RUN.c.parent_task_instance_id != 0,
)
_ENDS_TO_TELL: Final = (
    select(_RUN.c.id)
    .join_from(_RUN, _STEP, _AS_OWNED)
    .where(_STEP.c.over_at.is_not(None))
    .where(_IS_ENDS_TO_TELL)
    .correlate(None)
)
# Nothing at all is written if a run is among them whose end somebody has to be told of.
_OWNED: Final = (
    select(_RUN, _STEP.c.ends, _STEP.c.begins, _STEP.c.over_at)
    .join_from(_RUN, _STEP, _AS_OWNED)
    .where(~_ENDS_TO_TELL.exists())
    .cte("owned")
)

_ENDED: Final = unnested(
    "ended",
    run_id=Integer,
    name=Text,
    attempt=Integer,
    state=SmallInteger,
    without_output=Boolean,
)
_SETTLED: Final = (
    update(task_instance)
    .where(_OWNED.c.id == _ENDED.c.run_id)
    .where(task_instance.c.process_instance_id == _OWNED.c.id)
    .where(task_instance.c.name == _ENDED.c.name)
    .where(task_instance.c.attempt == _ENDED.c.attempt)
    .where(task_instance.c.state == _ENDED.c.state)
    .where(or_(~_ENDED.c.without_output, task_instance.c.var_pool.is_(None)))
    # Not the bare column: an index of all that are not settled must not look the better way to them
    # to a plan that was made while the table was small.
    .where(func.coalesce(task_instance.c.settled, False).is_(False))
    .values(settled=True, retry_at=None)
    .returning(USES_POOLS.label("uses_pools"))
    .cte("settled")
)

_OVER: Final = (
    update(process_instance)
    .where(process_instance.c.id == _OWNED.c.id)
    .where(_OWNED.c.over_at.is_not(None))
    .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
    .values(
        state=ProcessState.SUCCESS,
        update_time=_OWNED.c.over_at,
        end_time=_OWNED.c.over_at,
        # A stop that came too late may have left its cause.
        state_reason=None,
        run_scope=None,
    )
    .returning(OTHERS_MAY_WAIT.label("others_may_wait"))
    .cte("over")
)

NEW_COLUMNS: Final[dict[str, Any]] = {
    "process_instance_id": Integer,
    "name": Text,
    "task_type": Text,
    "task_json": Text,
    "state": SmallInteger,
    "submit_time": DateTime(timezone=True),
    "start_time": DateTime(timezone=True),
    "retry_times": Integer,
    "retry_interval": Integer,
    "max_retry_times": Integer,
    "task_instance_priority": SmallInteger,
    "worker_group_id": Integer,
    "attempt": Integer,
    "input_pool": Text,
    "timeout_seconds": Integer,
    "timeout_strategy": SmallInteger,
    "memory_factor": Float,
}
NEW_ATTEMPTS: Final = (
    func.unnest(
        *(cast(bindparam(f"new_{name}"), ARRAY(kind)) for name, kind in NEW_COLUMNS.items())
    )
    .table_valued(
        *(column(name, kind) for name, kind in NEW_COLUMNS.items()), with_ordinality="place"
    )
    .render_derived(name="new")
)
"""New attempts, in order, of which `NEW_COLUMNS` tell all but what a run's row has, `OF_RUN`."""
OF_RUN: Final = ("process_definition_id", "executor_id")
_MADE: Final = (
    insert(task_instance)
    .from_select(
        [*NEW_COLUMNS, *OF_RUN],
        select(
            *(NEW_ATTEMPTS.c[name] for name in NEW_COLUMNS), *(_OWNED.c[name] for name in OF_RUN)
        )
        .join_from(NEW_ATTEMPTS, _OWNED, _OWNED.c.id == NEW_ATTEMPTS.c.process_instance_id)
        .where(_OWNED.c.state.in_(LIVE_PROCESS_STATES))
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


def hint(made: Any, run: Any) -> ColumnElement[Any]:
    """Notify the channel `hint_channel`, if it is given, of new attempts that any worker may take.

    `made` are the attempts, `run` the rows of their runs. Complements have no hurry.
    """
    name = func.concat_ws(
        "_",
        run.c.process_instance_priority,
        run.c.id,
        made.c.task_instance_priority,
        made.c.id,
        ANY_WORKER,
    )
    told = (
        select(func.pg_notify(cast(bindparam("hint_channel"), Text), func.string_agg(name, " ")))
        .select_from(made)
        .join(run, run.c.id == made.c.process_instance_id)
        .where(func.greatest(made.c.worker_group_id, run.c.worker_group_id) <= 0)
        .where(
            func.split_part(func.coalesce(run.c.history_cmd, ""), ",", 1)
            != CommandType.COMPLEMENT_DATA.name
        )
        .having(func.count() > 0)
        .scalar_subquery()
    )
    return case((cast(bindparam("hint_channel"), Text).is_not(None), cast(told, Text)))


def number_of(rows: CTE) -> ColumnElement[int]:
    """Count the rows of a part of a statement."""
    return select(func.count()).select_from(rows).scalar_subquery()


def _any_of(of_row: ColumnElement[bool]) -> ColumnElement[bool]:
    return select(func.bool_or(of_row)).scalar_subquery()


@cache
def _statement(*, ends_runs: bool, begins_attempts: bool) -> FixedStatement:
    """Return the statement of a save with these parts.

    Even a part without rows takes time, because the executor opens each index of its table.
    """
    are_changed = [number_of(_SETTLED) == select(func.sum(_OWNED.c.ends)).scalar_subquery()]
    others_may_wait: ColumnElement[Any] = false()
    if ends_runs:
        are_changed.append(
            number_of(_OVER) == select(func.count(_OWNED.c.over_at)).scalar_subquery()
        )
        others_may_wait = _any_of(_OVER.c.others_may_wait)
    if begins_attempts:
        are_changed.append(number_of(_MADE) == select(func.sum(_OWNED.c.begins)).scalar_subquery())
    saved = select(
        _OWNED.c.id,
        _OWNED.c.host,
        _OWNED.c.owner_epoch,
        _OWNED.c.process_instance_priority,
        _OWNED.c.worker_group_id,
        _OWNED.c.history_cmd,
        _any_of(_SETTLED.c.uses_pools).label("frees_slots"),
        others_may_wait.label("others_may_wait"),
        # Divides by zero unless all are as their owner believes: so nothing of it is written.
        (literal(1, Integer) // case((and_(*are_changed), 1), else_=0)).label("is_whole"),
    )
    if begins_attempts:
        saved = (
            saved.add_columns(
                _MADE.c.id.label("task_id"),
                _MADE.c.task_instance_priority.label("task_priority"),
                _MADE.c.worker_group_id.label("task_group_id"),
                hint(_MADE, _OWNED).label("hint"),
            )
            .join_from(_OWNED, _MADE, _MADE.c.process_instance_id == _OWNED.c.id, isouter=True)
            .order_by(_MADE.c.id)
        )
    else:
        saved = saved.add_columns(cast(null(), Integer).label("task_id"))
    return FixedStatement(saved, prepared=True)


HintTarget: TypeAlias = Callable[[int], str | None]
"""Names the worker that is to be told of so many new attempts at once; None if none is."""


def no_hint(_attempts: int) -> str | None:
    """Name no worker."""
    return None


def channel_of(hint_to: HintTarget, attempts: int) -> str | None:
    """Return the channel on which a worker is told of so many new attempts; None for none."""
    address = hint_to(attempts) if attempts else None
    return None if address is None else hint_channel(address)


@dataclass(frozen=True, slots=True)
class PlainSave:
    """The steps of a save that one statement can write, as its parameters."""

    owners: list[Ownership] = field(default_factory=list)
    ended: list[tuple[int, FinishTask]] = field(default_factory=list)
    new: list[dict[str, Any]] = field(default_factory=list)
    over: dict[int, datetime] = field(default_factory=dict)
    """The runs that succeed, and when."""


def plain(steps: Sequence[Step]) -> PlainSave | None:
    """Return these steps if one statement can write them, unless it finds that it can't."""
    found = PlainSave()
    runs: set[int] = set()
    for step in steps:
        run_id = step.ownership.process_instance_id
        if run_id in runs:
            return None
        runs.add(run_id)
        found.owners.append(step.ownership)
        for decision in step.decisions:
            match decision:
                case FinishTask():
                    found.ended.append((run_id, decision))
                case SubmitTask():
                    row = _new(run_id, decision, step.at)
                    if row is None:
                        return None
                    found.new.append(row)
                case FinishProcess(state=ProcessState.SUCCESS, reason=None, var_pool=None):
                    found.over[run_id] = step.at
                case PassForbidden() | SkipTask():
                    pass
                case _:
                    return None
    return found if found.ended or found.new or found.over else None


def _new(run_id: int, decision: SubmitTask, at: datetime) -> dict[str, Any] | None:
    if (
        decision.attempt != 1
        or not is_for_workers(decision)
        or decision.worker_need is not None
        or first_state(decision) is not TaskState.SUBMITTED
    ):
        return None
    row = attempt_columns(decision, at) | {"process_instance_id": run_id}
    return row if unstorable(row) is None else None


def save_plainly(db: Connection, save: PlainSave, *, hint_to: HintTarget = no_hint) -> Saved | None:
    """Write all, in the transaction that the statement is. `DataError` if one row differs.

    None if nothing was written, since no run is still owned, or somebody is to be told of an end.
    """
    channel = channel_of(hint_to, len(save.new))
    statement = _statement(ends_runs=bool(save.over), begins_attempts=bool(save.new))
    rows = statement.rows(db, _parameters(save) | {"hint_channel": channel})
    if not rows:
        return None
    owned = {ownership_of(row) for row in rows}
    offered = {
        row.task_id: place_in_queue(
            row, task_priority=row.task_priority, task_group_id=row.task_group_id
        )
        for row in rows
        if row.task_id is not None
    }
    (offers,) = queue_entries(db, [offered])
    return Saved(
        lost=frozenset(owner for owner in save.owners if owner not in owned),
        offers=tuple(offers),
        kills=(),
        withdrawn=(),
        holds=any(row.frees_slots or row.others_may_wait for row in rows),
        hinted=channel is not None,
    )


def _parameters(save: PlainSave) -> dict[str, list[Any]]:
    ids = [owner.process_instance_id for owner in save.owners]
    ends = Counter(run_id for run_id, _ in save.ended)
    begins = Counter(row["process_instance_id"] for row in save.new)
    return {
        "ids": ids,
        "step_run_id": ids,
        "step_host": [owner.host for owner in save.owners],
        "step_epoch": [owner.epoch for owner in save.owners],
        "step_ends": [ends[run_id] for run_id in ids],
        "step_begins": [begins[run_id] for run_id in ids],
        "step_over_at": [save.over.get(run_id) for run_id in ids],
        "ended_run_id": [run_id for run_id, _ in save.ended],
        "ended_name": [each.name for _, each in save.ended],
        "ended_attempt": [each.attempt for _, each in save.ended],
        "ended_state": [int(each.state) for _, each in save.ended],
        "ended_without_output": [each.is_without_output for _, each in save.ended],
        **attempt_values(save.new),
    }


def attempt_values(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the parameters of `NEW_ATTEMPTS`."""
    return {f"new_{name}": [row[name] for row in rows] for name in NEW_COLUMNS}
