"""Decides which applications are orphans and have to be ended.

Pure. An *orphan* is a live application with a tag of ours whose attempt is over for good. It is
ended if it has been one for a while, since one that has just ended may not have been struck off by
its manager yet, or is being ended by its own runner. The application of an attempt
that the tables don't know is left alone and logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeAlias

from worker.spark.managers.base import Application
from worker.spark.managers.tags import Tags

PATIENCE: Final = timedelta(seconds=8)

Key: TypeAlias = tuple[str, str]
"""An application by its manager and its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One application at the moment of a look, and the attempt that its tag names."""

    key: Key
    task_instance_id: int
    application: Application


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The conclusions from one look."""

    kill: tuple[Sight, ...] = ()
    gone: tuple[Key, ...] = ()
    """Those that were to be ended, and have."""
    unknown: tuple[Sight, ...] = ()
    """Of attempts that the tables don't know, seen for the first time."""
    orphans: Mapping[Key, timedelta] = field(default_factory=dict)
    """Since when each has been one; for the next look."""
    foreign: frozenset[Key] = frozenset()
    """All of which no attempt is known; for the next look."""


def sights(place: str, tags: Tags, applications: Iterable[Application]) -> list[Sight]:
    """Return the live ones that carry a tag of ours. `place` names their manager."""
    found = []
    for each in applications:
        for tag in each.tags:
            task_instance_id = tags.attempt_to_sweep(tag)
            if task_instance_id is not None and not each.state.is_final:
                found.append(
                    Sight(key=(place, each.id), task_instance_id=task_instance_id, application=each)
                )
                break
    return found


def decide(
    seen: Sequence[Sight],
    *,
    asked: Iterable[str],
    over: Mapping[int, bool | None],
    before: Sweep,
    now: timedelta,
) -> Sweep:
    """Return the conclusions from the applications that were seen.

    `asked` are the managers that gave a sure answer: what of the others was known stays so. `over`
    says of each attempt whether it is over for good, None if it is not known. `now` is of a clock
    that never jumps.
    """
    answered = frozenset(asked)
    orphans = {key: since for key, since in before.orphans.items() if key[0] not in answered}
    foreign = {key for key in before.foreign if key[0] not in answered}
    kill: list[Sight] = []
    unknown: list[Sight] = []
    for sight in seen:
        match over.get(sight.task_instance_id):
            case True:
                since = orphans[sight.key] = before.orphans.get(sight.key, now)
                if now - since >= PATIENCE:
                    kill.append(sight)
            case None:
                foreign.add(sight.key)
                if sight.key not in before.foreign:
                    unknown.append(sight)
            case _:
                pass  # Somebody follows it, or will.
    # Only what had been an orphan long enough to be killed is news when it is gone.
    gone = [
        key
        for key, since in before.orphans.items()
        if key not in orphans and now - since >= PATIENCE
    ]
    return Sweep(
        kill=tuple(kill),
        gone=tuple(gone),
        unknown=tuple(unknown),
        orphans=orphans,
        foreign=frozenset(foreign),
    )
