"""Decides whether what a DEPENDENT task waits for has happened (specification §10).

Pure: the business moment, the zone and what the tables answered are arguments. `questions` says
what has to be looked up, `evaluate` makes a verdict of the answers, and nothing is remembered from
one evaluation to the next: a failed upstream that is run again counts by its new state (T89).

*Intervals* are half-open, `[start, end)`, and their ends are instants in UTC. They are cut on the
wall clock of the zone: a day of the autumn change has 25 hours, and an hour that the clock shows
twice is one interval of two hours (T45). An hour or a day that a change of the clock leaves out is
no interval, and counting back passes over it. "Hour of t" and "day of t" are those that t lies in.

Choices where versions of the original differ:

- `last24Hours` is aligned to days, not to the moment: hour 01 of the day before up to and
  including hour 00 of the moment's day (T88).
- A PAUSED upstream is awaited like a pausing one, for it is meant to go on (T43c). STOP and FAILURE
  are the unsuccessful ends.
- One task of a run may be good before its run has ended; it fails a wait only when the run is over.
- A task that its run left out on purpose (forbidden, or skipped by a branch) is no obstacle there:
  a successful run without an attempt at the task counts as a success if its definition has it.
- Every interval must succeed; the first that has not is the item's result. So a month needs a run
  on each of its days (T43e), unless the item says `"intervals": "ANY"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum, IntEnum
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from common.model.control import Dependent, DependItem, Relation
from common.model.states import ProcessState
from common.model.upstream import Absence, Answer, Question, UpstreamRun, UpstreamTask


class DependResult(IntEnum):
    """What a wait amounts to; the codes are those of specification §2.1."""

    SUCCESS = 0
    WAITING = 1
    FAILED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """All instants from `start` up to but not including `end`, both in UTC."""

    start: datetime
    end: datetime

    def contains(self, moment: datetime) -> bool:
        return self.start <= moment < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """One item, by its key, and what it amounts to."""

    key: str
    result: DependResult

    @property
    def line(self) -> str:
        """How the log tells of an item that is decided; the original's front end reads it."""
        return f"dependent item complete :||{self.key},{self.result.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the wait amounts to now, and what was looked at.

    `evidence` is made of JSON values: one entry for each interval of each item, in the order
    written, with the keys `group` (from 1), `key`, `from`, `to` (on the zone's clock), `run` (null
    or the row: `id`, `state`, `scheduleTime`, `startTime`, `endTime`), `task` (null or the attempt:
    `id`, `state`, `endTime`), `result` and `why`.
    """

    result: DependResult
    items: tuple[ItemResult, ...]
    evidence: list[dict[str, Any]]


class Join(Enum):
    """How parts of a wait make one: all of them, any of them, or the first that is no success."""

    ALL = "all"
    ANY = "any"
    IN_TURN = "in turn"

    @property
    def of_nothing(self) -> DependResult:
        """What no parts at all amount to."""
        return DependResult.FAILED if self is Join.ANY else DependResult.SUCCESS

    def of(self, one: DependResult, rest: DependResult) -> DependResult:
        """What a part and, behind it, the others together amount to."""
        match self:
            case Join.ALL:
                return _joined(Relation.AND, (one, rest))
            case Join.ANY:
                return _joined(Relation.OR, (one, rest))
            case Join.IN_TURN:
                return rest if one is DependResult.SUCCESS else one


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one interval of an item amounts to; `run` if only the end of that whole run tells."""

    result: DependResult
    run: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Several waits that make one."""

    join: Join
    parts: tuple[Wait, ...]


Wait: TypeAlias = Entry | Joined


def questions(
    dependent: Dependent, moment: datetime, zone: ZoneInfo, *, apart_from: int = 0
) -> tuple[Question, ...]:
    """What must be looked up, each question once; `apart_from` is the asking run's own id."""
    asked: dict[Question, None] = {}
    for group in dependent.groups:
        for item in group.items:
            for interval in intervals(item, moment, zone):
                asked[_question(item, interval, apart_from)] = None
    return tuple(asked)


