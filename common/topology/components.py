"""The classes that authors of a topology write: spouts, bolts, stateful bolts and sinks.

A component's object is made once, where the topology is declared, and pickled for its tasks: what
it holds must be what each of them may have a copy of. What it emits it declares in `outputs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

from common.errors import SchedulerError
from common.topology.types import name_and_type

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT: Final = "default"
"""The stream of a component that names none, as in Storm."""


class EmitError(SchedulerError):
    """A component has emitted what it has not declared, or what its stream's rules forbid."""


class Forget:
    """The value that a stateful bolt returns instead of a state, to have the key forgotten."""


FORGET: Final = Forget()


@dataclass(frozen=True, slots=True)
class Stream:
    """The fields of a stream, in order; the emitter of a `direct` one names the task.

    A declared field has its type behind its name (`"count long"`, see `types`). What `streams_of`
    returns has the types apart.
    """

    fields: tuple[str, ...]
    direct: bool = False
    types: tuple[str, ...] = ()


Outputs: TypeAlias = Sequence[str] | Mapping[str, Sequence[str] | Stream]


@dataclass(slots=True)
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

    def __call__(self, *values: Any, stream: str = DEFAULT) -> Sequence[int]:
        """Emit one record; the tasks that get it. `EmitError` if it is not as declared."""
        ...

    def direct(self, task: int, *values: Any, stream: str = DEFAULT) -> Sequence[int]:
        """Emit one record on a direct stream, for this task of each component that takes it."""
        ...


class EmitRows(Protocol):
    """Emits whole tables for the component that it was given to."""

    def __call__(self, rows: pa.RecordBatch | pa.Table, *, stream: str = DEFAULT) -> None:
        """Emit rows whose columns are the stream's fields; `EmitError` if they are not."""
        ...


class Component:
    """The part that spouts and bolts have in common."""

    outputs: ClassVar[Outputs] = ()
    """The fields of the default stream, or those of each stream by its name."""


_FOR_TRIALS: Final = "{} has no `ends` and `read`: it is a spout for trials alone"


class Spout(Component):
    """A source of records that can be read again, in partitions whose records have places.

    A subclass that has `ends` and `read` can run on a cluster; the spouts of Orcaflow's own are in
    `orcaflow.topology`. One without is for trials, which give it its inputs.
    """

    def begins(self) -> Mapping[str, int]:
        """Return where the partitions of a new topology begin; one that is missing begins at 0.

        It may be asked repeatedly, until something is found.
        """
        return {}

    def later(self, partitions: Sequence[str]) -> Mapping[str, int]:
        """Return where partitions begin that are found later; one that is missing begins at 0."""
        return {}

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        """Return, for each partition, the place behind its last record that can be read now.

        `begun` are the places up to which partitions have been read; one that is missing in the
        answer stands still. Asked between two batches, in one process for all of them.
        """
        # Not abstract: a spout for trials has neither, and is made like any other.
        raise NotImplementedError(_FOR_TRIALS.format(type(self).__name__))

    def read(
        self, partition: str, start: int, end: int
    ) -> Iterable[tuple[Any, ...] | pa.RecordBatch]:
        """Return the records of these places, for the default stream; the same ones whenever.

        Whole tables whose columns are the fields are quicker than records one by one. A batch that
        has failed is read again by its places.
        """
        # Not abstract, for the same spouts.
        raise NotImplementedError(_FOR_TRIALS.format(type(self).__name__))

    def on_ack(self, places: Mapping[str, int]) -> None:
        """Hear that all records before these places are done: their batches are committed.

        A committed batch is the ack of all its records. Called between two batches in the process
        of `ends`, at least once: again after a restart, and after an `OSError`, which is a trouble.
        Several batches may be acked together, and what is committed as a topology ends is acked
        only if it goes on later.
        """

    def on_fail(self, places: Mapping[str, int]) -> None:
        """Hear that a batch that began at these places has failed, or was lost with its task.

        Called before it is read again, at least once, in the process of `ends`.
        """

    def close(self) -> None:
        """Let go of what it has opened; called once nothing is read any more."""


class Bolt(Component, ABC):
    """Takes records one by one; what it remembers lasts for a batch at most."""

    @abstractmethod
    def process(self, record: Record, emit: Emit) -> None:
        """Take a record."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one stream, as an Arrow bolt takes them."""

    rows: pa.RecordBatch
    component: str
    stream: str = DEFAULT


class ArrowBolt(Component, ABC):
    """Takes records by the thousand, as Arrow has them; else as `Bolt`."""

    @abstractmethod
    def process(self, rows: Rows, emit: EmitRows) -> None:
        """Take some of the records of one stream."""


class StatefulBolt(Component, ABC):
    """Takes records one by one, with a state for each key, the values that they are grouped by.

    Records of one key come one after the other, in the task that the key belongs to. A state must
    be one that can be pickled; `FORGET` in its place has the key forgotten.
    """

    def initial(self) -> Any:
        """Return the state of a key that is seen for the first time."""
        return None

    @abstractmethod
    def process(self, record: Record, state: Any, emit: Emit) -> Any:
        """Take a record, and return the key's state after it."""

    def due(self, state: Any) -> datetime | None:
        """Return when a key with this state is to be woken, if it is. Asked after each change."""
        return None

    def wake(self, key: tuple[Any, ...], state: Any, now: datetime, emit: Emit) -> Any:
        """Do what is due at a key, and return its state after it. `now` is in UTC."""
        return state


@dataclass(frozen=True, slots=True)
class Batch:
    """Names a task's share of a batch: what is written for it again is written in its place.

    `query` tells batches of one number apart where a topology is several queries of Spark.
    """

    topology: str
    number: int
    query: str = ""
    task: int = 0


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
    both = [name_and_type(each) for each in fields]
    return Stream(
        tuple(name for name, _ in both),
        isinstance(declared, Stream) and declared.direct,
        tuple(type_name for _, type_name in both),
    )
