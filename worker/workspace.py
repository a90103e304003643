"""The folders of attempts on this host: directories, logs, and what is left of them afterwards.

Only numbers become parts of a path, never a name that somebody chose. Files are always made afresh:
what an earlier attempt, or an earlier database, left at a path is removed first, and if that fails
so does the attempt (trap T83). Nothing here starts a process.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from common.store.worker.ports import AttemptFolders

# Parents may be passed through but not listed; what is inside belongs to one attempt.
_PARENT_MODE = 0o711
_PRIVATE_MODE = 0o700
_TRIES = 10
_MOST_LINKS: Final = 40
"""The number of links that the kernel follows in one path."""
_MOST_LEVELS = 100_000
_CROWD = 50
_RUNS_COUNTED = 1_000

# FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_TOPDIR_FL of linux/fs.h.
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_UNRELATED: Final = 0x00020000

_Made = TypeVar("_Made")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The operating-system account that an attempt runs as, where it is not the daemon's own."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def variables(self) -> dict[str, str]:
        """Return the variables that name the account to its programs."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def attempt_folders(tasks: Path) -> AttemptFolders:
    """The tree `<definition>/<process instance>/<task instance>`, and `logs` like it inside."""
    from common.store.worker.ports import AttemptFolders  # Lint, which gets here, needs none.

    top = tasks.absolute()
    return AttemptFolders(work=str(top), logs=f"{top}/logs")


def keep_apart(folder: Path) -> None:
    """Tell the file system that what the folders in this one hold has nothing in common.

    ext2, ext3 and ext4 (`chattr +T`) then put each into another part of the disk. Else all attempts
    share one part, and where that is without a journal, a file made there is looked for a place
    among all that were removed in the last minute: half a millisecond for each of an attempt's
    files, in place of 20 microseconds. Other file systems know no such flag and need none.
    """
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            flags = int.from_bytes(fcntl.ioctl(file, _GET_FLAGS, bytes(8))[:4], sys.byteorder)
            changed = (flags | _UNRELATED).to_bytes(4, sys.byteorder)
            fcntl.ioctl(file, _SET_FLAGS, changed + bytes(4))
        finally:
            os.close(file)


def open_log(path: str | Path) -> int:
    """A new, empty log for appending; its file descriptor. Never follows a link (X1)."""
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
    return _with_parents(path, lambda: os.open(path, flags, 0o600))


def reopen_log(path: Path) -> int:
    """The log of an attempt that a former incarnation began, for reading and appending."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)


def artefact_path(log: Path, name: str) -> Path:
    """Return the path of a file for people: beside the log, so that it lives as long as that.

    An attempt's own directory goes when it has succeeded.
    """
    return log.with_name(f"{log.stem}.{name}")


def make_artefact(path: Path, account: Account | None) -> None:
    """A new, empty file that the attempt may write, in the folder of logs, where it may not."""
    path.unlink(missing_ok=True)
    write_file(path, "", account)


class Crowds:
    """Notices runs of which so many attempts begin here that their directories are kept apart too.

    For a few it is cheaper to have them side by side.
    """

    def __init__(self) -> None:
        self._begun: OrderedDict[str, int] = OrderedDict()

    def add(self, directory: str) -> None:
        """Count an attempt, by its directory, which was made."""
        run = directory.rpartition("/")[0]
        begun = self._begun[run] = self._begun.pop(run, 0) + 1
        if begun % _CROWD == 0:
            # More than once, since a run's folder goes whenever it is empty.
            keep_apart(Path(run))
        if len(self._begun) > _RUNS_COUNTED:
            self._begun.popitem(last=False)


def make_directory(path: str | Path, account: Account | None) -> None:
    """An empty directory of the attempt's own."""

    def make() -> None:
        # To make a `Path` takes longer than to make a directory.
        os.mkdir(path, _PRIVATE_MODE)  # noqa: PTH102

    try:
        _with_parents(path, make, keeps_apart=True)
    except FileExistsError:
        _remove(Path(path))
        _with_parents(path, make, keeps_apart=True)
    if account is not None:
        _give(Path(path), account)


def write_file(
    path: str | Path, content: str, account: Account | None, *, executable: bool = False
) -> None:
    """A new file that only the attempt can read; `FileExistsError` if there is one already."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    file = os.open(path, flags, 0o700 if executable else 0o600)
    try:
        if account is not None:
            os.fchown(file, account.uid, account.gid)
        # Lone surrogates come out of JSON escapes; they have no UTF-8 form.
        rest = memoryview(content.encode("utf-8", errors="replace"))
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def remove_job(job_file: Path | None) -> None:
    """Remove a job file whose reader, which was to remove it, may have been killed before."""
    if job_file is not None:
        try:
            job_file.unlink(missing_ok=True)
        except OSError as error:
            log.warning(
                "job could not be removed", extra={"path": str(job_file), "error": str(error)}
            )


def read_line(path: Path, *, limit_bytes: int) -> str:
    """The first line of a file that an attempt may have made, "" if there is none to be read."""
    try:
        # Neither a link out of the directory nor a pipe that nobody writes to.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not is_own_file(file):
            return ""
        return os.read(file, limit_bytes).decode("utf-8", "replace").partition("\n")[0].strip()
    except OSError:
        return ""
    finally:
        os.close(file)


def read_script(path: Path, account: Account | None, *, limit_chars: int) -> str:
    """The beginning of a file that a task's author has named; "" if there is none to be read.

    It is read on behalf of the attempt's account, and nothing that could keep a reader waiting is:
    a pipe, or a file of the kernel's, whose size is 0.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        about = os.fstat(file)
        if not (stat.S_ISREG(about.st_mode) and about.st_size and _may_read(account, about)):
            return ""
        return os.read(file, 4 * limit_chars).decode("utf-8", "replace")[:limit_chars]
    except OSError:
        return ""
    finally:
        os.close(file)


