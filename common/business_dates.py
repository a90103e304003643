"""The moment from which a run counts its dates, and the runs for a complement's dates. Pure.

Every run has one *moment*. Its parameters, the placeholders in its scripts, the intervals of its
DEPENDENT tasks and the comparisons of complements are all counted from it, on the calendar of the
run's zone. The *business date* is the day before the moment.

| run | moment |
|---|---|
| of a schedule | its schedule time |
| of a complement by `schedule_time` | the date that the complement names |
| of a complement by `business_date` | that date, one day later |
| sub process | the moment of its parent, if that has a schedule time |
| without a schedule time | its start |

The row of a run keeps its moment in `business_time` where that differs from `schedule_time`.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from common.model.date_rules import DateRule, Slot
from common.params.moments import days_later, in_zone, on_wall
from common.zones import zone_named

if TYPE_CHECKING:
    from common.model.complements import NewComplement

_INSTANT: Final = timedelta(microseconds=1)


def moment_of_date(named: datetime, rule: DateRule, zone: ZoneInfo) -> datetime:
    """Return the moment of the run for a date that a complement names.

    Raises `ParameterError` outside the years 1 to 9999.
    """
    if rule is DateRule.SCHEDULE_TIME:
        return named
    # As the tables return it: where a zone leaves out that day, it is a moment of the day after.
    return days_later(in_zone(named, zone), 1).astimezone(UTC)


def check_moment(moment: datetime, zone: ZoneInfo) -> None:
    """Raise `ParameterError` unless the days before and after a run's moment exist.

    The business date is the day before, and the slot of a date ends with the day.
    """
    local = in_zone(moment, zone)
    for days in (-1, 1):
        days_later(local, days)


def business_date(moment: datetime, zone: ZoneInfo) -> date:
    """Return the business date of a run: the day before its moment."""
    return days_later(in_zone(moment, zone), -1).date()


def slots_of(new: NewComplement) -> tuple[Slot, ...]:
    """Return the slot of each date, in the same order.

    With `at_most_daily` a slot is the whole day, and the time of day of its runs does not matter.
    Otherwise a business date has many runs, and a slot is one moment. Several dates of one day are
    compared by moment too.
    """
    zone = zone_named(new.timezone_id)
    moments = [moment_of_date(each, new.date_rule, zone) for each in new.dates]
    if not new.at_most_daily:
        return tuple(_instant(each) for each in moments)
    days = [in_zone(each, zone).date() for each in moments]
    number = Counter(days)
    return tuple(
        _day(day, zone) if number[day] == 1 else _instant(moment)
        for day, moment in zip(days, moments, strict=True)
    )


def _instant(moment: datetime) -> Slot:
    start = moment.astimezone(UTC)
    return Slot(start, start + _INSTANT)


def _day(day: date, zone: ZoneInfo) -> Slot:
    midnight = datetime.combine(day, time.min)
    # Not from the start: it is later than midnight where the clock skips that.
    end = days_later(midnight.replace(tzinfo=zone), 1)
    return Slot(on_wall(midnight, zone).astimezone(UTC), end.astimezone(UTC))
