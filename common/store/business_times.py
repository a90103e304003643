"""The moment of a run in SQL, from which its dates are counted (`common.business_dates`)."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Integer,
    bindparam,
    func,
    select,
)
from sqlalchemy.sql.selectable import LateralFromClause

from common.store.tables import process_instance


def dated(run: FromClause) -> ColumnElement[Any]:
    """Return the moment that a run was given; NULL without a schedule time."""
    return func.coalesce(run.c.business_time, run.c.schedule_time)


def moment(run: FromClause) -> ColumnElement[Any]:
    """Return the moment of a run, as the index of these has it."""
    return func.coalesce(run.c.business_time, run.c.schedule_time, run.c.start_time)


DATED: Final = dated(process_instance)
MOMENT: Final = moment(process_instance)


def newest_run_in(asked: FromClause) -> LateralFromClause:
    """Select the newest run of the definition `whose` in the slot of each row of `asked`.

    The rows have `slot_start` and `slot_end`. Runs without a schedule time, and sub processes, are
    no runs of a date.
    """
    run = process_instance.alias("run")
    return (
        select(run.c.id, run.c.state)
        .where(run.c.process_definition_id == bindparam("whose", type_=Integer))
        .where(moment(run) >= asked.c.slot_start)
        .where(moment(run) < asked.c.slot_end)
        .where(run.c.schedule_time.is_not(None))
        .where(run.c.is_sub_process == 0)
        # With the bare id, PostgreSQL would read all runs of the definition if the slot is empty.
        .order_by((run.c.id + 0).desc())
        .limit(1)
        .lateral("newest")
    )
