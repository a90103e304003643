"""Decides whether the condition of a DEPENDENT task is met (contract §10).

An item about a dataset succeeds when its intervals are complete (`master.logic.completeness`); it
fails only if no stream feeds the dataset. The rest is about runs.

Pure: the business moment, the zone and the answers of the tables are arguments. `questions` lists
the look-ups, `evaluate` turns their answers into a verdict, and no state is kept between two
evaluations: a failed upstream that is run again counts by its new state (T89).

Choices where versions of the original differ:

- A PAUSED upstream is awaited like a pausing one, for it is meant to be resumed (T43c). STOP and
  FAILURE are the unsuccessful ends.
- One task of a run may succeed before its run ends; it fails a wait only when the run is over.
- A task that its run left out on purpose (forbidden, or skipped by a branch) does not block: a
  successful run without an attempt at the task counts as a success if its definition has it.
- Every interval must succeed; the first that did not is the item's result. So a month needs a run
  on each of its days (T43e), unless the item says `"intervals": "ANY"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from common.business_dates import business_date
from common.depend_intervals import Interval, intervals
from common.model.control import Dependent, Relation
from common.model.depend_items import DatasetItem, Item
from common.model.states import ProcessState
from common.model.streams.progress import DatasetProgress
from common.model.upstream import (
    Absence,
    Answer,
    AnyQuestion,
    DatasetQuestion,
    Question,
    UpstreamRun,
    UpstreamTask,
)
from common.params import ParameterError
from master.logic.completeness import lacking


class DependResult(IntEnum):
    """The result of a wait; the codes are those of contract §2.1."""

    SUCCESS = 0
    WAITING = 1
    FAILED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """One item, by its key, with its result."""

    key: str
    result: DependResult

    @property
    def line(self) -> str:
        """The log line of a decided item, as the original's front end parses it."""
        return f"dependent item complete :||{self.key},{self.result.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The present result of the wait, with its evidence.

    `evidence` is made of JSON values: one entry for each interval of each item, in the order
    written, with the keys `group` (from 1), `key`, `businessDate` (of the runs that count; null for
    a dataset), `from`, `to` (their moments, on the zone's clock), `run` (null or the row: `id`,
    `state`, `scheduleTime`, `businessDate`, `startTime`, `endTime`), `task` (null or the attempt:
    `id`, `state`, `endTime`), `result` and `why`; and `dataset` for an item about one.
    """

    result: DependResult
    items: tuple[ItemResult, ...]
    evidence: list[dict[str, Any]]


class Join(Enum):
    """The way to join parts of a wait: all, any, or the first that is no success."""

    ALL = "all"
    ANY = "any"
    IN_TURN = "in turn"

    @property
    def of_nothing(self) -> DependResult:
        """The result of no parts at all."""
        return DependResult.FAILED if self is Join.ANY else DependResult.SUCCESS

    def of(self, one: DependResult, rest: DependResult) -> DependResult:
        """Join the result of a part with that of all parts behind it."""
        match self:
            case Join.ALL:
                return _joined(Relation.AND, (one, rest))
            case Join.ANY:
                return _joined(Relation.OR, (one, rest))
            case Join.IN_TURN:
                return rest if one is DependResult.SUCCESS else one


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The result of one interval of an item; `run` if only the end of that run decides it."""

    result: DependResult
    run: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Several waits joined to one."""

    join: Join
    parts: tuple[Wait, ...]


Wait: TypeAlias = Entry | Joined


def questions(
    dependent: Dependent,
    moment: datetime,
    zone: ZoneInfo,
    *,
    apart_from: int = 0,
    project: int | None = None,
) -> tuple[AnyQuestion, ...]:
    """List the questions that the condition depends on, each once.

    `apart_from` is the id of the waiting run, and `project` is its project.
    """
    asked: dict[AnyQuestion, None] = {}
    for group in dependent.groups:
        for item in group.items:
            for interval in intervals(item, moment, zone):
                asked[_question(item, interval, apart_from, project)] = None
    return tuple(asked)


def evaluate(
    dependent: Dependent,
    moment: datetime,
    zone: ZoneInfo,
    answers: Mapping[AnyQuestion, Answer],
    *,
    apart_from: int = 0,
    project: int | None = None,
) -> Verdict:
    """Judge these answers, which are those to `questions` with the same arguments.

    A question without an answer waits. The outer relation is decided as soon as any groups decide
    it: one SUCCESS under OR, one FAILED under AND, whatever the others wait for.
    """
    evidence: list[dict[str, Any]] = []
    items: list[ItemResult] = []
    groups: list[DependResult] = []
    for number, group in enumerate(dependent.groups, start=1):
        results: list[DependResult] = []
        for item in group.items:
            looked = [
                _looked(item, interval, answers, apart_from, project=project)
                for interval in intervals(item, moment, zone)
            ]
            evidence.extend(
                {"group": number, "key": item.key, **entry.as_json(zone)}
                for entry in looked or [_NEVER]
            )
            result = _item_result(item, [entry.result for entry in looked])
            items.append(ItemResult(key=item.key, result=result))
            results.append(result)
        groups.append(_joined(group.relation, results))
    return Verdict(
        result=_joined(dependent.relation, groups), items=tuple(items), evidence=evidence
    )


def wait_of(
    dependent: Dependent,
    moment: datetime,
    zone: ZoneInfo,
    answers: Mapping[AnyQuestion, Answer],
    *,
    apart_from: int = 0,
    project: int | None = None,
) -> Wait:
    """Return the entries that `evaluate` judges, with the same arguments, and their joins."""

    def of_item(item: Item) -> Wait:
        looked = [
            _looked(item, interval, answers, apart_from, project=project)
            for interval in intervals(item, moment, zone)
        ]
        return Joined(
            join=Join.ANY if item.any_interval else Join.IN_TURN,
            parts=tuple(_entry(item, each) for each in looked or [_NEVER]),
        )

    return Joined(
        join=_JOINS[dependent.relation],
        parts=tuple(
            Joined(join=_JOINS[group.relation], parts=tuple(of_item(item) for item in group.items))
            for group in dependent.groups
        ),
    )


def _item_result(item: Item, results: Sequence[DependResult]) -> DependResult:
    if not results:
        return DependResult.FAILED
    if item.any_interval:
        return _joined(Relation.OR, results)
    return next(
        (result for result in results if result is not DependResult.SUCCESS), DependResult.SUCCESS
    )


def _joined(relation: Relation, results: Sequence[DependResult]) -> DependResult:
    """Join results by contract §10.1; of none, AND is SUCCESS and OR is FAILED."""
    decisive, rest = (
        (DependResult.FAILED, DependResult.SUCCESS)
        if relation is Relation.AND
        else (DependResult.SUCCESS, DependResult.FAILED)
    )
    if decisive in results:
        return decisive
    return DependResult.WAITING if DependResult.WAITING in results else rest


_JOINS = {Relation.AND: Join.ALL, Relation.OR: Join.ANY}


def _entry(item: Item, looked: _Looked) -> Entry:
    if isinstance(item, DatasetItem):
        return Entry(result=looked.result)
    run = looked.run
    # One task of a run may succeed long before its run ends, and resuming a paused run begins it
    # anew.
    is_decided_by_end = run is not None and item.task is None and not run.state.is_terminal
    if looked.result is DependResult.WAITING and run is not None and is_decided_by_end:
        return Entry(result=looked.result, run=run.id)
    return Entry(result=looked.result)


def _question(item: Item, interval: Interval, apart_from: int, project: int | None) -> AnyQuestion:
    if isinstance(item, DatasetItem):
        return DatasetQuestion(dataset=item.dataset, asking_project=project)
    return Question(
        definition_id=item.definition_id,
        definition_name=item.definition_name,
        task=item.task,
        start=interval.start,
        end=interval.end,
        apart_from=apart_from,
        asking_project=project,
        project=item.project,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """One interval of an item, the row that counts for it, and the result."""

    interval: Interval | None
    run: UpstreamRun | None
    result: DependResult
    why: str
    dataset: str | None = None

    def as_json(self, zone: ZoneInfo) -> dict[str, Any]:
        interval, run = self.interval, self.run
        task = run.task if run else None
        return {
            "businessDate": _business_date(interval, zone) if self.dataset is None else None,
            "from": _clock(interval.start, zone) if interval else None,
            "to": _clock(interval.end, zone) if interval else None,
            "run": run
            and {
                "id": run.id,
                "state": run.state.name,
                "scheduleTime": _clock(run.schedule_time, zone),
                "businessDate": business_date(run.moment, zone).isoformat(),
                "startTime": _clock(run.start_time, zone),
                "endTime": _clock(run.end_time, zone),
            },
            "task": task
            and {
                "id": task.id,
                "state": task.state.name,
                "endTime": _clock(task.end_time, zone),
            },
            "result": self.result.name,
            "why": self.why,
            **({} if self.dataset is None else {"dataset": self.dataset}),
        }


def _business_date(interval: Interval | None, zone: ZoneInfo) -> str | None:
    """Return the business date of the runs in an interval, which is of one day at most."""
    try:
        return None if interval is None else business_date(interval.start, zone).isoformat()
    except ParameterError:
        return None


_NEVER = _Looked(
    interval=None,
    run=None,
    result=DependResult.FAILED,
    why="the date value means no interval at this moment",
)


def _clock(moment: datetime | None, zone: ZoneInfo) -> str | None:
    return None if moment is None else moment.astimezone(zone).isoformat()


def _looked(
    item: Item,
    interval: Interval,
    answers: Mapping[AnyQuestion, Answer],
    apart_from: int,
    *,
    project: int | None,
) -> _Looked:
    answer = answers.get(_question(item, interval, apart_from, project))
    if isinstance(item, DatasetItem):
        return _dataset_looked(item, interval, answer)
    if isinstance(answer, UpstreamRun) and answer.id != apart_from and _counts(answer, interval):
        result, why = _run_result(answer, item.task)
        return _Looked(interval=interval, run=answer, result=result, why=why)
    # A run that does not count here, like the waiting run itself, is no answer.
    absence = answer if isinstance(answer, Absence) else Absence.NO_RUN
    return _Looked(interval=interval, run=None, result=_ABSENT[absence], why=absence.value)


def _dataset_looked(item: DatasetItem, interval: Interval, answer: Answer) -> _Looked:
    if isinstance(answer, DatasetProgress):
        why = lacking(answer, item, interval)
        result = DependResult.SUCCESS if why is None else DependResult.WAITING
    elif answer is Absence.NO_STREAM:
        result, why = DependResult.FAILED, Absence.NO_STREAM.value
    else:
        result, why = DependResult.WAITING, "its stream has not been looked at yet"
    return _Looked(
        interval=interval,
        run=None,
        result=result,
        why="the interval is complete" if why is None else why,
        dataset=item.dataset,
    )


_ABSENT = {
    Absence.NO_RUN: DependResult.WAITING,
    Absence.NO_DEFINITION: DependResult.FAILED,
    Absence.FIRST_RUN: DependResult.SUCCESS,
    Absence.NO_STREAM: DependResult.FAILED,
}


def _counts(run: UpstreamRun, interval: Interval) -> bool:
    """True if the moment of the run is in the interval: without a date, its start (T43d)."""
    return interval.contains(run.moment)


def _run_result(run: UpstreamRun, task: str | None) -> tuple[DependResult, str]:
    """Return the result of the newest run in an interval, and the reason in words."""
    if task is not None:
        if run.task is not None:
            return _task_result(run, run.task)
        if not run.has_node and _is_over(run):
            return DependResult.FAILED, f"run {run.id} has no task {task!r}"
        if run.state is ProcessState.SUCCESS:
            return DependResult.SUCCESS, f"run {run.id} left the task out and is {run.state.name}"
        if _is_over(run):
            return (
                DependResult.FAILED,
                f"run {run.id} is {run.state.name} and never came to the task",
            )
    if run.state is ProcessState.SUCCESS:
        return DependResult.SUCCESS, f"run {run.id} is {run.state.name}"
    if _is_over(run):
        return DependResult.FAILED, f"run {run.id} is {run.state.name}, and none is newer"
    return DependResult.WAITING, f"run {run.id} is {run.state.name}"


def _task_result(run: UpstreamRun, task: UpstreamTask) -> tuple[DependResult, str]:
    why = f"the task's attempt {task.id} in run {run.id} is {task.state.name}"
    if task.state.is_success:
        return DependResult.SUCCESS, why
    if task.retry_pending:
        return DependResult.WAITING, f"{why} and will be tried again"
    if task.state.is_finished and _is_over(run):
        return DependResult.FAILED, f"{why}, the run is {run.state.name}, and none is newer"
    return DependResult.WAITING, f"{why}, the run is {run.state.name}"


def _is_over(run: UpstreamRun) -> bool:
    """True if the run has ended for good; a paused one is meant to be resumed."""
    return run.state.is_terminal and run.state is not ProcessState.PAUSE
