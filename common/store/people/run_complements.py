"""Reads complements with dates that DEPENDENT tasks of the same complement wait for."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, select

from common.business_dates import moment_of_date
from common.model.complement_states import DateState
from common.model.date_rules import DateRule
from common.params import ParameterError
from common.store.tables import complement, complement_date, process_definition
from common.why import ComplementOfRun, Run, awaited_intervals
from common.zones import zone_named

_MOST_DATES: Final = 1000
# A moment is the date of the complement, or one day later on the calendar of its zone.
_BEFORE: Final = timedelta(days=2)


def complements_of_runs(db: Connection, runs: Collection[Run]) -> tuple[ComplementOfRun, ...]:
    """Return the complements of these runs, with the pending dates that the runs wait for."""
    spans = [
        span for run in runs for attempt in run.attempts for span in awaited_intervals(attempt)
    ]
    if not spans:
        return ()
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    rows = db.execute(
        select(
            complement.c.id,
            complement.c.run_order,
            complement.c.parallelism,
            complement.c.date_rule,
            complement.c.timezone_id,
            complement.c.process_definition_id,
            process_definition.c.name.label("definition_name"),
        )
        .join_from(complement, complement_date, complement_date.c.complement_id == complement.c.id)
        .outerjoin(
            process_definition, process_definition.c.id == complement.c.process_definition_id
        )
        .where(complement_date.c.process_instance_id.in_([run.id for run in runs]))
        .distinct()
        .order_by(complement.c.id)
    ).all()
    found = []
    for row in rows:
        dates = db.scalars(
            select(complement_date.c.schedule_time)
            .where(complement_date.c.complement_id == row.id)
            .where(complement_date.c.state == DateState.PENDING)
            .where(complement_date.c.schedule_time >= first - _BEFORE)
            .where(complement_date.c.schedule_time < last)
            .order_by(complement_date.c.position)
            .limit(_MOST_DATES)
        ).all()
        zone = zone_named(row.timezone_id)
        try:
            pending = tuple(moment_of_date(each, DateRule(row.date_rule), zone) for each in dates)
        except ParameterError:
            continue
        found.append(
            ComplementOfRun(
                id=row.id,
                order=row.run_order,
                parallelism=row.parallelism,
                definition_id=row.process_definition_id,
                definition_name=row.definition_name,
                pending=pending,
            )
        )
    return tuple(found)
