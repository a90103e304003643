"""Processes that have lost their parent, which the kernel hands to a worker that asks for them.

An *orphan* is a process of an attempt whose parent has ended. As a *subreaper* the daemon becomes
its parent. So one look at the daemon's own children tells whether an attempt that has just ended
left anything behind, where a look at all processes would cost each end milliseconds. In return the
daemon has to reap orphans. Used by the supervisor's thread alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Final

from worker.processes.attempt_processes import is_zombie, may_belong
from worker.processes.marks import mark_of, mark_seen

_PR_SET_CHILD_SUBREAPER: Final = 36
_ROUNDS: Final = 100
"""The most looks at the list in one go; each takes some microseconds."""


class Orphans:
    """The orphans that this process has been given."""

    def __init__(self, *, adopts: bool) -> None:
        """`adopts`: have the kernel make this process the parent of orphans.

        Only if attempts bear marks: an orphan without one could not be told from any other child.
        """
        own = os.getpid()
        # The kernel gives orphans to the main thread; children of other threads are not listed.
        self._children = Path(f"/proc/{own}/task/{own}/children")
        self.adopts = adopts and self._children.exists()
        """True while orphans come to this process."""
        if self.adopts:
            _become_subreaper(True)

    def close(self) -> None:
        """Leave orphans to the next process that wants them."""
        if self.adopts:
            _become_subreaper(False)
            self.adopts = False

    def may_be_left(self, execute_path: str, *, leaders: Collection[int]) -> bool:
        """Return whether an attempt whose leader has ended may have live processes.

        Every process that descends from the leader is an orphan by then, or descends from one.
        `leaders` are children that were started and are reaped by others.
        """
        if not self.adopts:
            return True
        mark = mark_of(execute_path)
        for _ in range(_ROUNDS):
            ended = False
            for pid in self._orphans(leaders):
                if mark_seen(pid) == mark and may_belong(pid, execute_path):
                    if not is_zombie(pid):
                        return True
                    # What it forked just before its end may stand behind the end of the list.
                    ended = True
                    _reap(pid)
            if not ended:
                return False
        return True

    def kill(self, execute_path: str, *, leaders: Collection[int]) -> bool:
        """Kill the orphans of an attempt, and those that their ends make; True if some are left.

        Nothing passes between a look and a kill but the kill itself, so this also catches processes
        that fork and end faster than a look at all processes takes.
        """
        if not self.adopts:
            return False
        mark = mark_of(execute_path)
        for _ in range(_ROUNDS):
            found = False
            for pid in self._orphans(leaders):
                if mark_seen(pid) == mark and may_belong(pid, execute_path):
                    found = True
                    # A child's pid is its own until it is reaped.
                    _kill(pid)
                    _reap(pid)
            if not found:
                return False
        return True

    def reap(self, *, leaders: Collection[int]) -> None:
        """Reap the orphans that have ended."""
        if self.adopts:
            for pid in self._orphans(leaders):
                if mark_seen(pid) is not None and is_zombie(pid):
                    _reap(pid)

    def _orphans(self, leaders: Collection[int]) -> list[int]:
        return [pid for pid in map(int, self._children.read_bytes().split()) if pid not in leaders]


def _become_subreaper(wanted: bool) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
