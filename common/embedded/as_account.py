"""Becomes another account for good, then becomes the command that it is given.

A script, run by path and by root only: PostgreSQL refuses to run as root.

The account often may not pass through the folders above the installation or the data (`/root` is
0700), and opening those up to everybody would change what isn't ours. If asked to, one capability
is therefore kept: `search` passes through folders and reads files, `override` also runs programs
that are for root alone. The process is not root all the same.

Usage: as_account.py UID GID none|search|override COMMAND ARGUMENT…
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2


def become(uid: int, gid: int, *, keeping: str) -> None:
    """Give up root. Where root itself lacks `search`, as in containers, `override` replaces it."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Before the change, after which Python may not even reach its own library any more.
    search_will_do = keeping == "search" and _is_permitted(_CAP_DAC_READ_SEARCH)
    capability = _CAP_DAC_READ_SEARCH if search_will_do else _CAP_DAC_OVERRIDE
    if keeping != "none":
        # Else the change of account would clear the capability, and access(2), by which PostgreSQL
        # looks for its programs, would ignore it.
        _checked(libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if keeping != "none":
        # Effective, permitted and inheritable sets, of the capabilities 0–31 and then of the
        # others.
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        only = 1 << capability
        sets = (ctypes.c_uint32 * 6)(only, only, only, 0, 0, 0)
        _checked(libc.capset(header, sets))
        _checked(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0))


def _is_permitted(capability: int) -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    permitted = status.partition("CapPrm:")[2].split(maxsplit=1)[0]
    return bool(int(permitted, 16) >> capability & 1)


def _checked(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]), keeping=sys.argv[3])
    os.execv(sys.argv[4], sys.argv[4:])  # noqa: S606  # No shell is what is wanted.
