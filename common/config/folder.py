"""The configuration folder of a home: the folder with which its daemons were last started.

A start that names a folder by `ORCAFLOW_CONF_DIR` records it. Without the variable that folder is
used again, so that a restart from another shell has the same settings; the variable with an empty
value takes no folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from common.config.keys import CONF_DIR_VARIABLE

_RECORD: Final = Path("run", "conf-dir")


def record_of(home: Path) -> Path:
    """Return the file that names the folder."""
    return home / _RECORD


def recorded_folder(home: Path) -> Path | None:
    """Return the folder that the home was started with; None if it was started without one."""
    try:
        text = record_of(home).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Path(text) if text else None


def named_folder() -> Path | None:
    """Return the folder that the environment names; None without the variable, or if it is empty.

    `is_named` distinguishes the two.
    """
    named = os.environ.get(CONF_DIR_VARIABLE)
    return Path(named).expanduser() if named else None


def is_named() -> bool:
    """Return whether the environment has the variable, even if it is empty."""
    return CONF_DIR_VARIABLE in os.environ


def folder_of(home: Path) -> Path | None:
    """Return the folder with the settings of a home: the named one, else the recorded one."""
    return named_folder() if is_named() else recorded_folder(home)


def record_folder(home: Path, folder: Path | None) -> None:
    """Record the folder with which a daemon of the home is started."""
    record = record_of(home)
    if folder is None:
        record.unlink(missing_ok=True)
        return
    record.parent.mkdir(parents=True, exist_ok=True)
    # Imported here because most commands only read the record.
    from common.whole_files import write_whole

    write_whole(record, f"{folder}\n")