def evaluate(
    dependent: Dependent,
    moment: datetime,
    zone: ZoneInfo,
    answers: Mapping[Question, Answer],
    *,
    apart_from: int = 0,
) -> Verdict:
    """The verdict on these answers, which are those to `questions` with the same arguments.

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
                _looked(item, interval, answers, apart_from)
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
    answers: Mapping[Question, Answer],
    *,
    apart_from: int = 0,
) -> Wait:
    """What `evaluate` makes its verdict of, with the same arguments, and how it is joined."""

    def of_item(item: DependItem) -> Wait:
        looked = [
            _looked(item, interval, answers, apart_from)
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


def intervals(item: DependItem, moment: datetime, zone: ZoneInfo) -> tuple[Interval, ...]:
    """The intervals that an item means at an aware moment, oldest first.

    There is none for a date value that is unknown, for a named day that the zone left out, and at
    the ends of the calendar.
    """
    if moment.utcoffset() is None:
        raise ValueError("the moment has no zone")
    cut = DATE_VALUES_CUT.get((item.cycle, item.date_value))
    if cut is None:
        return ()
    try:
        return tuple(cut(moment.astimezone(UTC), zone))
    except (OverflowError, ValueError):
        # The years 1 and 9999 have no day before or behind them.
        return ()


def _item_result(item: DependItem, results: Sequence[DependResult]) -> DependResult:
    if not results:
        return DependResult.FAILED
    if item.any_interval:
        return _joined(Relation.OR, results)
    return next(
        (result for result in results if result is not DependResult.SUCCESS), DependResult.SUCCESS
    )


def _joined(relation: Relation, results: Sequence[DependResult]) -> DependResult:
    """Specification §10.1; of nothing, AND is SUCCESS and OR is FAILED."""
    decisive, rest = (
        (DependResult.FAILED, DependResult.SUCCESS)
        if relation is Relation.AND
        else (DependResult.SUCCESS, DependResult.FAILED)
    )
    if decisive in results:
        return decisive
    return DependResult.WAITING if DependResult.WAITING in results else rest


_JOINS = {Relation.AND: Join.ALL, Relation.OR: Join.ANY}


def _entry(item: DependItem, looked: _Looked) -> Entry:
    run = looked.run
    # One task of a run may be good long before its run ends, and who goes on with a paused run
    # begins it anew.
    is_told_by_the_end = run is not None and item.task is None and not run.state.is_terminal
    if looked.result is DependResult.WAITING and run is not None and is_told_by_the_end:
        return Entry(result=looked.result, run=run.id)
    return Entry(result=looked.result)


def _question(item: DependItem, interval: Interval, apart_from: int) -> Question:
    return Question(
        definition_id=item.definition_id,
        definition_name=item.definition_name,
        task=item.task,
        start=interval.start,
        end=interval.end,
        apart_from=apart_from,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """One interval of an item, the row that was looked at, and what it amounts to."""

    interval: Interval | None
    run: UpstreamRun | None
    result: DependResult
    why: str

    def as_json(self, zone: ZoneInfo) -> dict[str, Any]:
        interval, run = self.interval, self.run
        task = run.task if run else None
        return {
            "from": _clock(interval.start, zone) if interval else None,
            "to": _clock(interval.end, zone) if interval else None,
            "run": run
            and {
                "id": run.id,
                "state": run.state.name,
                "scheduleTime": _clock(run.schedule_time, zone),
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
        }


_NEVER = _Looked(
    interval=None,
    run=None,
    result=DependResult.FAILED,
    why="the date value means no interval at this moment",
)


def _clock(moment: datetime | None, zone: ZoneInfo) -> str | None:
    return None if moment is None else moment.astimezone(zone).isoformat()


def _looked(
    item: DependItem,
    interval: Interval,
    answers: Mapping[Question, Answer],
    apart_from: int,
) -> _Looked:
    answer = answers.get(_question(item, interval, apart_from))
    if isinstance(answer, UpstreamRun) and answer.id != apart_from and _counts(answer, interval):
        result, why = _run_result(answer, item.task)
        return _Looked(interval=interval, run=answer, result=result, why=why)
    # A run that does not count here, the asking run itself among them, is no answer.
    absence = answer if isinstance(answer, Absence) else Absence.NO_RUN
    return _Looked(interval=interval, run=None, result=_ABSENT[absence], why=absence.value)


_ABSENT = {
    Absence.NO_RUN: DependResult.WAITING,
    Absence.NO_DEFINITION: DependResult.FAILED,
    Absence.FIRST_RUN: DependResult.SUCCESS,
}


def _counts(run: UpstreamRun, interval: Interval) -> bool:
    """By the date that a run is for; by its start only if it is for none (T43d)."""
    return interval.contains(run.start_time if run.schedule_time is None else run.schedule_time)


def _run_result(run: UpstreamRun, task: str | None) -> tuple[DependResult, str]:
    """What the newest run in an interval amounts to, and why, in words for the user."""
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
    """Whether nothing more is to be expected of it; a paused run is meant to go on."""
    return run.state.is_terminal and run.state is not ProcessState.PAUSE


# What follows cuts time.

_Cut: TypeAlias = Callable[[datetime, ZoneInfo], Iterator[Interval]]

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_SECOND = timedelta(seconds=1)


def _instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant at which the clock of the zone shows that time, or has just passed it."""
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return instant
    # The clock leaves this time out. Read with the offsets before and behind the change, it lies
    # on either side of the change, which is the first instant of the later offset.
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    later = instant.astimezone(zone).utcoffset()
    low, high = 0, (instant - before) // _SECOND
    while low < high:
        middle = (low + high) // 2
        if (before + middle * _SECOND).astimezone(zone).utcoffset() == later:
            high = middle
        else:
            low = middle + 1
    return before + high * _SECOND


