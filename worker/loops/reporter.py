"""Writes into the tables how attempts ended, and which process runs each long-lived one.

Ends are collected from whatever thread they come on and written together: while one transaction is
under way, the next one fills. Where many attempts run and ends come fast, they *gather* a moment
longer, since to write ten takes hardly longer than to write one; a lone one never waits. An end is
kept until the tables have answered, however long they are away. One that they don't accept is
dropped, because the attempt has another holder by now. One that the tables *refuse* is written
without its facts, or else as a failure that says so, and must not keep the others from being
written. Ends are written as the incarnation that holds this worker's attempts at that moment, so
that one from before a take-over is not lost; while the rows change hands, ends wait.
No threads and no time of its own: a service or a simulator calls `run_once`.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from common.clock import Clock
from common.errors import SchedulerError, ServiceUnreachableError
from common.model.cluster import Node
from common.model.states import TaskState
from common.runtime import metrics
from common.store.worker.ports import AttemptEnd, TaskStore
from worker.loops.gathering import gathering_seconds

log = logging.getLogger(__name__)

_UNSTORED = "its end could not be stored as it was reported"
_IDLE = timedelta(seconds=5)
_BATCH = 500
_STORM = 8
"""So many attempts that still run make it worth to wait for the ends of others."""
_GATHERED_AT_MOST = 50


@dataclass(frozen=True, slots=True)
class _Start:
    task_instance_id: int
    pid: int
    start_time: float


class Reporter:
    """Takes ends with `ended` and starts with `started`, from any thread."""

    name = "report"

    def __init__(
        self,
        *,
        store: TaskStore,
        node: Callable[[], Node | None],
        clock: Clock,
        running: Callable[[], int] = lambda: 0,
        waiting: Callable[[], int] = lambda: 0,
        wake: Callable[[], None] = lambda: None,
        reported: Callable[[Sequence[AttemptEnd]], None] = lambda _: None,
    ) -> None:
        """`wake` asks for a `run_once`; `reported` is told of ends that need not be kept.

        `running` counts the attempts whose end has not come, `waiting` those of them that wait for
        the start of others.
        """
        self._store = store
        self._node = node
        self._clock = clock
        self._running = running
        self._waiting = waiting
        self._wake = wake
        self._reported = reported
        self._arrived: deque[AttemptEnd | _Start] = deque()
        self._ends: dict[int, AttemptEnd] = {}
        # Refused in every form, which is no fault of theirs; tried again by each pass.
        self._refused: dict[int, AttemptEnd] = {}
        self._starts: dict[int, _Start] = {}
        self._written_at = -math.inf
        # While ends gather, a further one need not wake this loop, which wakes by itself.
        self._is_gathering = False

    def ended(self, end: AttemptEnd) -> None:
        """Take the end of an attempt."""
        self._arrived.append(end)
        if not self._is_gathering:
            self._wake()

    def started(self, task_instance_id: int, pid: int, start_time: float) -> None:
        """An attempt runs as this process, and has done so for a little while."""
        self._arrived.append(_Start(task_instance_id, pid, start_time))
        self._wake()

    def unreported(self) -> frozenset[int]:
        """Attempts whose end is known here and not yet in the tables."""
        # Called from another thread: this only copies, and each copy is made in one go.
        arrived = tuple(self._arrived)
        kept = frozenset(self._ends) | frozenset(self._refused)
        return kept.union(e.task_instance_id for e in arrived if isinstance(e, AttemptEnd))

    def run_once(self) -> timedelta:
        """Write what has come in; how long to rest.

        `ServiceUnreachableError` passes through, with everything kept that was not surely written.
        """
        # Before they are taken: an end that comes after that wakes this loop.
        self._is_gathering = False
        self._ends = self._refused | self._ends
        self._refused = {}
        self._take_arrived()
        node = self._node()
        if node is None:
            return _IDLE  # The next incarnation wakes this loop.
        gathering = self._gathering()
        if gathering > timedelta():
            self._is_gathering = True
            return gathering
        return self._write(node)

    def write_all(self) -> None:
        """Write what has come in without waiting for more, at the end of the daemon."""
        self._written_at = -math.inf
        self.run_once()

    def _gathering(self) -> timedelta:
        """Return the time for which ends gather before they are written."""
        if not 0 < len(self._ends) < _GATHERED_AT_MOST or self._running() < _STORM:
            return timedelta()
        passed = self._clock.monotonic() - self._written_at
        return timedelta(seconds=max(0.0, gathering_seconds(self._waiting()) - passed))

    def _write(self, node: Node) -> timedelta:
        while self._ends:
            self._write_ends(node)
            if self._node() != node:
                return timedelta()
            self._written_at = self._clock.monotonic()
        if self._starts:
            self._write_starts(node)
        return timedelta() if self._arrived else _IDLE

    def _take_arrived(self) -> None:
        while self._arrived:
            match self._arrived.popleft():
                case AttemptEnd() as end:
                    self._ends[end.task_instance_id] = end
                    self._starts.pop(end.task_instance_id, None)
                case _Start() as started:
                    self._starts[started.task_instance_id] = started

    def _write_ends(self, node: Node) -> None:
        ends = list(self._ends.values())[:_BATCH]
        try:
            accepted = self._store.report(node, ends)
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception("reports were refused", extra={"count": len(ends)})
            for end in ends:
                self._write_alone(node, end)
            return
        self._settle(node, ends, accepted)

    def _write_alone(self, node: Node, end: AttemptEnd) -> None:
        """Write an end in the fullest form that the tables take."""
        cause = ""
        for form in _forms(end):
            reason = form.reason if form is end else f"{_UNSTORED}: {cause}"
            try:
                accepted = self._store.report(node, [replace(form, reason=reason)])
            except ServiceUnreachableError:
                raise
            except Exception as error:
                # The text of any other error may quote the values, which are the task's own.
                cause = str(error) if isinstance(error, SchedulerError) else type(error).__name__
                log.exception(
                    "report was refused", extra={"task_instance_id": end.task_instance_id}
                )
                continue
            self._settle(node, [end], accepted)
            return
        self._refused[end.task_instance_id] = self._ends.pop(end.task_instance_id)

    def _settle(self, node: Node, ends: Sequence[AttemptEnd], accepted: Collection[int]) -> None:
        """Forget ends that are in the tables, or that another holder has to report.

        One that was not accepted while the rows changed hands is kept for the next incarnation.
        """
        # Asked after the answer: if nothing has changed by now, nothing had when it was given.
        is_sure = self._node() == node
        settled = [end for end in ends if is_sure or end.task_instance_id in accepted]
        for end in settled:
            del self._ends[end.task_instance_id]
            if end.task_instance_id in accepted:
                if end.reported_failure is not None:
                    metrics.task_failures.labels(reason=end.reported_failure.value).inc()
            else:
                log.warning(
                    "report was not accepted",
                    extra={"task_instance_id": end.task_instance_id, "state": end.state.name},
                )
        self._reported(settled)

    def _write_starts(self, node: Node) -> None:
        starts = list(self._starts.values())
        try:
            self._store.started(node, _processes(starts))
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception("processes of attempts were refused", extra={"count": len(starts)})
            for each in starts:
                self._write_start_alone(node, each)
        for each in starts:
            del self._starts[each.task_instance_id]

    def _write_start_alone(self, node: Node, start: _Start) -> None:
        """Write the process of one attempt; without it a restarted daemon can't adopt that one."""
        try:
            self._store.started(node, _processes([start]))
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception(
                "process of an attempt was refused",
                extra={"task_instance_id": start.task_instance_id},
            )


def _forms(end: AttemptEnd) -> Iterator[AttemptEnd]:
    """Yield the end as it is, without the facts for people, and as a bare failure."""
    yield end
    yield replace(end, facts=None, quality=())
    yield AttemptEnd(
        task_instance_id=end.task_instance_id,
        # A success whose outputs are lost would let tasks run without them.
        state=TaskState.FAILURE if end.state is TaskState.SUCCESS else end.state,
        end_time=end.end_time,
        failure=end.reported_failure,
    )


def _processes(starts: Sequence[_Start]) -> dict[int, tuple[int, float]]:
    return {each.task_instance_id: (each.pid, each.start_time) for each in starts}
