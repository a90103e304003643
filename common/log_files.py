"""Opens logs of tasks below a folder of logs, for reading: by parts of a path or by ids alone.

No link is followed on the way, and what is opened is an ordinary file, whatever a task or a row has
put there (X1).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoOrdinaryFileError(OSError):
    """Something else than a file stands where a log is looked for."""


def open_below(root: Path, parts: Sequence[str]) -> int:
    """Open a file below the root; `OSError` if there is none, or a link in the way."""
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts[:-1]:
        place = _open_in(place, part, _FOLDER)
    # Without waiting, should somebody have put a pipe there.
    file = _open_in(place, parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NoOrdinaryFileError("it is not an ordinary file")
    return file


def open_by_ids(root: Path, process_instance_id: int, task_instance_id: int) -> int:
    """Open the log of an attempt, in the folder of whatever definition; `FileNotFoundError`."""
    for definition in _numbered(root):
        try:
            return open_below(
                root, (definition, f"{process_instance_id:d}", f"{task_instance_id:d}.log")
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
    raise FileNotFoundError(f"no log of task instance {task_instance_id}")


def _numbered(root: Path) -> list[str]:
    try:
        return [each.name for each in root.iterdir() if _NUMBER.fullmatch(each.name)]
    except NotADirectoryError:
        return []


def _open_in(place: int, name: str, flags: int) -> int:
    """Open a name in an open folder, and close the folder in any case."""
    try:
        return os.open(name, flags, dir_fd=place)
    finally:
        os.close(place)