def _between(wall: datetime, step: timedelta, zone: ZoneInfo) -> Interval:
    """From a time on the clock until one a step later; empty if the clock leaves all of it out."""
    return Interval(start=_instant(wall, zone), end=_instant(wall + step, zone))


def _wall_of(moment: datetime, step: timedelta, zone: ZoneInfo) -> datetime:
    """The hour or day, as the clock shows its beginning, that the moment lies in.

    What the clock shows is only where to begin: just behind midnight it may be set back into the
    day before, whose last minutes then belong to the day that has begun.
    """
    wall = moment.astimezone(zone).replace(tzinfo=None, fold=0, minute=0, second=0, microsecond=0)
    if step == _DAY:
        wall = wall.replace(hour=0)
    while _instant(wall, zone) > moment:
        wall -= step
    while _instant(wall + step, zone) <= moment:
        wall += step
    return wall


def _existing(walls: Iterator[datetime], step: timedelta, zone: ZoneInfo) -> Iterator[Interval]:
    for wall in walls:
        interval = _between(wall, step, zone)
        if interval.start < interval.end:
            yield interval


def _backwards(wall: datetime, step: timedelta) -> Iterator[datetime]:
    while True:
        wall -= step
        yield wall


def _days(first: date, last: date, zone: ZoneInfo) -> Iterator[Interval]:
    """Each day from the first to the last, both included."""
    count = (last - first).days + 1
    walls = (datetime.combine(first, time()) + number * _DAY for number in range(count))
    return _existing(walls, _DAY, zone)


def _day_of(moment: datetime, zone: ZoneInfo) -> date:
    return _wall_of(moment, _DAY, zone).date()


