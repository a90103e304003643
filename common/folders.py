"""Folders of a home that other accounts of the computer may not list.

A folder is made with the mode that it needs. One that others may read was made by a former version
and is closed too; a mode without rights for others (as 0750, for a group that ships logs) was
chosen by somebody, and stays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PRIVATE: Final = 0o700
PASSABLE: Final = 0o711
"""Others may pass through, to what is theirs below, and list nothing."""

USERS: Final = "users"
"""In the folder of resources: the parent of one folder for each user, with an unguessable name.

Tenants can't enter it. A worker copies what an attempt names (`worker.launching.user_files`).
"""

_OTHERS = 0o007
_OTHERS_WRITE = 0o002


def closed_folder(folder: Path, *, mode: int = PRIVATE) -> Path:
    """Return the folder, made if it is not there, and closed to others."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=mode, exist_ok=True)
    found = folder.stat().st_mode & 0o7777
    # Others' right to write was given on purpose: tenants share what is there.
    is_chosen = not found & _OTHERS or (mode == PASSABLE and found & _OTHERS_WRITE)
    if not is_chosen and found != mode:
        try:
            folder.chmod(mode)
        except PermissionError:
            return folder  # Another account's, who decides on it.
    return folder
