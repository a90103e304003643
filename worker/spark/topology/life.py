"""Decides the next step of a topology's task: what people want, how it stands, and the time.

Pure. A step is carried out by the task, which then tells how it stands now; whatever was wanted
meanwhile is decided about next. So an order that is repeated, or overtaken by another one, does no
harm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from common.model.topologies import RunState, Wanted

LONGEST_REST_SECONDS: Final = 60.0


class Step(Enum):
    """The next act of the task."""

    NOTHING = "nothing"
    SWITCH_ON = "switch on"
    """Have the spouts emit."""
    SWITCH_OFF = "switch off"
    """Have the spouts stand still behind the batch that runs."""
    START = "start"
    """Start the queries, from their checkpoints."""
    RESHAPE = "reshape"
    """Stop the queries, and start them with other numbers of cores, executors or tasks."""
    RENEW = "renew"
    """Stop the queries, and start them with the newest version of the code, if it can take over."""
    END = "end"
    """Stop the queries, and end with success."""
    GIVE_UP = "give up"
    """End with the error of the batch that has failed too often."""


_UNCOUNTED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The standing of the task. Times are of a clock that only goes forward, in seconds.

    `applied`: the orders that have been carried out. `stale`: there is a newer version of the code.
    `emitting`: the spouts may emit. `busy`: a batch runs, or is to be run. `drain_since`: since
    when the spouts are off for a kill or a rebalance. `failures`: batches that failed in a row, the
    last at `failed_at`; until they are started again no queries run. `late`: starts of Python that
    took too long since the last batch that was committed after a failure.
    """

    applied: Wanted
    running: bool = False
    emitting: bool = True
    busy: bool = False
    drain_since: float | None = None
    failures: int = 0
    failed_at: float | None = None
    stale: bool = False
    late: int = 0

    def failed(self, now: float, *, is_late: bool) -> Standing:
        """Return the standing after a failure.

        On a busy computer Python starts too late for Spark (`is_late`), although no batch is wrong.
        The first ten of these failures do not count.
        """
        late = self.late + is_late
        failures = self.failures + (not is_late or late > _UNCOUNTED)
        return replace(self, failures=failures, late=late, failed_at=now, busy=False)

    @property
    def state(self) -> RunState:
        """The state for a report."""
        if self.drain_since is not None:
            return RunState.DRAINING
        if self.failed_at is not None:
            return RunState.WAITING
        if not self.running:
            return RunState.STARTING
        return RunState.RUNNING if self.emitting else RunState.PAUSED


def next_step(standing: Standing, wanted: Wanted, now: float, *, most_failures: int) -> Step:
    """Return what is to be done now."""
    if standing.failures > most_failures and not wanted.killed:
        return Step.GIVE_UP
    drains = wanted.killed or wanted.rebalanced > standing.applied.rebalanced
    if drains:
        return _draining(standing, wanted, now)
    if not standing.running:
        return _starting(standing, now)
    if standing.stale:
        if standing.emitting:
            return Step.SWITCH_OFF
        return Step.NOTHING if standing.busy else Step.RENEW
    if wanted.active is not standing.emitting:
        return Step.SWITCH_ON if wanted.active else Step.SWITCH_OFF
    return Step.NOTHING


def _draining(standing: Standing, wanted: Wanted, now: float) -> Step:
    """Return the step on the way to an end or to another shape."""
    if standing.drain_since is None or standing.emitting:
        return Step.SWITCH_OFF
    if not standing.running and not wanted.killed:
        # A batch that was begun has to be done by the tasks that it was begun by.
        return _starting(standing, now)
    if now < standing.drain_since + wanted.wait_seconds:
        return Step.NOTHING
    if wanted.killed:
        # Whoever kills has said how long to wait, and needs no good batch any more.
        return Step.END
    return Step.NOTHING if standing.busy else Step.RESHAPE


def _starting(standing: Standing, now: float) -> Step:
    """Return the step to queries that run: at once, or a while after a batch that has failed."""
    if standing.failed_at is None:
        return Step.START
    if standing.stale:
        # Whoever submits another version of the code may mean to have this batch done.
        return Step.RENEW
    is_over = now >= standing.failed_at + rest_seconds(standing.failures)
    return Step.START if is_over else Step.NOTHING


def rest_seconds(failures: int) -> float:
    """Return how long to rest after so many failures in a row."""
    return min(LONGEST_REST_SECONDS, 2.0 ** min(failures - 1, 10)) if failures else 0.0


def switched_off(standing: Standing, wanted: Wanted, now: float) -> Standing:
    """Return how a task stands that has switched its spouts off."""
    drains = wanted.killed or wanted.rebalanced > standing.applied.rebalanced
    since = standing.drain_since if standing.drain_since is not None else now
    return replace(standing, emitting=False, drain_since=since if drains else None)
