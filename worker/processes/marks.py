"""The mark of an attempt: a number that each of its processes inherits, wherever it moves.

It stands in a resource limit that Linux hands down at every fork and at every exec, and has not
enforced since 2.4 (`RLIMIT_LOCKS`). A new session, an empty environment, another parent or account
leave it as it is. A process can lower its own limit on purpose, so a mark finds the processes of an
attempt and proves nothing about them; sessions and environments are compared besides, and `orphans`
finds those that bear no attempt's mark any more. The mark is the lower of the limit's two numbers
(the soft one), where a shim has it for a moment, which must not lower its own for good. Setting it
costs a system call, where moving a process into a control group would cost milliseconds.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Final

_RLIMIT_LOCKS: Final = 10
_SMALLEST: Final = 2**61
_LIMITS_LINE: Final = b"\nMax file locks"

HELPER: Final = 2 * _SMALLEST
"""The mark of a worker's own helper and of all that it starts; its forks can lower it to theirs."""


@lru_cache(maxsize=2_000)
def mark_of(execute_path: str) -> int:
    """Return the mark of the attempt with this directory."""
    digest = hashlib.blake2b(os.fsencode(execute_path), digest_size=8).digest()
    return _SMALLEST + int.from_bytes(digest, "big") % _SMALLEST


def can_mark() -> bool:
    """True if the shell can mark itself here, and this process bears no mark already.

    An attempt of a cluster that runs inside an attempt keeps the outer one's.
    """
    if not _is_none(resource.getrlimit(_RLIMIT_LOCKS)[1]):
        return False
    tried = subprocess.run(
        ("/bin/sh", "-c", f"{shell_line(HELPER)}exec cat /proc/self/limits"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return _mark_in(tried.stdout) == HELPER


def shell_line(mark: int) -> str:
    """Return the line that marks a shell: dash and busybox name the limit `-w`, others `-x`."""
    return f"ulimit -w {mark} 2>/dev/null || ulimit -x {mark} 2>/dev/null || :\n"


def helper_line() -> str:
    """Return the line that makes a shell a helper's; it exits if it would stay its attempt's.

    An attempt without CAP_SYS_RESOURCE, as in most containers, can't rid itself of its mark.
    """
    own = mark_seen(os.getpid())
    rest = ":" if own in (None, HELPER) else "exit 0"
    return f"ulimit -w {HELPER} 2>/dev/null || ulimit -x {HELPER} 2>/dev/null || {rest}\n"


def take(mark: int) -> None:
    """Mark this process; one that may not, since it bears a smaller mark, keeps that."""
    try:
        resource.setrlimit(_RLIMIT_LOCKS, (mark, mark))
    except (OSError, ValueError):
        return


def give(pid: int, mark: int) -> None:
    """Mark a child that has not forked yet; one that has ended needs none."""
    try:
        resource.prlimit(pid, _RLIMIT_LOCKS, (mark, mark))
    except (OSError, ValueError):
        return


def mark_seen(pid: int) -> int | None:
    """Return the mark of a process, zombies included; None if it bears none or is gone."""
    try:
        limit = resource.prlimit(pid, _RLIMIT_LOCKS)[0]
    except PermissionError:
        # Root without CAP_SYS_RESOURCE, as in most containers, or a process of another group.
        return _written_mark(pid) if _may_signal(pid) else None
    except OSError:
        return None
    return None if _is_none(limit) else limit


def _may_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _written_mark(pid: int) -> int | None:
    try:
        return _mark_in(Path(f"/proc/{pid}/limits").read_bytes())
    except OSError:
        return None


def _mark_in(limits: bytes) -> int | None:
    words = limits.partition(_LIMITS_LINE)[2].split(b"\n", 1)[0].split()
    return int(words[0]) if words and words[0].isdigit() else None


def _is_none(limit: int) -> bool:
    return not 0 <= limit <= HELPER