def _current(step: timedelta) -> _Cut:
    def cut(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
        yield _between(_wall_of(moment, step, zone), step, zone)

    return cut


def _last(count: int, step: timedelta) -> _Cut:
    """So many full hours or days before the one of the moment."""

    def cut(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
        found = _existing(_backwards(_wall_of(moment, step, zone), step), step, zone)
        newest_first = [next(found) for _ in range(count)]
        return reversed(newest_first)

    return cut


def _last_24_hours(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    today = _wall_of(moment, _DAY, zone)
    yesterday = next(_existing(_backwards(today, _DAY), _DAY, zone))
    first = _wall_of(yesterday.start, _DAY, zone) + _HOUR
    count = (today - first) // _HOUR + 1
    return _existing((first + number * _HOUR for number in range(count)), _HOUR, zone)


def _this_week(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    day = _day_of(moment, zone)
    return _days(day - day.weekday() * _DAY, day, zone)


def _last_week(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    monday = _last_monday(moment, zone)
    return _days(monday, monday + 6 * _DAY, zone)


def _last_monday(moment: datetime, zone: ZoneInfo) -> date:
    day = _day_of(moment, zone)
    return day - (day.weekday() + 7) * _DAY


def _last_weekday(number: int) -> _Cut:
    """One day of the week before; Monday is 0."""

    def cut(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
        day = _last_monday(moment, zone) + number * _DAY
        return _days(day, day, zone)

    return cut


def _this_month(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    day = _day_of(moment, zone)
    return _days(day.replace(day=1), day, zone)


def _this_month_begin(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    first = _day_of(moment, zone).replace(day=1)
    return _days(first, first, zone)


def _this_month_end(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    # The 28th and four days are in the next month, whichever the month (T44).
    next_month = _day_of(moment, zone).replace(day=28) + 4 * _DAY
    last = next_month.replace(day=1) - _DAY
    return _days(last, last, zone)


def _last_month(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    last = _last_day_of_last_month(moment, zone)
    return _days(last.replace(day=1), last, zone)


def _last_month_begin(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    first = _last_day_of_last_month(moment, zone).replace(day=1)
    return _days(first, first, zone)


def _last_month_end(moment: datetime, zone: ZoneInfo) -> Iterator[Interval]:
    last = _last_day_of_last_month(moment, zone)
    return _days(last, last, zone)


def _last_day_of_last_month(moment: datetime, zone: ZoneInfo) -> date:
    return _day_of(moment, zone).replace(day=1) - _DAY


DATE_VALUES_CUT: Mapping[tuple[str, str], _Cut] = {
    ("hour", "currentHour"): _current(_HOUR),
    ("hour", "last1Hour"): _last(1, _HOUR),
    ("hour", "last2Hours"): _last(2, _HOUR),
    ("hour", "last3Hours"): _last(3, _HOUR),
    ("hour", "last24Hours"): _last_24_hours,
    ("day", "today"): _current(_DAY),
    ("day", "last1Days"): _last(1, _DAY),
    ("day", "last2Days"): _last(2, _DAY),
    ("day", "last3Days"): _last(3, _DAY),
    ("day", "last7Days"): _last(7, _DAY),
    ("week", "thisWeek"): _this_week,
    ("week", "lastWeek"): _last_week,
    ("week", "lastMonday"): _last_weekday(0),
    ("week", "lastTuesday"): _last_weekday(1),
    ("week", "lastWednesday"): _last_weekday(2),
    ("week", "lastThursday"): _last_weekday(3),
    ("week", "lastFriday"): _last_weekday(4),
    ("week", "lastSaturday"): _last_weekday(5),
    ("week", "lastSunday"): _last_weekday(6),
    ("month", "thisMonth"): _this_month,
    ("month", "thisMonthBegin"): _this_month_begin,
    ("month", "thisMonthEnd"): _this_month_end,
    ("month", "lastMonth"): _last_month,
    ("month", "lastMonthBegin"): _last_month_begin,
    ("month", "lastMonthEnd"): _last_month_end,
}
