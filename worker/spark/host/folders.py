"""The folders of Spark hosts: that of the worker's own account, and in it one for each tenant.

    run/spark-<port>/                    the host of the worker's own account
    run/spark-<port>/account-<uid>/      a tenant's host; the folder is the tenant's, mode 0700
    run/spark-<port>/account-<uid>.out   that host's output, in a file of the worker's

Two tenants share no folder that either could write to or read from. In a tenant's folder the daemon
opens the socket alone: any other name there may be a link to elsewhere. A folder has its owner and
its mode as soon as it has its name, so no task meets one that it may not enter yet.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from worker.workspace import Account

SOCKET: Final = "host.sock"
OUTPUT: Final = "host.out"
SERVERS: Final = "server-*"
"""The pattern of the names of servers' directories."""
PRIVATE: Final = 0o700
PASSABLE: Final = 0o711
"""The mode of a folder that other accounts may pass through and not list."""

_PREFIX = "account-"


def own_folder(home: Path, port: int) -> Path:
    """Return the folder of the host of a worker's own account."""
    return home / "run" / f"spark-{port}"


def tenant_folder(own: Path, uid: int) -> Path:
    """Return the folder of a tenant's host beside that of the worker's own account."""
    return own / f"{_PREFIX}{uid}"


def output_of(folder: Path) -> Path:
    """Return the file for the output of the host of a tenant's folder, outside that folder."""
    return folder.with_name(f"{folder.name}.out")


def socket_for(own: str, account: Account | None) -> str:
    """Return the socket that an account's tasks ask; `own` is that of the worker's account."""
    if account is None:
        return own
    return str(tenant_folder(Path(own).parent, account.uid) / SOCKET)


def uids(own: Path) -> list[int]:
    """Return the accounts that have a folder here, in ascending order."""
    try:
        names = [each.name.removeprefix(_PREFIX) for each in own.glob(f"{_PREFIX}*")]
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdecimal())


def make_folder(folder: Path, mode: int, account: Account | None = None) -> None:
    """Have a folder of this account, or of the own one; it is complete when it gets its name.

    Raises `OSError` if something else has the name.
    """
    owner = (os.geteuid(), os.getegid()) if account is None else (account.uid, account.gid)
    try:
        about = folder.lstat()
    except FileNotFoundError:
        _make(folder, mode, owner)
        return
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if (about.st_uid, about.st_gid) != owner:
            os.fchown(file, *owner)
        if about.st_mode & 0o777 != mode:
            os.fchmod(file, mode)
    finally:
        os.close(file)


def open_to_others(folder: Path) -> None:
    """Let other accounts pass through a folder of the daemon's, made if it is not there."""
    folder.mkdir(mode=PASSABLE, parents=True, exist_ok=True)
    mode = folder.stat().st_mode & 0o777
    if mode & PASSABLE != PASSABLE:
        folder.chmod(mode | PASSABLE)


def check_own(folder: Path) -> None:
    """Raise `OSError` if something of another account, or a link, has the name of this folder."""
    try:
        about = folder.lstat()
    except FileNotFoundError:
        return
    if about.st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode):
        found = f"made by account number {about.st_uid}, who may have put anything there; remove it"
        raise PermissionError(errno.EPERM, found, str(folder))


def _make(folder: Path, mode: int, owner: tuple[int, int]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.")
    try:
        if owner != (os.geteuid(), os.getegid()):
            os.chown(fresh, *owner)
        os.chmod(fresh, mode)  # noqa: PTH101  # mkdtemp gives a name and not a path.
        os.rename(fresh, folder)  # noqa: PTH104
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
