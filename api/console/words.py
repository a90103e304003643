"""Texts of pages: spans of time, moments in a zone, days, long names. Pure.

`say` translates a text that is marked; English needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, tzinfo
from typing import Final, TypeAlias

from api.marking import marked

Say: TypeAlias = Callable[[str], str]
_DAYS: Final = (
    *(marked("Mon"), marked("Tue"), marked("Wed"), marked("Thu")),
    *(marked("Fri"), marked("Sat"), marked("Sun")),
)
_MONTHS: Final = (
    *(marked("Jan"), marked("Feb"), marked("Mar"), marked("Apr"), marked("May"), marked("Jun")),
    *(marked("Jul"), marked("Aug"), marked("Sep"), marked("Oct"), marked("Nov"), marked("Dec")),
)


def span_text(span: timedelta | None, say: Say = str) -> str:
    """Return `850 ms`, `5.8 s`, `1 m 40 s`, `2 h 05 m` or `3 d 4 h`; nothing for None."""
    if span is None:
        return ""
    seconds = span.total_seconds()
    if seconds < 1:
        return say(marked("%(number)s ms")) % {"number": round(seconds * 1000)}
    if seconds < 59.95:
        return say(marked("%(seconds)s s")) % {"seconds": f"{seconds:.1f}"}
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        told = {"minutes": minutes, "seconds": f"{rest:02}"}
        return say(marked("%(minutes)s m %(seconds)s s")) % told
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        clock = {"hours": hours, "minutes": f"{minutes:02}"}
        return say(marked("%(hours)s h %(minutes)s m")) % clock
    days, hours = divmod(hours, 24)
    return say(marked("%(days)s d %(hours)s h")) % {"days": days, "hours": hours}


def moment_text(moment: datetime | None, *, zone: tzinfo | None, now: datetime) -> str:
    """Return the time of today, or date and time, in this zone; nothing for None."""
    if moment is None:
        return ""
    there = moment.astimezone(zone)
    today = there.date() == now.astimezone(zone).date()
    return there.strftime("%H:%M:%S") if today else there.isoformat(" ", "seconds")[:19]


def day_text(day: date, say: Say = str) -> str:
    """Return `Mon 07 Jan`."""
    return say(marked("%(weekday)s %(day)s %(month)s")) % {
        "weekday": say(_DAYS[day.weekday()]),
        "day": f"{day.day:02}",
        "month": say(_MONTHS[day.month - 1]),
    }


def exact_text(moment: datetime, *, zone: tzinfo | None) -> str:
    return moment.astimezone(zone).isoformat(" ", "milliseconds")


def elided(text: str, most: int) -> str:
    """Return a text of at most so many characters, without its middle: both ends tell more."""
    shown = "".join(each if each.isprintable() else "·" for each in text)
    if len(shown) <= most:
        return shown
    left = most // 2
    return f"{shown[:left]}…{shown[len(shown) - (most - left - 1) :]}"
