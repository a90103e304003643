"""Marks of ports that a process has chosen and that no server has opened yet.

A mark keeps the other processes of this account from choosing the same port. It is a lock of one
byte in a file of the account, and the kernel removes it when the process ends. All accounts can
list the places of locks in `/proc/locks`, so a secret key in the file decides the place of a port.
Other accounts can neither find the chosen ports in that list nor take marks.

Marks are an aid. If the file can't be used, each process knows only the ports it has chosen itself.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_KEY_BYTES: Final = 32
_PLACE_BYTES: Final = 7
"""The largest offset of a lock has eight bytes and a sign."""
_MOST_LOCKS: Final = 32
_REMEMBERED: Final = 128


@dataclass(frozen=True, slots=True)
class _File:
    descriptor: int
    key: bytes

    def place(self, port: int) -> int:
        # Imported here because most processes choose no port.
        import hashlib

        digest = hashlib.blake2b(port.to_bytes(2), key=self.key, digest_size=_PLACE_BYTES).digest()
        return _KEY_BYTES + int.from_bytes(digest)


class PortMarks:
    """The marks of this process."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` holds the file of the account; by default the folder for temporary files."""
        self._folder = folder
        self._files: dict[tuple[int, int], _File | None] = {}
        """By process and account: a fork has other locks, and may have closed the descriptor."""
        self._chosen: deque[int] = deque(maxlen=_REMEMBERED)
        self._locked: deque[tuple[_File, int]] = deque()

    def was_chosen(self, port: int) -> bool:
        """Return True if this process has chosen a port lately."""
        return port in self._chosen

    def remember(self, port: int) -> None:
        """Note that this process has chosen a port, with a mark or without."""
        self._chosen.append(port)

    def mark(self, port: int) -> bool:
        """Mark a port; return False if another process of this account has done so."""
        file = self._file()
        if file is None:
            return True
        place = file.place(port)
        try:
            fcntl.lockf(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            return False
        self._locked.append((file, place))
        if len(self._locked) > _MOST_LOCKS:
            file, place = self._locked.popleft()
            if file is self._file():
                fcntl.lockf(file.descriptor, fcntl.LOCK_UN, 1, place)
        return True

    def _file(self) -> _File | None:
        owner = (os.getpid(), os.geteuid())
        if owner not in self._files:
            self._files[owner] = _opened(self._path(owner[1]), owner[1])
        return self._files[owner]

    def _path(self, account: int) -> Path:
        # Imported here because most processes choose no port.
        import tempfile

        return (self._folder or Path(tempfile.gettempdir())) / f"orcaflow-ports-{account}"


def _opened(path: Path, account: int) -> _File | None:
    """Open the file of an account; None if it can't be used or another account has made it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        return None
    key = _key(descriptor) if _is_private(os.fstat(descriptor), account) else b""
    if not key:
        os.close(descriptor)
        return None
    return _File(descriptor, key)


def _is_private(file: os.stat_result, account: int) -> bool:
    is_of_others = file.st_uid != account or stat.S_IMODE(file.st_mode) & 0o077 != 0
    return stat.S_ISREG(file.st_mode) and file.st_nlink == 1 and not is_of_others


def _key(descriptor: int) -> bytes:
    """Return the key in the file, which the first process writes; b"" if it is just doing that."""
    try:
        key = os.pread(descriptor, _KEY_BYTES, 0)
        if len(key) < _KEY_BYTES:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _KEY_BYTES, 0)
            key = os.pread(descriptor, _KEY_BYTES, 0)
            if len(key) < _KEY_BYTES:
                key = os.urandom(_KEY_BYTES)
                os.pwrite(descriptor, key, 0)
            fcntl.lockf(descriptor, fcntl.LOCK_UN, _KEY_BYTES, 0)
    except OSError:
        return b""
    return key
