"""Forks a process off the Spark host and makes it what was asked for.

A forked process shares the pages of what the host has imported, and gets everything else from its
task proxy: environment, directory, open files. Its account is the host's. It is the leader of a
session of its own, and ends when the host does. The host has no other thread and no connection of
gRPC's when it forks: neither would survive it (`worker/spark/host/preload.py` sees to that).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import random
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from worker.processes.attempt_processes import MARKER
from worker.processes.marks import mark_of, take

_PR_SET_PDEATHSIG = 1
_LARGEST_MARKER = 4_096
_ENV_START, _ENV_END = 47, 48
"""Of `/proc/self/stat`, counted behind the name: where the environment stands in memory."""

_libc = ctypes.CDLL(None, use_errno=True)
_usual_file_limit: list[int] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The things that a forked process takes over from its task proxy."""

    environment: Mapping[str, str]
    directory: str
    files: tuple[int, ...]
    proxy: int = 0
    """Its pid; 0 if it is nobody else."""
    session: bool = True
    """It leads a session of its own; else it has to make a group of its own itself."""
    limited_as: int = 0
    """The process whose limits on memory and processes it takes over; 0 is none."""


def room_for_marker() -> dict[str, str]:
    """A variable that the host has to be started with, in whose place a fork's marker comes."""
    return {MARKER: "/" * _LARGEST_MARKER}


def fork(circumstances: Circumstances, work: Callable[[], int], *, keep: tuple[int, ...]) -> int:
    """Run `work` in a process of its own; the pid. `keep`: descriptors that it needs besides."""
    sys.stdout.flush()
    sys.stderr.flush()
    host = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _become(circumstances, host, keep)
        code = work()
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  # As any Python ends.
        atexit._run_exitfuncs()  # noqa: SLF001
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  # It must never go on as a second host.
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code & 0xFF)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, which it may have done already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def end_children_with_me() -> None:
    """Have the kernel kill whatever this process forks, but nothing that those fork, when it dies.

    For daemons whose children may be in the middle of anything and hear nothing.
    """
    own = os.getpid()

    def follow() -> None:
        if os.getppid() == own:
            end_with_parent(own)

    os.register_at_fork(after_in_child=follow)


def raise_file_limit() -> None:
    """Let the host open as many files as it may at all; its forks get the usual limit back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _usual_file_limit[:] = soft, hard


def _become(circumstances: Circumstances, host: int, keep: tuple[int, ...]) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if circumstances.session:
        os.setsid()
    logging.root.handlers.clear()
    for standard, file in enumerate(circumstances.files):
        os.dup2(file, standard)
    _close_others(frozenset((0, 1, 2, *keep)))
    if _usual_file_limit:
        soft, hard = _usual_file_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if circumstances.proxy:
        _yield_as(circumstances.proxy)
    _mark(circumstances.environment.get(MARKER, ""))
    if attempt := circumstances.environment.get(MARKER):
        take(mark_of(attempt))
    if circumstances.limited_as:
        _limit_as(circumstances.limited_as)
    end_with_parent(host)
    os.chdir(circumstances.directory)
    os.environ.clear()
    os.environ.update(circumstances.environment)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    random.seed()
    if "numpy" in sys.modules:
        # Else all tasks would draw the same numbers.
        sys.modules["numpy"].random.seed()


def _close_others(keep: frozenset[int]) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        file = int(name)
        if file not in keep:
            try:
                os.close(file)
            except OSError:
                continue  # The listing's own.


def _yield_as(proxy: int) -> None:
    """Take over the task proxy's niceness, its score when memory runs short, and its umask."""
    with contextlib.suppress(OSError, ValueError):
        niceness = os.getpriority(os.PRIO_PROCESS, proxy)
        status = Path(f"/proc/{proxy}/status").read_text(encoding="ascii", errors="replace")
        os.umask(int(status.partition("\nUmask:")[2].split()[0], 8))
        score = Path(f"/proc/{proxy}/oom_score_adj").read_text(encoding="ascii")
        Path("/proc/self/oom_score_adj").write_text(score, encoding="ascii")
        if niceness > 0:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
            # Not on every kernel: a session's own, within which the former counts.
            Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")


def _limit_as(pid: int) -> None:
    """Take over the limits of a process, that of the attempt: forks inherit those of the host."""
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_NPROC):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, resource.prlimit(pid, kind))


def _mark(marker: str) -> None:
    """Make `/proc/<pid>/environ` show the attempt's marker, by which its processes are found.

    It shows the memory that the host's own environment was handed over in.
    """
    content = os.fsencode(marker)
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    environment = Path("/proc/self/environ").read_bytes()
    position = environment.find(MARKER.encode() + b"=" + b"/" * _LARGEST_MARKER)
    if position < 0 or len(content) > _LARGEST_MARKER or not 0 < start < end:
        raise RuntimeError("the Spark host was started without room for a marker")
    at = start + position + len(MARKER) + 1
    ctypes.memmove(at, content.ljust(_LARGEST_MARKER, b"\0"), _LARGEST_MARKER)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
