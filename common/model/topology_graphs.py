"""The graph of a topology's version: its parts and the streams between them, for people.

Pure. Where a topology is submitted, `operations.topology_packing` makes it of what the author has
declared; wherever it is read again, it is a document of JSON that anybody may have written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.dag import DagError, build_dag
from common.model.topologies import DocumentError

MOST_PARTS: Final = 1_000
MOST_TASKS: Final = 1_000
_MOST_ENTRIES: Final = 200
_LONGEST: Final = 200
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
KINDS: Final = ("spout", "bolt", "stateful", "sink")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInput:
    """A stream that a part takes. `grouping` is its name, as shuffle; `fields` those of it."""

    component: str
    stream: str
    grouping: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStream:
    """A stream that a part emits."""

    name: str
    fields: tuple[str, ...]
    direct: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """A spout, bolt, stateful bolt or sink; `config` are the keys of its configuration."""

    id: str
    kind: str
    class_name: str
    executors: int
    tasks: int
    config: tuple[str, ...] = ()
    inputs: tuple[GraphInput, ...] = ()
    streams: tuple[GraphStream, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyGraph:
    """The parts of a topology, in the order of their declaration."""

    name: str
    hash: str
    config: tuple[str, ...]
    parts: tuple[GraphPart, ...]

    def part(self, component: str) -> GraphPart | None:
        return next((each for each in self.parts if each.id == component), None)

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "hash": self.hash,
            "config": list(self.config),
            "parts": [_part_document(each) for each in self.parts],
        }

    @classmethod
    def of(cls, document: object) -> TopologyGraph:
        """Read a graph; `DocumentError` names the place of the first mistake."""
        top = _object("graph", document)
        name = _text("graph.name", top.get("name"))
        if not is_topology_name(name):
            raise DocumentError(f"graph.name: {name!r:.120} is no name of a topology")
        parts = tuple(
            _part(f"graph.parts[{number}]", each)
            for number, each in enumerate(_list("graph.parts", top.get("parts"), MOST_PARTS))
        )
        _check_parts(parts)
        return cls(
            name=name,
            hash=_text("graph.hash", top.get("hash", "spark")),
            config=_texts("graph.config", top.get("config", [])),
            parts=parts,
        )


def is_topology_name(name: str) -> bool:
    """Return True for a name that topologies and components may have."""
    return _NAME.fullmatch(name) is not None


def _part_document(part: GraphPart) -> dict[str, Any]:
    return {
        "id": part.id,
        "kind": part.kind,
        "className": part.class_name,
        "executors": part.executors,
        "tasks": part.tasks,
        "config": list(part.config),
        "inputs": [
            {
                "component": each.component,
                "stream": each.stream,
                "grouping": each.grouping,
                "fields": list(each.fields),
            }
            for each in part.inputs
        ],
        "streams": [
            {"name": each.name, "fields": list(each.fields), "direct": each.direct}
            for each in part.streams
        ],
    }


def _part(place: str, given: object) -> GraphPart:
    part = _object(place, given)
    kind = _text(f"{place}.kind", part.get("kind"))
    if kind not in KINDS:
        raise DocumentError(f"{place}.kind: {kind!r:.120} is none of {', '.join(KINDS)}")
    name = _text(f"{place}.id", part.get("id"))
    if not is_topology_name(name):
        raise DocumentError(f"{place}.id: {name!r:.120} is no name of a component")
    executors = _number(f"{place}.executors", part.get("executors"))
    tasks = _number(f"{place}.tasks", part.get("tasks"))
    if executors > tasks:
        raise DocumentError(f"{place}: {executors} executors are more than its {tasks} tasks")
    return GraphPart(
        id=name,
        kind=kind,
        class_name=_text(f"{place}.className", part.get("className", "")),
        executors=executors,
        tasks=tasks,
        config=_texts(f"{place}.config", part.get("config", [])),
        inputs=tuple(
            _input(f"{place}.inputs[{number}]", each)
            for number, each in enumerate(_list(f"{place}.inputs", part.get("inputs", [])))
        ),
        streams=tuple(
            _stream(f"{place}.streams[{number}]", each)
            for number, each in enumerate(_list(f"{place}.streams", part.get("streams", [])))
        ),
    )


def _input(place: str, given: object) -> GraphInput:
    found = _object(place, given)
    return GraphInput(
        component=_text(f"{place}.component", found.get("component")),
        stream=_text(f"{place}.stream", found.get("stream")),
        grouping=_text(f"{place}.grouping", found.get("grouping")),
        fields=_texts(f"{place}.fields", found.get("fields", [])),
    )


def _stream(place: str, given: object) -> GraphStream:
    found = _object(place, given)
    return GraphStream(
        name=_text(f"{place}.name", found.get("name")),
        fields=_texts(f"{place}.fields", found.get("fields")),
        direct=found.get("direct") is True,
    )


def _check_parts(parts: tuple[GraphPart, ...]) -> None:
    by_id = {part.id: part for part in parts}
    if len(by_id) < len(parts):
        raise DocumentError("graph.parts: two of them have the same id")
    for part in parts:
        for taken in part.inputs:
            source = by_id.get(taken.component)
            if source is None or all(each.name != taken.stream for each in source.streams):
                raise DocumentError(
                    f"graph.parts: {part.id!r} takes the stream {taken.stream!r:.120} of"
                    f" {taken.component!r:.120}, which is not there"
                )
    try:
        build_dag({part.id: [taken.component for taken in part.inputs] for part in parts})
    except DagError as error:
        raise DocumentError(f"graph.parts: {error}") from error


def _object(place: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise DocumentError(f"{place} must be an object")
    return given


def _list(place: str, given: object, most: int = _MOST_ENTRIES) -> list[Any]:
    if not isinstance(given, list) or len(given) > most:
        raise DocumentError(f"{place} must be a list of {most:,} at most")
    return given


def _text(place: str, given: object) -> str:
    if not isinstance(given, str) or len(given) > _LONGEST or not given.isprintable():
        raise DocumentError(f"{place} must be a text of {_LONGEST} characters at most")
    return given


def _texts(place: str, given: object) -> tuple[str, ...]:
    return tuple(_text(place, each) for each in _list(place, given))


def _number(place: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_TASKS:
        raise DocumentError(f"{place} must be a number from 1 to {MOST_TASKS:,}")
    return given
