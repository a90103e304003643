"""Files that users saved as their own resources, copied for attempts that run as tenants.

Only the daemon may enter the folders of users. A tenant can neither list nor read them. An attempt
gets copies in its directory. Command lines and Spark's pages show the path of a copy. An attempt
gets only files of users who have a role in its project, because readers of a definition know the
names of the folders in it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from common.folders import USERS
from worker.workspace import Account

MOST_FILES: Final = 1_000


class TooManyFilesError(Exception):
    """The folder has more files than are copied for one attempt."""


def below_users(resources: Path, path: Path) -> Path | None:
    """Return the path relative to the folders of users, links resolved; None for others."""
    try:
        users, real = (resources / USERS).resolve(), path.resolve()
        return real.relative_to(users) if real.is_relative_to(users) and real != users else None
    except (OSError, RuntimeError):
        return None  # A loop of links, or a name that no file can have.


def user_file(resources: Path, path: Path) -> Path | None:
    """Return the real path of a file in the folder of a user; None for every other path."""
    below = below_users(resources, path)
    if below is None or len(below.parts) < 2:
        return None
    real = (resources / USERS).resolve() / below
    try:
        return real if real.is_file() else None
    except OSError:
        return None


def copy_file(source: Path, target: Path, account: Account) -> None:
    """Copy a file to a new one that only the account can read; `FileExistsError` if it exists."""
    with source.open("rb") as read:
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "wb") as written:
            os.fchown(written.fileno(), account.uid, account.gid)
            shutil.copyfileobj(read, written)


def copy_with_neighbors(source: Path, folder: Path, account: Account) -> Path:
    """Copy a script with the files of its folder, which it may import; return its path.

    `folder` is made. Links are not copied. Raises `TooManyFilesError`.
    """
    _make(folder, account)
    for number, each in enumerate(_below(source.parent), start=1):
        if number > MOST_FILES:
            raise TooManyFilesError
        target = folder / each.relative_to(source.parent)
        if each.is_dir():
            _make(target, account)
        else:
            copy_file(each, target, account)
    return folder / source.name


def _make(folder: Path, account: Account) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, account.uid, account.gid)


def _below(folder: Path) -> Iterator[Path]:
    """Yield the folders, each before its content, and the ordinary files below a folder."""
    for each in folder.iterdir():
        if each.is_symlink() or not (each.is_dir() or each.is_file()):
            continue
        yield each
        if each.is_dir():
            yield from _below(each)
