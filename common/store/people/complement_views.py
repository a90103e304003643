"""Complements as people see them: the progress of each, and its dates with their runs.

Read only, and tolerant: a state is given as its number or word, since a row may hold one that this
version does not know. No daemon decides anything by these views.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    Connection,
    DateTime,
    Integer,
    Row,
    Select,
    case,
    func,
    select,
    true,
)

from common.masking import shown_reason
from common.model.complement_states import DateState
from common.model.date_rules import Slot
from common.model.rights import DATABASE, Principal
from common.store.business_times import newest_run_in
from common.store.executed import duration_from
from common.store.people.project_column import project_name
from common.store.people.rights import seen_projects
from common.store.tables import (
    complement,
    complement_date,
    environment,
    process_definition,
    process_instance,
)
from common.store.transaction import unnested

LIVE_DATES: Final = (DateState.SUBMITTED, DateState.RUNNING)
RUN_DATES: Final = (DateState.SUCCESS, DateState.FAILURE)
ENDED_DATES: Final = (*RUN_DATES, DateState.SKIPPED, DateState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementView:
    """One complement. `dates` counts its dates by state; `after_id` is 0 if it waits for none."""

    id: int
    process_definition_id: int
    definition_name: str | None
    """None if the definition has been deleted."""
    state: int
    state_reason: str | None
    parallelism: int
    run_order: str
    on_failure: str
    reprocess: str
    date_rule: str
    timezone_id: str
    after_id: int
    command_id: int
    task_depend_type: int
    failure_strategy: int
    priority: int
    worker_group_id: int
    environment_code: int
    environment: str | None
    start_node_names: str | None
    start_params: str | None
    create_time: datetime
    end_time: datetime | None
    dates: Mapping[str, int] = field(default_factory=dict)
    project_name: str | None = None

    def count(self, *states: str) -> int:
        """Count the dates in one of these states; with none named, all dates."""
        if not states:
            return sum(self.dates.values())
        return sum(self.dates.get(state, 0) for state in states)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementDateView:
    """One date, and the run that it has become: `process_instance_id` is 0 before that."""

    id: int
    complement_id: int
    position: int
    schedule_time: datetime
    state: str
    reason: str | None
    process_instance_id: int
    instance_state: int | None
    start_time: datetime | None
    end_time: datetime | None
    update_time: datetime
    duration_from: datetime | None = None
    """The start of the run's duration; later than its start by the time that it was idle."""

    def duration(self, now: datetime) -> timedelta | None:
        """Return the time in which its run was live until `now`; None without a run."""
        since = self.duration_from or self.start_time
        return None if since is None else max(timedelta(), (self.end_time or now) - since)


def complements(
    db: Connection,
    *,
    definition_name: str | None = None,
    definition_id: int | None = None,
    states: Collection[int] | None = None,
    limit: int | None = None,
    principal: Principal = DATABASE,
    before: int | None = None,
) -> list[ComplementView]:
    """List the newest that the principal sees first, at most `limit`; in any state if none named.

    `before`: only those with smaller ids.
    """
    statement = _COMPLEMENTS.order_by(complement.c.id.desc()).limit(limit)
    if not principal.sees_all:
        statement = statement.where(seen_projects(principal, process_definition.c.project_id))
    if before is not None:
        statement = statement.where(complement.c.id < before)
    if definition_name is not None:
        statement = statement.where(process_definition.c.name == definition_name)
    if definition_id is not None:
        statement = statement.where(complement.c.process_definition_id == definition_id)
    if states is not None:
        statement = statement.where(complement.c.state.in_(states))
    return _counted(db, statement)


def complements_with_ids(db: Connection, ids: Sequence[int]) -> list[ComplementView]:
    """List those that exist, in the order of the ids."""
    found = {
        view.id: view for view in _counted(db, _COMPLEMENTS.where(complement.c.id.in_(set(ids))))
    }
    return [found[each] for each in ids if each in found]


def complements_after(db: Connection, complement_id: int) -> list[ComplementView]:
    """List those that wait for this one, or have waited for it."""
    return _counted(
        db,
        _COMPLEMENTS.where(complement.c.after_id == complement_id).order_by(complement.c.id),
    )


def dates_of_complement(
    db: Connection,
    complement_id: int,
    *,
    states: Collection[str] | None = None,
    ids: Collection[int] | None = None,
    since: datetime | None = None,
    limit: int | None = None,
    behind: int | None = None,
) -> list[ComplementDateView]:
    """List dates in the order in which they run; `since`: only those changed after that time.

    With a `limit`, failed dates first, then running ones, then the next ones; or, with `behind`,
    the first of those behind that position.
    """
    statement = _DATES.where(complement_date.c.complement_id == complement_id)
    if states is not None:
        statement = statement.where(complement_date.c.state.in_(states))
    if ids is not None:
        statement = statement.where(complement_date.c.id.in_(ids))
    if since is not None:
        statement = statement.where(complement_date.c.update_time >= since)
    if behind is not None:
        statement = statement.where(complement_date.c.position > behind)
        statement = statement.order_by(complement_date.c.position).limit(limit)
    elif limit is not None:
        statement = statement.order_by(_TELLING, complement_date.c.position).limit(limit)
    found = [_date(row) for row in db.execute(statement)]
    return sorted(found, key=lambda date: date.position)


