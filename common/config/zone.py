"""The zone of a cluster: one for schedules, business dates, and times that people read.

The setting `time_zone` names it. Without the setting, a home keeps the zone with which its daemons
were first started, which is the computer's. Later shells may have other zones. A computer without
daemons uses the zone of the shell.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from common.config.settings import Config

_RECORD: Final = Path("run", "time-zone")
_LONGEST: Final = 100


def cluster_zone(config: Config) -> ZoneInfo:
    """Return the zone of everything that names none."""
    return ZoneInfo(config.time_zone) if config.time_zone else own_zone()


def own_zone() -> ZoneInfo:
    """Return the zone of this computer, or of this shell."""
    # Imported here because only a cluster without a configured zone reads the computer's.
    from tzlocal import get_localzone

    return get_localzone()


def zone_record(home: Path) -> Path:
    """Return the file with the name of the zone."""
    return home / _RECORD


def recorded_zone(home: Path) -> str:
    """Return the name of the zone that a home keeps; "" if it has none."""
    try:
        name = zone_record(home).read_text(encoding="utf-8").strip()[:_LONGEST]
    except (OSError, UnicodeDecodeError):
        return ""
    return name if _is_known(name) else ""


def record_zone(home: Path, zone: ZoneInfo) -> None:
    """Keep the zone that a daemon is started with, if it has a name of the tz database."""
    if not _is_known(zone.key) or recorded_zone(home) == zone.key:
        return
    record = zone_record(home)
    record.parent.mkdir(parents=True, exist_ok=True)
    # Imported here because most commands only read the record.
    from common.whole_files import write_whole

    write_whole(record, f"{zone.key}\n")


def _is_known(name: str) -> bool:
    if name in ("", "localtime", "posixrules", "local"):
        return False
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return False
    return True
