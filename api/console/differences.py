"""The difference of two definitions as pages show it: texts, shortened, and not too many. Pure.

Used by the comparison of two versions, by the look ahead of a restore, and by a run's page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.console.words import elided
from common.definition_diff import Difference, ValueChange

MOST_TASKS: Final = 200
_MOST_NAMES: Final = 500
_MOST_LINES: Final = 3_000
_LONGEST_VALUE: Final = 1_000
_LONGEST_LINE: Final = 1_000
_LONGEST_NAME: Final = 100
_TAB: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownValue:
    """A value that differs; None is none. Of a long text there are only the `lines` of a diff."""

    key: str
    before: str | None
    after: str | None
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTask:
    """A task that has changed; `was` is its former name, if it had another one."""

    name: str
    was: str | None
    values: tuple[ShownValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDifference:
    """All that a page shows of a difference; `left_out` counts the changed tasks that it doesn't.

    The numbers are those of all, shown or not.
    """

    is_none: bool
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[ShownTask, ...]
    edges_added: tuple[tuple[str, str], ...]
    edges_removed: tuple[tuple[str, str], ...]
    settings: tuple[ShownValue, ...]
    risks: tuple[str, ...]
    left_out: int
    tasks_added: int
    tasks_removed: int
    tasks_changed: int
    edges: int
    contents: tuple[ShownTask, ...]
    """The added tasks with their values."""
    is_cut: bool
    """True if the page omits or shortens a part; a reviewer then needs the whole difference."""


def shown(found: Difference, *, most_tasks: int = MOST_TASKS) -> ShownDifference:
    """Return the texts of a difference, with at most `most_tasks` changed and added tasks each."""
    lines = _Lines()
    changed = found.changed[:most_tasks]
    contents = found.contents[:most_tasks]
    shown_contents = tuple(
        ShownTask(name=_name(each.name), was=None, values=values_of(each.changes, lines))
        for each in contents
    )
    return ShownDifference(
        is_none=found.is_none,
        added=_names(found.added),
        removed=_names(found.removed),
        contents=shown_contents,
        changed=tuple(
            ShownTask(
                name=_name(each.name),
                was=_name(each.was) if each.is_renamed else None,
                values=values_of(each.changes, lines),
            )
            for each in changed
        ),
        edges_added=_edges(found.edges_added),
        edges_removed=_edges(found.edges_removed),
        settings=values_of(found.settings, lines),
        risks=tuple(elided(each, _LONGEST_VALUE) for each in found.risks[:_MOST_NAMES]),
        left_out=len(found.changed) - len(changed),
        tasks_added=len(found.added),
        tasks_removed=len(found.removed),
        tasks_changed=len(found.changed),
        edges=len(found.edges_added) + len(found.edges_removed),
        is_cut=_is_cut(found, most_tasks),
    )


def _is_cut(found: Difference, most_tasks: int) -> bool:
    """Return True if the number or the length of tasks, names or lines is above a limit."""
    tasks = (*found.changed, *found.contents)
    values = [*(one for each in tasks for one in each.changes), *found.settings]
    edges = (*found.edges_added, *found.edges_removed)
    names = (*found.added, *found.removed, *(each.name for each in tasks))
    return (
        max(len(found.changed), len(found.contents)) > most_tasks
        or max(map(len, (found.added, found.removed, found.edges_added, found.edges_removed)))
        > _MOST_NAMES
        or sum(len(each.lines) for each in values) > _MOST_LINES
        or any(_is_long(each) for each in values)
        or any(
            len(each) > _LONGEST_NAME for each in (*names, *(one for two in edges for one in two))
        )
    )


def _is_long(change: ValueChange) -> bool:
    if len(change.key) > _LONGEST_NAME:
        return True
    if change.lines:
        return any(len(each.expandtabs(_TAB)) > _LONGEST_LINE for each in change.lines)
    return any(
        len(_written(one, other)) > _LONGEST_VALUE
        for one, other in (
            (change.before, change.after),
            (change.after, change.before),
        )
        if one is not None
    )


class _Lines:
    """Shortens the lines of diffs, and leaves them out once a page has enough of them."""

    def __init__(self) -> None:
        self._left = _MOST_LINES

    def of(self, lines: Sequence[str]) -> tuple[str, ...]:
        kept = lines[: self._left]
        self._left -= len(kept)
        texts = [elided(each.expandtabs(_TAB), _LONGEST_LINE) for each in kept]
        rest = len(lines) - len(kept)
        return tuple([*texts, f"… {rest}"] if rest else texts)


def values_of(
    changes: Sequence[ValueChange], lines: _Lines | None = None
) -> tuple[ShownValue, ...]:
    """Return the texts of values that differ."""
    kept = _Lines() if lines is None else lines
    return tuple(
        ShownValue(
            key=_name(each.key),
            before=_text(each.before, each.after),
            after=_text(each.after, each.before),
            lines=kept.of(each.lines),
        )
        for each in changes
    )


def _text(value: Any, other: Any) -> str | None:
    if value is None:
        return None
    return elided(_written(value, other), _LONGEST_VALUE)


def _written(value: Any, other: Any) -> str:
    # A text that is empty, or looks like a value of another kind, is told by its quotation marks.
    is_plain = isinstance(value, str) and value.strip() and isinstance(other, str | None)
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _name(name: str) -> str:
    return elided(name, _LONGEST_NAME)


def _names(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_name(each) for each in names[:_MOST_NAMES])


def _edges(edges: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((_name(above), _name(below)) for above, below in edges[:_MOST_NAMES])
