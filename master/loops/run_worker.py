"""Carries out the engine's decisions: the one loop that owns this master's runs.

A pass collects events (reports, wanted states, timers), advances every run concerned, and saves all
decisions in one fenced transaction. Memory is a cache: a run whose step was not saved is forgotten,
and loaded from the tables when it is opened next. Notifications only wake the loop early; about
once a second it compares all it owns with the tables, so a lost one costs a second. A forged
notification has no effect on the tables (`master.loops.notified`).

Other loops call `open`, `begun`, `reported`, `check_tables` and `forget_all`, from any thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import TypeAlias
from zoneinfo import ZoneInfo

from common.clock import Clock
from common.errors import (
    BadCommandError,
    InvalidDefinitionError,
    SchedulerError,
    ServiceUnreachableError,
)
from common.model.cluster import Node
from common.model.decisions import Decision, FinishProcess, KillTask
from common.model.instances import Ownership, TaskReport
from common.model.states import ProcessState
from common.runtime import metrics
from common.store.master.ports import (
    PAGE,
    Intent,
    LoadedRun,
    RunStore,
    Saved,
    Step,
    UnreadableRun,
)
from common.zones import UnknownZoneError
from master.engine.advance import advance
from master.engine.events import (
    DeadlinePassed,
    Event,
    PauseRequested,
    ProcessEvent,
    ProcessTimedOut,
    RunOpened,
    StopRequested,
    TimerFired,
)
from master.engine.reports import event_of
from master.engine.run import ProcessRun
from master.engine.task_run import ImpossibleError
from master.graphs import GraphCache
from master.identity import Identity
from master.loops.notified import NotifiedReports, drain
from master.loops.opening import FirstSteps, RunBuilder, under_way
from master.loops.room import ids_of, ownerships_of, takes_room

log = logging.getLogger(__name__)

# A due time with its process instance, task and attempt. Attempt 0 of no task is the deadline of a
# stop of the run itself.
_Timer: TypeAlias = tuple[datetime, int, str, int]
_DEADLINE = ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWorkerConfig:
    """`opened_at_once` bounds a pass, so that the first of many new runs starts early.

    `exec_task_num`: the most tasks of a run that workers may have at the same time; 0 is no limit.
    `stop_deadline`: the time after its request by which a stop is over, whatever workers do.
    `page`: the most rows of a kind that a pass reads; the next pass reads the next.
    """

    check_interval: timedelta = timedelta(seconds=1)
    opened_at_once: int = 25
    page: int = PAGE
    faults_until_failure: int = 3
    stop_deadline: timedelta = timedelta(seconds=13)
    exec_task_num: int = 0
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))


class RunWorker:
    """Owns the runs in memory.

    Callbacks: `saved` with the registry entries that a save needs, `ended` once there is room for
    more runs.
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
        self._clock = clock
        self._saved = saved
        self._ended = ended
        self._wake = wake
        self._config = config or RunWorkerConfig()
        self._builder = RunBuilder(
            graphs=graphs,
            zone=self._config.zone,
            task_limit=self._config.exec_task_num,
        )
        # Filled by other threads; `deque.append` and `popleft` are atomic.
        self._to_open: deque[Ownership] = deque()
        self._begun: deque[ProcessRun] = deque()
        self._notified = NotifiedReports()
        self._orders: deque[str] = deque()
        # Ids of the runs in memory and of those whose step is being saved; never iterated.
        self._known: set[int] = set()
        # All below belongs to this loop's thread alone.
        self._runs: dict[int, ProcessRun] = {}
        self._timers: list[_Timer] = []
        # The members of `_timers`, so that a step does not arm the same timer again.
        self._armed: set[_Timer] = set()
        self._faults: dict[int, int] = {}
        self._checked_at: float | None = None
        # The last run and the last report of the pages that were read; 0 after the last page.
        self._compared = self._reported = 0
        # Ids of the runs that occupy room (few; others may be many), true for a complement's.
        self._occupying: dict[int, bool] = {}
        # The runs that this pass has taken in, which may not be in `_occupying` yet.
        self._taken_in: tuple[Ownership, ...] = ()
        self._active = 0
        self._active_live = 0
        self._opening = 0

    @property
    def active(self) -> int:
        """The number of runs that occupy room: with work under way, or about to be opened.

        A run that only waits for other runs, for a child or an upstream, occupies none: otherwise
        such runs could fill the master, and the awaited ones would never begin (traps T36d, T67).
        """
        return self._active + self._opening + len(self._to_open) + len(self._begun)

    @property
    def active_live(self) -> int:
        """The number of these that are no complement's, which live runs don't compete with.

        A run that is about to be opened counts: its kind is not known yet.
        """
        return self._active_live + self._opening + len(self._to_open) + len(self._begun)

    def occupants(self) -> dict[int, bool]:
        """Return the ids of the runs that `active` counts; True for those of complements.

        A run that is about to be opened counts as one of no complement.
        """
        # In the order in which a run passes through them, since this may be another thread.
        arriving = (*tuple(self._to_open), *ownerships_of(self._begun), *self._taken_in)
        return dict.fromkeys(ids_of(arriving), False) | self._occupying

    def open(self, ownerships: Iterable[Ownership]) -> None:
        """Take over runs that have become this master's."""
        self._to_open.extend(ownerships)
        self._wake()

    def first_steps(self, *, now: datetime) -> FirstSteps:
        """Return the decider of the first steps of new runs, which `begun` then takes over."""
        return FirstSteps(self._builder, now=now)

    def begun(self, runs: Iterable[ProcessRun], saved: Saved) -> None:
        """Take over new runs whose first step is written, and publish what comes of that."""
        for run in runs:
            self._begun.append(run)
            self._known.add(run.ownership.process_instance_id)
        self._saved(saved)
        self._wake()

    def reported(self, report: TaskReport) -> None:
        """Take a notified report of an ended attempt; ignored if its run is not in memory."""
        if report.process_instance_id not in self._known and report.state.is_finished:
            return
        if self._notified.add(report):
            self._wake()
        else:
            self.check_tables()

    def check_tables(self) -> None:
        """Compare everything with the tables: a report may be lost, or an intent written."""
        self._orders.append("check")
        self._wake()

    def forget_all(self) -> None:
        """Drop all runs: this incarnation is over, and another master may own them by now."""
        self._orders.append("forget")
        self._wake()

    def run_once(self) -> timedelta:
        """Advance every run with an event; return the time until something is due."""
        now = self._clock.now()
        before, live_before = self.active, self.active_live
        events: dict[Ownership, list[Event]] = {}
        try:
            self._gather(events, now)
            self._advance(events, now)
        except BaseException:
            # Their events are lost with the pass; loading the runs makes up for it.
            for ownership in events:
                if self._runs.pop(ownership.process_instance_id, None) is not None:
                    self._to_open.append(ownership)
            raise
        finally:
            self._known.intersection_update(self._runs)
            # Copied in one go: the command loop appends to them meanwhile, and then adds their ids.
            self._known.update(ids_of(ownerships_of(self._begun)))
            gone = [run_id for run_id in self._occupying if run_id not in self._runs]
            for run_id in gone:
                del self._occupying[run_id]
            self._active = len(self._occupying)
            self._active_live = self._active - sum(self._occupying.values())
            self._opening = 0
            self._taken_in = ()
            if self.active < before or self.active_live < live_before:
                self._ended()
        if self._to_open or self._begun or self._notified or self._orders or self._reported:
            return timedelta()
        return self._rest(now)

    # Collecting events

    def _gather(self, events: dict[Ownership, list[Event]], now: datetime) -> None:
        """Add the events of this pass, by run, in a reproducible order."""
        check = self._take_orders()
        node = self._identity.node
        if node is None:
            self._to_open.clear()
            self._begun.clear()
            self._notified.forget()
            return
        self._take_over()
        monotonic = self._clock.monotonic()
        if self._checked_at is None or (
            monotonic - self._checked_at >= self._config.check_interval.total_seconds()
        ):
            check = True
        if self._is_deadline_due(now):
            # An attempt must not be abandoned that has ended in its row by now.
            check = True
        if check:
            self._compare_with_tables()
        self._open(events)
        # Runs taken over may have reports that only the former owner was notified of.
        check = check or any(ownership.epoch > 1 for ownership in events)
        # Without a run in memory there is none that a report or an intent could reach.
        asks = check and bool(self._runs)
        hints, to_read = self._notified.take(self._runs, most=self._config.page)
        self._notified.loaded(each.process_instance_id for each in events)
        for report in (*hints, *self._reports(node, to_read, check=asks)):
            run = self._runs.get(report.process_instance_id)
            if run is not None:
                events.setdefault(run.ownership, []).append(event_of(report))
        if asks:
            for ownership, intent in self._store.wanted(node).items():
                event = self._wanted(intent, now)
                if event is not None and self._has(ownership):
                    # First of all: an opening or a report may end the run, as paused for example.
                    events.setdefault(ownership, []).insert(0, event)
            self._store.propagate_intents(node)
        if check:
            self._checked_at = monotonic
        for run, due in self._due(now):
            events.setdefault(run.ownership, []).append(due)

    def _reports(self, node: Node, to_read: list[int], *, check: bool) -> list[TaskReport]:
        """Read the ends of these attempts and, during a check, the next page of unsettled ends."""
        reports = list(self._store.reports(node, only=to_read)) if to_read else []
        if check or self._reported:
            page = self._store.reports(node, after=self._reported, limit=self._config.page)
            is_last = len(page) < self._config.page
            self._reported = 0 if is_last else max(one.task_instance_id for one in page)
            reports += page
        return reports

    def _wanted(self, intent: Intent, now: datetime) -> ProcessEvent | None:
        deadline = intent.at + self._config.stop_deadline
        if deadline <= now:
            # No master was alive then, or it was dated by hand: the workers get their time.
            deadline = now + self._config.stop_deadline
        match intent.state:
            case ProcessState.STOP:
                return StopRequested(deadline=deadline)
            case ProcessState.PAUSE:
                return PauseRequested()
            case ProcessState.FAILURE:
                return ProcessTimedOut(deadline=deadline)
            case _:
                return None

    def _take_orders(self) -> bool:
        orders = drain(self._orders)
        if "forget" in orders:
            self._runs.clear()
            self._timers.clear()
            self._armed.clear()
            self._faults.clear()
            self._to_open.clear()
            self._begun.clear()
            self._notified.forget()
            self._checked_at = None
            self._compared = self._reported = 0
        return "check" in orders

    def _take_over(self) -> None:
        """Take in the runs that have begun, unless a comparison with the tables was faster."""
        self._opening = len(self._begun)
        self._taken_in = ownerships_of(self._begun)
        for run in drain(self._begun):
            if run.ownership.process_instance_id not in self._runs:
                self._keep(run)

    def _compare_with_tables(self) -> None:
        """Open own runs that are not in memory; forget those in memory that are no longer own."""
        node = self._identity.node
        if node is None:
            return
        after, limit = self._compared, self._config.page
        owned = self._store.owned(node, after=after, limit=limit)
        is_last = len(owned) < limit
        self._compared = 0 if is_last else max(each.process_instance_id for each in owned)
        # Copied in one go first: other threads append to it meanwhile.
        waiting = frozenset(tuple(self._to_open))
        for ownership in sorted(owned):
            if not self._has(ownership) and ownership not in waiting:
                self._to_open.append(ownership)
        if not is_last and self._to_open:
            # So many were unknown, as after a start, that the next page is compared at once.
            self._orders.append("check")
        for run_id, run in list(self._runs.items()):
            is_on_page = after < run_id and (is_last or run_id <= self._compared)
            if is_on_page and run.ownership not in owned:
                self._forget(run.ownership, "it is not, or no longer, this master's")

    def _open(self, events: dict[Ownership, list[Event]]) -> None:
        """Load the runs that are to be opened."""
        # Before they are taken: the command loop counts on another thread, and may count one twice
        # but none too few.
        self._opening += min(len(self._to_open), self._config.opened_at_once)
        self._taken_in += tuple(self._to_open)
        wanted = [
            ownership
            for ownership in dict.fromkeys(drain(self._to_open, self._config.opened_at_once))
            if not self._has(ownership)
        ]
        if not wanted:
            return
        try:
            for loaded in self._store.load(wanted):
                if isinstance(loaded, UnreadableRun):
                    self._fail(loaded.ownership, loaded.reason)
                    continue
                run = self._build(loaded)
                if run is not None:
                    events[run.ownership] = [RunOpened()]
                    self._runs[run.ownership.process_instance_id] = run
                    self._known.add(run.ownership.process_instance_id)
        except ServiceUnreachableError:
            self._to_open.extend(wanted)
            raise

    def _build(self, loaded: LoadedRun) -> ProcessRun | None:
        if loaded.process.state.is_terminal:
            return None
        try:
            return self._builder.build(loaded)
        except UnknownZoneError as error:
            self._fail(loaded.ownership, f"the run's time zone: {error}")
        except (InvalidDefinitionError, ImpossibleError, BadCommandError) as error:
            # No master can make a run of these rows.
            self._fail(loaded.ownership, str(error))
        except Exception as error:  # noqa: BLE001  # One run's fault must not end the others.
            self._suspect(loaded.ownership, error)
        return None

    def _due(self, now: datetime) -> list[tuple[ProcessRun, TimerFired | DeadlinePassed]]:
        due: list[tuple[ProcessRun, TimerFired | DeadlinePassed]] = []
        while self._timers and self._timers[0][0] <= now:
            timer = heappop(self._timers)
            self._armed.discard(timer)
            _, process_instance_id, name, attempt = timer
            run = self._runs.get(process_instance_id)
            if run is None:
                continue
            if (name, attempt) == _DEADLINE:
                # The timer may be of an earlier stop, which a recovery has undone.
                if run.deadline is not None and run.deadline <= now:
                    due.append((run, DeadlinePassed()))
            elif name in run.tasks:
                due.append((run, TimerFired(name=name, attempt=attempt)))
        return due

    def _is_deadline_due(self, now: datetime) -> bool:
        # The first of a heap is the smallest: mostly it alone shows that nothing is due.
        return (
            bool(self._timers)
            and self._timers[0][0] <= now
            and any(
                at <= now and (name, attempt) == _DEADLINE for at, _, name, attempt in self._timers
            )
        )

    # Advancing and saving

    def _advance(self, events: dict[Ownership, list[Event]], now: datetime) -> None:
        steps: list[Step] = []
        stepped: list[ProcessRun] = []
        for ownership in list(events):
            happened = events.pop(ownership)
            # Out of memory until the step is saved: on any error the next event loads it again.
            run = self._runs.pop(ownership.process_instance_id, None)
            if run is None:
                continue
            try:
                decisions = tuple(
                    decision for event in happened for decision in advance(run, event, now=now)
                )
            except Exception as error:  # noqa: BLE001  # One run's fault must not end the others.
                if not self._doubt(run):
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
            # The outcome of the write is unknown; read the tables as soon as they answer.
            self._reopen(stepped)
            raise
        except SchedulerError as error:
            if len(steps) == 1:
                if self._doubt(stepped[0]):
                    return
                # Loaded at once it may fit; one that never does is left to the next comparison.
                if self._suspect(steps[0].ownership, error):
                    self._reopen(stepped)
                return
            # One of them does not fit its rows; saved apart, it does not block the others.
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
            elif run.ownership in saved.overtaken:
                self._reopen([run])
                self.check_tables()
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
                # Only faults in a row mean that a run can't go on.
                self._faults.pop(run.ownership.process_instance_id, None)
                self._keep(run)
        self._publish(saved)

    def _publish(self, saved: Saved) -> None:
        self._saved(saved)
        node = self._identity.node
        if saved.intents and node is not None:
            # Not in the save: it locks the rows of the children, whose owners lock ours.
            self._store.propagate_intents(node)

    def _reopen(self, stepped: list[ProcessRun]) -> None:
        """Have runs loaded again whose step may not be written."""
        self._to_open.extend(run.ownership for run in stepped)

    def _doubt(self, run: ProcessRun) -> bool:
        """Reload a run, without counting a fault, if a notified report may be the cause."""
        if not self._notified.doubt(run.ownership.process_instance_id):
            return False
        self._reopen([run])
        self.check_tables()
        return True

    def _suspect(self, ownership: Ownership, error: Exception) -> bool:
        """Count a fault of a run; True if loading it again may help. If not, the run is ended."""
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
        if faults < self._config.faults_until_failure:
            return True
        self._fail(ownership, str(error))
        return False

    def _fail(self, ownership: Ownership, reason: str) -> None:
        """End a run that can't go on, and kill its live attempts."""
        decisions: list[Decision] = [
            KillTask(name=name, attempt=attempt)
            for loaded in self._store.load([ownership])
            for name, attempt in under_way(loaded)
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
        self._publish(saved)
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
        if takes_room(run):
            self._occupying[run.ownership.process_instance_id] = run.context.complement
        else:
            self._occupying.pop(run.ownership.process_instance_id, None)
        due = run.next_retry()
        if due is not None and not run.is_pausing:
            at, name = due
            self._arm((at, run.ownership.process_instance_id, name, run.tasks[name].attempt))
        # In any other state it would have no effect, and be armed for ever.
        if run.deadline is not None and run.state is ProcessState.READY_STOP:
            self._arm((run.deadline, run.ownership.process_instance_id, *_DEADLINE))

    def _arm(self, timer: _Timer) -> None:
        if timer not in self._armed:
            self._armed.add(timer)
            heappush(self._timers, timer)

    def _forget(self, ownership: Ownership, why: str) -> None:
        if self._runs.pop(ownership.process_instance_id, None) is not None:
            log.warning(
                "run was forgotten",
                extra={"process_instance_id": ownership.process_instance_id, "cause": why},
            )

    def _has(self, ownership: Ownership) -> bool:
        run = self._runs.get(ownership.process_instance_id)
        return run is not None and run.ownership == ownership

    def _rest(self, now: datetime) -> timedelta:
        if self._timers:
            until = max(self._timers[0][0] - now, timedelta())
            return min(until, self._config.check_interval)
        return self._config.check_interval
