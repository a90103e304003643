"""The history of a run: attempts, orders of people, its end, the newest first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from api.console.looks import Look, of_run, of_task
from api.marking import marked
from common.model.states import LIVE_TASK_STATES, TERMINAL_PROCESS_CODES

_MOST: Final = 200
_STARTED: Final = marked("started")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run: `note` is the reason of its state."""

    state: int
    start_time: datetime
    end_time: datetime | None
    host: str | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """An attempt at a task."""

    id: int
    name: str
    number: int
    state: int
    start_time: datetime | None
    end_time: datetime | None
    host: str | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """An order of somebody, about an attempt or the whole run."""

    at: datetime
    verb: str
    by: str
    attempt: int | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened: `look` is the state that came of it, `verb` somebody's order."""

    at: datetime
    look: Look | None = None
    word: str | None = None
    verb: str | None = None
    task: str | None = None
    attempt: int | None = None
    by: str | None = None
    """The one who ordered it, or the worker or master that did it."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The newest events first; `left_out` counts those that are older."""

    events: tuple[Event, ...]
    left_out: int


def history_of(run: Ran, attempts: Sequence[Tried], orders: Iterable[Ordered]) -> History:
    """Put together what happened; of two events of one moment the later cause comes first."""
    named = {each.id: each for each in attempts}
    found = [
        *(_of_order(each, named) for each in orders),
        Event(at=run.start_time, word=_STARTED, by=run.host),
        *(event for each in sorted(attempts, key=lambda each: each.id) for event in _of_task(each)),
    ]
    if run.end_time is not None and run.state in TERMINAL_PROCESS_CODES:
        found.append(Event(at=run.end_time, look=of_run(run.state), note=run.note))
    found.sort(key=lambda each: each.at)
    newest = found[::-1]
    return History(events=tuple(newest[:_MOST]), left_out=max(0, len(newest) - _MOST))


def _of_task(tried: Tried) -> Iterator[Event]:
    task, attempt, by = tried.name, tried.number, tried.host
    if tried.start_time is not None:
        yield Event(at=tried.start_time, word=_STARTED, task=task, attempt=attempt, by=by)
    if tried.end_time is not None and tried.state not in LIVE_TASK_STATES:
        look = of_task(tried.state)
        at, note = tried.end_time, tried.note
        yield Event(at=at, look=look, task=task, attempt=attempt, by=by, note=note)


def _of_order(order: Ordered, named: Mapping[int, Tried]) -> Event:
    about = named.get(order.attempt or 0)
    return Event(
        at=order.at,
        verb=order.verb,
        task=None if about is None else about.name,
        attempt=None if about is None else about.number,
        by=order.by,
        note=order.note,
    )
