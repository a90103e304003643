"""Writes new complements with their dates, and reads the definitions downstream of one.

The caller says which dates there are; those left out, because they have been run before, are found
here. Used where a master carries out commands, and by the command line;
`common.store.master.complement_progress` advances complements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    Integer,
    Text,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    text,
    true,
    update,
)

from common.business_dates import slots_of
from common.model.command_param import CommandParam
from common.model.complement_states import ComplementState, DateState, Reprocess
from common.model.complements import NewComplement
from common.model.date_rules import DateRule
from common.model.plans import DependentDefinition
from common.model.states import LIVE_PROCESS_STATES, ProcessState, ReleaseState
from common.store.business_times import newest_run_in
from common.store.schedules import read_schedules
from common.store.sharing import candidates_named_in, definitions_shared, reached_by
from common.store.tables import (
    complement,
    complement_date,
    process_definition,
)
from common.store.transaction import unnested

_MOMENT: Final = DateTime(timezone=True)
# A statement has a time limit, which a million dates would reach.
_CHUNK: Final = 50_000
_MANY_DATES: Final = 10_000

# New complements

_FOLLOWING: Final = unnested("following", id=Integer, after_id=Integer)
_NAME_FORMER: Final = (
    update(complement)
    .where(complement.c.id == _FOLLOWING.c.id)
    .values(after_id=_FOLLOWING.c.after_id)
)
_NEW: Final = unnested("new", position=Integer, schedule_time=_MOMENT)
# A date that may have runs already.
_DATED: Final = unnested(
    "new", position=Integer, schedule_time=_MOMENT, slot_start=_MOMENT, slot_end=_MOMENT
)


def _state_name(state: ColumnElement[int]) -> ColumnElement[str]:
    known = {int(each): each.name for each in ProcessState}
    return case(known, value=state, else_=func.concat("state ", state))


_NEWEST_RUN: Final = newest_run_in(_DATED)
_IS_LIVE_RUN: Final = _NEWEST_RUN.c.state.in_(LIVE_PROCESS_STATES)
_LEFT_ALONE: Final = {
    Reprocess.MISSING: _NEWEST_RUN.c.id.is_not(None),
    Reprocess.FAILED: or_(_IS_LIVE_RUN, _NEWEST_RUN.c.state == ProcessState.SUCCESS),
}
_DATE_COLUMNS: Final = (
    "complement_id",
    "position",
    "schedule_time",
    "state",
    "reason",
    "update_time",
)


def _add_dates(reprocess: Reprocess) -> Any:
    new = _NEW if reprocess is Reprocess.ALL else _DATED
    own = (bindparam("which", type_=Integer), new.c.position, new.c.schedule_time)
    at = bindparam("now", type_=_MOMENT)
    if reprocess is Reprocess.ALL:
        chosen = select(*own, literal(DateState.PENDING.value), cast(null(), Text), at)
        return insert(complement_date).from_select(_DATE_COLUMNS, chosen)
    is_left = func.coalesce(_LEFT_ALONE[reprocess], False)
    state = case((is_left, DateState.SKIPPED.value), else_=DateState.PENDING.value)
    verb = case((_IS_LIVE_RUN, " is "), else_=" ended as ")
    reason = case(
        (
            is_left,
            func.concat(
                "process instance ", _NEWEST_RUN.c.id, verb, _state_name(_NEWEST_RUN.c.state)
            ),
        ),
        else_=null(),
    )
    joined = select(*own, state, reason, at).outerjoin_from(_DATED, _NEWEST_RUN, true())
    return insert(complement_date).from_select(_DATE_COLUMNS, joined)


_ADD_DATES: Final = {reprocess: _add_dates(reprocess) for reprocess in Reprocess}


def create_complements(
    db: Connection, complements: Sequence[NewComplement], *, command_id: int, now: datetime
) -> tuple[int, ...]:
    """Write these with all their dates; return their ids. `command_id` is 0 without a command row.

    The dates that `reprocess` skips are determined now, whatever runs meanwhile.
    """
    ids = db.scalars(
        insert(complement).returning(complement.c.id, sort_by_parameter_order=True),
        [
            _row(each, command_id=0 if place else command_id, now=now)
            for place, each in enumerate(complements)
        ],
    ).all()
    former = {
        complement_id: ids[each.after]
        for complement_id, each in zip(ids, complements, strict=True)
        if each.after is not None
    }
    if former:
        db.execute(
            _NAME_FORMER,
            {"following_id": list(former), "following_after_id": list(former.values())},
        )
    for complement_id, each in zip(ids, complements, strict=True):
        slots = () if each.reprocess is Reprocess.ALL else slots_of(each)
        for start in range(0, len(each.dates), _CHUNK):
            dates = each.dates[start : start + _CHUNK]
            values = {
                "which": complement_id,
                "now": now,
                "new_position": list(range(start + 1, start + 1 + len(dates))),
                "new_schedule_time": list(dates),
            }
            if slots:
                some = slots[start : start + _CHUNK]
                values |= {
                    "whose": each.process_definition_id,
                    "new_slot_start": [slot.start for slot in some],
                    "new_slot_end": [slot.end for slot in some],
                }
            db.execute(_ADD_DATES[each.reprocess], values)
    if sum(len(each.dates) for each in complements) > _MANY_DATES:
        # Until statistics are gathered by themselves, each look would read all of these.
        db.execute(text("ANALYZE t_ds_complement_date"))
    return tuple(ids)


def _row(each: NewComplement, *, command_id: int, now: datetime) -> dict[str, Any]:
    settings = each.settings
    waits = each.after is not None
    return {
        "process_definition_id": each.process_definition_id,
        "state": int(ComplementState.SUBMITTED if waits else ComplementState.RUNNING),
        "parallelism": each.parallelism,
        "run_order": each.order.value,
        "on_failure": each.on_failure.value,
        "reprocess": each.reprocess.value,
        "date_rule": each.date_rule.value,
        "timezone_id": each.timezone_id,
        "command_id": command_id,
        "task_depend_type": int(settings.task_depend_type),
        "failure_strategy": int(settings.failure_strategy),
        "warning_type": int(settings.warning_type),
        "warning_group_id": settings.warning_group_id,
        "executor_id": settings.executor_id,
        "process_instance_priority": int(settings.priority),
        "worker_group_id": settings.worker_group_id,
        "environment_code": settings.environment_code,
        "start_node_names": ",".join(settings.start_node_names) or None,
        "start_params": settings.start_params,
        "create_time": now,
        "update_time": now,
    }


def date_command_param(
    timezone_id: str,
    start_node_names: str | None,
    start_params: str | None,
    environment_code: int,
    date_rule: DateRule,
) -> str:
    """Build the `command_param` of the commands for a complement's dates from its columns."""
    return CommandParam.of(
        timezone_id=timezone_id,
        start_node_names=(start_node_names,) if start_node_names else (),
        # As the text that it is: the master that takes the command reads it strictly.
        start_params=start_params,
        environment_code=environment_code if environment_code > 0 else None,
        date_rule=date_rule,
    ).text()


