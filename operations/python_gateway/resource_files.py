"""Writes the resource files of users, within limits of number, size and free space.

The files of a user are below `resources/users/<name of the user's folder>`. Root often owns them,
so no disk quota of a tenant counts them. The limits are checked while the folder is locked, against
all api-servers of this home.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.config import ApiConfig
from common.errors import NotAllowedError
from common.folders import USERS, closed_folder
from common.volumes import lack_of_room
from operations.errors import UsageError
from operations.task_codes import new_code

_MB: Final = 1024**2
_FOLDER_PARTS: Final = 2
"""Of a path: `users` and the folder of the user."""
_CURE: Final = (
    "overwrite files of yours with shorter ones, or ask an administrator to remove some or to raise"
    " the limit"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """The limits of each user, and the free space that the volume keeps."""

    files: int
    """Folders count as files, since they need space too."""
    size_mb: int
    reserved_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The number of files and folders of a user, and the bytes of the files."""

    files: int
    size: int


def limits_of(settings: ApiConfig) -> ResourceLimits:
    """Return the limits that the settings name."""
    return ResourceLimits(
        files=settings.user_resource_files,
        size_mb=settings.user_resource_mb,
        reserved_gb=settings.reserved_disk_gb,
    )


def write_resource(
    resources: Path,
    path: str,
    content: str,
    *,
    limits: ResourceLimits,
    look: Callable[[Path], os.statvfs_result] = os.statvfs,
) -> None:
    """Replace a file atomically, or create it; no part of its path may be a link.

    `path` begins with `users` and the folder of the user. Raises `NotAllowedError` at a limit. A
    file that becomes shorter is written at any limit, because users have no other way to free
    space. `look` returns the state of a volume.
    """
    text = content.encode("utf-8", "replace")
    closed_folder(resources / USERS)
    own = resources.joinpath(*path.split("/")[:_FOLDER_PARTS])
    try:
        with contextlib.suppress(FileExistsError):
            own.mkdir()
        with _locked(own):
            _check(resources, path, len(text), limits=limits, look=look)
            _write(resources, path, text)
    except OSError as error:
        raise UsageError("name", f"{path!r:.100} can't be written: {error.strerror}") from error


def usage_of(folder: Path) -> Usage:
    """Count the files and folders below a folder. Links are counted and not followed."""
    files = size = 0
    for parent, folders, names in os.walk(folder):
        files += len(folders) + len(names)
        for each in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(parent, each)).st_size  # noqa: PTH118
    return Usage(files=files, size=size)


def _check(
    resources: Path,
    path: str,
    size: int,
    *,
    limits: ResourceLimits,
    look: Callable[[Path], os.statvfs_result],
) -> None:
    """Raise `NotAllowedError` if a file of this size would exceed a limit."""
    own = resources.joinpath(*path.split("/")[:_FOLDER_PARTS])
    target = resources / path
    missing = [each for each in (target, *target.parents) if not os.path.lexists(each)]
    before = 0 if missing else target.lstat().st_size
    if not missing and size <= before:
        return
    used = usage_of(own)
    if missing and used.files + len(missing) > limits.files:
        raise NotAllowedError(
            f"you have {used.files} resource files and folders, and api.user_resource_files allows"
            f" {limits.files}: {_CURE}"
        )
    if used.size - before + size > limits.size_mb * _MB:
        raise NotAllowedError(
            f"your resource files have {used.size / _MB:.1f} MB, and with this one they would have"
            f" more than api.user_resource_mb allows ({limits.size_mb}): {_CURE}"
        )
    problem = lack_of_room(
        resources,
        look(resources),
        reserved_gb=limits.reserved_gb,
        setting="api.reserved_disk_gb",
        more=size,
    )
    if problem is not None:
        raise NotAllowedError(f"no resource file is written now: {problem}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a user's folder, against other threads and other api-servers."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _write(resources: Path, path: str, text: bytes) -> None:
    folder = os.open(resources, os.O_RDONLY | os.O_DIRECTORY)
    *parents, name = path.split("/")
    try:
        for each in parents:
            with contextlib.suppress(FileExistsError):
                os.mkdir(each, dir_fd=folder)
            inner = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        whole = f".{name[:100]}.{new_code()}"
        file = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
        try:
            with os.fdopen(file, "wb") as opened:
                opened.write(text)
            os.rename(whole, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(whole, dir_fd=folder)
            raise
    finally:
        os.close(folder)
