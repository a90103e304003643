"""Starts programs, as tenants' accounts without any way to further privileges.

The one place where a process of this worker becomes a tenant's: the wrapper of an attempt, a fork
server and a Spark host are started by `start_program`, and what they fork inherits from them. Such
a process has `no_new_privs`, and its capability sets, the bounding set included, are empty: setuid
programs, file capabilities and sudo add nothing.

Both are attributes of a thread that a child inherits. A single thread of the worker gives them up
and starts all programs of tenants; the other threads keep their privileges. This costs no further
program, and no `preexec_fn`, which may deadlock where there are other threads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from worker.workspace import Account

_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_MOST_CAPABILITIES: Final = 64

_File: TypeAlias = int | IO[bytes]

# It keeps the interpreter's lock, so a call and its error number belong together.
_libc: Final = ctypes.PyDLL(None, use_errno=True)
_starter: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tenants")
_confined: Final = threading.local()


def start_program(
    argv: Sequence[str],
    *,
    account: Account | None,
    files: tuple[_File, _File, _File],
    directory: str,
    environment: Mapping[str, str],
    inherited: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a program in a separate session, as the account or else as the worker's own.

    `files` become its standard input, output and error; it keeps the `inherited` descriptors.
    Raises `OSError` if it cannot be started, or cannot be started without privileges.
    """

    def start() -> subprocess.Popen[bytes]:
        if account is not None:
            _confine()
        return subprocess.Popen(
            argv,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            cwd=directory,
            env=environment,
            pass_fds=inherited,
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else account.groups,
        )

    return start() if account is None else _starter.submit(start).result()


def _confine() -> None:
    """Give up, for what this thread starts, every way to more privileges than an account has.

    The thread itself keeps the privileges that it needs to change the account of a child.
    """
    if getattr(_confined, "is_done", False):
        return
    try:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
        for capability in range(_MOST_CAPABILITIES):
            has_it = _libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0)
            if has_it < 0:
                break  # The kernel has no more.
            if has_it:
                _prctl(_PR_CAPBSET_DROP, capability)
        _clear_inheritable()
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        raise OSError(
            error.errno or errno.EPERM,
            "this worker cannot start tasks of tenants without privileges (it needs CAP_SETPCAP):"
            f" {error.strerror}",
        ) from error
    _confined.is_done = True


def _clear_inheritable() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable sets, of the capabilities 0–31 and then of the others.
    sets = (ctypes.c_uint32 * 6)()
    _checked(_libc.capget(header, sets))
    sets[2] = sets[5] = 0
    _checked(_libc.capset(header, sets))


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, value, 0, 0, 0))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
