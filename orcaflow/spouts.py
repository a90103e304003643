"""The spouts of Orcaflow's own: lists, rates, files, topics of Kafka, datasets.

A spout can be read again by places, so what it holds has to stay: lines are appended to files and
never changed, segments of datasets are added. Standard library only, but for what a spout reads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, Literal

from common.kafka_topic import BrokerAwayError, StreamAwayError, Topic
from common.model.streams.consumer import (
    ConsumerPropertyError,
    librdkafka_properties,
    read_properties,
)
from common.model.streams.partitions import Partition
from common.model.streams.spec import EnvironmentSecret, Offsets
from common.topology.components import Outputs, Spout
from common.topology.types import OBJECT, name_and_type
from orcaflow import datasets

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE: Final = 10_000
_BLOCK_BYTES: Final = 1 << 20
_PARTITIONS_SECONDS: Final = 10.0
_SEGMENTS_SECONDS: Final = 2.0
_ANEW: Final = "kill the topology and submit it anew, to go on with the records that there are"


class ListSpout(Spout):
    """Emits what it was given, in so many partitions, and then nothing more. For tests."""

    def __init__(
        self, records: Iterable[Sequence[Any]], outputs: Outputs, *, partitions: int = 1
    ) -> None:
        self.outputs = outputs  # type: ignore[misc]  # Each object has its own.
        self._records = [tuple(each) for each in records]
        self._partitions = _positive("partitions", partitions)

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        count = self._partitions
        return {str(each): len(self._records[each::count]) for each in range(count)}

    def read(self, partition: str, start: int, end: int) -> Iterable[tuple[Any, ...]]:
        return self._records[int(partition) :: self._partitions][start:end]


class RateSpout(Spout):
    """Emits the numbers from 0 on: so many a second, or all that fit into a batch.

    Partition p of n has p, p + n, p + 2n, … Without `rows_per_second` there are always more, up to
    `total` in all partitions together. The measure goes on while the topology is inactive, and what
    has come together is emitted then.
    """

    outputs = ("value long",)

    def __init__(
        self,
        rows_per_second: int | None = None,
        *,
        partitions: int = 1,
        total: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if rows_per_second is not None:
            _positive("rows_per_second", rows_per_second)
        if total is not None and total < 0:
            raise ValueError(f"total must be 0 or more, not {total}")
        self._rate = rows_per_second
        self._partitions = _positive("partitions", partitions)
        self._total = total
        self._clock = clock
        self._begun: tuple[float, Mapping[str, int]] | None = None

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        if self._begun is None:
            self._begun = self._clock(), dict(begun)
        since, at_first = self._begun
        found = {}
        for place in range(self._partitions):
            name = str(place)
            end = begun.get(name, 0) + (1 << 40)
            if self._rate is not None:
                passed = (self._clock() - since) * self._rate / self._partitions
                end = at_first.get(name, 0) + int(passed)
            if self._total is not None:
                share = -(-(self._total - place) // self._partitions)
                end = min(end, max(share, 0))
            found[name] = end
        return found

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        place, step = int(partition), self._partitions
        for begin in range(start, end, _AT_ONCE):
            stop = min(begin + _AT_ONCE, end)
            numbers = pa.array(range(place + begin * step, place + stop * step, step), pa.int64())
            yield pa.RecordBatch.from_arrays([numbers], names=["value"])

    def close(self) -> None:
        self._begun = None  # Who goes on later has another measure.


class FileSpout(Spout):
    """Emits the lines of the files of a folder, each file a partition, and what comes behind them.

    Lines are appended to files, and files are added; what was a line stays one. The last line of a
    file is emitted once it ends with a line feed. Lines are UTF-8; other bytes become U+FFFD.

    `pattern` may lead into folders below (`**/*.log`), and `file` is the path in the folder. Files
    whose names begin with a point are left out: who writes a file in one go writes it under such a
    name, and renames it.

    A file that has lost lines is a trouble: the topology stands still until it has them again. One
    that is removed is forgotten, but it must not come back under its name with other lines.
    """

    outputs = ("line", "file")

    def __init__(self, folder: str, pattern: str = "*") -> None:
        self._folder = folder
        self._pattern = pattern
        self._known: dict[str, tuple[int, int]] = {}
        """Some of the first lines of each file, counted, and the bytes that these have."""

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        folder = Path(self._folder)
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {self._folder}")
        found = {}
        for path in sorted(folder.glob(self._pattern)):
            if path.name.startswith(".") or not path.is_file():
                continue
            name = _in_utf_8(path.relative_to(folder))
            count = found[name] = self._count(name, path)
            if count < begun.get(name, 0):
                raise OSError(
                    f"{path} has {count} lines, and {begun[name]} of it have been read: lines are"
                    " appended, and new files have new names; bring back what it had, or remove it"
                )
        return found

    def read(self, partition: str, start: int, end: int) -> Iterator[tuple[Any, ...]]:
        path = Path(self._folder) / partition
        with path.open("rb") as file:
            lines, place = self._known.get(partition, (0, 0))
            if lines > start:
                lines, place = 0, 0
            file.seek(place)
            for number in range(lines, end):
                line = file.readline()
                if not line.endswith(b"\n"):
                    raise OSError(f"line {number + 1} of {path} is gone, which was there before")
                if number >= start:
                    text = line[:-1].removesuffix(b"\r").decode("utf-8", "replace")
                    yield text, partition
            # The next piece is nearly always the one behind this.
            self._known[partition] = (end, file.tell())

    def _count(self, name: str, path: Path) -> int:
        lines, place = self._known.get(name, (0, 0))
        if path.stat().st_size < place:
            lines, place = 0, 0
        with path.open("rb") as file:
            file.seek(place)
            at = place
            # By blocks: a line without an end may be longer than memory.
            while block := file.read(_BLOCK_BYTES):
                if more := block.count(b"\n"):
                    lines, place = lines + more, at + block.rindex(b"\n") + 1
                at += len(block)
        self._known[name] = (lines, place)
        return lines


class KafkaSpout(Spout):
    """Emits the records of a topic of Kafka; places are its offsets, by the numbers of partitions.

    Keys and values are UTF-8, other bytes become U+FFFD; with `binary` they are bytes. `at` is the
    time that the broker has for a record. Nothing is committed at the broker.

    A new topology begins at the first records that there are, or, with `start="latest"`, behind the
    last; partitions that the topic gets later are read from their first record. Records of open and
    aborted transactions are none. A broker that is away is a trouble: the topology stands still
    meanwhile. An offset that retention has removed before it was read fails the batch.

    `properties` are those of a consumer (`isolation.level`, `sasl.…`, `ssl.…`). A secret is given
    as `{"type": "environment", "variable": NAME}`: a variable that the task has by its environment.
    """

    def __init__(
        self,
        topic: str,
        servers: str,
        *,
        start: Literal["earliest", "latest"] = "earliest",
        properties: Mapping[str, str | Mapping[str, str]] | None = None,
        binary: bool = False,
    ) -> None:
        if start not in ("earliest", "latest"):
            raise ValueError(f"start must be 'earliest' or 'latest', not {start!r:.50}")
        self.outputs = (  # type: ignore[misc]  # Each object has its own.
            *(("key binary", "value binary") if binary else ("key", "value")),
            *("partition long", "offset long", "at timestamp"),
        )
        self._name = topic
        self._start = start
        self._binary = binary
        self._properties = _read({**(properties or {}), "bootstrap.servers": servers})
        self._opened: Topic | None = None
        self._partitions: list[Partition] = []
        self._looked = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_partitions": [], "_looked": float("-inf")}

    def begins(self) -> Mapping[str, int]:
        with self._topic() as topic:
            partitions = topic.partitions()
            is_latest = self._start == "latest"
            return _by_name(topic.last(partitions) if is_latest else topic.first(partitions))

    def later(self, partitions: Sequence[str]) -> Mapping[str, int]:
        with self._topic() as topic:
            return _by_name(topic.first([int(each) for each in partitions]))

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        with self._topic() as topic:
            now = time.monotonic()
            if now >= self._looked + _PARTITIONS_SECONDS:
                self._partitions = topic.partitions()
                self._looked = now
            if not self._partitions:
                self._looked = float("-inf")
                raise StreamAwayError(f"the topic {self._name} does not exist")
            found = _by_name(topic.last(self._partitions))
        for partition, end in found.items():
            if end < begun.get(partition, 0):
                # After a loss at the broker it may come to it again, with other records.
                raise OSError(
                    f"partition {partition} of {self._name} ends at {end}, and was read up to"
                    f" {begun[partition]}: if the topic was made anew, {_ANEW}"
                )
        return found

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        number = int(partition)
        with self._topic() as topic:
            for messages in topic.records(number, start, end):
                stamps = [each.timestamp() for each in messages]
                yield pa.RecordBatch.from_arrays(
                    [
                        self._texts([each.key() for each in messages]),
                        self._texts([each.value() for each in messages]),
                        pa.repeat(pa.scalar(number, pa.int64()), len(messages)),
                        pa.array([each.offset() for each in messages], pa.int64()),
                        pa.array(
                            [stamp if kind else None for kind, stamp in stamps],
                            pa.timestamp("ms", "UTC"),
                        ),
                    ],
                    names=["key", "value", "partition", "offset", "at"],
                )

    def _texts(self, values: Sequence[bytes | None]) -> pa.Array:
        import pyarrow as pa

        if self._binary:
            return pa.array(values, pa.binary())
        texts = [None if each is None else each.decode("utf-8", "replace") for each in values]
        return pa.array(texts, pa.string())

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    @contextmanager
    def _topic(self) -> Iterator[Topic]:
        """Enter with the topic; a broker that is away meanwhile is an `OSError`."""
        if self._opened is None:
            properties = librdkafka_properties(
                self._properties,
                os.environ,
                key="properties",
                owner="this task does not have: name an environment that has it",
            )
            self._opened = Topic(self._name, properties, key="properties", cure=_ANEW)
        try:
            yield self._opened
        except BrokerAwayError as error:
            raise ConnectionError(str(error)) from error


class DatasetSpout(Spout):
    """Emits the rows of a dataset, a partition for each segment, and of those that are added.

    `fields` are columns with their types, which all segments have. With an interval the segments
    are those of the chunks that it touches, whole. Places are the numbers of rows in a segment.

    A segment that has been read stays read; one that replaces or compacts others is a new one,
    whose rows are emitted, though they may have been before. One that goes before it is read whole
    has the rest of its rows in those that replace it. So read what is appended to alone, or what
    is compacted once it is not appended to any more, by `interval`; or take each row at least once.
    Every segment stays in the places of the topology: thousands are many.
    """

    def __init__(self, dataset: str, fields: Sequence[str], *, interval: str | None = None) -> None:
        self.outputs = tuple(fields)  # type: ignore[misc]  # Each object has its own.
        self._columns = [name_and_type(each)[0] for each in fields]
        if any(name_and_type(each)[1] == OBJECT for each in fields):
            raise ValueError(f"fields of dataset {dataset} must be of types that Parquet has")
        self._dataset = dataset
        self._interval = interval
        self._known: dict[str, datasets.StoredSegment] = {}
        self._looked = float("-inf")

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        now = time.monotonic()
        if now >= self._looked + _SEGMENTS_SECONDS:
            try:
                self._look(is_patient=False)
            except datasets.WorkerAwayError as error:
                raise ConnectionError(str(error)) from error
            self._looked = now
        return {name: each.rows for name, each in self._known.items()}

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        if partition not in self._known:
            self._look()
        found = self._known.get(partition)
        if found is None:
            raise datasets.DatasetError(f"segment {partition} {self._gone}")
        first = 0
        for name in found.files:
            try:
                file = pq.ParquetFile(name)
            except FileNotFoundError as error:
                raise datasets.DatasetError(f"segment {partition} {self._gone}") from error
            with file:
                self._check(partition, file.schema_arrow.names)
                for group in range(file.num_row_groups):
                    behind = first + file.metadata.row_group(group).num_rows
                    if start < behind and first < end:
                        rows = file.read_row_group(group, columns=self._columns)
                        begin = max(0, start - first)
                        length = min(end, behind) - first - begin
                        yield from rows.slice(begin, length).select(self._columns).to_batches()
                    first = behind
        if first < end:
            raise datasets.DatasetError(
                f"segment {partition} of dataset {self._dataset} has {first} rows,"
                f" and was published with {found.rows}"
            )

    @property
    def _gone(self) -> str:
        return (
            f"of dataset {self._dataset} is gone, replaced or compacted while it was read; {_ANEW}"
        )

    def _check(self, partition: str, names: Sequence[str]) -> None:
        missing = [each for each in self._columns if each not in names]
        if missing:
            raise datasets.DatasetError(
                f"segment {partition} of dataset {self._dataset} has no column"
                f" {', '.join(missing)}; it has {', '.join(names)}"
            )

    def _look(self, *, is_patient: bool = True) -> None:
        patience = {} if is_patient else {"patience_seconds": 0.0}
        found = datasets.segments(self._dataset, self._interval, **patience).segments
        self._known = {
            f"{each.start}/{each.end} {each.version} {each.number}": each for each in found
        }


def _read(properties: Mapping[str, object]) -> dict[str, str | EnvironmentSecret]:
    """Check the properties of a consumer. The error names all mistakes and shows no value."""
    read = read_properties(properties)
    if read.mistakes:
        raise ConsumerPropertyError(
            "; ".join(f"properties.{name} {problem}" for name, problem in read.mistakes)
        )
    return read.found


def _by_name(offsets: Offsets) -> dict[str, int]:
    return {str(each): offset for each, offset in offsets.items()}


def _in_utf_8(path: PurePath) -> str:
    """Return the name of a file as a partition's; `OSError` if it can be none."""
    try:
        path.as_posix().encode()
    except UnicodeEncodeError:
        raise OSError(f"the name of the file {path.as_posix()!r} is not UTF-8: rename it") from None
    return path.as_posix()


def _positive(name: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"{name} must be 1 or more, not {number}")
    return number
