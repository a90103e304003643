"""The changes of a run since the last good one, as its page shows them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from api.console.differences import ShownDifference, ShownValue, shown, values_of
from api.console.words import elided
from api.marking import marked
from common.run_changes import RunChanges, Usual, VolumeChange
from operations.texts import size

_MOST_TASKS: Final = 20
_LONGEST_NAME: Final = 60
_ROUND: Final = 10
_SIZES: Final = frozenset({"bytes_in", "bytes_out", "spill_bytes"})
_VOLUMES: Final = {
    "rows_in": marked("rows read"),
    "bytes_in": marked("data read"),
    "rows_out": marked("rows written"),
    "bytes_out": marked("data written"),
    "spill_bytes": marked("spilt to disk"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVolume:
    """An amount of data, with its name; `before` and `now` are texts."""

    name: str
    before: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNote:
    """A task that went otherwise; pairs are of before and now."""

    name: str
    task: str
    factor: str | None
    spans: tuple[timedelta, timedelta] | None
    usual: Usual | None
    attempts: tuple[int, int] | None
    hosts: tuple[str, str] | None
    volumes: tuple[ShownVolume, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSince:
    """The changes since a good run; `left_out` counts the tasks that a page doesn't show."""

    good: int
    is_none: bool
    versions: tuple[int, int] | None
    definition: ShownDifference
    surroundings: tuple[ShownValue, ...]
    parameters: tuple[ShownValue, ...]
    tasks: tuple[ShownNote, ...]
    left_out: int


def since(good: int, found: RunChanges) -> ShownSince:
    """Return the texts of the changes, and not too many of them."""
    tasks = found.tasks[:_MOST_TASKS]
    return ShownSince(
        good=good,
        is_none=found.is_none,
        versions=found.versions,
        definition=shown(found.definition, most_tasks=_MOST_TASKS),
        surroundings=values_of(found.surroundings),
        parameters=values_of(found.parameters),
        tasks=tuple(
            ShownNote(
                name=elided(each.name, _LONGEST_NAME),
                task=each.name,
                factor=None if each.factor is None else factor_text(each.factor),
                spans=each.spans,
                usual=each.usual,
                attempts=each.attempts,
                hosts=each.hosts,
                volumes=tuple(_volume(volume) for volume in each.volumes),
            )
            for each in tasks
        ),
        left_out=len(found.tasks) - len(tasks),
    )


def _volume(change: VolumeChange) -> ShownVolume:
    text = size if change.key in _SIZES else "{:,}".format
    return ShownVolume(name=_VOLUMES[change.key], before=text(change.before), now=text(change.now))


def factor_text(factor: float) -> str:
    """Return `24 ×`, `2.4 ×` or `0.25 ×`."""
    if factor >= _ROUND:
        return f"{factor:.0f} ×"
    return f"{factor:.1f} ×" if factor >= 1 else f"{factor:.2f} ×"
