"""The changes of a run against an earlier one: definition, surroundings, parameters, durations.

Pure. `operations.run_changes` reads the facts of both; secrets are masked in them before they come
here, so a secret that has changed is no change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from common.definition_diff import Difference, ValueChange, difference

STANDS_OUT: Final = 2.0
"""The factor from which a duration stands out."""
_LEAST: Final = timedelta(seconds=2)
"""A smaller change is noise, whatever its factor."""
_SHORTEST: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """The attempt at a task that counts in its run; `span` is so far, until it `has_ended`."""

    attempt: int
    span: timedelta | None
    host: str | None
    has_ended: bool
    is_good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run as far as it is compared; `definition` is its own copy, as a document."""

    version: int | None
    definition: Mapping[str, Any]
    surroundings: Mapping[str, str | None]
    parameters: Mapping[str, str]
    tasks: Mapping[str, TaskFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNote:
    """A task that went otherwise. Pairs are of before and now; None is not worth telling.

    `factor` is that of the durations, if it stands out.
    """

    name: str
    spans: tuple[timedelta, timedelta] | None
    factor: float | None
    attempts: tuple[int, int] | None
    hosts: tuple[str, str] | None


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


def changes(before: RunFacts, now: RunFacts) -> RunChanges:
    """Compare two runs of one definition; tasks that took longest for their like come first."""
    versions = None
    if before.version is not None and now.version is not None and before.version != now.version:
        versions = (before.version, now.version)
    notes = [
        note
        for name, task in now.tasks.items()
        if name in before.tasks and (note := _note(name, before.tasks[name], task)) is not None
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


def _note(name: str, before: TaskFacts, now: TaskFacts) -> TaskNote | None:
    factor = _factor(before, now)
    attempts = (before.attempt, now.attempt) if now.attempt > before.attempt else None
    has_failed = now.has_ended and not now.is_good
    # Another worker is news only of a task about which there is news.
    if factor is None and attempts is None and not has_failed:
        return None
    hosts = None
    if before.host is not None and now.host is not None and before.host != now.host:
        hosts = (before.host, now.host)
    if factor is None and attempts is None and hosts is None:
        return None
    spans = None
    if factor is not None and before.span is not None and now.span is not None:
        spans = (before.span, now.span)
    return TaskNote(name=name, spans=spans, factor=factor, attempts=attempts, hosts=hosts)


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
