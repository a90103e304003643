"""Finds the definitions that a definition waits for, and those that wait for themselves (T36e)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operations.definition_document import CHILD_ID, definition_references
from operations.findings import Finding, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaits:
    """A place at which a definition waits for another, whose run has to end before its own can.

    That is a SUB_PROCESS, or an item of a DEPENDENT that can't do without a run of the other in an
    interval that includes the present. `target` is the name in the reference, or else the id.
    `project` is the project in the reference.
    """

    node: str
    key: str
    target: str | int
    is_start: bool
    project: str | int | None = None


def awaited(document: Mapping[str, Any]) -> Iterator[Awaits]:
    """Yield every such place, in the order of the nodes."""
    for reference in definition_references(document):
        target = reference.name or reference.number
        is_start = reference.id_key == CHILD_ID
        if target is not None and (is_start or reference.is_needed):
            key = reference.id_key if reference.name is None else reference.name_key
            yield Awaits(
                node=reference.node,
                key=f"{reference.where}.{key}",
                target=target,
                is_start=is_start,
                project=reference.project,
            )


def dependent_items(
    document: Mapping[str, Any],
) -> Iterator[tuple[str, str, str | int, Mapping[str, Any]]]:
    """Yield each item of each DEPENDENT: node, place in it, the definition awaited, the item."""
    for reference in definition_references(document):
        target = reference.name or reference.number
        if reference.id_key != CHILD_ID and target is not None:
            yield reference.node, reference.where, target, reference.holder


def cycles(
    name: str,
    places: Iterable[tuple[Awaits, str]],
    graph: Mapping[str, Sequence[str]],
    shown: Mapping[str, str] | None = None,
) -> Iterator[Finding]:
    """Yield a mistake for each place by way of which a definition waits for itself (trap T36e).

    `places` lists the definitions that it awaits, each with its key in `graph`. `graph` maps each
    definition to the definitions that it awaits; a definition without a key awaits none. `shown`
    maps keys to the names that the findings use.
    """
    words = shown or {}
    for place, target in places:
        # Another run of its own may well have been there, so that only a start is without end.
        way = None if target == name and not place.is_start else _way(target, name, graph)
        if way is not None:
            around = " → ".join(words.get(each, f"{each[:80]!r}") for each in (name, *way))
            yield Finding(
                severity=Severity.MISTAKE,
                node=place.node,
                key=place.key,
                problem=f"the definition would wait for itself without end: {around}",
                cure="take one of these sub processes or dependent items out",
            )


def _way(start: str, end: str, children: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """Return a shortest way from one definition to another, with both; None if there is none."""
    before: dict[str, str | None] = {start: None}
    waiting = deque([start])
    while waiting:
        at = waiting.popleft()
        if at == end:
            way: list[str] = []
            step: str | None = at
            while step is not None:
                way.append(step)
                step = before[step]
            return tuple(reversed(way))
        for child in children.get(at, ()):
            if child not in before:
                before[child] = at
                waiting.append(child)
    return None
