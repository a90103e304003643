"""Topologies as YAML, in the manner of Storm's Flux.

    name: words
    components:
      - {id: words, className: words.Dictionary, constructorArgs: [en]}
    spouts:
      - {id: lines, className: words.Lines, parallelism: 2}
    bolts:
      - {id: count, className: words.Count, constructorArgs: [{ref: words}], tasks: 4}
    streams:
      - {from: lines, to: count, grouping: {type: FIELDS, args: [word]}}

`className` is a class with its module. `properties` are set on its object, and `configMethods` are
called on it. `ref` and `reflist` refer to objects of `components`. Unknown keys, and objects that
can't be created, are reported as mistakes with their places. Imports run the author's code: a file
needs as much trust as the modules that it names.
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
from common.topology.flux_properties import substituted
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

_TOP: Final = ("name", "config", "hash", "components", "spouts", "bolts", "streams")
_OBJECT: Final = ("className", "constructorArgs", "properties", "configMethods")
_COMPONENT: Final = ("id", *_OBJECT)
_PART: Final = (*_COMPONENT, "parallelism", "tasks", "config")
_METHOD: Final = ("name", "args")
_PROPERTY: Final = ("name", "value", "ref")
_STREAM: Final = ("name", "from", "to", "grouping")
_GROUPING: Final = ("type", "streamId", "args", "customClass")
_MEMORY: Final = "the whole topology shares its memory; submit it with --memory"
_CURES: Final[Mapping[str, str]] = {
    "includes": "put the parts of the included files into this one",
    "topologySource": "declare the topology in Python, and submit FILE.py:NAME",
    "workerHooks": "a component opens what it needs in its own methods",
    "numTasks": "write tasks",
    "onHeapMemoryLoad": _MEMORY,
    "offHeapMemoryLoad": _MEMORY,
    "cpuLoad": "the whole topology shares its threads; submit it with --cores",
    "factory": "name the function as className",
    "factoryArgs": "name the function as className, and write constructorArgs",
}
"""Keys of Flux that are not supported here, with the alternative."""
_JAVA: Final = ("com", "java", "javax", "org")
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


def topology_of(
    content: bytes,
    *,
    properties: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Topology:
    """Return the topology of a YAML file; `InvalidTopologyError` with all of its mistakes.

    `properties` are the values for `${name}`, and `environment` has the values for `${ENV-NAME}`.
    """
    return read_topology(with_values(content, properties or {}, environment or {}))


def with_values(
    content: bytes, properties: Mapping[str, str], environment: Mapping[str, str]
) -> bytes:
    """Return a YAML file with values in place of its placeholders; `InvalidTopologyError`."""
    try:
        text, mistakes = substituted(content.decode(), properties, environment)
    except UnicodeDecodeError:
        return content  # `read_topology` reports the place.
    if mistakes:
        raise InvalidTopologyError(tuple(f"the file {each}" for each in mistakes))
    return text.encode()


def read_topology(content: bytes) -> Topology:
    """Return the topology of a submitted YAML file, which has no placeholders."""
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
    made: dict[str, Any] = field(default_factory=dict)
    """The objects of `components`; None for an object that can't be created."""
    declared: list[object] = field(default_factory=list)
    """The ids of all `components`, including the ones not read yet."""

    def topology(self, document: object) -> Topology | None:
        top = self._object("the file", document, _TOP)
        if top is None:
            return None
        builder = TopologyBuilder(
            self._text("", top, "name") or "",
            config=self._values("", top, "config"),
            hash=top.get("hash", "spark"),
        )
        self._components(top)
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

    def _components(self, top: Mapping[str, Any]) -> None:
        components = top.get("components")
        if isinstance(components, list):
            self.declared = [each.get("id") for each in components if isinstance(each, dict)]
        for place, component in self._each(top, "components", _COMPONENT):
            name = self._text(place, component, "id")
            made = self._made(place, component)
            if name in self.made:
                self._add(place, f"id: {name!r:.120} is the id of another component already")
            elif name is not None:
                self.made[name] = made

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
        custom = self._object(place, grouping.get("customClass"), _OBJECT)
        chooser = None if custom is None else self._made(place, custom)
        return None if chooser is None else Custom(chooser)

    def _made(self, place: str, part: Mapping[str, Any]) -> Any:
        """Create an object from the name of its class, its arguments, properties and methods."""
        before = len(self.mistakes)
        named = self._text(place, part, "className")
        arguments = self._arguments(f"{place}.constructorArgs", part.get("constructorArgs", []))
        properties = self._properties(f"{place}.properties", part.get("properties"))
        methods = [
            (
                self._text(at, method, "name") or "",
                self._arguments(f"{at}.args", method.get("args")),
            )
            for at, method in self._each(part, "configMethods", _METHOD, place)
        ]
        if named is None or len(self.mistakes) > before:
            return None
        module, _, attribute = named.rpartition(".")
        try:
            made = getattr(importlib.import_module(module or "builtins"), attribute)(*arguments)
            for key, value in properties.items():
                if not hasattr(made, key):
                    raise AttributeError(f"{attribute} has no property {key!r:.100}")
                setattr(made, key, value)
            for name, values in methods:
                getattr(made, name)(*values)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # An author's code raises anything.
            java = ""
            if isinstance(error, ModuleNotFoundError) and module.partition(".")[0] in _JAVA:
                java = "; a class of Java can't run here: name one of Python"
            self._add(place, f"{named!r:.200} can't be made: {_explained(error)}{java}")
            return None
        return made

    def _arguments(self, place: str, given: object) -> list[Any]:
        """Return the arguments, with objects in place of references."""
        if given is None:
            return []
        if not isinstance(given, list):
            # Split the key off the place, so that the mistake has the form of others about keys.
            before, _, key = place.rpartition(".")
            self._add(before, f"{key}: it must be a list")
            return []
        return [self._argument(f"{place}[{number}]", each) for number, each in enumerate(given)]

    def _argument(self, place: str, given: object) -> Any:
        if isinstance(given, dict) and len(given) == 1:
            ((key, value),) = given.items()
            if key == "ref":
                return self._referenced(place, value)
            if key in ("reflist", "refList"):
                if isinstance(value, list):
                    return [self._referenced(place, each) for each in value]
                self._add(place, f"{key}: it must be a list of ids of components")
        return given

    def _referenced(self, place: str, name: object) -> Any:
        if isinstance(name, str) and name in self.made:
            return self.made[name]
        if name in self.declared:
            self._add(place, f"ref: {name!r:.120} is declared further down; move it up")
        else:
            known = ", ".join(self.made) or "none"
            self._add(place, f"ref: there is no component {name!r:.120}; there are {known}")
        return None

    def _properties(self, place: str, given: object) -> dict[str, Any]:
        """Return properties by name. They may also be a list as in Flux, with `value` or `ref`."""
        if not isinstance(given, list):
            before, _, key = place.rpartition(".")
            values = self._values(before, {key: given}, key)
            return {
                name: self._argument(f"{place}.{name}", value) for name, value in values.items()
            }
        found: dict[str, Any] = {}
        for number, each in enumerate(given):
            at = f"{place}[{number}]"
            entry = self._object(at, each, _PROPERTY)
            name = None if entry is None else self._text(at, entry, "name")
            if entry is None or name is None:
                continue
            if ("value" in entry) == ("ref" in entry):
                self._add(at, "a property has either a value or a ref")
            elif "ref" in entry:
                found[name] = self._referenced(at, entry["ref"])
            else:
                found[name] = entry["value"]
        return found

    def _each(
        self, top: Mapping[str, Any], key: str, known: tuple[str, ...], above: str = ""
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        listed = top.get(key) or []
        if not isinstance(listed, list):
            self._add(above, f"{key}: it must be a list")
            return
        for number, each in enumerate(listed):
            place = f"{above}.{key}[{number}]" if above else f"{key}[{number}]"
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
            if key in known:
                continue
            if key in _CURES:
                self._add(place, f"{key!r} of Flux is not read here: {_CURES[key]}")
            else:
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
