"""Starts programs as tenants' accounts, without a way to gain privileges.

Only this module starts processes as a tenant's account. `start_program` starts the wrapper of an
attempt, a fork server and a Spark host, and their children inherit the restrictions. Such a process
has `no_new_privs` and empty capability sets, including the bounding set, so setuid programs, file
capabilities and sudo add no privileges.

A child inherits both attributes from the thread that starts it. A single thread of the worker sets
them and starts all programs of tenants; the other threads keep their privileges. This needs neither
a helper program nor a `preexec_fn`, which may deadlock in a process with several threads.
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

# `PyDLL` keeps the interpreter's lock, so an error number belongs to the call before it.
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
    """Start a program in a separate session, as the account or, without one, as the worker's.

    `files` become its standard input, output and error; it keeps the `inherited` descriptors.
    Raises `OSError` if the program can't be started or can't be confined.
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
    """Prevent programs that this thread starts from gaining more privileges than their account.

    The thread itself keeps the privileges that it needs to change the account of a child.
    """
    if getattr(_confined, "is_done", False):
        return
    try:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
        for capability in range(_MOST_CAPABILITIES):
            has_it = _libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0)
            if has_it < 0:
                break  # There are no more capabilities.
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
    # The effective, permitted and inheritable sets: first capabilities 0–31, then the others.
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
