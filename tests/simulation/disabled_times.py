"""The times at which a simulated daemon could not act, and the failovers that this excuses.

A daemon that is dead, frozen or asleep can end no process, so an attempt of its own may run on
beside its successor. For every other daemon that is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from common.model.leases import GRACE, LEASE
from tests.memory.store import MemoryDatabase, TaskRecord
from tests.simulation.computer import Computer
from tests.simulation.daemons import Daemon
from tests.simulation.virtual_clock import VirtualClock

_OPEN = timedelta.max


class DisabledTimes:
    """Spans of time by daemon; one that begins with a death is open until the next one joins."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._spans: dict[str, list[tuple[timedelta, timedelta]]] = {}

    def note(self, name: str, time: timedelta) -> None:
        """Note that a daemon can't act for this time, whatever it should do."""
        now = self._clock.elapsed
        self._spans.setdefault(name, []).append((now, now + time))

    def note_death(self, name: str) -> None:
        """Note that a daemon can't act until another has started in its place."""
        self._spans.setdefault(name, []).append((self._clock.elapsed, _OPEN))

    def note_return(self, daemon: Daemon) -> None:
        """Note that a restarted daemon knows the attempts that it has left, if it does by now."""
        spans = self._spans.get(daemon.name, [])
        if any(end == _OPEN for _, end in spans) and daemon.joined():
            now = self._clock.elapsed
            spans[:] = [(at, now if end == _OPEN else end) for at, end in spans]

    def could_act(self, name: str, *, for_at_least: timedelta) -> bool:
        """Return True if this daemon could act all the time for so long."""
        since = self._clock.elapsed - for_at_least
        return all(end < since for _, end in self._spans.get(name, ()))


class FailoverCheck:
    """Finds attempts that are failed over while they run, by a worker that could end them."""

    def __init__(
        self, database: MemoryDatabase, computers: Mapping[str, Computer], disabled: DisabledTimes
    ) -> None:
        self._database = database
        self._computers = computers
        self._disabled = disabled
        self._checked = 0

    def findings(self, now: VirtualClock) -> Iterator[str]:
        """Yield what is wrong; to be asked right after the commit of each failover."""
        for change in self._database.changes[self._checked :]:
            old = change.old
            if change.transaction != "fail_tasks_over" or not isinstance(old, TaskRecord):
                continue
            computer = self._computers[old.host or ""]
            process = computer.processes.get(old.id)
            runs = process is not None and process.ends > now.true_now()
            if runs and self._disabled.could_act(computer.address, for_at_least=GRACE + LEASE):
                yield f"attempt {old.id} still runs on {computer.address} when it is failed over"
        self._checked = len(self._database.changes)
