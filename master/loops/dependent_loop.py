"""Decides the DEPENDENT tasks of this master's runs, without a worker and without a thread each.

A task waits as a row. Whenever a process instance or a task has ended anywhere, and at an interval,
all waiting rows are evaluated together: their questions are answered from the tables, and the pure
`master.logic.dependent` gives the verdict. The evidence is kept in the row for people; the decision
is a conditional update of the row, which reaches the run like any report.

Runs that wait for each other would do so for ever. At the interval the needs of unchanged waits are
followed from run to run, whatever their owner, and where `master.logic.deadlocks` finds a wait
cycle, the master of its newest run ends that run's wait as a failure; the others then see an
upstream that failed.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import TypeAlias
from zoneinfo import ZoneInfo

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.control import Dependent, read_control
from common.model.failures import FailureReason
from common.model.states import TaskState
from common.model.upstream import Answer, Question
from common.store.master.ports import PAGE, DependentStore, WaitingDependent
from common.zones import UnknownZoneError, zone_named
from master.identity import Identity
from master.logic.deadlocks import runs_needed, wait_cycles
from master.logic.dependent import (
    DependResult,
    Verdict,
    Wait,
    evaluate,
    questions,
    wait_of,
)

log = logging.getLogger(__name__)

_Answers: TypeAlias = Mapping[Question, Answer]


@dataclass(frozen=True, slots=True)
class _Read:
    """A waiting task with its condition, and the zone of its dates."""

    row: WaitingDependent
    dependent: Dependent
    zone: ZoneInfo

    @property
    def moment(self) -> datetime:
        return self.row.schedule_time or self.row.start_time

    @property
    def own(self) -> int:
        """The id of its process instance."""
        return self.row.ownership.process_instance_id


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
    """Decides waiting tasks; `on_end` and `on_new_wait` (a new task) may come from any thread."""

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
        self._changed = False
        # False if nothing waited at the last check: then ends elsewhere change nothing.
        self._any_waits = True
        # The end of the last check, and the least time until the next.
        self._checked_at: float | None = None
        self._breath = self._config.breath
        self._faults: dict[int, int] = {}
        # The time of the last search for wait cycles, and the last run that it followed if there
        # were too many.
        self._cycles_sought_at: float | None = None
        self._followed = 0

    def on_end(self) -> None:
        """Note that something has ended somewhere."""
        with self._lock:
            if self._changed or not self._any_waits:
                return
            self._changed = True
        self._wake()

    def on_new_wait(self) -> None:
        """Note that a waiting task has begun."""
        with self._lock:
            self._changed = True
            self._any_waits = True
        self._wake()

    def run_once(self) -> timedelta:
        """Evaluate all waiting tasks, if there is reason to; return the time to rest."""
        node = self._identity.trusted()
        if node is None:
            return self._config.interval
        rest = self._rest()
        if rest > timedelta():
            return rest
        with self._lock:
            # Before the rows are read: an end from here on is another reason to check.
            self._changed = False
            self._any_waits = True
        started = self._clock.monotonic()
        try:
            any_waits = self._check_all(node)
        except BaseException:
            # The check is still to be made.
            with self._lock:
                self._changed = True
            raise
        finally:
            self._checked_at = self._clock.monotonic()
            # However long a check takes and however much happens: half of the time is left over.
            took = timedelta(seconds=self._checked_at - started)
            self._breath = max(self._config.breath, took)
        if not any_waits:
            with self._lock:
                # Unless a notification came meanwhile: it may have been of a task that waits now.
                self._any_waits = self._changed
        return self._rest()

    def _check_all(self, node: Node) -> bool:
        """Decide all that wait, a page at a time; return False if nothing waited."""
        unchanged: list[Wait] = []
        own: set[int] = set()
        last = 0
        while True:
            page = self._store.waiting(node, after=last, limit=self._config.page)
            unchanged += self._decide(page)
            own.update(each.task_instance_id for each in page)
            if len(page) < self._config.page:
                break
            last = page[-1].task_instance_id
        self._faults = {number: count for number, count in self._faults.items() if number in own}
        self._break_cycles(unchanged, own)
        return bool(own)

    def _rest(self) -> timedelta:
        if self._checked_at is None:
            return timedelta()
        since = timedelta(seconds=self._clock.monotonic() - self._checked_at)
        return (self._breath if self._changed else self._config.interval) - since

    def _decide(self, waiting: Sequence[WaitingDependent]) -> list[Wait]:
        """Decide what can be decided; return the waits in which nothing has changed."""
        read: list[_Read] = []
        for each in waiting:
            one = self._read(each)
            if isinstance(one, _Read):
                read.append(one)
            else:
                self._fail(each, one)
        try:
            unchanged = self._conclude_all(read)
            for one in read:
                self._faults.pop(one.row.task_instance_id, None)
            return unchanged
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception("tasks could not be decided together and are looked at one by one")
            return self._conclude_one_by_one(read)

    def _conclude_one_by_one(self, read: Sequence[_Read]) -> list[Wait]:
        """Decide one by one: a task that can't be decided must not block others, and ends."""
        unchanged: list[Wait] = []
        for one in read:
            each = one.row
            known = self._faults.pop(each.task_instance_id, 0)
            try:
                unchanged += self._conclude_all([one])
            except ServiceUnreachableError:
                raise
            except Exception as error:
                faults = known + 1
                log.exception(
                    "task could not be decided",
                    extra={"task_instance_id": each.task_instance_id, "faults": faults},
                )
                if faults < self._config.faults_until_failure:
                    self._faults[each.task_instance_id] = faults
                else:
                    why = f"it could not be decided: {type(error).__name__}: {error}"
                    self._fail(each, why)
        return unchanged

    def _conclude_all(self, read: Sequence[_Read]) -> list[Wait]:
        answers = self._answers(read)
        is_search_due = self._is_cycle_search_due()
        unchanged: list[Wait] = []
        for one in read:
            has_changed = self._conclude(one, answers)
            if is_search_due and not has_changed:
                unchanged.append(_wait(one, answers))
        return unchanged

    def _answers(self, read: Sequence[_Read]) -> _Answers:
        asked: dict[Question, None] = {}
        for one in read:
            asked |= dict.fromkeys(
                questions(one.dependent, one.moment, one.zone, apart_from=one.own)
            )
        return dict(zip(asked, self._store.look_up(list(asked)), strict=True)) if asked else {}

    def _conclude(self, one: _Read, answers: _Answers) -> bool:
        """Write the verdict or the new evidence; return False if nothing has changed."""
        each = one.row
        verdict, evidence = _verdict(one, answers)
        match verdict.result:
            case DependResult.SUCCESS:
                self._log_items(each, verdict)
                self._write(each, TaskState.SUCCESS, evidence)
            case DependResult.FAILED:
                self._log_items(each, verdict)
                upstream = FailureReason.UPSTREAM_FAILED
                self._write(each, TaskState.FAILURE, evidence, _why(verdict), upstream)
            case DependResult.WAITING:
                if evidence == each.evidence:
                    return False
                self._write(each, None, evidence)
        return True

    def _is_cycle_search_due(self) -> bool:
        if self._cycles_sought_at is None:
            return True
        since = self._clock.monotonic() - self._cycles_sought_at
        return timedelta(seconds=since) >= self._config.interval

    def _break_cycles(self, unchanged: Sequence[Wait], own: Collection[int]) -> None:
        """Fail the newest run of each wait cycle, if it is this master's."""
        # Every run in a wait cycle is needed by another one in it, so only needed runs are read.
        needed = {run for wait in unchanged for run in runs_needed(wait)}
        if not needed:
            return
        self._cycles_sought_at = self._clock.monotonic()
        try:
            self._break_cycles_behind(needed, own)
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception("runs that wait for each other could not be looked for")

    def _break_cycles_behind(self, needed: Iterable[int], own: Collection[int]) -> None:
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
                if number in own and self._write(
                    each, TaskState.FAILURE, evidence, cycle.reason, FailureReason.CONFIGURATION
                ):
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
        read: list[_Read] = []
        unclear: set[int] = set()
        for each in held_up:
            one = self._read(each)
            if isinstance(one, _Read):
                read.append(one)
            else:
                # It will fail, and its run will go on.
                unclear.add(each.ownership.process_instance_id)
        answers = self._answers(read)
        return [
            (one.row, _wait(one, answers), _verdict(one, answers)[1])
            for one in read
            if one.own not in unclear
        ]

    def _read(self, each: WaitingDependent) -> _Read | str:
        """Read the task's condition and zone, or return the reason why they can't be read."""
        dependent = _dependence(each)
        if not isinstance(dependent, Dependent):
            return dependent
        try:
            zone = self._zone if each.timezone_id is None else zone_named(each.timezone_id)
        except UnknownZoneError as error:
            return f"the run's time zone: {error}"
        return _Read(each, dependent, zone)

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
        try:
            self._write(each, TaskState.FAILURE, "[]", why, FailureReason.CONFIGURATION)
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception(
                "task can't be decided and can't be ended either",
                extra={"task_instance_id": each.task_instance_id, "reason": why},
            )

    def _write(
        self,
        each: WaitingDependent,
        state: TaskState | None,
        evidence: str,
        reason: str | None = None,
        failure: FailureReason | None = None,
    ) -> bool:
        return self._store.decide(
            each,
            state=state,
            evidence=evidence,
            reason=reason,
            failure=failure,
            now=self._clock.now(),
        )


