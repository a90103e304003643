"""A topology as it is declared, and the builder that declares it, with Storm's verbs. Pure.

b = TopologyBuilder("words")
b.set_spout("lines", Lines(), tasks=2)
b.set_bolt("split", Split(), 2, tasks=4).shuffle_grouping("lines")
b.set_bolt("count", Count(), tasks=4).fields_grouping("split", ["word"])
topology = b.create_topology()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from common.topology.components import DEFAULT, Component
from common.topology.groupings import (
    ByFields,
    Chooser,
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

if TYPE_CHECKING:
    from common.topology.trial import Trial

Hash: TypeAlias = Literal["spark", "storm"]


@dataclass(frozen=True, slots=True)
class Input:
    """A stream that a bolt takes, and how it is spread over the bolt's tasks."""

    component: str
    stream: str
    grouping: Grouping


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A spout, bolt or sink of a topology. A spout has no inputs."""

    id: str
    component: Component
    executors: int
    tasks: int
    inputs: tuple[Input, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Parts in the order of their declaration; `common.topology.checking` tells what is wrong."""

    name: str
    parts: tuple[Part, ...]
    config: Mapping[str, Any] = field(default_factory=dict)
    hash: Hash = "spark"
    """The hash of fields groupings: Spark's, or Storm's, which names the tasks that Storm names."""

    def test(self, inputs: Mapping[str, Iterable[Any]]) -> Trial:
        """Run it in this process, without Spark, on records of its spouts (see `trial.run`)."""
        from common.topology.trial import run  # It runs what is declared here.

        return run(self, inputs)


class Declarer:
    """The inputs of a bolt, one call each; Storm's `BoltDeclarer`."""

    def __init__(self) -> None:
        self.inputs: list[Input] = []

    def grouping(self, component: str, grouping: Grouping, stream: str = DEFAULT) -> Self:
        """Take a stream by any grouping."""
        self.inputs.append(Input(component, stream, grouping))
        return self

    def shuffle_grouping(self, component: str, stream: str = DEFAULT) -> Self:
        """Take a stream, each task in turn."""
        return self.grouping(component, Shuffle(), stream)

    def local_or_shuffle_grouping(self, component: str, stream: str = DEFAULT) -> Self:
        """Take a stream without moving records, where the numbers of tasks allow it."""
        return self.grouping(component, LocalOrShuffle(), stream)

    def none_grouping(self, component: str, stream: str = DEFAULT) -> Self:
        """Take a stream by whatever task."""
        return self.grouping(component, Unordered(), stream)

    def fields_grouping(
        self, component: str, fields: Sequence[str] | str, stream: str = DEFAULT
    ) -> Self:
        """Take a stream, the same values of these fields by the same task."""
        return self.grouping(component, ByFields(_names(fields)), stream)

    def partial_key_grouping(
        self, component: str, fields: Sequence[str] | str, stream: str = DEFAULT
    ) -> Self:
        """Take a stream, the same values of these fields by one of two tasks."""
        return self.grouping(component, PartialKey(_names(fields)), stream)

    def global_grouping(self, component: str, stream: str = DEFAULT) -> Self:
        """Take a stream by the task with the lowest number."""
        return self.grouping(component, Global(), stream)

    def all_grouping(self, component: str, stream: str = DEFAULT) -> Self:
        """Take a stream by every task."""
        return self.grouping(component, Everyone(), stream)

    def direct_grouping(self, component: str, stream: str = DEFAULT) -> Self:
        """Take a direct stream, by the tasks that its emitter names."""
        return self.grouping(component, Direct(), stream)

    def custom_grouping(self, component: str, chooser: Chooser, stream: str = DEFAULT) -> Self:
        """Take a stream by the tasks that an object chooses."""
        return self.grouping(component, Custom(chooser), stream)


class TopologyBuilder:
    """Declares a topology; nothing is checked before `create_topology`."""

    def __init__(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        hash: Hash = "spark",  # noqa: A002  # The word of Storm's hashing in a topology.
    ) -> None:
        self._name = name
        self._config = dict(config or {})
        self._hash: Hash = hash
        self._parts: list[tuple[Part, Declarer]] = []

    def set_spout(
        self,
        component_id: str,
        spout: Component,
        executors: int | None = None,
        *,
        tasks: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a spout, with one executor unless said, and as many tasks as executors."""
        self._add(component_id, spout, executors, tasks, config)

    def set_bolt(
        self,
        component_id: str,
        bolt: Component,
        executors: int | None = None,
        *,
        tasks: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Declarer:
        """Add a bolt, stateful bolt or sink; its inputs are declared on what is returned."""
        return self._add(component_id, bolt, executors, tasks, config)

    def declared(self) -> Topology:
        """Return the topology as it stands, unchecked."""
        return Topology(
            name=self._name,
            parts=tuple(
                replace(part, inputs=tuple(declarer.inputs)) for part, declarer in self._parts
            ),
            config=self._config,
            hash=self._hash,
        )

    def create_topology(self) -> Topology:
        """Return the topology; `InvalidTopologyError` with all of its mistakes."""
        from common.topology.checking import checked  # It knows what is declared here.

        return checked(self.declared())

    def _add(
        self,
        component_id: str,
        component: Component,
        executors: int | None,
        tasks: int | None,
        config: Mapping[str, Any] | None,
    ) -> Declarer:
        declarer = Declarer()
        part = Part(
            id=component_id,
            component=component,
            executors=1 if executors is None else executors,
            tasks=tasks if tasks is not None else 1 if executors is None else executors,
            config=dict(config or {}),
        )
        self._parts.append((part, declarer))
        return declarer


def _names(fields: Sequence[str] | str) -> tuple[str, ...]:
    return (fields,) if isinstance(fields, str) else tuple(fields)
