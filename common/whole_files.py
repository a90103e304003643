"""Small files that readers see whole: the former content or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

_READABLE: Final = 0o644


def write_whole(path: Path, text: str, *, mode: int = _READABLE) -> None:
    """Write a file of an existing folder in one step.

    Several threads and processes may write the same file at the same moment: the last one wins.
    The new content has the permissions of `mode`. Raises `OSError`, and then leaves the former
    content.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
