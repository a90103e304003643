"""The mistakes of a topology: all of them at once, each with its place. Pure."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from common.dag import Dag, DagError, build_dag, select
from common.errors import SchedulerError
from common.model.states import TaskDependType
from common.topology.components import (
    ArrowBolt,
    Bolt,
    Sink,
    Spout,
    StatefulBolt,
    Stream,
    streams_of,
)
from common.topology.config import mistakes_of_config
from common.topology.declaration import Input, Part, Topology
from common.topology.groupings import ByFields, Custom, Direct, PartialKey
from common.topology.hashing import HASHES
from common.topology.types import TYPES

MOST_TASKS: Final = 1_000
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_KINDS: Final = (Spout, Bolt, ArrowBolt, StatefulBolt, Sink)


class InvalidTopologyError(SchedulerError):
    """A topology can't be run as it stands; `mistakes` lists each with its place."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


def checked(topology: Topology) -> Topology:
    """Return the topology; `InvalidTopologyError` if something is wrong with it."""
    mistakes = tuple(mistakes_of(topology))
    if mistakes:
        raise InvalidTopologyError(mistakes)
    return topology


def mistakes_of(topology: Topology) -> Iterator[str]:
    """Yield what is wrong with a topology, in the order of its parts."""
    if not _is_name(topology.name):
        yield f"name: {_shown(topology.name)} is none: {_NAME_RULE}"
    if not isinstance(topology.hash, str) or topology.hash not in HASHES:
        yield f"hash: {_shown(topology.hash)} is unknown; there are {' and '.join(HASHES)}"
    yield from mistakes_of_config("config", topology.config, of_component=False)
    parts: dict[str, Part] = {}
    for part in topology.parts:
        if part.id in parts:
            yield f"{part.id}: this id is taken; each spout and bolt needs its own"
        parts.setdefault(part.id, part)
    streams: dict[str, dict[str, Stream]] = {}
    undeclared: dict[str, str] = {}
    for part in topology.parts:
        try:
            if isinstance(part.component, _KINDS):
                streams.setdefault(part.id, streams_of(part.component))
        except TypeError as error:
            undeclared[part.id] = f"{part.id}: {error}"
    if not any(isinstance(part.component, Spout) for part in topology.parts):
        yield "spouts: there is none, so nothing would ever come in"
    for part in topology.parts:
        if part.id in undeclared:
            yield undeclared[part.id]
        yield from _mistakes_of_part(part, streams.get(part.id, {}))
        taken_already = set()
        for number, taken in enumerate(part.inputs):
            place, source = f"{part.id}: input {number + 1}", (taken.component, taken.stream)
            if source in taken_already:
                yield f"{place}: it takes the stream {source[1]!r} of {source[0]!r} already"
            taken_already.add(source)
            if taken.component not in undeclared:
                yield from _mistakes_of_input(place, taken, part, parts, streams)
    yield from _mistakes_of_shape(topology, parts, streams)


_NAME_RULE: Final = (
    "a letter, then letters, digits, '_', '-' and '.', a hundred in all at most; names that begin"
    " with '__' are the system's"
)


def _mistakes_of_part(part: Part, streams: Mapping[str, Stream]) -> Iterator[str]:
    if not _is_name(part.id):
        yield f"{_shown(part.id)}: this id is none: {_NAME_RULE}"
    component = part.component
    kind = type(component).__name__
    if not isinstance(component, _KINDS):
        known = "neither a Spout, a Bolt, an ArrowBolt, a StatefulBolt nor a Sink"
        yield f"{part.id}: {kind} is {known}"
        return
    for what, number in (("executors", part.executors), ("tasks", part.tasks)):
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_TASKS:
            yield f"{part.id}: {what} must be a number from 1 to {MOST_TASKS:,}, not {number!r:.50}"
            return
    if part.executors > part.tasks:
        yield (
            f"{part.id}: {part.executors} executors are more than its {part.tasks} tasks; an"
            " executor without a task would do nothing"
        )
    yield from mistakes_of_config(f"{part.id}: config", part.config, of_component=True)
    for name, stream in streams.items():
        yield from _mistakes_of_stream(f"{part.id}: stream {name!r:.120}", name, stream)
    if isinstance(component, Sink) and streams:
        yield f"{part.id}: a sink emits nothing; {kind}.outputs must be empty"
    if isinstance(component, Spout) and part.inputs:
        yield f"{part.id}: a spout takes no stream"
    if not isinstance(component, Spout) and not part.inputs:
        yield f"{part.id}: it takes no stream; add a grouping, or leave it out"
    yield from _mistakes_of_pickling(part.id, component)


def _mistakes_of_pickling(place: str, made: object) -> Iterator[str]:
    try:
        pickle.dumps(made)
    except Exception as error:  # noqa: BLE001  # An author's object may raise anything.
        yield (
            f"{place}: the object of {type(made).__name__} can't be pickled, as its tasks need it:"
            f" {error!s:.300}; make in its method what can't be copied"
        )


def _mistakes_of_stream(place: str, name: str, stream: Stream) -> Iterator[str]:
    if not _is_name(name):
        yield f"{place}: this name is none: {_NAME_RULE}"
    for field in stream.fields:
        if not _FIELD.fullmatch(field):
            yield f"{place}: {field!r:.120} is no name of a field: letters, digits and '_'"
    for field, times in Counter(stream.fields).items():
        if times > 1:
            yield f"{place}: the field {field!r:.120} is there {times} times"
    for field, type_name in zip(stream.fields, stream.types, strict=True):
        if type_name not in TYPES:
            yield (
                f"{place}: the type {type_name!r:.120} of the field {field!r:.120} is unknown;"
                f" there are {', '.join(TYPES)}"
            )
    if not stream.fields:
        yield f"{place}: it has no field"


