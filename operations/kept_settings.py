"""Settings that a home keeps from its starts: the configuration folder and the zone.

A folder that `ORCAFLOW_CONF_DIR` names is recorded for the daemon and for its home. A start without
the variable uses the daemon's folder again, or the home's for a daemon that is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from common.config import CONF_DIR_VARIABLE, Config
from common.config.folder import is_named, named_folder, record_folder, recorded_folder
from common.config.zone import own_zone, zone_record
from operations.daemon_options import Options


def conf_dir_of(home: Path, kept: Options) -> str | None:
    """Return the folder for a daemon that starts, and record one that the environment names.

    `kept` are the options of the daemon's last start.
    """
    if not is_named():
        folder = recorded_folder(home)
        return kept.conf_dir or (None if folder is None else str(folder))
    # The daemon is started in another folder.
    named = named_folder()
    folder = None if named is None else named.absolute()
    record_folder(home, folder)
    return None if folder is None else str(folder)


def notes_on_start(config: Config) -> Iterator[str]:
    """Yield what a person should know of settings that the environment of a start lacks."""
    note = note_on_conf_dir(config.home)
    if note is not None:
        yield note
    own = own_zone().key
    is_kept = config.origins.get("time_zone") == str(zone_record(config.home))
    if is_kept and config.time_zone != own:
        yield (
            f"this home keeps the zone {config.time_zone}, with which it was started, although this"
            f" shell has {own}; time_zone (ORCAFLOW_TIME_ZONE) sets another"
        )


def note_on_conf_dir(home: Path) -> str | None:
    """Return what is to be said of a start: the recorded folder is used, or another than before."""
    recorded, named = recorded_folder(home), named_folder()
    if recorded is None:
        return None
    if not is_named():
        return (
            f"{CONF_DIR_VARIABLE} is not set: each daemon keeps the settings of the folder that it"
            f" was last started with, and a new one has {recorded}; {CONF_DIR_VARIABLE}= takes none"
        )
    if named is None:
        return f"{CONF_DIR_VARIABLE} is empty: the settings of {recorded} are not used any more"
    if named.absolute() != recorded:
        return (
            f"{CONF_DIR_VARIABLE} is {named}: this home was last started with the settings of"
            f" {recorded}"
        )
    return None