def _dependence(each: WaitingDependent) -> Dependent | str:
    """Read the condition of the task, or return the reason why it can't be read."""
    mistakes: list[str] = []
    try:
        node = json.loads(each.task_json)
    except (ValueError, RecursionError) as error:
        return f"the task's JSON can't be read: {error}"
    if not isinstance(node, dict):
        return "the task's JSON is no object"
    control = read_control("DEPENDENT", node, f"task {each.name!r}", mistakes)
    if mistakes or not isinstance(control, Dependent):
        return "; ".join(mistakes) or "the task does not say what it depends on"
    return control


def _verdict(one: _Read, answers: _Answers) -> tuple[Verdict, str]:
    """Return the verdict, and the evidence as the row keeps it."""
    verdict = evaluate(one.dependent, one.moment, one.zone, answers, apart_from=one.own)
    return verdict, json.dumps(verdict.evidence, ensure_ascii=False)


def _wait(one: _Read, answers: _Answers) -> Wait:
    return wait_of(one.dependent, one.moment, one.zone, answers, apart_from=one.own)


def _why(verdict: Verdict) -> str:
    failed = [entry for entry in verdict.evidence if entry["result"] == DependResult.FAILED.name]
    if not failed:
        return "what it depends on has failed"
    return f"{failed[0]['key']}: {failed[0]['why']}"
