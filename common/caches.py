"""The folders for files that are made only once for an installation of Spark and ZooKeeper.

In the installation itself if that can be written, else under ORCAFLOW_HOME, else in the account's
own cache. Files from there are executed, so none is taken that another account could have written,
except root and the owner of the installation. Standard library only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.whole_files import write_whole

_NAME: Final = "orcaflow"
_READABLE = 0o644
_PRIVATE = 0o600


class UntrustedError(OSError):
    """Somebody else could have written this file."""


def folders(home: str, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """All places, the best first; they need not exist."""
    own = environment.get("ORCAFLOW_HOME")
    user = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    places = [Path(home, _NAME)]
    if own:
        places.append(Path(own, "cache", "spark"))
    if Path(user).is_absolute():
        places.append(Path(user, _NAME, "spark"))
    return places


def folder(home: str) -> Path | None:
    """The best place that this account can write to, made if need be; None if there is none."""
    for place in folders(home):
        try:
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK) and is_trusted(place, home):
            return place
    return None


def is_trusted(path: Path, home: str) -> bool:
    """True if nobody but root, this account and the installation's owner can change this."""
    try:
        about = path.lstat()
        owners = {0, os.geteuid(), Path(home).stat().st_uid}
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return about.st_uid in owners and not about.st_mode & others and not stat.S_ISLNK(about.st_mode)


def read(path: Path, home: str) -> str:
    """A small file's text. Raises `OSError`."""
    if not (is_trusted(path.parent, home) and is_trusted(path, home)):
        raise UntrustedError(f"{path} belongs to somebody else")
    return path.read_text(encoding="utf-8")


def put(path: Path, text: str, *, private: bool = False) -> None:
    """Have a file with this text, as a whole or not at all; no error if it can't be had."""
    with suppress(OSError):
        write_whole(path, text, mode=_PRIVATE if private else _READABLE)
