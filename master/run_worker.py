"""Carries out what the engine decides: the one loop that owns this master's runs.

A pass reads what has happened (reports, wanted states, timers), advances every run concerned, and
saves all their decisions in one fenced transaction. Memory is a cache: a run whose step was not
saved is forgotten, and what opens it next loads what is true. Notifications only make a pass come
early; about once a second the loop looks at everything it owns, so a lost one costs a second.

Other loops speak to it through `open`, `reported`, `look` and `forget_all`, from any thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from typing import TypeAlias, TypeVar, assert_never

from common import metrics
from common.clock import Clock
from common.errors import InvalidDefinitionError, SchedulerError, ServiceUnreachableError
from common.model.commands import BadCommandError, start_node_names
from common.model.decisions import Decision, FinishProcess, KillTask
from common.model.instances import Ownership
from common.model.states import ProcessState, TaskDependType, TaskState
from common.store.protocol import LoadedRun, RunStore, Saved, Step, TaskReport
from master.engine.advance import advance
from master.engine.events import (
    Event,
    RunOpened,
    StopRequested,
    TaskEvent,
    TaskFailed,
    TaskKilled,
    TaskSucceeded,
    TimerFired,
    WorkerLost,
)
from master.engine.load import load_run
from master.engine.run import ImpossibleError, ProcessRun
from master.graphs import GraphCache
from master.identity import Identity

log = logging.getLogger(__name__)

_Item = TypeVar("_Item")
# When a retry is due, and whose: process instance, task, attempt.
_Timer: TypeAlias = tuple[datetime, int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWorkerConfig:
    """`opened_at_once` bounds a pass, so that the first of many new runs starts early."""

    look_interval: timedelta = timedelta(seconds=1)
    opened_at_once: int = 25
    faults_until_failure: int = 3


class RunWorker:
    """Owns the runs in memory.

    `saved` is told what has to go into the registry now, `ended` that there is room for more runs.
    """

    name = "run-worker"

    def __init__(
        self,
        store: RunStore,
        *,
        identity: Identity,
        graphs: GraphCache,
        clock: Clock,
        saved: Callable[[Saved], None],
        ended: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
        config: RunWorkerConfig | None = None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._graphs = graphs
        self._clock = clock
        self._saved = saved
        self._ended = ended
        self._wake = wake
        self._config = config or RunWorkerConfig()
        # Filled by other threads; `deque.append` and `popleft` are atomic.
        self._to_open: deque[Ownership] = deque()
        self._heard: deque[TaskReport] = deque()
        self._orders: deque[str] = deque()
        # Ids of the runs in memory and of those whose step is being saved; asked, never iterated.
        self._known: set[int] = set()
        # From here on, this loop's own.
        self._runs: dict[int, ProcessRun] = {}
        self._timers: list[_Timer] = []
        # What stands in `_timers`, so that a run is not armed anew by each of its steps.
        self._armed: set[_Timer] = set()
        self._faults: dict[int, int] = {}
        self._looked_at: float | None = None
        self._active = 0

    @property
    def active(self) -> int:
        """How many runs this master has, or is about to open."""
        return self._active + len(self._to_open)

    def open(self, ownerships: Iterable[Ownership]) -> None:
        """Runs have become this master's."""
        self._to_open.extend(ownerships)
        self._wake()

    def reported(self, report: TaskReport) -> None:
        """An attempt has ended, so somebody heard; ignored if its run is not in memory."""
        if report.process_instance_id in self._known:
            self._heard.append(report)
            self._wake()

    def look(self) -> None:
        """Something may have been missed, or is wanted of a run: look at everything."""
        self._orders.append("look")
        self._wake()

    def forget_all(self) -> None:
        """This incarnation is over: its runs may be somebody else's by now."""
        self._orders.append("forget")
        self._wake()

    def run_once(self) -> timedelta:
        """Bring every run concerned up to date; answers how long nothing is due."""
        now = self._clock.now()
        events: dict[Ownership, list[Event]] = {}
        try:
            self._gather(events, now)
            self._advance(events, now)
        except BaseException:
            # What these were still to be told goes with the pass; loading them makes up for it.
            for ownership in events:
                if self._runs.pop(ownership.process_instance_id, None) is not None:
                    self._to_open.append(ownership)
            raise
        finally:
            self._known.intersection_update(self._runs)
            before, self._active = self._active, len(self._runs)
            if self._active < before:
                self._ended()
        if self._to_open or self._heard or self._orders:
            return timedelta()
        return self._rest(now)

    # What has happened

    def _gather(self, events: dict[Ownership, list[Event]], now: datetime) -> None:
        """Add the events of this pass, by run, in an order that the next pass would repeat."""
        look = self._obey()
        node = self._identity.node
        if node is None:
            self._to_open.clear()
            self._heard.clear()
            return
        monotonic = self._clock.monotonic()
        if self._looked_at is None or (
            monotonic - self._looked_at >= self._config.look_interval.total_seconds()
        ):
            look = True
        if look:
            self._compare_with_tables()
        self._open(events)
        # What was taken over may have reports that its former owner alone heard of.
        look = look or any(ownership.epoch > 1 for ownership in events)
        reports = _drain(self._heard)
        if look:
            reports += self._store.reports(node)
        for report in reports:
            run = self._runs.get(report.process_instance_id)
            if run is not None:
                events.setdefault(run.ownership, []).append(_event(report))
        if look:
            for ownership, state in self._store.wanted(node).items():
                if state is ProcessState.STOP and self._holds(ownership):
                    events.setdefault(ownership, []).append(StopRequested())
            self._looked_at = monotonic
        for run, event in self._due(now):
            events.setdefault(run.ownership, []).append(event)

    def _obey(self) -> bool:
        orders = _drain(self._orders)
        if "forget" in orders:
            self._runs.clear()
            self._timers.clear()
            self._armed.clear()
            self._faults.clear()
            self._to_open.clear()
            self._heard.clear()
            self._looked_at = None
        return "look" in orders

    def _compare_with_tables(self) -> None:
        """Open what is ours and not in memory; forget what is in memory and no longer ours."""
        node = self._identity.node
        if node is None:
            return
        owned = self._store.owned(node)
        # Copied in one go first: other threads add to it, and may do so between two comparisons.
        waiting = frozenset(tuple(self._to_open))
        for ownership in sorted(owned):
            if not self._holds(ownership) and ownership not in waiting:
                self._to_open.append(ownership)
        for run in list(self._runs.values()):
            if run.ownership not in owned:
                self._forget(run.ownership, "it is not, or no longer, this master's")

    def _open(self, events: dict[Ownership, list[Event]]) -> None:
        """Load what is to be opened."""
        wanted = [
            ownership
            for ownership in dict.fromkeys(_drain(self._to_open, self._config.opened_at_once))
            if not self._holds(ownership)
        ]
        if not wanted:
            return
        try:
            for loaded in self._store.load(wanted):
                run = self._build(loaded)
                if run is not None:
                    events[run.ownership] = [RunOpened()]
                    self._runs[run.ownership.process_instance_id] = run
                    self._known.add(run.ownership.process_instance_id)
        except ServiceUnreachableError:
            self._to_open.extend(wanted)
            raise

    def _build(self, loaded: LoadedRun) -> ProcessRun | None:
        process = loaded.process
        if process.state.is_terminal:
            return None
        try:
            graph = self._graphs.graph(process.process_instance_json)
            return load_run(
                loaded.ownership,
                process,
                loaded.tasks,
                nodes=graph.nodes,
                dag=self._graphs.selection(
                    process.process_instance_json,
                    start_node_names(process.command_param),
                    TaskDependType(process.task_depend_type),
                ),
            )
        except (InvalidDefinitionError, ImpossibleError, BadCommandError) as error:
            # Nothing that this or another master could do would make these rows a run.
            self._fail(loaded.ownership, str(error))
        except Exception as error:  # noqa: BLE001  # One run's fault must not end the others.
            self._suspect(loaded.ownership, error)
        return None

    def _due(self, now: datetime) -> list[tuple[ProcessRun, TimerFired]]:
        due: list[tuple[ProcessRun, TimerFired]] = []
        while self._timers and self._timers[0][0] <= now:
            timer = heappop(self._timers)
            self._armed.discard(timer)
            _, process_instance_id, name, attempt = timer
            run = self._runs.get(process_instance_id)
            if run is not None and name in run.tasks:
                due.append((run, TimerFired(name=name, attempt=attempt)))
        return due

    # What follows from it

    def _advance(self, events: dict[Ownership, list[Event]], now: datetime) -> None:
        steps: list[Step] = []
        stepped: list[ProcessRun] = []
        for ownership in list(events):
            happened = events.pop(ownership)
            # Out of memory until the step is saved: on any error the next event loads what is true.
            run = self._runs.pop(ownership.process_instance_id, None)
            if run is None:
                continue
            try:
                decisions = tuple(
                    decision for event in happened for decision in advance(run, event, now=now)
                )
            except Exception as error:  # noqa: BLE001  # One run's fault must not end the others.
                self._suspect(ownership, error)
                continue
            if not decisions:
                self._keep(run)
                continue
            steps.append(Step(ownership=ownership, decisions=decisions, at=now))
            stepped.append(run)
        if steps:
            self._save(steps, stepped)

    def _save(self, steps: list[Step], stepped: list[ProcessRun]) -> None:
        try:
            saved = self._store.save(steps)
        except ServiceUnreachableError:
            # Whether it was written is unknown; look at the tables as soon as they answer.
            self._lose(stepped)
            raise
        except SchedulerError as error:
            if len(steps) == 1:
                self._lose(stepped)
                self._suspect(steps[0].ownership, error)
                return
            # One of them does not fit its rows; apart, the others are not held up by it.
            log.warning("steps were refused and are saved one by one", extra={"cause": str(error)})
            for step, run in zip(steps, stepped, strict=True):
                self._save([step], [run])
            return
        for run in stepped:
            if run.ownership in saved.lost:
                self._faults.pop(run.ownership.process_instance_id, None)
                metrics.fenced_writes.inc()
                log.warning(
                    "run was lost to another master",
                    extra={"process_instance_id": run.ownership.process_instance_id},
                )
            elif run.is_over:
                self._faults.pop(run.ownership.process_instance_id, None)
                metrics.process_instances.labels(state=run.state.name).inc()
                log.info(
                    "process instance ended",
                    extra={
                        "process_instance_id": run.ownership.process_instance_id,
                        "state": run.state.name,
                    },
                )
            else:
                # Only faults in a row tell of a run that can't go on.
                self._faults.pop(run.ownership.process_instance_id, None)
                self._keep(run)
        self._saved(saved)

    def _lose(self, stepped: list[ProcessRun]) -> None:
        """Leave runs whose step may not be written out of memory, to be loaded again."""
        self._to_open.extend(run.ownership for run in stepped)

    def _suspect(self, ownership: Ownership, error: Exception) -> None:
        """A run met what can't be. Load it afresh; if that does not help, end it and say why."""
        faults = self._faults.get(ownership.process_instance_id, 0) + 1
        self._faults[ownership.process_instance_id] = faults
        log.error(
            "run met what can't be",
            extra={
                "process_instance_id": ownership.process_instance_id,
                "cause": str(error),
                "faults": faults,
            },
        )
        if faults >= self._config.faults_until_failure:
            self._fail(ownership, str(error))

    def _fail(self, ownership: Ownership, reason: str) -> None:
        """End a run that can't go on, so that even this one ends, and nothing of it stays alive."""
        decisions: list[Decision] = [
            KillTask(name=task.name, attempt=task.attempt)
            for loaded in self._store.load([ownership])
            for task in loaded.tasks
            if not task.state.is_finished
        ]
        decisions.append(FinishProcess(state=ProcessState.FAILURE, reason=reason))
        step = Step(ownership=ownership, decisions=tuple(decisions), at=self._clock.now())
        try:
            saved = self._store.save([step])
        except ServiceUnreachableError:
            raise
        except SchedulerError as error:
            log.error(  # noqa: TRY400  # The text of the error is the whole story.
                "process instance can't go on and can't be ended either",
                extra={
                    "process_instance_id": ownership.process_instance_id,
                    "reason": reason,
                    "cause": str(error),
                },
            )
            return
        self._saved(saved)
        self._faults.pop(ownership.process_instance_id, None)
        if ownership in saved.lost:
            return
        metrics.process_instances.labels(state=ProcessState.FAILURE.name).inc()
        log.error(
            "process instance can't go on and was ended",
            extra={"process_instance_id": ownership.process_instance_id, "reason": reason},
        )

    def _keep(self, run: ProcessRun) -> None:
        self._runs[run.ownership.process_instance_id] = run
        due = run.next_retry()
        if due is not None:
            at, name = due
            timer = (at, run.ownership.process_instance_id, name, run.tasks[name].attempt)
            if timer not in self._armed:
                self._armed.add(timer)
                heappush(self._timers, timer)

    def _forget(self, ownership: Ownership, why: str) -> None:
        if self._runs.pop(ownership.process_instance_id, None) is not None:
            log.warning(
                "run was forgotten",
                extra={"process_instance_id": ownership.process_instance_id, "cause": why},
            )

    def _holds(self, ownership: Ownership) -> bool:
        run = self._runs.get(ownership.process_instance_id)
        return run is not None and run.ownership == ownership

    def _rest(self, now: datetime) -> timedelta:
        if self._timers:
            until = max(self._timers[0][0] - now, timedelta())
            return min(until, self._config.look_interval)
        return self._config.look_interval


def _event(report: TaskReport) -> TaskEvent:
    name, attempt, at = report.name, report.attempt, report.end_time
    match report.state:
        case TaskState.SUCCESS:
            return TaskSucceeded(name=name, attempt=attempt, at=at)
        case TaskState.FAILURE:
            return TaskFailed(name=name, attempt=attempt, at=at)
        case TaskState.NEED_FAULT_TOLERANCE:
            return WorkerLost(name=name, attempt=attempt, at=at)
        case TaskState.KILL | TaskState.PAUSE:
            return TaskKilled(name=name, attempt=attempt, at=at)
        case TaskState.SUBMITTED | TaskState.RUNNING:
            raise ImpossibleError(f"{report} reports an attempt that has not ended")
        case _:
            assert_never(report.state)


def _drain(queue: deque[_Item], most: int | None = None) -> list[_Item]:
    return [queue.popleft() for _ in islice(range(len(queue)), most)]
