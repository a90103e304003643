"""Times, spans of time and zones as people write them, read into instants, seconds and zones.

Adds the word *field*: the parameter of an operation that a `UsageError` names.
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from common.params import parse_moment
from common.zones import UnknownZoneError, chosen_zone, zone_named
from operations.errors import UsageError

_ANYBODYS_ZONES: Final = frozenset({"localtime", "posixrules"})
"""Files beside the zones, which are another zone on the next computer."""
MAX_ZONE_LENGTH: Final = 40
MAX_SECONDS: Final = 2**31 - 1

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_SPAN = re.compile(r"([0-9]{1,10}) *([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment_in(text: str, zone: ZoneInfo, *, ends_day: bool = False) -> datetime:
    """The instant of a date, or of a date with a time, on the wall of `zone`.

    With an offset in the text, the zone does not matter. A date alone is its first second, or with
    `ends_day` its last one. Raises `ValueError`, whose text describes the mistake.
    """
    given = text.strip()
    if _DATE.fullmatch(given):
        found = parse_moment(f"{given} {'23:59:59' if ends_day else '00:00:00'}", zone)
    else:
        found = _with_time(given, zone)
    if found is None:
        raise ValueError(f"{text!r:.60} is no time, as 2026-01-31 or '2026-01-31 02:30:00' is")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r:.60} is outside the years 1 to 9999") from None


def _with_time(text: str, zone: ZoneInfo) -> datetime | None:
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    date, clock, seconds, offset = found.groups()
    if offset is None:
        return parse_moment(f"{date} {clock}{seconds or ':00'}", zone)
    try:
        return datetime.fromisoformat(f"{date} {clock}{seconds or ':00'}{offset}")
    except ValueError:
        return None


def read_moment(
    text: str, zone: ZoneInfo, *, field: str, ends_day: bool = False, place: str = ""
) -> datetime:
    """As `moment_in`; raises a `UsageError` of the field, with `place` before its text."""
    try:
        return moment_in(text, zone, ends_day=ends_day)
    except (ValueError, OverflowError) as error:
        raise UsageError(field, f"{place}{error}") from error


def seconds_of(text: str) -> int:
    """Whole seconds of a span like 90, 90s, 10m, 2h or 1d; `ValueError` for anything else."""
    found = _SPAN.fullmatch(text.strip())
    seconds = 0 if found is None else int(found[1]) * _UNITS[found[2]]
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"{text!r:.60} is no span of time, as 90s, 10m, 2h or 1d is")
    return seconds


def read_seconds(text: str, *, field: str) -> int:
    """As `seconds_of`; raises a `UsageError` of the field."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise UsageError(field, str(error)) from error


def read_zone(name: str) -> ZoneInfo:
    """The zone of this name; raises a `UsageError` of the field `zone` that names a near one."""
    from zoneinfo import available_timezones

    try:
        if len(name) <= MAX_ZONE_LENGTH and name.strip() not in _ANYBODYS_ZONES:
            return chosen_zone(name.strip())
    except UnknownZoneError:
        pass
    known = {each.lower(): each for each in sorted(available_timezones() - _ANYBODYS_ZONES)}
    near = difflib.get_close_matches(name.strip().lower()[:80], list(known), n=1)
    perhaps = f"; did you mean {known[near[0]]}?" if near else ", as America/New_York or UTC is"
    raise UsageError("zone", f"{name!r:.80} is no zone of the tz database{perhaps}")


def stored_name(zone: ZoneInfo) -> str | None:
    """The zone's `timezone_id`; None for the zone of a computer that has no name for it."""
    try:
        return zone_named(zone.key).key
    except UnknownZoneError:
        return None


def local_text(moment: datetime | None, zone: ZoneInfo) -> str | None:
    """An instant as the wall clock of the zone shows it, with its offset."""
    if moment is None:
        return None
    try:
        return moment.astimezone(zone).isoformat(sep=" ", timespec="seconds")
    except OverflowError:
        return moment.isoformat(sep=" ", timespec="seconds")
