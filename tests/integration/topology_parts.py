"""Components of topologies for tests with Spark, whose Python processes import this module.

Each of those processes imports it anew. So it imports neither pytest nor the driver's side of a
topology, which take longer than everything else that such a process does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from common.topology.components import (
    FORGET,
    ArrowBolt,
    Batch,
    Bolt,
    Emit,
    EmitRows,
    Outputs,
    Record,
    Rows,
    Sink,
    Spout,
    StatefulBolt,
)
from tests.topologies import Count
from worker.spark.topology.stages import partition_number

FAILS_AT = 6
"""The number of the batch in which `Failing` fails."""


class Witness(Sink):
    """Writes what each of its tasks has had, a file for each batch and task; not in a trial."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name

    def write(self, records: Sequence[Record], batch: Batch) -> None:
        lines = [
            json.dumps([batch.task, list(record.values), record.component, record.task])
            for record in records
        ]
        if not batch.query:
            return
        name = f"{self._name}-{batch.query}-{batch.number}-{batch.task}"
        (self._folder / name).write_text("".join(f"{line}\n" for line in lines))


class Relay(Bolt):
    outputs = ("line",)

    def process(self, record: Record, emit: Emit) -> None:
        emit(record["line"])


class Upper(ArrowBolt):
    outputs: ClassVar[Outputs] = {"default": ("line",), "lengths": ("length long",)}

    def process(self, rows: Rows, emit: EmitRows) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        lines = rows.rows.column("line")
        emit(pa.table({"line": pc.utf8_upper(lines)}))
        emit(pa.table({"length": pc.cast(pc.utf8_length(lines), pa.int64())}), stream="lengths")


class Fragile(Bolt):
    outputs = ("line",)

    def process(self, record: Record, emit: Emit) -> None:
        emit(record["line"])
        if record["line"] == "poison":
            raise ValueError("not this one")


class Idle(StatefulBolt):
    """Emits a key that received no record for a tenth of a second, and forgets it."""

    outputs = ("line", "times long")

    def initial(self) -> tuple[int, datetime | None]:
        return 0, None

    def process(self, record: Record, state: Any, emit: Emit) -> Any:
        return state[0] + 1, datetime.now(UTC) + timedelta(milliseconds=100)

    def due(self, state: Any) -> datetime | None:
        found: datetime | None = state[1]
        return found

    def wake(self, key: tuple[Any, ...], state: Any, now: datetime, emit: Emit) -> Any:
        emit(*key, state[0])
        return FORGET


class Longest(StatefulBolt):
    """Keeps the most frequent word of each length."""

    outputs = ("length long", "word", "count long")

    def initial(self) -> tuple[str, int]:
        return "", 0

    def process(self, record: Record, state: tuple[str, int], emit: Emit) -> tuple[str, int]:
        found = max((record["count"], record["word"]), (state[1], state[0]))
        emit(record["length"], found[1], found[0])
        return found[1], found[0]


class Sized(Count):
    outputs = ("word", "length long", "count long")

    def process(self, record: Record, state: int, emit: Emit) -> int:
        emit(record["word"], len(record["word"] or ""), state + 1)
        return state + 1


class Uneven(Bolt):
    """Takes long over each record in its task 0."""

    outputs = ("value long",)

    def process(self, record: Record, emit: Emit) -> None:
        for _ in range(30_000 if partition_number() == 0 else 0):
            pass
        emit(record["value"])


class Failing(Sink):
    """A witness, one task of which fails at a batch until there is a cure."""

    def __init__(self, witness: Sink, folder: Path) -> None:
        self._witness = witness
        self._folder = folder

    def write(self, records: Sequence[Record], batch: Batch) -> None:
        if batch.number == FAILS_AT and batch.task == 1 and not (self._folder / "cure").exists():
            raise ValueError("not yet")
        self._witness.write(records, batch)


class ByHand(Spout):
    """Has what a folder holds: a partition a file, whose name has its first place and its end."""

    outputs = ("partition", "place long")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _files(self) -> Mapping[str, tuple[int, int]]:
        if (self.folder / "away").exists():
            raise ConnectionError("it is away")
        found = {}
        for file in self.folder.glob("*-*-*"):
            name, first, end = file.name.split("-")
            found[name] = (int(first), int(end))
        return found

    def begins(self) -> Mapping[str, int]:
        return {name: first + 1 for name, (first, _) in self._files().items()}

    def later(self, partitions: Any) -> Mapping[str, int]:
        return {name: first for name, (first, _) in self._files().items() if name in partitions}

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        return {name: end for name, (_, end) in self._files().items()}

    def read(self, partition: str, start: int, end: int) -> list[tuple[Any, ...]]:
        return [(partition, place) for place in range(start, end)]


class Told(ByHand):
    """Keeps what it is told of batches; there may be a trouble with acks."""

    def on_ack(self, places: Mapping[str, int]) -> None:
        if (self.folder / "deaf").exists():
            raise ConnectionError("nobody takes acks")
        self._keep("ack", places)

    def on_fail(self, places: Mapping[str, int]) -> None:
        self._keep("fail", places)

    def _keep(self, what: str, places: Mapping[str, int]) -> None:
        with (self.folder / "told").open("a") as file:
            file.write(f"{what} {dict(places)}\n")

    def told(self) -> list[str]:
        file = self.folder / "told"
        return file.read_text().splitlines() if file.exists() else []


class Breaking(Bolt):
    """Fails a batch with the place 7 while it is told to."""

    outputs = ("place long",)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def process(self, record: Record, emit: Emit) -> None:
        if record["place"] == 7 and (self._folder / "broken").exists():
            raise ValueError("not this one")
        emit(record["place"])


class Untimed(Bolt):
    outputs = ("value", "partition long", "offset long")

    def process(self, record: Record, emit: Emit) -> None:
        assert record["at"].tzinfo is not None
        emit(record["value"], record["partition"], record["offset"])
