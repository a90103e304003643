"""The merge of two changes of one definition, as far as they are changes of different things.

Pure. A *part* is a task by its name, or a setting of the document by its key. A part that both have
changed, and not to the same, is a conflict; nobody's change is guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_JSON: Final = "processDefinitionJson"
_TASKS: Final = "tasks"
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The outcome of a merge: a document, or the parts that both have changed.

    `theirs` names the parts that the other one has changed since.
    """

    document: dict[str, Any] | None
    conflicts: tuple[str, ...]
    theirs: tuple[str, ...]


def merged(base: Mapping[str, Any], mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Merged:
    """Put the changes that `theirs` has made to `base` into `mine`, task by task."""
    changed: list[str] = []
    conflicts: list[str] = []

    def chosen(name: str, old: object, own: object, other: object) -> object:
        if other not in (old, own):
            changed.append(name)
            if own != old:
                conflicts.append(name)
            return other
        return own

    top = _merged_keys("", _settings(base), _settings(mine), _settings(theirs), chosen)
    inner = _merged_keys("", _inner(base), _inner(mine), _inner(theirs), chosen)
    tasks = _merged_keys("task ", _tasks(base), _tasks(mine), _tasks(theirs), chosen)
    if conflicts:
        return Merged(document=None, conflicts=tuple(conflicts), theirs=tuple(changed))
    document = {**top, _JSON: {**inner, _TASKS: list(tasks.values())}}
    return Merged(document=document, conflicts=(), theirs=tuple(changed))


def is_mergeable(document: object) -> bool:
    """Return True for a document whose tasks have names that differ."""
    if not isinstance(document, dict) or not isinstance(document.get(_JSON), dict):
        return False
    nodes = document[_JSON].get(_TASKS)
    if not isinstance(nodes, list):
        return False
    names = [each.get("name") if isinstance(each, dict) else None for each in nodes]
    return all(isinstance(each, str) for each in names) and len(set(names)) == len(names)


def _merged_keys(
    prefix: str,
    base: Mapping[str, Any],
    mine: Mapping[str, Any],
    theirs: Mapping[str, Any],
    chosen: Any,
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key in _in_order(mine, theirs, base):
        each = chosen(
            f"{prefix}{key}",
            base.get(key, _NOTHING),
            mine.get(key, _NOTHING),
            theirs.get(key, _NOTHING),
        )
        if each is not _NOTHING:
            made[key] = each
    return made


def _in_order(*documents: Mapping[str, Any]) -> Iterator[str]:
    yield from dict.fromkeys(key for each in documents for key in each)


def _settings(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != _JSON}


def _inner(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document[_JSON].items() if key != _TASKS}


def _tasks(document: Mapping[str, Any]) -> dict[str, Any]:
    return {node["name"]: node for node in document[_JSON][_TASKS]}
