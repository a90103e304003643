"""Measures what the processes of a task take: its own, and all that it has started.

Runs in the task's own process, on Linux; standard library only. Processes that come and go between
two samples are missed, but for children of this process, of which the kernel keeps account.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from common.model.spark import Usage

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024
# Of `/proc/<pid>/stat`, counted behind the name.
_PARENT, _USER, _SYSTEM, _START, _RESIDENT = 1, 11, 12, 19, 21


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    pid: int
    parent: int
    started: int
    cpu_seconds: float
    resident_bytes: int


class Meter:
    """Counts from `started`, a time of the monotonic clock, on."""

    def __init__(self, started: float | None = None) -> None:
        self._started = time.monotonic() if started is None else started
        self._peak_bytes = 0
        self._farther: dict[tuple[int, int], float] = {}
        """CPU of those that are not children of ours, by pid and start."""

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started

    def sample(self) -> None:
        """Look at all processes of the task."""
        own = os.getpid()
        family = list(_family(own))
        self._peak_bytes = max(self._peak_bytes, sum(each.resident_bytes for each in family))
        for each in family:
            if own not in (each.pid, each.parent):
                self._farther[each.pid, each.started] = each.cpu_seconds

    def usage(self, *, spark_cpu_seconds: float = 0.0, core_seconds: float = 0.0) -> Usage:
        """Return the usage so far, with that of Spark's tasks in processes of others added."""
        self.sample()
        own = resource.getrusage(resource.RUSAGE_SELF)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        near = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        # Children that have not ended are in no account yet.
        living = sum(each.cpu_seconds for each in _seen(_children(os.getpid())))
        most = max(self._peak_bytes, (own.ru_maxrss + children.ru_maxrss) * _KIB)
        return Usage(
            run_seconds=round(self.seconds, 3),
            cpu_seconds=round(near + living + sum(self._farther.values()) + spark_cpu_seconds, 3),
            peak_memory_bytes=most,
            core_seconds=round(core_seconds, 3),
        )


def _family(ancestor: int) -> Iterator[_Seen]:
    """A process and all that come from it."""
    left = [ancestor]
    while left:
        for each in _seen([left.pop()]):
            yield each
            left += _children(each.pid)


def _seen(pids: Iterable[int]) -> Iterator[_Seen]:
    return (seen for pid in pids if (seen := _read(pid)) is not None)


def _children(pid: int) -> list[int]:
    """The processes that a process has started, by whichever of its threads."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # It has ended.
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            try:
                content = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
            except FileNotFoundError:
                if Path(f"/proc/{pid}/task/{thread}").exists():
                    return _children_by_search(pid)
                continue  # That thread has.
            found += map(int, content.split())
    return found


def _children_by_search(parent: int) -> list[int]:
    """The same on a kernel that keeps no list (it has CONFIG_PROC_CHILDREN if it does)."""
    every = (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return [each.pid for each in _seen(every) if each.parent == parent]


def _read(pid: int) -> _Seen | None:
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None  # It has ended, or is none of our business.
    # A name may hold spaces and parentheses.
    fields = content.rpartition(b")")[2].split()
    return _Seen(
        pid=pid,
        parent=int(fields[_PARENT]),
        started=int(fields[_START]),
        cpu_seconds=(int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS,
        resident_bytes=int(fields[_RESIDENT]) * _PAGE_BYTES,
    )
