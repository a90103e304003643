"""Topologies as YAML, in the manner of Storm's Flux.

    name: words
    spouts:
      - {id: lines, className: words.Lines, parallelism: 2}
    bolts:
      - {id: count, className: words.Count, constructorArgs: [10], parallelism: 2, tasks: 4}
    streams:
      - {from: lines, to: count, grouping: {type: FIELDS, args: [word]}}

`className` is a class by its module; `properties` are set on its object. Unknown keys, and whatever
can't be imported or made, are mistakes with their places. Imports run the author's code: a file is
as much to be trusted as the modules that it names.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from common.errors import InvalidDefinitionError
from common.strict_yaml import strict_yaml
from common.topology.checking import InvalidTopologyError, mistakes_of
from common.topology.components import DEFAULT
from common.topology.declaration import Declarer, Topology, TopologyBuilder
from common.topology.groupings import (
    ByFields,
    Custom,
    Direct,
    Everyone,
    Global,
    Grouping,
    LocalOrShuffle,
    PartialKey,
    Shuffle,
    Unordered,
)

_TOP: Final = ("name", "config", "hash", "spouts", "bolts", "streams")
_PART: Final = (
    "id",
    "className",
    "constructorArgs",
    "properties",
    "parallelism",
    "tasks",
    "config",
)
_STREAM: Final = ("name", "from", "to", "grouping")
_GROUPING: Final = ("type", "streamId", "args", "customClass")
_CUSTOM: Final = ("className", "constructorArgs", "properties")
_PLAIN: Final[Mapping[str, Callable[[], Grouping]]] = {
    "SHUFFLE": Shuffle,
    "LOCAL_OR_SHUFFLE": LocalOrShuffle,
    "NONE": Unordered,
    "GLOBAL": Global,
    "ALL": Everyone,
    "DIRECT": Direct,
}
_BY_FIELDS: Final[Mapping[str, Callable[[tuple[str, ...]], Grouping]]] = {
    "FIELDS": ByFields,
    "PARTIAL_KEY": PartialKey,
}
_TYPES: Final = (*_PLAIN, *_BY_FIELDS, "CUSTOM")


def topology_of(content: bytes) -> Topology:
    """Return the topology of a YAML file; `InvalidTopologyError` with all of its mistakes."""
    try:
        document = strict_yaml(content)
    except InvalidDefinitionError as error:
        raise InvalidTopologyError(tuple(f"the file {each}" for each in error.mistakes)) from None
    reading = _Reading()
    topology = reading.topology(document)
    mistakes = [*reading.mistakes]
    if topology is not None:
        mistakes += mistakes_of(topology)
    if mistakes or topology is None:
        raise InvalidTopologyError(tuple(mistakes))
    return topology


@dataclass(slots=True)
class _Reading:
    """The mistakes found so far, and how the parts of a document are read."""

    mistakes: list[str] = field(default_factory=list)

    def topology(self, document: object) -> Topology | None:
        top = self._object("the file", document, _TOP)
        if top is None:
            return None
        builder = TopologyBuilder(
            self._text("", top, "name") or "",
            config=self._values("", top, "config"),
            hash=top.get("hash", "spark"),
        )
        declarers: dict[str, Declarer] = {}
        names: list[str] = []
        for kind in ("spouts", "bolts"):
            for place, part in self._each(top, kind, _PART):
                name = self._text(place, part, "id")
                made = self._made(place, part)
                if name is None:
                    continue
                names.append(name)
                given: dict[str, Any] = {
                    "executors": part.get("parallelism"),
                    "tasks": part.get("tasks"),
                    "config": self._values(place, part, "config"),
                }
                if made is not None and kind == "spouts":
                    builder.set_spout(name, made, **given)
                elif made is not None:
                    declarers[name] = builder.set_bolt(name, made, **given)
        for place, stream in self._each(top, "streams", _STREAM):
            self._stream(place, stream, names, declarers)
        # What could not be made is missing, so that whatever else is found would mislead.
        return None if self.mistakes else builder.declared()

    def _stream(
        self,
        place: str,
        stream: Mapping[str, Any],
        names: Sequence[str],
        declarers: Mapping[str, Declarer],
    ) -> None:
        source, target = self._text(place, stream, "from"), self._text(place, stream, "to")
        grouping = self._object(f"{place}.grouping", stream.get("grouping"), _GROUPING)
        if source is None or target is None or grouping is None:
            return
        found = self._grouping(f"{place}.grouping", grouping)
        name = grouping.get("streamId", DEFAULT)
        if not isinstance(name, str):
            self._add(f"{place}.grouping", "streamId: it must be a text")
        elif target not in names:
            known = ", ".join(names) or "none"
            self._add(place, f"to: there is no bolt {target!r:.120}; there are {known}")
        elif target in declarers and found is not None:
            declarers[target].grouping(source, found, name)
        elif target not in declarers and not self.mistakes:
            self._add(place, f"to: {target!r:.120} is a spout, which takes no stream")

    def _grouping(self, place: str, grouping: Mapping[str, Any]) -> Grouping | None:
        kind = grouping.get("type")
        fields = grouping.get("args", [])
        if kind not in _TYPES:
            self._add(place, f"type: {kind!r:.50} is unknown; there are {', '.join(_TYPES)}")
            return None
        if not isinstance(fields, list) or not all(isinstance(each, str) for each in fields):
            self._add(place, "args: it must be a list of fields")
            return None
        if kind in _PLAIN:
            return _PLAIN[kind]()
        if kind in _BY_FIELDS:
            return _BY_FIELDS[kind](tuple(fields))
        place = f"{place}.customClass"
        custom = self._object(place, grouping.get("customClass"), _CUSTOM)
        chooser = None if custom is None else self._made(place, custom)
        return None if chooser is None else Custom(chooser)

    def _made(self, place: str, part: Mapping[str, Any]) -> Any:
        """Make the object that a class's name, arguments and properties describe."""
        named = self._text(place, part, "className")
        arguments = part.get("constructorArgs", [])
        properties = self._values(place, part, "properties")
        if not isinstance(arguments, list):
            self._add(place, "constructorArgs: it must be a list")
            return None
        if named is None:
            return None
        module, _, attribute = named.rpartition(".")
        try:
            made = getattr(importlib.import_module(module or "builtins"), attribute)(*arguments)
            for key, value in properties.items():
                if not hasattr(made, key):
                    raise AttributeError(f"{attribute} has no property {key!r:.100}")
                setattr(made, key, value)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # An author's code raises anything.
            self._add(place, f"{named!r:.200} can't be made: {_explained(error)}")
            return None
        return made

    def _each(
        self, top: Mapping[str, Any], key: str, known: tuple[str, ...]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        listed = top.get(key) or []
        if not isinstance(listed, list):
            self._add("", f"{key}: it must be a list")
            return
        for number, each in enumerate(listed):
            place = f"{key}[{number}]"
            found = self._object(place, each, known)
            if found is not None:
                yield place, found

    def _object(
        self, place: str, given: object, known: tuple[str, ...]
    ) -> Mapping[str, Any] | None:
        if not isinstance(given, dict):
            self._add(place, "it must be keys with values")
            return None
        for key in given:
            if key not in known:
                self._add(place, f"{key!r:.120} is unknown; there are {', '.join(known)}")
        return given

    def _text(self, place: str, part: Mapping[str, Any], key: str) -> str | None:
        found = part.get(key)
        if isinstance(found, str):
            return found
        self._add(place, f"{key}: a text is missing")
        return None

    def _values(self, place: str, part: Mapping[str, Any], key: str) -> dict[str, Any]:
        found = part.get(key) or {}
        if isinstance(found, dict):
            return found
        self._add(place, f"{key}: it must be keys with values")
        return {}

    def _add(self, place: str, mistake: str) -> None:
        self.mistakes.append(f"{place}: {mistake}" if place else mistake)


def _explained(error: BaseException) -> str:
    """Return what an import or a constructor has raised, and the line of it."""
    told = f"{type(error).__name__}: {error!s:.300}"
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen")
    ]
    last = own[-1] if own else None
    if isinstance(error, SyntaxError):
        return told
    if last is None or last.filename.endswith("importlib/__init__.py"):
        return told
    return f"{told} ({last.filename}:{last.lineno})"
