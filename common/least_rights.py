"""Drops the privileges of a process that handles foreign input in a native library.

The process imports its libraries, opens its files and calls `give_up_rights` once, in its only
thread. Root becomes `nobody`, all capabilities are dropped, and executed programs can't gain any.
If the kernel has Landlock, the process can open only libraries, certificates, the files for name
resolution, `/etc/localtime`, `/dev/urandom` and `/dev/null`. Files that are open stay open.

Used by `master.broker_program` and `common.dataset_program`. Not for tasks of tenants, which
`worker.processes.tenant_start` starts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

NOBODY: Final = 65_534
_MOST_FILES: Final = 256

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_FIRST_VERSION_RIGHTS = (1 << 13) - 1
_EXECUTE, _READ_FILE, _READ_DIR = 1, 1 << 2, 1 << 3
_READABLE: Final = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/ca-certificates", "/etc/ssl"),
    *("/usr/local/share/ca-certificates", "/etc/pki", "/etc/ca-certificates"),
    *("/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf"),
    *("/etc/services", "/etc/localtime", "/dev/urandom", "/dev/null"),
)

_libc = ctypes.CDLL(None, use_errno=True)


def give_up_rights(
    *,
    libraries: Sequence[Path],
    most_memory_bytes: int,
    most_written_bytes: int = 0,
    most_files: int = _MOST_FILES,
) -> dict[str, object]:
    """Drop all privileges that the process does not need; return the resulting state.

    It can still read the folders of `libraries`. `most_written_bytes` limits each file that it
    writes; pipes and sockets have no such limit.
    """
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, most_written_bytes),
        (resource.RLIMIT_NOFILE, most_files),
        (resource.RLIMIT_AS, most_memory_bytes),
    ):
        hard = resource.getrlimit(limit)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (least, least))
    if os.geteuid() == 0:
        for capability in range(64):
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # It fails beyond the last one.
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()))
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    return {"uid": os.geteuid(), "landlock": _close_files(libraries)}


def _close_files(libraries: Sequence[Path]) -> int:
    """Restrict file access to `_READABLE` and libraries; return Landlock's version, or 0."""
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return 0
    rights = _FIRST_VERSION_RIGHTS
    for since, right in ((2, 13), (3, 14), (5, 15)):
        rights |= (version >= since) << right
    # File rights, network rights (none restricted), and signals and sockets of other processes.
    attributes = struct.pack("=QQQ", rights, 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(_libc.syscall(_LANDLOCK_CREATE, attributes, size, 0))
    for path in (*_READABLE, *map(str, libraries)):
        try:
            file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = _READ_FILE | ((_EXECUTE | _READ_DIR) if Path(path).is_dir() else 0)
        rule = struct.pack("=Qi", allowed, file)
        _checked(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0))
        os.close(file)
    _checked(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)
    return int(version)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
