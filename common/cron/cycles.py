"""The cycle in which a line fires: the largest and the smallest that its fields suggest.

Pure. The rule is the one by which DolphinScheduler matches the schedules of definitions that wait
for each other; it looks at how the fields are written, not at their fire times, and leaves out
seconds and years. A field is a *star* (`*`), *every* (a star or a step), or a *set* (every, one
number, a range or a list; a day such as `L`, `15W` or `6#3` counts as one number).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from common.cron.fields import Part, Span
from common.cron.line import Cron


class Cycle(StrEnum):
    """The unit of time in which a line fires once or more often."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def max_cycle(cron: Cron) -> Cycle | None:
    """The cycle that all fields together amount to, or None if they fit none."""
    fields = cron.fields
    of_month, of_week = fields.days_of_month, fields.days_of_week
    if _is_star(fields.months):
        if _is_every(fields.minutes) and _is_star(fields.hours) and _is_star(of_month):
            return Cycle.MINUTE
        if _is_every(fields.hours) and _is_star(of_month):
            return Cycle.HOUR
        if _is_every(of_month):
            return Cycle.DAY
        if _is_every(of_week):
            return Cycle.WEEK
    return Cycle.MONTH if _is_every(fields.months) else None


def min_cycle(cron: Cron) -> Cycle | None:
    """The cycle of the smallest field that is written as every, or None if none is."""
    fields = cron.fields
    for parts, cycle in (
        (fields.minutes, Cycle.MINUTE),
        (fields.hours, Cycle.HOUR),
        (fields.days_of_month, Cycle.DAY),
        (fields.days_of_week, Cycle.WEEK),
        (fields.months, Cycle.MONTH),
    ):
        if _is_every(parts):
            return cycle
    return None


def _is_star(parts: Sequence[Part] | None) -> bool:
    match parts:
        case (Span(starred=True, step=1),):
            return True
        case _:
            return False


def _is_every(parts: Sequence[Part] | None) -> bool:
    match parts:
        case (Span() as span,):
            return span.starred or span.stepped
        case _:
            return False
