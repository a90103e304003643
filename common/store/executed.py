"""The duration of a run: the time in which it was live, without its idle time before a restart.

A run that is restarted keeps its start, by which people know it. `duration_from` moves forward by
the time since its former end, so the duration is the end minus this moment.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, FromClause, func

from common.store.tables import process_instance


def duration_from(run: FromClause) -> ColumnElement[datetime]:
    """Return the moment from which the duration of a run counts."""
    # The start is later if the run was restarted with all its tasks. GREATEST ignores NULL.
    return func.greatest(run.c.start_time, run.c.duration_from)


def without_idle_time(
    since: ColumnElement[Any], until: ColumnElement[Any]
) -> ColumnElement[datetime]:
    """Return the new `duration_from` of a run that was idle between these moments."""
    # The clock may have been set back.
    return duration_from(process_instance) + (func.greatest(until, since) - since)


def after_waiting(until: ColumnElement[Any]) -> ColumnElement[datetime]:
    """Return the new `duration_from` of a run that has waited for its turn until now."""
    began = func.coalesce(process_instance.c.restart_time, process_instance.c.start_time)
    return without_idle_time(began, until)
