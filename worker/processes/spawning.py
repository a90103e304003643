"""Starts the program of an attempt by the C library's `posix_spawn`, while other threads go on.

`subprocess` holds the interpreter's lock until the new process has its program, so that meanwhile
nothing else of the worker moves. Here the lock is let go, and what is the same for every start is
prepared once. Where the library lacks a call, or a process is to run as another account, which
`posix_spawn` can't give it, it is a `subprocess.Popen`, which does the same.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from worker.processes.live_attempts import Leader
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
) -> Leader:
    """Start a program, by its absolute path, in a session of its own; `OSError` if it can't be.

    `files` become its standard input, output and error; it gets no other.
    """
    # A descriptor among the first three would be overwritten before it is copied.
    if _LIBRARY is not None and account is None and min(files) > 2:
        return _LIBRARY.start(argv, files=files, directory=directory, environment=environment)
    # No preexec_fn: with it, Python would copy the daemon's page tables for every task.
    return subprocess.Popen(
        argv,
        stdin=files[0],
        stdout=files[1],
        stderr=files[2],
        cwd=directory,
        env=environment,
        start_new_session=True,
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else account.groups,
    )


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

    def start(
        self,
        argv: Sequence[str],
        *,
        files: tuple[int, int, int],
        directory: str,
        environment: Mapping[str, str],
    ) -> SpawnedLeader:
        arguments = _texts(map(_bytes, argv))
        variables = _texts(_variable(name, value) for name, value in environment.items())
        path = _bytes(directory)
        program = arguments[0]
        pid = ctypes.c_int()
        actions = ctypes.create_string_buffer(_STRUCT_BYTES)
        self._call("posix_spawn_file_actions_init", actions)
        try:
            for place, file in enumerate(files):
                self._call("posix_spawn_file_actions_adddup2", actions, file, place)
            self._call("posix_spawn_file_actions_addchdir_np", actions, path)
            self._call("posix_spawn_file_actions_addclosefrom_np", actions, 3)
            code = self._calls["posix_spawn"](
                ctypes.byref(pid), program, actions, self._attributes, arguments, variables
            )
        finally:
            self._call("posix_spawn_file_actions_destroy", actions)
        if code:
            raise OSError(code, os.strerror(code), argv[0])
        return SpawnedLeader(pid.value)

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._calls[name](*arguments)
        if code:
            raise OSError(code, f"{name} failed")


def _texts(texts: Any) -> Any:
    listed = list(texts)
    return (ctypes.c_char_p * (len(listed) + 1))(*listed, None)


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