def _mistakes_of_input(
    place: str,
    taken: Input,
    part: Part,
    parts: Mapping[str, Part],
    streams: Mapping[str, Mapping[str, Stream]],
) -> Iterator[str]:
    if taken.component not in parts:
        known = ", ".join(parts) or "none"
        yield f"{place}: there is no component {_shown(taken.component)}; there are {known}"
        return
    found = streams.get(taken.component, {})
    stream = found.get(taken.stream)
    if stream is None:
        known = ", ".join(map(str, found)) or "none"
        yield (
            f"{place}: {taken.component!r} has no stream {_shown(taken.stream)}; it declares"
            f" {known}"
        )
        return
    grouping = taken.grouping
    if isinstance(grouping, ByFields | PartialKey):
        unknown = [field for field in grouping.fields if field not in stream.fields]
        if unknown:
            yield (
                f"{place}: {taken.component!r} has no field {', '.join(map(_shown, unknown))} in"
                f" its stream {taken.stream!r}; it has {', '.join(stream.fields)}"
            )
        types = dict(zip(stream.fields, stream.types, strict=True))
        for field in grouping.fields:
            found_type = TYPES.get(types.get(field, "")) if field not in unknown else None
            if found_type is not None and not found_type.groupable:
                yield (
                    f"{place}: the field {field!r} is a {types[field]}, which can't be grouped by;"
                    " emit it as a string or a long"
                )
        for field, times in Counter(map(_shown, grouping.fields)).items():
            if times > 1:
                yield f"{place}: the field {field} is grouped by {times} times"
        if not grouping.fields:
            yield f"{place}: no field to group by; `global_grouping` is for one task"
    if isinstance(grouping, Direct) and not stream.direct:
        yield (
            f"{place}: the stream {taken.stream!r} of {taken.component!r} is not direct; declare it"
            " as Stream(…, direct=True), or take it by another grouping"
        )
    if stream.direct and not isinstance(grouping, Direct):
        yield (
            f"{place}: the stream {taken.stream!r} of {taken.component!r} is direct: only"
            " `direct_grouping` takes it"
        )
    if isinstance(grouping, Custom):
        if not callable(getattr(grouping.chooser, "choose", None)):
            name = type(grouping.chooser).__name__
            yield f"{place}: {name} has no method `choose(record, tasks)`"
        yield from _mistakes_of_pickling(place, grouping.chooser)
    if isinstance(part.component, StatefulBolt) and not isinstance(grouping, ByFields):
        yield (
            f"{place}: a stateful bolt has its state by the fields that it is grouped by; take the"
            " stream by `fields_grouping`"
        )


def graph_of(topology: Topology) -> Dag:
    """Return the graph of the parts, in an order that keeps the order declared; `DagError`."""
    names = {part.id for part in topology.parts}
    return build_dag(
        {
            part.id: [taken.component for taken in part.inputs if taken.component in names]
            for part in topology.parts
        }
    )


def _key_types(taken: Input, streams: Mapping[str, Mapping[str, Stream]]) -> tuple[str | None, ...]:
    """Return the types of the fields that an input is grouped by; None for what is unknown."""
    assert isinstance(taken.grouping, ByFields)
    stream = streams.get(taken.component, {}).get(taken.stream)
    types = {} if stream is None else dict(zip(stream.fields, stream.types, strict=True))
    return tuple(types.get(field) for field in taken.grouping.fields)


def _mistakes_of_shape(
    topology: Topology,
    parts: Mapping[str, Part],
    streams: Mapping[str, Mapping[str, Stream]],
) -> Iterator[str]:
    try:
        dag = graph_of(topology)
    except DagError as error:
        yield f"{error}; Spark's plans have none"
        return
    for part in topology.parts:
        if not isinstance(part.component, StatefulBolt):
            continue
        keys = {
            _key_types(taken, streams)
            for taken in part.inputs
            if isinstance(taken.grouping, ByFields)
        }
        if len({len(each) for each in keys}) > 1:
            yield f"{part.id}: its inputs are grouped by different numbers of fields"
        elif len(keys) > 1:
            yield f"{part.id}: its inputs are grouped by fields of different types"
        others = {
            each.tasks
            for each in topology.parts
            if isinstance(each.component, StatefulBolt)
            and each.id in select(dag, [part.id], TaskDependType.TASK_PRE).names
        }
        if len(others) > 1:
            yield (
                f"{part.id}: the stateful bolts before it have another number of tasks; those of"
                " one query of Spark share theirs"
            )
        forks = [
            each
            for each in select(dag, [part.id], TaskDependType.TASK_PRE).names
            if each != part.id
            and not isinstance(parts[each].component, Spout)
            and len(dag.downstream[each]) > 1
        ]
        if forks:
            yield (
                f"{part.id}: a stateful bolt behind {forks[0]!r}, whose records several bolts take:"
                " Spark would run it once for each. Put the stateful bolt before it, or let a sink"
                " and a spout stand between them"
            )


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _shown(name: object) -> str:
    return f"{name!r:.120}"
