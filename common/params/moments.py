"""A moment: an instant as the wall clock of a zone shows it, and days counted from it.

Days are days of the calendar: yesterday is the date before, even if today has 25 hours. Smaller
steps are elapsed time. Every function wants an aware moment; one that leaves the years 1 to 9999
is a `ParameterError`.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn
from zoneinfo import ZoneInfo

from common.params.errors import ParameterError

_TEXT_FORM = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})")
_PUNCTUATION: Final = str.maketrans("", "", "- :")
_COMPACT_FORM = re.compile(r"([0-9]{4})" + r"([0-9]{2})" * 5)


def in_zone(moment: datetime, zone: ZoneInfo) -> datetime:
    if moment.tzinfo is None:
        raise ParameterError("the moment has no time zone")
    try:
        return moment.astimezone(zone)
    except (OverflowError, ValueError):
        _out_of_range()


def days_later(local: datetime, days: int) -> datetime:
    """The same time of day, so many days of the calendar later or, if negative, earlier."""
    if not days:
        return local  # And not the first of two equal wall-clock times in autumn.
    try:
        return on_wall(local.replace(tzinfo=None) + timedelta(days=days), _zone(local))
    except (OverflowError, ValueError):
        _out_of_range()


def minutes_later(local: datetime, minutes: int) -> datetime:
    """So many minutes of elapsed time later, or, if negative, earlier."""
    try:
        return (local.astimezone(UTC) + timedelta(minutes=minutes)).astimezone(local.tzinfo)
    except (OverflowError, ValueError):
        _out_of_range()


def on_wall(wall: datetime, zone: ZoneInfo) -> datetime:
    """The moment at which the clock of the zone shows this; the first, if it does so twice.

    A time that the clock skips in spring becomes one as much later as the gap is wide, but never
    on another date: where a zone skipped a whole day, counting days still counts that one.
    """
    local = wall.replace(tzinfo=zone)
    shown = local.astimezone(UTC).astimezone(zone)
    return shown if shown.date() == wall.date() else local


def format_moment(moment: datetime, zone: ZoneInfo) -> str:
    """The text form of a moment wherever one is stored as text: `yyyy-MM-dd HH:mm:ss`."""
    return in_zone(moment, zone).replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")


def parse_moment(text: str | None, zone: ZoneInfo) -> datetime | None:
    """The moment of a text form; `None` for anything else, a bare date included."""
    return _parse(_TEXT_FORM, text, zone)


def format_compact(moment: datetime, zone: ZoneInfo) -> str:
    """The form of `system.datetime`: `yyyyMMddHHmmss`."""
    return format_moment(moment, zone).translate(_PUNCTUATION)


def parse_compact(text: str | None, zone: ZoneInfo) -> datetime | None:
    """The moment of a `yyyyMMddHHmmss`; `None` for anything else."""
    return _parse(_COMPACT_FORM, text, zone)


def _parse(form: re.Pattern[str], text: str | None, zone: ZoneInfo) -> datetime | None:
    match = form.fullmatch(text or "")
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups())
    try:
        return on_wall(datetime(year, month, day, hour, minute, second, tzinfo=zone), zone)
    except (OverflowError, ValueError):
        return None


def _zone(local: datetime) -> ZoneInfo:
    zone = local.tzinfo
    assert isinstance(zone, ZoneInfo), "only in_zone makes local moments"
    return zone


def _out_of_range() -> NoReturn:
    raise ParameterError("the moment is outside the years 1 to 9999")
