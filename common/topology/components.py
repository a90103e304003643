"""The classes that authors of a topology write: spouts, bolts, stateful bolts and sinks.

A component's object is made once, where the topology is declared, and pickled for its tasks: what
it holds must be what each of them may have a copy of. What it emits it declares in `outputs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class Bolt(Component, ABC):
    """Takes records one by one; what it remembers lasts for a batch at most."""

    @abstractmethod
    def process(self, record: Record, emit: Emit) -> None:
        """Take a record."""


class StatefulBolt(Component, ABC):
    """Takes records one by one, with a state for each key, the values that they are grouped by.

    Records of one key come one after the other, in the task that the key belongs to. A state must
    be one that can be pickled.
    """

    def initial(self) -> Any:
        """Return the state of a key that is seen for the first time."""
        return None

    @abstractmethod
    def process(self, record: Record, state: Any, emit: Emit) -> Any:
        """Take a record, and return the key's state after it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Names a batch of a topology: what is written for it again is written in its place."""

    topology: str
    number: int


class Sink(Component, ABC):
    """Writes records out, a task's share of a batch at a time.

    A batch that failed comes again under its number: a sink that keeps the numbers it has written
    writes each record once.
    """

    @abstractmethod
    def write(self, records: Sequence[Record], batch: Batch) -> None:
        """Write the share of a task."""


def streams_of(component: Component) -> dict[str, Stream]:
    """Return the streams that a component declares, by their names.

    `TypeError` for a declaration that is none; one that is empty is of a component without streams.
    """
    declared = component.outputs
    if isinstance(declared, Mapping):
        return {name: _stream(component, fields) for name, fields in declared.items()}
    return {DEFAULT: _stream(component, declared)} if declared else {}


def _stream(component: Component, declared: object) -> Stream:
    found = declared.fields if isinstance(declared, Stream) else declared
    fields = (found,) if isinstance(found, str) else found
    if not isinstance(fields, Sequence) or not all(isinstance(each, str) for each in fields):
        raise TypeError(
            f"{type(component).__name__}.outputs must be names of fields, or those of each stream"
            f" by its name, not {declared!r:.120}"
        )
    return Stream(tuple(fields), isinstance(declared, Stream) and declared.direct)
