"""The classes that authors of a topology write: spouts, bolts, stateful bolts and sinks.

A component's object is made once, where the topology is declared, and pickled for its tasks: what
it holds must be what each of them may have a copy of. What it emits it declares in `outputs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from common.errors import SchedulerError

DEFAULT: Final = "default"
"""The stream of a component that names none, as in Storm."""


class EmitError(SchedulerError):
    """A component has emitted what it has not declared, or what its stream's rules forbid."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The fields of a stream, in order; the emitter of a `direct` one names the task."""

    fields: tuple[str, ...]
    direct: bool = False


Outputs: TypeAlias = Sequence[str] | Mapping[str, Sequence[str] | Stream]


@dataclass(frozen=True, slots=True)
class Record:
    """The values of a tuple by the names of its stream's fields, and where it comes from."""

    values: tuple[Any, ...]
    fields: tuple[str, ...]
    component: str
    stream: str = DEFAULT
    task: int = 0

    def __getitem__(self, field: str) -> Any:
        """Return a value; `KeyError` names the fields that there are."""
        try:
            return self.values[self.fields.index(field)]
        except ValueError:
            raise KeyError(
                f"{self.component!r} has no field {field!r} in its stream {self.stream!r};"
                f" there are {', '.join(self.fields)}"
            ) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


class Emit(Protocol):
    """Emits records for the component that it was given to."""

    def __call__(self, *values: Any, stream: str = DEFAULT) -> tuple[int, ...]:
        """Emit one record; the tasks that get it. `EmitError` if it is not as declared."""
        ...

    def direct(self, task: int, *values: Any, stream: str = DEFAULT) -> tuple[int, ...]:
        """Emit one record on a direct stream, for this task of each component that takes it."""
        ...


class Component:
    """The part that spouts and bolts have in common."""

    outputs: ClassVar[Outputs] = ()
    """The fields of the default stream, or those of each stream by its name."""


class Spout(Component):
    """A source of records. The sources of Orcaflow's own are such; a trial gives them inputs."""


class Bolt(Component):
    """Takes records one by one; what it remembers lasts for a batch at most."""

    def process(self, record: Record, emit: Emit) -> None:
        """Take a record."""
        raise NotImplementedError


class StatefulBolt(Component):
    """Takes records one by one, with a state for each key, the values that they are grouped by.

    Records of one key come one after the other, in the task that the key belongs to. A state must
    be one that can be pickled.
    """

    def initial(self) -> Any:
        """Return the state of a key that is seen for the first time."""
        return None

    def process(self, record: Record, state: Any, emit: Emit) -> Any:
        """Take a record, and return the key's state after it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Batch:
    """Names a batch of a topology: what is written for it again is written in its place."""

    topology: str
    number: int


class Sink(Component):
    """Writes records out, a task's share of a batch at a time.

    A batch that failed comes again under its number: a sink that keeps the numbers it has written
    writes each record once.
    """

    def write(self, records: Sequence[Record], batch: Batch) -> None:
        """Write the share of a task."""
        raise NotImplementedError


def streams_of(component: Component) -> dict[str, Stream]:
    """Return the streams that a component declares, by their names."""
    declared = component.outputs
    if isinstance(declared, Mapping):
        return {name: _stream(fields) for name, fields in declared.items()}
    return {DEFAULT: _stream(declared)} if declared else {}


def _stream(declared: Sequence[str] | Stream) -> Stream:
    if isinstance(declared, Stream):
        return declared
    return Stream((declared,) if isinstance(declared, str) else tuple(declared))
