"""The account that the embedded PostgreSQL runs as where its starter is root, and its files.

PostgreSQL refuses to run as root. It gets an account that nothing else runs as: `orcaflow` if the
computer has one, else a *number of its own*, drawn from the home's path out of a range that neither
distributions nor systemd give to anybody. No account is made, and none is needed: only initdb and
the single-user mode ask for a name. Those two run as a *maker*, an account with a name, on data in
a folder that root alone may enter; its files change hands before the server sees them.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.embedded import as_account
from common.errors import ConfigurationError

_NAME = "orcaflow"
_MAKERS = (_NAME, "nobody", "daemon")
_FIRST_NUMBER, _LAST_NUMBER = 60_706, 61_183
"""Between systemd's own users and its dynamic ones; below 65,536, as containers need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account by its numbers."""

    uid: int
    gid: int


def own_account(home: Path) -> Account:
    """The account for the files and the server of a home."""
    named = _named(_NAME)
    if named is not None:
        return named
    count = _LAST_NUMBER - _FIRST_NUMBER + 1
    first = zlib.crc32(str(home).encode(errors="surrogateescape"))
    for step in range(count):
        number = _FIRST_NUMBER + (first + step) % count
        if not _has_name(number):
            return Account(uid=number, gid=number)
    raise ConfigurationError(
        f"PostgreSQL refuses to run as root, and all account numbers from {_FIRST_NUMBER} to "
        f"{_LAST_NUMBER} are taken; make an account with `useradd --system {_NAME}`"
    )


def maker_for(account: Account) -> Account:
    """The account itself if it has a name, else one that has."""
    if _has_name(account.uid):
        return account
    for name in _MAKERS:
        named = _named(name)
        if named is not None:
            return named
    raise ConfigurationError(
        "PostgreSQL refuses to run as root, and there is no account to make its data with; "
        f"make one with `useradd --system {_NAME}`, or don't start Orcaflow as root"
    )


def is_shared(uid: int) -> bool:
    """True for root and for accounts that other services run as."""
    return uid == 0 or any((each := _named(name)) and each.uid == uid for name in _MAKERS[1:])


def owner_of(data_dir: Path) -> Account:
    """The account that data belongs to."""
    about = data_dir.stat()
    return Account(uid=about.st_uid, gid=about.st_gid)


def give(data_dir: Path, account: Account) -> None:
    """Give a folder with all that it holds to an account; the folder itself last."""
    try:
        for each in (*sorted(data_dir.rglob("*"), reverse=True), data_dir):
            os.chown(each, account.uid, account.gid, follow_symlinks=False)
    except OSError as error:
        raise ConfigurationError(
            f"{data_dir} can't be given to account number {account.uid}: {error}; make an account "
            f"with `useradd --system {_NAME}`, or don't start Orcaflow as root"
        ) from error


def as_run_by(account: Account, command: Sequence[str], *, within: Path) -> list[str]:
    """The command by which root has another one run by this account, on data `within` a folder."""
    return [
        *(sys.executable, "-I", "-S", as_account.__file__),
        *(
            str(account.uid),
            str(account.gid),
            _needed_capability(account, Path(command[0]), within),
        ),
        *command,
    ]


def _needed_capability(account: Account, program: Path, within: Path) -> str:
    """Return the capability that the account lacks for programs and data, for `as_account`."""
    program = program.resolve()
    if not _has(account, program, stat.S_IXUSR):
        return "override"
    folders = {*program.parents, within.resolve(), *within.resolve().parents}
    if all(_has(account, folder, stat.S_IXUSR) for folder in sorted(folders)):
        return "none"
    return "search"


def _has(account: Account, path: Path, right: int) -> bool:
    """True if the account has the permission, given as the owner's bit."""
    status = path.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & right)
    if status.st_gid == account.gid:
        return bool(status.st_mode & right >> 3)
    return bool(status.st_mode & right >> 6)


def _named(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