def is_own_file(file: int) -> bool:
    """Return whether an open file is an ordinary one with one name.

    Another name, made by `link`, could be that of a file which the daemon may read and the
    attempt's account may not; not every system forbids to make it.
    """
    about = os.fstat(file)
    return stat.S_ISREG(about.st_mode) and about.st_nlink <= 1


def may_write(account: Account, about: os.stat_result) -> bool:
    """Return whether an account may make files in the folder that `about` is about."""
    return _may(account, about, stat.S_IWOTH | stat.S_IXOTH)


def may_list(account: Account | None, about: os.stat_result) -> bool:
    """Return whether an account may list the folder with the status `about`."""
    return account is None or _may(account, about, stat.S_IROTH | stat.S_IXOTH)


def may_enter(account: Account | None, about: os.stat_result) -> bool:
    """Return whether an account may open entries of the folder by name."""
    return account is None or _may(account, about, stat.S_IXOTH)


def may_read_file(account: Account | None, path: Path) -> bool:
    """Return whether there is an ordinary file at an absolute path that an account may read.

    The daemon may enter folders that the account may not. Each folder of the path and of link
    targets is checked with the rights of the account, so a private file counts as missing. An
    access control list may grant more than the mode; the kernel then decides when the file is read.
    """
    at, left, links = Path("/"), list(reversed(path.parts[1:])), 0
    try:
        if account is None:
            return path.is_file()
        while left:
            if not (may_enter(account, at.lstat()) or _has_list(at)):
                return False
            name = left.pop()
            if name == "..":
                at = at.parent
                continue
            about = (at / name).lstat()
            if not stat.S_ISLNK(about.st_mode):
                at /= name
                continue
            links += 1
            if links > _MOST_LINKS:
                return False
            target = (at / name).readlink()
            if target.is_absolute():
                at = Path("/")
            left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        about = at.lstat()
        return stat.S_ISREG(about.st_mode) and (_may_read(account, about) or _has_list(at))
    except (OSError, ValueError):
        return False


def _has_list(path: Path) -> bool:
    """Return whether a file or folder has an access control list in addition to its mode."""
    try:
        return bool(os.getxattr(path, "system.posix_acl_access", follow_symlinks=False))
    except OSError:
        return False


def remove_directory(path: Path) -> None:
    """Remove an attempt's directory, and its parents as they become empty."""
    _remove(path)
    for parent in path.parents[:2]:
        try:
            parent.rmdir()
        except OSError:
            return


def _give(path: Path, account: Account) -> None:
    """Give a folder to an account, who may have put something else into its place meanwhile."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(file, account.uid, account.gid)
    finally:
        os.close(file)


def _may_read(account: Account | None, about: os.stat_result) -> bool:
    return account is None or _may(account, about, stat.S_IROTH)


def _may(account: Account, about: os.stat_result, rights: int) -> bool:
    """Return whether an account has all of these rights, given as those of others."""
    shift = 0
    if about.st_uid == account.uid:
        shift = 6
    elif about.st_gid in account.groups:
        shift = 3
    return about.st_mode >> shift & rights == rights


def _remove(path: Path) -> None:
    """Remove a folder with all that it holds, or a file. Follows no link.

    What is deep in it is moved up first: whoever filled it chose the depth, and neither the stack
    nor the number of open files may depend on that.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        path.unlink()
        return
    try:
        # A level is gone at each pass; a process that goes on making folders gets no more of them.
        for _ in range(_MOST_LEVELS):
            folders = _remove_files(top)
            if not folders:
                break
            for name in folders:
                _remove_moving_up(name, top)
    finally:
        os.close(top)
    path.rmdir()


def _remove_moving_up(name: str, top: int) -> None:
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for inner in _remove_files(folder):
            os.rename(inner, f".{uuid.uuid4().hex}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)


def _remove_files(folder: int) -> list[str]:
    """Remove everything from a folder but its folders; their names."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _with_parents(
    path: str | Path, make: Callable[[], _Made], *, keeps_apart: bool = False
) -> _Made:
    """Make something whose folder may not be there, or may just be removed by another worker.

    `keeps_apart`: what the folder's own folder holds is kept apart, if that is made too.
    """
    for _ in range(_TRIES):
        try:
            return make()
        except FileNotFoundError:
            parent = Path(path).parent
            _make_parents(parent, parent.parent if keeps_apart else None)
    return make()


def _make_parents(path: Path, unrelated: Path | None) -> None:
    try:
        path.mkdir(_PARENT_MODE)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make_parents(path.parent, unrelated)
        _make_parents(path, unrelated)
        return
    if path == unrelated:
        keep_apart(path)
