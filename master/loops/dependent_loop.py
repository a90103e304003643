"""Decides the DEPENDENT tasks of this master's runs, without a worker and without a thread each.

A task waits as a row, and is read once: its questions stay the same. When a process instance or a
task has ended anywhere, or something was published of a dataset's stream, only the questions that
this may answer are asked again, at an interval all of them, and only waits that have another answer
are judged anew, by the pure `master.logic.dependent`. The evidence is kept in the row for people;
the decision is a conditional update of the row, which reaches the run like any report.

Runs that wait for each other would do so for ever. At the interval the needs of unchanged waits are
followed from run to run, whatever their owner, and where `master.logic.deadlocks` finds a wait
cycle, the master of its newest run ends that run's wait as a failure; the others then see an
upstream that failed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Lock
from zoneinfo import ZoneInfo

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.control import Dependent
from common.model.failures import FailureReason
from common.model.states import TaskState
from common.model.upstream import AnyQuestion
from common.store.master.ports import PAGE, DependentDecision, DependentStore, WaitingDependent
from common.zones import UnknownZoneError, zone_named
from master.identity import Identity
from master.logic.deadlocks import runs_needed, wait_cycles
from master.logic.dependent import DependResult, Verdict, Wait
from master.logic.wait_index import WaitIndex
from master.loops.waiting_tasks import (
    Answers,
    WaitingTask,
    condition_of,
    judged,
    questions_of,
    reason_of,
    wait_behind,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _News:
    """The reasons for the next check.

    `anything`: all questions are asked again; `waits`: there may be new ones; `ended`: runs by id,
    each with the names of its tasks that have ended, and None for the run itself; `datasets`: those
    of which more was published.
    """

    anything: bool = False
    waits: bool = False
    ended: dict[int, dict[str | None, None]] = field(default_factory=dict)
    datasets: dict[str, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.anything or self.waits or bool(self.ended) or bool(self.datasets)

    def end(self, run: int, task: str | None) -> None:
        self.ended.setdefault(run, {})[task] = None

    def add(self, other: _News) -> None:
        self.anything |= other.anything
        self.waits |= other.waits
        self.datasets |= other.datasets
        for run, tasks in other.ended.items():
            self.ended.setdefault(run, {}).update(tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentConfig:
    """`interval`: between checks without a notification. `breath`: ends in a burst share a check.

    A task that could not be decided in `faults_until_failure` checks, by a fault of ours, fails.
    At most `followed_at_most` runs are read per search for wait cycles, and `page` tasks at once.
    """

    interval: timedelta = timedelta(seconds=5)
    breath: timedelta = timedelta(milliseconds=50)
    faults_until_failure: int = 3
    followed_at_most: int = 1000
    page: int = PAGE


class DependentLoop:
    """Decides waiting tasks; `on_end`, `on_dataset`, `on_new_wait` may come from any thread."""

    name = "dependent"

    def __init__(
        self,
        store: DependentStore,
        *,
        identity: Identity,
        clock: Clock,
        zone: ZoneInfo,
        wake: Callable[[], None] = lambda: None,
        config: DependentConfig | None = None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._clock = clock
        self._zone = zone
        self._wake = wake
        self._config = config or DependentConfig()
        self._lock = Lock()
        self._news = _News()
        # False if nothing waited at the last check: then ends elsewhere change nothing.
        self._any_waits = True
        # The ends of the last check, and of the last of everything; the least time until the next.
        self._checked_at = 0.0
        self._looked_at: float | None = None
        self._breath = self._config.breath
        # All that wait for this master, by id.
        self._node: Node | None = None
        self._waits: dict[int, WaitingTask] = {}
        self._index = WaitIndex()
        # Those to be judged: they are new, have other answers, or could not be written.
        self._open: dict[int, None] = {}
        # Those that can't be read, with the reason.
        self._unreadable: dict[int, tuple[WaitingDependent, str]] = {}
        self._faults: dict[int, int] = {}
        # The time of the last search for wait cycles, and the last run that it followed if there
        # were too many.
        self._cycles_sought_at: float | None = None
        self._followed = 0

    def on_end(self, run: int | None = None, task: str | None = None) -> None:
        """Note that a run or a task of it has ended somewhere; without a run, anything may have."""
        with self._lock:
            if not self._any_waits:
                return
            is_first = not self._news
            if run is None:
                self._news.anything = True
            else:
                self._news.end(run, task)
        if is_first:
            self._wake()

    def on_dataset(self, name: str) -> None:
        """Note that more of a dataset's stream was published, or another task reads it."""
        with self._lock:
            if not self._any_waits:
                return
            is_first = not self._news
            self._news.datasets[name] = None
        if is_first:
            self._wake()

    def on_new_wait(self) -> None:
        """Note that a waiting task has begun."""
        with self._lock:
            self._news.waits = True
            self._any_waits = True
        self._wake()

    def run_once(self) -> timedelta:
        """Judge the waiting tasks for which there is reason to; return the time to rest."""
        node = self._identity.trusted()
        if node is None:
            return self._config.interval
        rest = self._rest()
        if rest > timedelta():
            return rest
        with self._lock:
            # Before the rows are read: an end from here on is another reason to check.
            news, self._news = self._news, _News()
            self._any_waits = True
        if node != self._node:
            # As another incarnation it owns none of what it owned.
            self._node = node
            for number in (*self._waits, *self._unreadable):
                self._forget(number)
            news.anything = True
        news.anything |= self._is_look_due()
        started = self._clock.monotonic()
        try:
            self._check(node, news)
        except BaseException:
            # The check is still to be made.
            with self._lock:
                self._news.add(news)
            raise
        finally:
            self._checked_at = self._clock.monotonic()
            if self._looked_at is None or news.anything:
                self._looked_at = self._checked_at
            # However long a check takes and however much happens: half of the time is left over.
            took = timedelta(seconds=self._checked_at - started)
            self._breath = max(self._config.breath, took)
        if not self._waits and not self._unreadable:
            with self._lock:
                # Unless a notification came meanwhile: it may have been of a task that waits now.
                self._any_waits = bool(self._news)
        return self._rest()

    def _rest(self) -> timedelta:
        if self._looked_at is None:
            return timedelta()
        now = self._clock.monotonic()
        if self._news:
            return self._breath - timedelta(seconds=now - self._checked_at)
        return self._config.interval - timedelta(seconds=now - self._looked_at)

    def _is_look_due(self) -> bool:
        if self._looked_at is None:
            return True
        since = timedelta(seconds=self._clock.monotonic() - self._looked_at)
        return since >= self._config.interval

    def _check(self, node: Node, news: _News) -> None:
        if news.anything or news.waits:
            self._refresh(node)
        concerned = tuple(self._waits) if news.anything else self._concerned(news)
        noted = self._judge(list({**dict.fromkeys(concerned), **self._open}))
        for each, why in list(self._unreadable.values()):
            self._fail(each, why)
        if news.anything and self._is_cycle_search_due():
            unchanged = (each for number, each in self._waits.items() if number not in noted)
            self._break_cycles({run for each in unchanged for run in each.needed})

    def _refresh(self, node: Node) -> None:
        """Learn of new waits, a page at a time, and forget those that are over."""
        there = self._store.undecided(node)
        known = {number: each.row for number, each in self._waits.items()}
        known |= {number: row for number, (row, _) in self._unreadable.items()}
        for number, row in known.items():
            if there.get(number) != row.ownership.epoch:
                self._forget(number)
        new = [number for number in there if not self._knows(number)]
        if not new:
            return
        last, until = min(new) - 1, max(new)
        while last < until:
            page = self._store.waiting(node, after=last, limit=self._config.page)
            for each in page:
                if not self._knows(each.task_instance_id):
                    self._learn(each)
            if len(page) < self._config.page:
                break
            last = page[-1].task_instance_id

    def _knows(self, number: int) -> bool:
        return number in self._waits or number in self._unreadable

    def _learn(self, row: WaitingDependent) -> None:
        number = row.task_instance_id
        one = self._read(row)
        if not isinstance(one, WaitingTask):
            self._unreadable[number] = (row, one)
            return
        # Its text has been read, and would only take memory.
        one.row = replace(row, task_json="")
        self._waits[number] = one
        self._open[number] = None
        self._index.add(number, questions_of(one))

    def _forget(self, number: int) -> None:
        self._waits.pop(number, None)
        self._open.pop(number, None)
        self._unreadable.pop(number, None)
        self._faults.pop(number, None)
        self._index.remove(number)

    def _concerned(self, news: _News) -> tuple[int, ...]:
        """Return the waits that the ended runs and the datasets may decide."""
        found: dict[int, None] = {}
        for dataset in news.datasets:
            found |= dict.fromkeys(self._index.waiting_for(dataset))
        if not news.ended or not self._waits:
            return tuple(found)
        for run in self._store.runs(list(news.ended)):
            names = (run.process_definition_id, run.definition_name)
            ended = news.ended[run.process_instance_id]
            found |= dict.fromkeys(self._index.concerned(names, run.moment, ended))
        return tuple(found)

    def _judge(self, waits: Sequence[int]) -> Collection[int]:
        """Ask the questions of these and judge what has changed; return those with new evidence."""
        if not waits:
            return ()
        try:
            noted = self._conclude(waits)
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception("tasks could not be decided together and are looked at one by one")
            return self._judge_one_by_one(waits)
        for number in waits:
            self._faults.pop(number, None)
        return noted

    def _judge_one_by_one(self, waits: Sequence[int]) -> Collection[int]:
        """Judge one by one: a task that can't be decided must not block others, and ends."""
        noted: set[int] = set()
        for number in waits:
            if number not in self._waits:
                continue
            # It was to be judged, and may not have been.
            self._open[number] = None
            known = self._faults.pop(number, 0)
            try:
                noted.update(self._conclude([number]))
            except ServiceUnreachableError:
                raise
            except Exception as error:
                faults = known + 1
                log.exception(
                    "task could not be decided",
                    extra={"task_instance_id": number, "faults": faults},
                )
                noted.add(number)
                if faults < self._config.faults_until_failure:
                    self._faults[number] = faults
                else:
                    why = f"it could not be decided: {type(error).__name__}: {error}"
                    self._fail(self._waits[number].row, why)
        return noted

    def _conclude(self, waits: Sequence[int]) -> Collection[int]:
        """Judge those of these waits that are open or have other answers than before.

        Others of which an answer has changed stay open, until all of theirs are asked for.
        """
        changed = self._index.changed(self._look_up(self._index.questions_of(waits)))
        self._open |= dict.fromkeys(changed)
        noted: set[int] = set()
        pending: list[DependentDecision] = []
        for number in [each for each in waits if each in self._open]:
            decision = self._judged(self._waits[number])
            if decision is None:
                del self._open[number]
                continue
            pending.append(decision)
            if len(pending) == self._config.page:
                noted.update(self._write(pending))
                pending = []
        noted.update(self._write(pending))
        return noted

    def _look_up(self, asked: Sequence[AnyQuestion]) -> Answers:
        return dict(zip(asked, self._store.look_up(asked), strict=True)) if asked else {}

    def _judged(self, one: WaitingTask) -> DependentDecision | None:
        """Return the decision or the new evidence; None if nothing has changed."""
        answers = self._index.answers_to(one.number)
        verdict, evidence = judged(one, answers)
        match verdict.result:
            case DependResult.SUCCESS:
                self._log_items(one.row, verdict)
                return DependentDecision(
                    waiting=one.row, state=TaskState.SUCCESS, evidence=evidence
                )
            case DependResult.FAILED:
                self._log_items(one.row, verdict)
                return DependentDecision(
                    waiting=one.row,
                    state=TaskState.FAILURE,
                    evidence=evidence,
                    reason=reason_of(verdict),
                    failure=FailureReason.UPSTREAM_FAILED,
                )
            case DependResult.WAITING:
                one.needed = runs_needed(wait_behind(one, answers))
                if evidence == one.row.evidence:
                    return None
                return DependentDecision(waiting=one.row, evidence=evidence)

    def _write(self, decisions: Sequence[DependentDecision]) -> Collection[int]:
        """Write decisions and evidence; return the ids of those that wait on, with new evidence."""
        if not decisions:
            return ()
        written = self._store.decide(decisions, now=self._clock.now())
        noted: set[int] = set()
        for each in decisions:
            number = each.waiting.task_instance_id
            if each.state is not None or number not in written:
                # If it waits all the same, under another owner's epoch, it is learned anew.
                self._forget(number)
            elif (one := self._waits.get(number)) is not None:
                one.row = replace(one.row, evidence=each.evidence)
                self._open.pop(number, None)
                noted.add(number)
        return noted

    def _is_cycle_search_due(self) -> bool:
        if self._cycles_sought_at is None:
            return True
        since = self._clock.monotonic() - self._cycles_sought_at
        return timedelta(seconds=since) >= self._config.interval

    def _break_cycles(self, needed: Collection[int]) -> None:
        """Fail the newest run of each wait cycle, if it is this master's.

        Every run in a wait cycle is needed by another one in it, so only needed runs are read.
        """
        if not needed:
            return
        self._cycles_sought_at = self._clock.monotonic()
        try:
            self._break_cycles_behind(needed)
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception("runs that wait for each other could not be looked for")

    def _break_cycles_behind(self, needed: Iterable[int]) -> None:
        waits: dict[int, dict[int, Wait]] = {}
        read: dict[int, tuple[WaitingDependent, str]] = {}
        left = self._config.followed_at_most
        coming, seen = self._begin_with(sorted(needed)), set[int]()
        while coming and left > 0:
            followed = coming[:left]
            left -= len(followed)
            seen.update(followed)
            held_up = self._store.held_up(followed)
            for each, wait, evidence in self._waits_now(held_up):
                waits.setdefault(each.ownership.process_instance_id, {})[each.task_instance_id] = (
                    wait
                )
                read[each.task_instance_id] = (each, evidence)
            behind = (
                run
                for number in followed
                for wait in waits.get(number, {}).values()
                for run in runs_needed(wait)
            )
            coming = [run for run in dict.fromkeys(behind) if run not in seen]
        for cycle in wait_cycles(waits):
            for number in cycle.attempts:
                each, evidence = read[number]
                broken = DependentDecision(
                    waiting=each,
                    state=TaskState.FAILURE,
                    evidence=evidence,
                    reason=cycle.reason,
                    failure=FailureReason.CONFIGURATION,
                )
                if number in self._waits and self._end(broken):
                    log.warning(
                        "task failed because process instances wait for each other",
                        extra={
                            "process_instance_id": cycle.newest,
                            "task_instance_id": number,
                            "ring": cycle.ring,
                        },
                    )

    def _begin_with(self, needed: Sequence[int]) -> list[int]:
        """Choose the runs to follow: if they are too many, the next part each time."""
        at_once = max(self._config.followed_at_most // 2, 1)
        if len(needed) <= at_once:
            return list(needed)
        begin = bisect_right(needed, self._followed) % len(needed)
        part = [*needed[begin:], *needed[:begin]][:at_once]
        self._followed = part[-1]
        return part

    def _waits_now(
        self, held_up: Sequence[WaitingDependent]
    ) -> list[tuple[WaitingDependent, Wait, str]]:
        """Evaluate waits of any owner as they are now; their own master may be behind."""
        read: list[WaitingTask] = []
        unclear: set[int] = set()
        for each in held_up:
            one = self._read(each)
            if isinstance(one, WaitingTask):
                read.append(one)
            else:
                # It will fail, and its run will go on.
                unclear.add(each.ownership.process_instance_id)
        asked: dict[AnyQuestion, None] = {}
        for one in read:
            asked |= dict.fromkeys(questions_of(one))
        answers = self._look_up(list(asked))
        return [
            (one.row, wait_behind(one, answers), judged(one, answers)[1])
            for one in read
            if one.own not in unclear
        ]

    def _read(self, each: WaitingDependent) -> WaitingTask | str:
        """Read the task's condition and zone, or return the reason why they can't be read."""
        dependent = condition_of(each)
        if not isinstance(dependent, Dependent):
            return dependent
        try:
            zone = self._zone if each.timezone_id is None else zone_named(each.timezone_id)
        except UnknownZoneError as error:
            return f"the run's time zone: {error}"
        return WaitingTask(each, dependent, zone)

    def _log_items(self, each: WaitingDependent, verdict: Verdict) -> None:
        for item in verdict.items:
            if item.result is not DependResult.WAITING:
                log.info(
                    item.line,
                    extra={
                        "process_instance_id": each.ownership.process_instance_id,
                        "task_instance_id": each.task_instance_id,
                    },
                )

    def _fail(self, each: WaitingDependent, why: str) -> None:
        """End a task that can't be decided; if that fails too, the next check tries again."""
        failed = DependentDecision(
            waiting=each,
            state=TaskState.FAILURE,
            evidence="[]",
            reason=why,
            failure=FailureReason.CONFIGURATION,
        )
        try:
            self._end(failed)
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception(
                "task can't be decided and can't be ended either",
                extra={"task_instance_id": each.task_instance_id, "reason": why},
            )

    def _end(self, decision: DependentDecision) -> bool:
        """Write an end; return False if the task no longer waited."""
        written = self._store.decide([decision], now=self._clock.now())
        self._forget(decision.waiting.task_instance_id)
        return bool(written)
