"""Decides whether a volume has the free space that a daemon reserves on it. Pure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_GIB: Final = 1024**3
_FEWEST_FILES: Final = 100


def lack_of_room(
    folder: Path, about: os.statvfs_result, *, reserved_gb: float, setting: str, more: int = 0
) -> str | None:
    """Return the problem with the volume of a folder and its remedy; None if it has room.

    `setting` is the name of the setting `reserved_gb`, and `more` is the number of bytes that are
    about to be written.
    """
    free = about.f_bavail * about.f_frsize
    if free - more < reserved_gb * _GIB:
        return (
            f"{folder} has {free / _GIB:.2f} GiB free, less than {setting}"
            f" ({reserved_gb:g}): remove files, or lower that"
        )
    # Some file systems create inodes on demand, and report 0.
    if about.f_files and about.f_favail < _FEWEST_FILES:
        return f"{folder} has room for {about.f_favail} more files: remove some"
    return None
