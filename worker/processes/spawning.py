"""Starts the program of an attempt by the C library's `posix_spawn`, while other threads go on.

`subprocess` holds the interpreter's lock until the new process has its program, so that meanwhile
nothing else of the worker moves. Here the lock is let go, and what is the same for every start is
prepared once. Where the library lacks a call, or a process is to run as another account, which
`posix_spawn` can't give it, it is a `subprocess.Popen`, which does the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    # The shim is small, and needs neither.
    import subprocess

    from worker.workspace import Account

_SETSIGDEF: Final = 0x04
_SETSID: Final = 0x80
_STRUCT_BYTES: Final = 1024
"""More than any C library's attributes, actions or set of signals take."""
_DEFAULTED: Final = (signal.SIGPIPE, signal.SIGXFSZ, 32, 33)
"""Python itself ignores the first two, and the library's call the others, which are its own;
no program expects that."""
_CALLS: Final = (
    "posix_spawn",
    "posix_spawn_file_actions_init",
    "posix_spawn_file_actions_adddup2",
    "posix_spawn_file_actions_addchdir_np",
    "posix_spawn_file_actions_addclosefrom_np",
    "posix_spawn_file_actions_destroy",
    "posix_spawnattr_init",
    "posix_spawnattr_setflags",
    "posix_spawnattr_setsigdefault",
)


class SpawnedLeader:
    """A child of this process, started by `posix_spawn`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Reap it; the exit code, negative for a signal."""
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def start(
    argv: Sequence[str],
    *,
    files: tuple[int, int, int],
    directory: str,
    environment: Mapping[str, str],
    account: Account | None,
) -> SpawnedLeader | subprocess.Popen[bytes]:
    """Start a program, by its absolute path, in a session of its own; `OSError` if it can't be.

    `files` become its standard input, output and error; it gets no other.
    """
    # A descriptor among the first three would be overwritten before it is copied.
    if _LIBRARY is not None and account is None and min(files) > 2:
        arguments, variables = encoded(argv, environment)
        path = _bytes(directory)
        return SpawnedLeader(_LIBRARY.spawn(arguments, variables, files=files, directory=path))
    from worker.processes.tenant_start import start_program  # As above.

    return start_program(
        argv, account=account, files=files, directory=directory, environment=environment
    )


def is_native() -> bool:
    """Return whether the C library has all that `spawn` needs."""
    return _LIBRARY is not None


def spawn(
    arguments: Sequence[bytes],
    variables: Sequence[bytes],
    *,
    files: tuple[int, int, int],
    directory: bytes,
) -> int:
    """Start a program as `start` does, from what `encoded` returns; its pid."""
    if _LIBRARY is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _LIBRARY.spawn(arguments, variables, files=files, directory=directory)


def encoded(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[list[bytes], list[bytes]]:
    """Return a program's arguments and variables as the kernel takes them.

    Raises `ValueError` for what no program can be given.
    """
    variables = [_variable(name, value) for name, value in environment.items()]
    return [_bytes(argument) for argument in argv], variables


class _Library:
    """The calls of the C library, and the attributes that all starts have in common."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Raises `AttributeError` if a call is missing."""
        self._calls: dict[str, Callable[..., int]] = {
            name: getattr(library, name) for name in _CALLS
        }
        self._attributes = ctypes.create_string_buffer(_STRUCT_BYTES)
        signals = (ctypes.c_ulong * _STRUCT_BYTES)()
        for number in _DEFAULTED:
            word, bit = divmod(number - 1, 8 * ctypes.sizeof(ctypes.c_ulong))
            signals[word] |= 1 << bit
        self._call("posix_spawnattr_init", self._attributes)
        self._call("posix_spawnattr_setsigdefault", self._attributes, signals)
        self._call(
            "posix_spawnattr_setflags", self._attributes, ctypes.c_short(_SETSIGDEF | _SETSID)
        )

    def spawn(
        self,
        arguments: Sequence[bytes],
        variables: Sequence[bytes],
        *,
        files: tuple[int, int, int],
        directory: bytes,
    ) -> int:
        pid = ctypes.c_int()
        actions = ctypes.create_string_buffer(_STRUCT_BYTES)
        self._call("posix_spawn_file_actions_init", actions)
        try:
            for place, file in enumerate(files):
                self._call("posix_spawn_file_actions_adddup2", actions, file, place)
            self._call("posix_spawn_file_actions_addchdir_np", actions, directory)
            self._call("posix_spawn_file_actions_addclosefrom_np", actions, 3)
            code = self._calls["posix_spawn"](
                ctypes.byref(pid),
                arguments[0],
                actions,
                self._attributes,
                _texts(arguments),
                _texts(variables),
            )
        finally:
            self._call("posix_spawn_file_actions_destroy", actions)
        if code:
            raise OSError(code, os.strerror(code), os.fsdecode(arguments[0]))
        return pid.value

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._calls[name](*arguments)
        if code:
            raise OSError(code, f"{name} failed")


def _texts(texts: Sequence[bytes]) -> Any:
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


def _bytes(text: str) -> bytes:
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError("embedded null byte")
    return encoded


def _variable(name: str, value: str) -> bytes:
    if "=" in name:
        raise ValueError("illegal environment variable name")
    return _bytes(f"{name}={value}")


def _library() -> _Library | None:
    try:
        return _Library(ctypes.CDLL(None))
    except (AttributeError, OSError):
        return None


_LIBRARY: Final = _library()
