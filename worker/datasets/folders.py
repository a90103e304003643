"""The folders of datasets, in which tasks write files, and the check of these before they appear.

    <folder of datasets>/<dataset>/<cluster>-<attempt>-<write>/…

A write's folder belongs to the attempt's account and is never used again, so no file that was
published is ever written over. Nothing in it is trusted: neither links nor pipes nor other names
of foreign files are taken, and no file that a process can still write to.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.datasets.requests import DatasetRequestError
from worker.spark.host.folders import PASSABLE, PRIVATE, make_folder
from worker.workspace import Account, is_own_file

_NAME: Final = re.compile(r"([0-9a-f]{12})-([0-9]{1,10})-([0-9a-f]{16})")
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Neither a link out of the folder nor a pipe that nobody writes to.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READABLE_FILE: Final = 0o444
_READABLE_FOLDER: Final = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFolder:
    """The folder of a write, as its name tells."""

    dataset: str
    task_id: int
    write: str
    path: Path

    def changed_before(self, time: float) -> bool:
        """Return True if nothing in the first two levels has changed since, in POSIX seconds."""
        try:
            found = [self.path, *self.path.iterdir()]
            return all(each.lstat().st_mtime < time for each in found)
        except OSError:
            return False  # It is just being removed, or filled.


class DatasetFolders:
    """The folders of datasets of one cluster. `for_tenants`: tasks run as other accounts."""

    def __init__(self, root: Path, *, cluster: str, for_tenants: bool) -> None:
        self._root = root
        self._cluster = cluster
        self._for_tenants = for_tenants

    @property
    def root(self) -> Path:
        """The folder that paths of published files are relative to."""
        return self._root

    def make(self, dataset: str, task_id: int, account: Account | None) -> WriteFolder:
        """Make a folder for a new write, of the attempt's own account. Raises `OSError`."""
        mode = PASSABLE if self._for_tenants else PRIVATE
        made = self.of(dataset, task_id, secrets.token_hex(8))
        for folder in (self._root, made.path.parent):
            make_folder(folder, mode)
        make_folder(made.path, PRIVATE, account)
        return made

    def of(self, dataset: str, task_id: int, write: str) -> WriteFolder:
        """Return the folder of a write, which need not be there."""
        path = self._root / dataset / f"{self._cluster}-{task_id}-{write}"
        return WriteFolder(dataset=dataset, task_id=task_id, write=write, path=path)

    def path_of(self, folder: WriteFolder, name: str) -> str:
        """Return the path of a file as the tables hold it."""
        return f"{folder.dataset}/{folder.path.name}/{name}"

    def check(self, folder: WriteFolder, names: tuple[str, ...]) -> int:
        """Make these files durable and readable; return their bytes. `DatasetRequestError`.

        Where tasks have accounts of their own, the files are the daemon's from now on.
        """
        try:
            top = os.open(folder.path, _FOLDER_FLAGS)
        except FileNotFoundError:
            raise DatasetRequestError(
                f"there is no write {folder.write} of {folder.dataset} by this attempt"
            ) from None
        try:
            # Folders first, because the owner of a folder could replace a file after its check.
            self._keep(top)
            return sum(self._checked(top, name) for name in names)
        finally:
            os.close(top)

    def _checked(self, top: int, name: str) -> int:
        *folders, last = name.split("/")
        try:
            with self._walked(top, folders) as folder:
                file = os.open(last, _FILE_FLAGS, dir_fd=folder)
                try:
                    if not is_own_file(file):
                        raise DatasetRequestError(f"{name[:80]!r} is no ordinary file")
                    self._own(file, _READABLE_FILE)
                    if self._for_tenants and _is_open_for_writing(file):
                        raise DatasetRequestError(
                            f"{name[:80]!r} is open for writing: close it before its publication"
                        )
                    os.fsync(file)
                    return os.fstat(file).st_size
                finally:
                    os.close(file)
        except FileNotFoundError:
            raise DatasetRequestError(f"{name[:80]!r} is not in the write's folder") from None
        except OSError as error:
            raise DatasetRequestError(
                f"{name[:80]!r} is no ordinary file of the write's folder: {error.strerror}"
            ) from error

    @contextmanager
    def _walked(self, top: int, folders: list[str]) -> Iterator[int]:
        """Open one folder after the other, none of them by a link; yield the last.

        Each is the daemon's before anything in it is opened.
        """
        opened = [top]
        try:
            for name in folders:
                opened.append(os.open(name, _FOLDER_FLAGS, dir_fd=opened[-1]))
                self._keep(opened[-1])
            yield opened[-1]
        finally:
            for each in opened[1:]:
                os.close(each)

    def _keep(self, folder: int) -> None:
        self._own(folder, _READABLE_FOLDER)
        # What the tables name must outlive a loss of power.
        os.fsync(folder)

    def _own(self, file: int, mode: int) -> None:
        if self._for_tenants:
            about = os.fstat(file)
            if about.st_uid != os.geteuid():
                os.fchown(file, os.geteuid(), os.getegid())
            if stat.S_IMODE(about.st_mode) != mode:
                os.fchmod(file, mode)

    def all(self) -> Iterator[WriteFolder]:
        """Yield the folders of writes of this cluster."""
        for dataset in _entries(self._root):
            for entry in _entries(dataset):
                found = _NAME.fullmatch(entry.name)
                if found is not None and found[1] == self._cluster:
                    yield WriteFolder(
                        dataset=dataset.name, task_id=int(found[2]), write=found[3], path=entry
                    )


def _is_open_for_writing(file: int) -> bool:
    """Return whether a descriptor or a memory map of any process can change a file.

    The kernel grants a lease only for a file without writers. The file belongs to this account by
    now, so no other account can open it again. False on a file system without leases.
    """
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _entries(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(each.path) for each in entries if each.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
