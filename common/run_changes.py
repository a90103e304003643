"""The changes of a run against an earlier one: definition, surroundings, parameters, tasks, data.

Pure. `operations.run_changes` reads the facts of both; secrets are masked in them before they come
here, so a secret that has changed is no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from common.definition_diff import Difference, ValueChange, difference
from common.model.spark import Progress

STANDS_OUT: Final = 2.0
"""The factor from which a duration stands out."""
_LEAST: Final = timedelta(seconds=2)
"""A smaller change is noise, whatever its factor."""
_SHORTEST: Final = timedelta(milliseconds=1)
_ENOUGH_RUNS: Final = 5
"""With fewer, their 90th percentile is one of them, and says little."""
_LEAST_ROWS: Final = 100
_LEAST_BYTES: Final = 1 << 20
VOLUMES: Final = ("rows_in", "bytes_in", "rows_out", "bytes_out", "spill_bytes")
"""The fields of `Progress` that are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """The attempt at a task that counts in its run; `span` is so far, until it `has_ended`.

    `progress` is None of what is no Spark application.
    """

    attempt: int
    span: timedelta | None
    host: str | None
    has_ended: bool
    is_good: bool
    progress: Progress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The durations of a task in the last good runs: nine of ten are not above `p90`."""

    p90: timedelta
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run as far as it is compared; `definition` is its own copy, as a document."""

    version: int | None
    definition: Mapping[str, Any]
    surroundings: Mapping[str, str | None]
    parameters: Mapping[str, str]
    tasks: Mapping[str, TaskFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeChange:
    """An amount of data that stands out: a field of `Progress`; sizes are in bytes."""

    key: str
    before: int
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNote:
    """A task that went otherwise. Pairs are of before and now; None is not worth telling.

    `factor` is that of the durations, if it stands out; `usual` is told beside it, if it is known.
    """

    name: str
    spans: tuple[timedelta, timedelta] | None
    factor: float | None
    usual: Usual | None
    attempts: tuple[int, int] | None
    hosts: tuple[str, str] | None
    volumes: tuple[VolumeChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """All that differs. `versions` are told if both are known; the definition may differ anyway."""

    versions: tuple[int, int] | None
    definition: Difference
    surroundings: tuple[ValueChange, ...]
    parameters: tuple[ValueChange, ...]
    tasks: tuple[TaskNote, ...]

    @property
    def is_none(self) -> bool:
        return self.definition.is_none and not (
            self.versions or self.surroundings or self.parameters or self.tasks
        )


_NOTHING_USUAL: Final[Mapping[str, Usual]] = {}


def slow_tasks(before: RunFacts, now: RunFacts) -> tuple[str, ...]:
    """Return the tasks that took much longer than before: ask for what is usual of them."""
    factors = {
        name: _factor(before.tasks[name], task)
        for name, task in now.tasks.items()
        if name in before.tasks
    }
    return tuple(name for name, each in factors.items() if each is not None and each > 1)


def changes(
    before: RunFacts, now: RunFacts, usual: Mapping[str, Usual] = _NOTHING_USUAL
) -> RunChanges:
    """Compare two runs of one definition; tasks that took longest for their like come first.

    A task of `slow_tasks` that took no longer than is `usual` is not slow: the run before was fast.
    """
    versions = None
    if before.version is not None and now.version is not None and before.version != now.version:
        versions = (before.version, now.version)
    notes = [
        note
        for name, task in now.tasks.items()
        if name in before.tasks
        and (note := _note(name, before.tasks[name], task, usual.get(name))) is not None
    ]
    return RunChanges(
        versions=versions,
        definition=difference(before.definition, now.definition),
        surroundings=tuple(_values(before.surroundings, now.surroundings)),
        parameters=tuple(_values(before.parameters, now.parameters)),
        tasks=tuple(sorted(notes, key=_weight)),
    )


def _values(
    before: Mapping[str, str | None], now: Mapping[str, str | None]
) -> Iterator[ValueChange]:
    for key in dict.fromkeys((*before, *now)):
        old, new = before.get(key), now.get(key)
        if old != new:
            yield ValueChange(key=key, before=old, after=new)


def _note(name: str, before: TaskFacts, now: TaskFacts, usual: Usual | None) -> TaskNote | None:
    factor = _factor(before, now)
    if factor is not None and factor > 1 and usual is not None and _is_usual(now, usual):
        factor = None
    attempts = (before.attempt, now.attempt) if now.attempt > before.attempt else None
    volumes = tuple(_volumes(before, now))
    has_failed = now.has_ended and not now.is_good
    # Another worker is news only of a task about which there is news.
    if factor is None and attempts is None and not volumes and not has_failed:
        return None
    hosts = None
    if before.host is not None and now.host is not None and before.host != now.host:
        hosts = (before.host, now.host)
    if factor is None and attempts is None and not volumes and hosts is None:
        return None
    spans = None
    if factor is not None and before.span is not None and now.span is not None:
        spans = (before.span, now.span)
    return TaskNote(
        name=name,
        spans=spans,
        factor=factor,
        usual=None if factor is None else usual,
        attempts=attempts,
        hosts=hosts,
        volumes=volumes,
    )


def _is_usual(now: TaskFacts, usual: Usual) -> bool:
    return usual.runs >= _ENOUGH_RUNS and now.span is not None and now.span <= usual.p90


def _volumes(before: TaskFacts, now: TaskFacts) -> Iterator[VolumeChange]:
    """Yield what stands out of the data: twice as much, half as much, or none instead of some."""
    if before.progress is None or now.progress is None or not before.is_good:
        return
    is_complete = now.has_ended and now.is_good
    for key in VOLUMES:
        old, new = getattr(before.progress, key), getattr(now.progress, key)
        least = _LEAST_ROWS if key.startswith("rows") else _LEAST_BYTES
        is_more = new - old >= least and new >= old * STANDS_OUT
        # An attempt that still runs, or has failed, has moved less of its own accord.
        is_less = is_complete and (
            (old - new >= least and new * STANDS_OUT <= old) or (new == 0 and old > 0)
        )
        if is_more or is_less:
            yield VolumeChange(key=key, before=old, now=new)


def _factor(before: TaskFacts, now: TaskFacts) -> float | None:
    """Return the factor of the durations if it stands out."""
    if before.span is None or now.span is None or not before.is_good:
        return None
    longer, shorter = now.span - before.span, before.span - now.span
    factor = max(now.span, _SHORTEST) / max(before.span, _SHORTEST)
    if longer >= _LEAST and factor >= STANDS_OUT:
        return factor
    # A task that still runs, or has failed, is shorter of its own accord.
    if shorter >= _LEAST and now.has_ended and now.is_good and factor <= 1 / STANDS_OUT:
        return factor
    return None


def _weight(note: TaskNote) -> timedelta:
    return timedelta() if note.spans is None else -abs(note.spans[1] - note.spans[0])
