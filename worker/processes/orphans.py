"""Processes that have lost their parent, which the kernel hands to a worker that asks for them.

An *orphan* is a process of an attempt whose parent has ended. As a *subreaper* the daemon becomes
its parent. So one look at the daemon's own children tells whether an attempt that has just ended
left anything behind, where a look at all processes would cost each end milliseconds. It also finds
those that have disguised themselves: they can change all that they bear, but not their descent. In
return the daemon has to reap orphans. Used by the supervisor's thread alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from worker.processes.attempt_processes import is_zombie, may_belong, seen_now
from worker.processes.live_attempts import LiveAttempts
from worker.processes.marks import HELPER, mark_of, mark_seen

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
        self._children = f"/proc/{own}/task/{own}/children"
        self.adopts = adopts and Path(self._children).exists()
        """True while orphans come to this process."""
        self._spared: set[int] = set()
        self._spared_marks: set[int] = set()
        if self.adopts:
            _become_subreaper(True)

    def close(self) -> None:
        """Leave orphans to the next process that wants them."""
        if self.adopts:
            _become_subreaper(False)
            self.adopts = False

    def may_be_left(self, execute_path: str, live: LiveAttempts) -> bool:
        """Return whether an attempt whose leader has ended may have live processes.

        Every process that descends from the leader is an orphan by then, or descends from one.
        """
        if not self.adopts:
            return True
        belongs = self._belonging(execute_path, live)
        for _ in range(_ROUNDS):
            ended = False
            for pid in self._orphans(live):
                if belongs(pid):
                    if not is_zombie(pid):
                        return True
                    # What it forked just before its end may stand behind the end of the list.
                    ended = True
                    self._reap(pid)
            if not ended:
                return False
        return True

    def kill(self, execute_path: str, live: LiveAttempts) -> bool:
        """Kill the orphans of an attempt, and those that their ends make; True if some are left.

        Nothing passes between a look and a kill but the kill itself, so this also catches processes
        that fork and end faster than a look at all processes takes.
        """
        if not self.adopts:
            return False
        belongs = self._belonging(execute_path, live)
        for _ in range(_ROUNDS):
            found = False
            for pid in self._orphans(live):
                if belongs(pid):
                    found = True
                    # A child's pid is its own until it is reaped.
                    _kill(pid)
                    self._reap(pid)
            if not found:
                return False
        return True

    def spare(self, execute_path: str, live: LiveAttempts) -> None:
        """Let the orphans of an attempt be, whatever ends from now on."""
        if not self.adopts:
            return
        belongs = self._belonging(execute_path, live)
        if left := {pid for pid in self._orphans(live) if belongs(pid)}:
            self._spared |= left
            self._spared_marks.add(mark_of(execute_path))

    def reap(self, live: LiveAttempts) -> None:
        """Reap the orphans that have ended."""
        if self.adopts:
            for pid in self._orphans(live):
                if mark_seen(pid) is not None and is_zombie(pid):
                    self._reap(pid)

    def _orphans(self, live: LiveAttempts) -> list[int]:
        leaders = live.leaders()
        return [pid for pid in map(int, _content(self._children).split()) if pid not in leaders]

    def _belonging(self, execute_path: str, live: LiveAttempts) -> Callable[[int], bool]:
        """Return the question whether an orphan is of this attempt, or may be and of no other.

        A process can lower its mark, and never take it off; so an orphan whose mark is that of
        nobody here has disguised itself, and the first end of an attempt that it may be of ends it.
        """
        own = mark_of(execute_path)
        others: frozenset[int] | None = None

        def is_of_nobody_else(pid: int, mark: int) -> bool:
            nonlocal others
            if mark == HELPER or pid in self._spared or mark in self._spared_marks:
                return False
            if others is None:
                others = frozenset(map(mark_of, live.paths()))
            return mark not in others and not _names_another(pid, execute_path, live)

        def belongs(pid: int) -> bool:
            mark = mark_seen(pid)
            if mark is None or not (mark == own or is_of_nobody_else(pid, mark)):
                return False
            return may_belong(pid, execute_path)

        return belongs

    def _reap(self, pid: int) -> None:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                self._spared.discard(pid)
        except ChildProcessError:
            self._spared.discard(pid)


def _content(path: str) -> bytes:
    """Read a file of the kernel's, for each end of an attempt: `Path` takes three times as long."""
    file = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(file, 65_536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _names_another(pid: int, execute_path: str, live: LiveAttempts) -> bool:
    """Return whether an orphan carries the marker of another live attempt, or is in its session."""
    seen = seen_now(pid)
    if seen is None:
        return False
    if seen.execute_path != execute_path and seen.execute_path in live.paths():
        return True
    others = (each for each in live if each.execute_path != execute_path)
    return any(each.pid == seen.session for each in others)


def _become_subreaper(wanted: bool) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
