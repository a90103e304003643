"""Spouts as a streaming source of Spark: each emits into the rows of its query.

Spark asks for the next places between two batches, and never while one runs. There the source tells
the task how far it is (`Place`), and stands still while the task has it paused: an inactive
topology is one whose sources answer where they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from common.topology.components import DEFAULT, Spout
from common.topology.config import PENDING, setting
from worker.spark.streaming.documents import replace
from worker.spark.streaming.ranges import limited, pieces
from worker.spark.topology.outbox import Outbox
from worker.spark.topology.program import Pickled, Program, ddl_of
from worker.spark.topology.stages import RAISED, failed_at, place_of

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "orcaflow_spout"
"""The format of streams that are read here."""

PAUSE: Final = "paused"
"""The file that has all spouts of a topology stand still while it is there."""
_AT_ONCE: Final = 10_000
_LEAST_RECORDS: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a spout: records before `begun` are done, those before `ends` can be read."""

    begun: Mapping[str, int]
    ends: Mapping[str, int]
    trouble: str = ""

    @property
    def lag(self) -> int:
        """The records that can be read and are not emitted yet."""
        return sum(max(0, end - self.begun.get(each, 0)) for each, end in self.ends.items())


def options(program_file: Path, spout: str, *, scratch: Path, at_once: int) -> dict[str, str]:
    """Return the options of the source; `scratch` has the file of `PAUSE` and the places."""
    return {
        "program": str(program_file),
        "spout": spout,
        "scratch": str(scratch),
        "at_once": str(at_once),
    }


def read_place(scratch: Path, query: str, spout: str) -> Place | None:
    """Return how far a spout is in a query; None before it was asked."""
    try:
        written = json.loads(_place_file(scratch, query, spout).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Place(begun=written["begun"], ends=written["ends"], trouble=written["trouble"])


def read_begin(scratch: Path, query: str, spout: str) -> dict[str, int] | None:
    """Return where a spout has begun; None if it was begun by another process."""
    try:
        found: dict[str, int] = json.loads(
            _place_file(scratch, query, spout, "begin").read_text(encoding="utf-8")
        )
    except FileNotFoundError:
        return None
    return found


def _place_file(scratch: Path, query: str, spout: str, what: str = "place") -> Path:
    return scratch / f"{what}-{query}-{spout}.json"


def _program(file: str) -> Program:
    return Pickled(_content(file)).value


@lru_cache(maxsize=8)
def _content(file: str) -> bytes:
    return Path(file).read_bytes()


class SpoutSource(DataSource):
    """The source; its options are those of `options`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ddl_of(_program(self.options["program"]).query)

    def streamReader(self, schema: StructType) -> SpoutReader:  # noqa: N802
        return SpoutReader(self.options)


class _Piece(InputPartition):
    """Records of one partition of a spout, for one task of Spark's."""

    def __init__(self, partition: str, start: int, end: int) -> None:
        super().__init__((partition, start, end))


class SpoutReader(DataSourceStreamReader):
    """Plans batches in one process of Spark's, and reads them in others."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._file = given["program"]
        self._name = given["spout"]
        self._scratch = given["scratch"]
        self._at_once = int(given["at_once"])
        self._acked: Mapping[str, int] | None = None
        self._planned: Mapping[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        try:
            begins = self._firsts({}, self._spout().ends({}))
        except OSError:
            begins = {}  # It is asked again by each look, which tells of the trouble.
        self._acked = begins
        query = _program(self._file).query.name
        replace(_place_file(Path(self._scratch), query, self._name, "begin"), begins)
        return begins

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()  # A spout has a limit of its own.

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        program = _program(self._file)
        trouble, found, firsts = "", dict[str, int](), dict[str, int]()
        try:
            self._ack(start)
            found = dict(self._spout().ends(start))
            firsts = self._firsts(start, found)
        except OSError as error:
            # A folder, a broker, a database that is away may come back.
            trouble, found = f"{type(error).__name__}: {error!s:.300}", {}
        except RAISED as error:
            raise failed_at(self._name, 0, error) from error
        place = Place(begun=start, ends=found, trouble=trouble)
        replace(
            _place_file(Path(self._scratch), program.query.name, self._name),
            {"begun": dict(place.begun), "ends": dict(place.ends), "trouble": place.trouble},
        )
        if (Path(self._scratch) / PAUSE).exists():
            return start
        ceiling = {each: max(at, found.get(each, at)) for each, at in start.items()}
        configs = (program.part(self._name).config, program.topology.config)
        taken = limited(start, ceiling, int(setting(PENDING, *configs)))
        self._planned = dict(sorted({**firsts, **taken}.items()))
        return self._planned

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if end != self._planned:
            # It was planned by a query that has ended before it was committed.
            self._planned = end
            self._spout().on_fail(start)
        begin = {each: start.get(each, at) for each, at in end.items()}
        return [
            _Piece(each.partition, each.start, each.end)
            for each in pieces(begin, end, self._at_once, _LEAST_RECORDS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        name, start, end = partition.value
        program = _program(self._file)
        task = task_of(name, program.part(self._name).tasks)
        outbox = Outbox(program, self._name, task, start)
        records: Iterator[Any] = iter(())
        try:
            records = iter(self._spout().read(name, start, end))
            for number, found in enumerate(records, 1):
                if isinstance(found, tuple):
                    outbox(*found)
                else:
                    yield from outbox.give_rows(found, DEFAULT)
                if number % _AT_ONCE == 0:
                    yield from outbox.give()
            yield from outbox.give()
        except RAISED as error:
            raise failed_at(self._name, task, error, place=_place_in(records)) from error

    def commit(self, end: dict[str, int]) -> None:
        with suppress(OSError):
            self._ack(end)  # The next look does it again, and tells of the trouble.

    def stop(self) -> None:
        self._spout().close()

    def _ack(self, places: Mapping[str, int]) -> None:
        if places != self._acked:
            self._spout().on_ack(places)
            self._acked = places

    def _firsts(self, begun: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Return where the partitions begin that have no place yet.

        The batch that finds a partition takes nothing of it: only so its first place is in Spark's
        log, wherever that is.
        """
        new = sorted(ends.keys() - begun.keys())
        if not new:
            return {}
        found = self._spout().later(new) if begun else self._spout().begins()
        return {each: found.get(each, 0) for each in new}

    def _spout(self) -> Spout:
        found = _program(self._file).part(self._name).component
        assert isinstance(found, Spout)
        return found


def _place_in(records: Iterator[object]) -> str:
    """Return the line at which a generator has given its last record, if it is one."""
    frame = getattr(records, "gi_frame", None)
    return "" if frame is None else place_of(frame.f_code.co_filename, frame.f_lineno)


def task_of(partition: str, tasks: int) -> int:
    """Return the task of a spout that a partition belongs to, whatever others there are."""
    return (int(partition) if partition.isdecimal() else crc32(partition.encode())) % tasks