def run_dates(db: Connection, complement_id: int) -> list[tuple[int, str, int]]:
    """List id, state and process instance of each date whose run has ended; cheap for very many."""
    rows = db.execute(
        select(complement_date.c.id, complement_date.c.state, complement_date.c.process_instance_id)
        .where(complement_date.c.complement_id == complement_id)
        .where(complement_date.c.state.in_(RUN_DATES))
    )
    return [(row.id, row.state, row.process_instance_id) for row in rows]


def newest_runs(
    db: Connection, definition_id: int, slots: Sequence[Slot]
) -> dict[int, tuple[int, int]]:
    """Return the newest process instance and its state, by the places of the slots with runs.

    Sub processes run as parts of others, and count for nothing here.
    """
    found: dict[int, tuple[int, int]] = {}
    for start in range(0, len(slots), _CHUNK):
        some = slots[start : start + _CHUNK]
        asked = {
            "whose": definition_id,
            "asked_place": list(range(start, start + len(some))),
            "asked_slot_start": [slot.start for slot in some],
            "asked_slot_end": [slot.end for slot in some],
        }
        for row in db.execute(_NEWEST_RUNS, asked):
            found[row.place] = (row.id, row.state)
    return found


_COMPLEMENTS: Final[Select[Any]] = (
    select(
        complement.c.id,
        complement.c.process_definition_id,
        process_definition.c.name.label("definition_name"),
        project_name(process_definition.c.project_id),
        complement.c.state,
        complement.c.state_reason,
        complement.c.parallelism,
        complement.c.run_order,
        complement.c.on_failure,
        complement.c.reprocess,
        complement.c.date_rule,
        complement.c.timezone_id,
        complement.c.after_id,
        complement.c.command_id,
        complement.c.task_depend_type,
        complement.c.failure_strategy,
        complement.c.process_instance_priority,
        complement.c.worker_group_id,
        complement.c.environment_code,
        environment.c.name.label("environment"),
        complement.c.start_node_names,
        complement.c.start_params,
        complement.c.create_time,
        complement.c.end_time,
    )
    .select_from(complement)
    .outerjoin(process_definition, process_definition.c.id == complement.c.process_definition_id)
    .outerjoin(environment, environment.c.code == complement.c.environment_code)
)

_DATES: Final[Select[Any]] = select(
    complement_date.c.id,
    complement_date.c.complement_id,
    complement_date.c.position,
    complement_date.c.schedule_time,
    complement_date.c.state,
    complement_date.c.reason,
    complement_date.c.process_instance_id,
    process_instance.c.state.label("instance_state"),
    process_instance.c.start_time,
    process_instance.c.end_time,
    complement_date.c.update_time,
    duration_from(process_instance).label("duration_from"),
).outerjoin_from(
    complement_date,
    process_instance,
    process_instance.c.id == complement_date.c.process_instance_id,
)

# A statement has a time limit, which a million dates would reach.
_CHUNK: Final = 50_000
_MOMENT: Final = DateTime(timezone=True)
_ASKED: Final = unnested("asked", place=Integer, slot_start=_MOMENT, slot_end=_MOMENT)
_NEWEST: Final = newest_run_in(_ASKED)
_NEWEST_RUNS: Final = select(_ASKED.c.place, _NEWEST.c.id, _NEWEST.c.state).join_from(
    _ASKED, _NEWEST, true()
)

_TELLING: Final = case(
    (complement_date.c.state == DateState.FAILURE, 0),
    (complement_date.c.state.in_(LIVE_DATES), 1),
    (complement_date.c.state == DateState.PENDING, 2),
    else_=3,
)


def _counted(db: Connection, statement: Select[Any]) -> list[ComplementView]:
    rows = db.execute(statement).all()
    counts: dict[int, dict[str, int]] = {row.id: {} for row in rows}
    if counts:
        grouped = db.execute(
            select(complement_date.c.complement_id, complement_date.c.state, func.count())
            .where(complement_date.c.complement_id.in_(counts))
            .group_by(complement_date.c.complement_id, complement_date.c.state)
        )
        for complement_id, state, number in grouped:
            counts[complement_id][state] = number
    return [_complement(row, counts[row.id]) for row in rows]


def _complement(row: Row[*tuple[Any, ...]], dates: Mapping[str, int]) -> ComplementView:
    return ComplementView(
        id=row.id,
        process_definition_id=row.process_definition_id,
        definition_name=row.definition_name,
        project_name=row.project_name,
        state=row.state,
        state_reason=shown_reason(row.state_reason),
        parallelism=row.parallelism,
        run_order=row.run_order,
        on_failure=row.on_failure,
        reprocess=row.reprocess,
        date_rule=row.date_rule,
        timezone_id=row.timezone_id,
        after_id=row.after_id,
        command_id=row.command_id,
        task_depend_type=row.task_depend_type,
        failure_strategy=row.failure_strategy,
        priority=row.process_instance_priority,
        worker_group_id=row.worker_group_id,
        environment_code=row.environment_code,
        environment=row.environment,
        start_node_names=row.start_node_names,
        start_params=row.start_params,
        create_time=row.create_time,
        end_time=row.end_time,
        dates=dates,
    )


def _date(row: Row[*tuple[Any, ...]]) -> ComplementDateView:
    return ComplementDateView(
        id=row.id,
        complement_id=row.complement_id,
        position=row.position,
        schedule_time=row.schedule_time,
        state=row.state,
        reason=shown_reason(row.reason),
        process_instance_id=row.process_instance_id,
        instance_state=row.instance_state,
        start_time=row.start_time,
        end_time=row.end_time,
        update_time=row.update_time,
        duration_from=row.duration_from,
    )
