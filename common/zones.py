"""Time zones by their names in the tz database. Pure, but for reading that database."""

from __future__ import annotations

from typing import Final
from zoneinfo import ZoneInfo

from common.errors import SchedulerError

_OF_THIS_COMPUTER: Final = ("localtime", "posixrules")

_NOT_CHOSEN: Final = ("right", "posix")
"""Folders of the tz database: `right` counts leap seconds, and `posix` has duplicates."""


class UnknownZoneError(SchedulerError):
    """No zone has this name. Write it as the tz database does, as `America/New_York`."""


def zone_named(name: str) -> ZoneInfo:
    """The zone with this name. Raises `UnknownZoneError`."""
    if name in _OF_THIS_COMPUTER:
        raise UnknownZoneError(f"{name!r} is another zone on another computer; name that itself")
    # A name is a path below the database's folder: what leads out of it is refused by `ZoneInfo`.
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise UnknownZoneError(
            f"{name[:80]!r} is no zone of the tz database, as America/New_York or UTC is"
        ) from error


def chosen_zone(name: str) -> ZoneInfo:
    """Return the zone for a name that a user sets now. Raises `UnknownZoneError`.

    Stored rows may name further zones, which `zone_named` reads.
    """
    if name.partition("/")[0] in _NOT_CHOSEN:
        raise UnknownZoneError(
            f"{name[:80]!r} is no zone of the tz database without leap seconds; leave out the"
            " part before the first slash"
        )
    return zone_named(name)