# Definitions downstream

_DEPENDENTS: Final = (
    select(
        process_definition.c.id,
        process_definition.c.name,
        process_definition.c.process_definition_json,
        process_definition.c.project_id,
        definitions_shared(process_definition.c.project_id).label("shared"),
    )
    .where(process_definition.c.flag == 1)
    # None of the dates of another could run.
    .where(process_definition.c.release_state == ReleaseState.ONLINE)
    .where(process_definition.c.process_definition_json.contains('"DEPENDENT"'))
    .order_by(process_definition.c.id)
)


def read_dependents(
    db: Connection, *, among: Callable[[ColumnElement[Any]], ColumnElement[bool]] | None = None
) -> tuple[DependentDefinition, ...]:
    """Read the ONLINE definitions that may have DEPENDENT tasks, in order of id.

    `among` is a condition on their projects; without it, definitions of all projects are read.
    Raises `ValueError` if a row of one of their schedules can't be read.
    """
    found = _DEPENDENTS
    if among is not None:
        found = found.where(among(process_definition.c.project_id))
    rows = db.execute(found).all()
    if not rows:
        return ()
    named = candidates_named_in(db, (row.process_definition_json for row in rows))
    schedules = read_schedules(db, [row.id for row in rows])
    return tuple(
        DependentDefinition(
            id=row.id,
            name=row.name,
            process_definition_json=row.process_definition_json,
            schedules=schedules.get(row.id, ()),
            project_id=row.project_id,
            shared=frozenset(row.shared),
            named=reached_by(named, row.project_id),
        )
        for row in rows
    )
