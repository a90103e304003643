"""Decides the DEPENDENT tasks of this master's runs, without a worker and without a thread each.

A task waits as a row. Whenever a process instance or a task has ended anywhere, and slowly behind
that, all rows that wait are looked at together: what they ask, what the tables answer, and what the
pure `master.logic.dependent` makes of it. What was looked at is kept in the row for people; the
decision is a conditional update of the row, which the run hears of like any report.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TypeAlias
from zoneinfo import ZoneInfo

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.control import Dependent, read_control
from common.model.states import TaskState
from common.model.upstream import Answer, Question
from common.store.protocol import DependentStore, WaitingDependent
from master.identity import Identity
from master.logic.dependent import DependResult, Verdict, evaluate, questions

log = logging.getLogger(__name__)

_Read: TypeAlias = tuple[WaitingDependent, Dependent]


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentConfig:
    """`interval`: the slow look. `breath`: ends that come in a crowd are looked at together.

    A task that could not be decided in `faults_until_failure` looks, by a mistake of ours, fails.
    """

    interval: timedelta = timedelta(seconds=5)
    breath: timedelta = timedelta(milliseconds=50)
    faults_until_failure: int = 3


class DependentLoop:
    """Told of ends anywhere by `heard`, and of a new task of its own by `look`, from any thread."""

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
        # Whether anything waited at the last look: if not, ends elsewhere are no news.
        self._any_waits = True
        # When the last look ended, and how long after it there is none.
        self._looked_at: float | None = None
        self._breath = self._config.breath
        self._faults: dict[int, int] = {}

    def heard(self) -> None:
        """Something has ended somewhere."""
        with self._lock:
            if self._changed or not self._any_waits:
                return
            self._changed = True
        self._wake()

    def look(self) -> None:
        """A task that waits has begun."""
        with self._lock:
            self._changed = True
            self._any_waits = True
        self._wake()

    def run_once(self) -> timedelta:
        """Look at all that wait, if there is reason to; answers how long to rest."""
        node = self._identity.trusted()
        if node is None:
            return self._config.interval
        rest = self._rest()
        if rest > timedelta():
            return rest
        with self._lock:
            # Before the rows are read: what ends from here on is another reason to look.
            self._changed = False
            self._any_waits = True
        started = self._clock.monotonic()
        try:
            waiting = self._store.waiting(node)
            self._decide(waiting)
        except BaseException:
            # What was to be found is still to be found.
            with self._lock:
                self._changed = True
            raise
        finally:
            self._looked_at = self._clock.monotonic()
            # However long a look takes and however much happens: half of the time is others'.
            took = timedelta(seconds=self._looked_at - started)
            self._breath = max(self._config.breath, took)
        if not waiting:
            with self._lock:
                # Unless something was heard meanwhile: it may have been a task that waits now.
                self._any_waits = self._changed
        return self._rest()

    def _rest(self) -> timedelta:
        if self._looked_at is None:
            return timedelta()
        since = timedelta(seconds=self._clock.monotonic() - self._looked_at)
        return (self._breath if self._changed else self._config.interval) - since

    def _decide(self, waiting: Sequence[WaitingDependent]) -> None:
        read: list[_Read] = []
        for each in waiting:
            dependent = _dependence(each)
            if isinstance(dependent, Dependent):
                read.append((each, dependent))
            else:
                self._fail(each, dependent)
        try:
            self._look_at(read)
            self._faults.clear()
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception("tasks could not be decided together and are looked at one by one")
            self._look_at_each(read)

    def _look_at_each(self, read: Sequence[_Read]) -> None:
        """One task that can't be decided must neither keep the others waiting nor wait for ever."""
        known, self._faults = self._faults, {}
        for each, dependent in read:
            try:
                self._look_at([(each, dependent)])
            except ServiceUnreachableError:
                raise
            except Exception as error:
                faults = known.get(each.task_instance_id, 0) + 1
                log.exception(
                    "task could not be decided",
                    extra={"task_instance_id": each.task_instance_id, "faults": faults},
                )
                if faults < self._config.faults_until_failure:
                    self._faults[each.task_instance_id] = faults
                else:
                    why = f"it could not be decided: {type(error).__name__}: {error}"
                    self._fail(each, why)

    def _look_at(self, read: Sequence[_Read]) -> None:
        asked: dict[Question, None] = {}
        for each, dependent in read:
            asked |= dict.fromkeys(self._questions(each, dependent))
        answers = dict(zip(asked, self._store.look_up(list(asked)), strict=True)) if asked else {}
        for each, dependent in read:
            self._conclude(each, dependent, answers)

    def _questions(self, each: WaitingDependent, dependent: Dependent) -> tuple[Question, ...]:
        return questions(
            dependent,
            each.schedule_time or each.start_time,
            self._zone,
            apart_from=each.ownership.process_instance_id,
        )

    def _conclude(
        self, each: WaitingDependent, dependent: Dependent, answers: Mapping[Question, Answer]
    ) -> None:
        verdict = evaluate(
            dependent,
            each.schedule_time or each.start_time,
            self._zone,
            answers,
            apart_from=each.ownership.process_instance_id,
        )
        evidence = json.dumps(verdict.evidence, ensure_ascii=False)
        match verdict.result:
            case DependResult.SUCCESS:
                self._tell_items(each, verdict)
                self._write(each, TaskState.SUCCESS, evidence, None)
            case DependResult.FAILED:
                self._tell_items(each, verdict)
                self._write(each, TaskState.FAILURE, evidence, _why(verdict))
            case DependResult.WAITING:
                if evidence != each.evidence:
                    self._write(each, None, evidence, None)

    def _tell_items(self, each: WaitingDependent, verdict: Verdict) -> None:
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
        """End a task that can't be decided; if even that can't be, the next look tries again."""
        try:
            self._write(each, TaskState.FAILURE, "[]", why)
        except ServiceUnreachableError:
            raise
        except Exception:
            log.exception(
                "task can't be decided and can't be ended either",
                extra={"task_instance_id": each.task_instance_id, "reason": why},
            )

    def _write(
        self, each: WaitingDependent, state: TaskState | None, evidence: str, reason: str | None
    ) -> None:
        self._store.decide(
            each, state=state, evidence=evidence, reason=reason, now=self._clock.now()
        )


def _dependence(each: WaitingDependent) -> Dependent | str:
    """What the task waits for, or why that can't be read."""
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


def _why(verdict: Verdict) -> str:
    failed = [entry for entry in verdict.evidence if entry["result"] == DependResult.FAILED.name]
    if not failed:
        return "what it depends on has failed"
    return f"{failed[0]['key']}: {failed[0]['why']}"
