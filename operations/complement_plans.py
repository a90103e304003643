"""Plans of complements: the runs that exist for each date, those to come, and their duration.

Nothing is written. `orcaflow complement --plan` shows them, and the estimates of a watched
complement rest on the same median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from common.business_dates import slots_of
from common.model.complement_states import Reprocess
from common.model.complements import NewComplement
from common.model.rights import Action
from common.model.states import LIVE_PROCESS_STATES, ProcessState
from common.store.connect import Connection
from common.store.people.complement_views import ComplementView, newest_runs
from common.store.people.definitions import definition_by_id
from common.store.people.durations import recent_durations
from common.store.people.rights import Thing
from operations.documents.instances import name_of
from operations.rights import seen
from operations.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePlan:
    """The plan of one date: it runs, or is skipped because of the run that it has."""

    schedule_time: datetime
    process_instance_id: int | None = None
    instance_state: str | None = None
    skipped: str | None = None
    """The reason why it would not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The duration of one complement, if each date takes as long as those before."""

    typical: timedelta
    """The median of the last successful runs."""
    runs: int
    """The number of these runs."""
    rounds: int
    total: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementPlan:
    """One complement that would be made; `estimate` is None without a run of its definition."""

    definition_name: str
    new: NewComplement
    dates: tuple[DatePlan, ...]
    estimate: Estimate | None

    @property
    def to_run(self) -> int:
        return sum(each.skipped is None for each in self.dates)


def look_ahead(db: Connection, complements: Sequence[NewComplement]) -> list[ComplementPlan]:
    """Plan each of the complements: dates with the runs that exist already, and an estimate."""
    definition_ids = [each.process_definition_id for each in complements]
    durations = recent_durations(db, definition_ids)
    plans = []
    for new in complements:
        dates = _date_plans(db, new)
        definition = definition_by_id(db, new.process_definition_id)
        plans.append(
            ComplementPlan(
                definition_name="?" if definition is None else definition.name,
                new=new,
                dates=dates,
                estimate=estimated(
                    sum(each.skipped is None for each in dates),
                    new.parallelism,
                    durations.get(new.process_definition_id, ()),
                ),
            )
        )
    return plans


def estimated(dates: int, parallelism: int, history: Sequence[timedelta]) -> Estimate | None:
    """The estimate for a number of dates; None without any history."""
    typical = typical_duration(history)
    if typical is None:
        return None
    rounds = -(-dates // parallelism)
    return Estimate(typical=typical, runs=len(history), rounds=rounds, total=typical * rounds)


def end_of(plan: ComplementPlan, *, begins_at: datetime | None) -> datetime | None:
    """The end of the plan's runs if they begin then; None if nobody can know it."""
    if plan.estimate is None or begins_at is None:
        return None
    try:
        return begins_at + plan.estimate.total
    except OverflowError:
        return None


def typical_of(session: Session, view: ComplementView) -> timedelta | None:
    """The typical duration of the runs of a complement's definition; None without any."""
    number = view.process_definition_id
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.COMPLEMENT, view.id)
        return typical_duration(recent_durations(db, [number]).get(number, ()))


def typical_duration(history: Sequence[timedelta]) -> timedelta | None:
    """The median, which one run that hung for a day does not spoil; None of nothing."""
    if not history:
        return None
    return timedelta(seconds=median(span.total_seconds() for span in history))


def skip_reason(reprocess: Reprocess, process_instance_id: int, state: int) -> str | None:
    """The reason to skip a date with this newest run; None if it would run again.

    `common.store.complements` decides the same, in the statement that writes the dates.
    """
    is_live = state in LIVE_PROCESS_STATES
    if reprocess is Reprocess.ALL:
        return None
    if reprocess is Reprocess.FAILED and not is_live and state != ProcessState.SUCCESS:
        return None
    verb = "is" if is_live else "ended as"
    return f"process instance {process_instance_id} {verb} {name_of(ProcessState, state)}"


def _date_plans(db: Connection, new: NewComplement) -> tuple[DatePlan, ...]:
    runs = newest_runs(db, new.process_definition_id, slots_of(new))
    return tuple(
        _date_plan(each, runs.get(place), new.reprocess) for place, each in enumerate(new.dates)
    )


def _date_plan(
    schedule_time: datetime, run: tuple[int, int] | None, reprocess: Reprocess
) -> DatePlan:
    if run is None:
        return DatePlan(schedule_time=schedule_time)
    instance_id, state = run
    return DatePlan(
        schedule_time=schedule_time,
        process_instance_id=instance_id,
        instance_state=name_of(ProcessState, state),
        skipped=skip_reason(reprocess, instance_id, state),
    )
