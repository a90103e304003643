"""Reads topics of Kafka as a streaming source of Spark, by `common.kafka_topic`.

Spark asks for the next offsets between two batches, and never while one runs, so all before the
start that it names is done: there the source reports its place, and obeys limits to pause or to end
at exact offsets (`documents`, `ranges`). It commits nothing at the broker.

A broker that does not answer is no error: the source reports the trouble and the stream stands
still. Offsets that are gone, and topics that do not exist, end the query.

Spark runs this class in processes of its own, which read the properties of the consumer, with their
secrets, from a file of the task's account: options of a source would be seen in plans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructField, StructType

from common.kafka_topic import BrokerAwayError, Topic
from common.model.streams.consumer import ClientProperties
from common.model.streams.partitions import Partition, number_of, topic_of
from common.model.streams.spec import Offsets
from common.model.streams.tasks import offsets_document, offsets_of
from worker.spark.streaming.documents import (
    Place,
    read_limits,
    write_place,
)
from worker.spark.streaming.json_fields import FieldTexts, read_fields
from worker.spark.streaming.ranges import Piece, next_offsets, pieces
from worker.spark.streaming.records import FIELDS, RECORD, texts_type

if TYPE_CHECKING:
    import pyarrow as pa

NAME: Final = "orcaflow_kafka"
"""The format of streams that are read here."""

_LEAST_ROWS: Final = 5_000
_ROWS_PER_BATCH: Final = 200_000
_MOST_TOPICS: Final = 4
"""The most topics that a process keeps connections for."""


class KafkaSource(DataSource):
    """The source; its options are those of `options`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        fields = json.loads(self.options["fields"])
        return StructType([*RECORD, StructField(FIELDS, texts_type(fields))]) if fields else RECORD

    def streamReader(self, schema: StructType) -> KafkaReader:  # noqa: N802
        return KafkaReader(self.options)


def options(
    *,
    topic: str,
    has_pattern: bool = False,
    starts: Offsets,
    folder: Path,
    properties: Path,
    at_once: int,
    whole_records: bool,
    rows_per_batch: int = _ROWS_PER_BATCH,
    fields: Sequence[str] = (),
) -> dict[str, str]:
    """Return the options of the source.

    `folder` has the limits, `properties` is a file. Only with `whole_records` are keys, headers and
    timestamps read: they cost time, and few formats use them. `fields` are those of JSON that are
    read of short values.
    """
    return {
        "topic": topic,
        "has_pattern": str(has_pattern),
        "starts": json.dumps(offsets_document(starts)),
        "folder": str(folder),
        "properties": str(properties),
        "at_once": str(at_once),
        "whole_records": str(whole_records),
        "rows_per_batch": str(rows_per_batch),
        "fields": json.dumps(list(fields)),
    }


class _Range(InputPartition):
    """A piece of a batch, for one task."""

    def __init__(self, piece: Piece[Partition]) -> None:
        super().__init__((piece.partition, piece.start, piece.end))


class KafkaReader(DataSourceStreamReader):
    """Plans batches in one process of Spark's, and reads them in others."""

    def __init__(self, options_: MutableMapping[str, str]) -> None:
        self._topic = options_["topic"]
        self._has_pattern = options_["has_pattern"] == "True"
        self._starts = offsets_of(json.loads(options_["starts"]))
        self._folder = options_["folder"]
        self._properties = options_["properties"]
        self._at_once = int(options_["at_once"])
        self._whole_records = options_["whole_records"] == "True"
        self._rows = int(options_["rows_per_batch"])
        self._fields: list[str] = json.loads(options_["fields"])
        self._latest: dict[Partition, int] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return offsets_document(self._starts)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        begin = offsets_of(start)
        limits = read_limits(Path(self._folder))
        trouble = self._look(sorted(begin))
        place = Place(version=limits.version, offsets=begin, latest=self._latest, trouble=trouble)
        write_place(Path(self._folder), place)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offsets_document(next_offsets(begin, self._latest, limits, most))

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        return offsets_document(self._latest) if self._latest else None

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        found = pieces(offsets_of(start), offsets_of(end), self._at_once, _LEAST_ROWS)
        return [_Range(piece) for piece in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        place, start, end = partition.value
        for messages in self._open().records(place, start, end):
            yield self._batch(place, messages)

    def stop(self) -> None:
        _forget(self._topic, self._properties)

    def _open(self) -> Topic:
        return _topic(self._topic, self._properties, has_pattern=self._has_pattern)

    def _look(self, partitions: Sequence[Partition]) -> str:
        """Note the latest offsets; return the trouble if the broker does not answer.

        If a topic of a pattern is in trouble, the other topics are read.
        """
        topic = self._open()
        topic.troubles = {}
        try:
            self._latest = topic.last(partitions)
        except BrokerAwayError as error:
            return str(error)
        return "; ".join(f"{name}: {why}" for name, why in sorted(topic.troubles.items()))

    def _batch(self, partition: Partition, messages: Sequence[Any]) -> pa.RecordBatch:
        import pyarrow as pa

        count = len(messages)
        none = pa.nulls(count)
        key, stamps, headers = none.cast(pa.binary()), none.cast(pa.int64()), none
        values = [each.value() for each in messages]
        header_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        if self._whole_records:
            key = pa.array([each.key() for each in messages], pa.binary())
            stamps = pa.array([each.timestamp()[1] for each in messages], pa.int64())
            headers = pa.array([_headers(each) for each in messages], header_type)
        columns = [
            pa.repeat(topic_of(partition, self._topic), count),
            pa.repeat(pa.scalar(number_of(partition), pa.int32()), count),
            pa.array([each.offset() for each in messages], pa.int64()),
            stamps,
            key,
            pa.array(values, pa.binary()),
            headers if self._whole_records else none.cast(header_type),
        ]
        if not self._fields:
            return pa.RecordBatch.from_arrays(columns, names=RECORD.fieldNames())
        columns.append(_struct(self._fields, read_fields(values, self._fields)))
        return pa.RecordBatch.from_arrays(columns, names=[*RECORD.fieldNames(), FIELDS])


def _struct(names: Sequence[str], read: FieldTexts) -> pa.Array:
    import pyarrow as pa

    columns = [pa.array(each, pa.string()) for each in read.columns]
    return pa.StructArray.from_arrays(columns, names, mask=pa.array(read.left))


def _headers(message: Any) -> list[dict[str, Any]] | None:
    headers: Any = message.headers()
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]


_topics: dict[tuple[str, str], Topic] = {}
"""The topics of this process, with their files of properties, the one that was used last behind.

To connect takes time. A Python of a shared server may read for many streams, one after the other.
"""


def _topic(name: str, properties: str, *, has_pattern: bool = False) -> Topic:
    key = name, properties
    topic = _topics.pop(key, None)
    if topic is None:
        over = [each for each in _topics if not Path(each[1]).exists()]
        for each in [*over, *_topics][: max(len(over), len(_topics) - _MOST_TOPICS + 1)]:
            _forget(*each)
        document = json.loads(Path(properties).read_text(encoding="utf-8"))
        topic = Topic(name, ClientProperties.of(document), has_pattern=has_pattern)
    _topics[key] = topic
    return topic


def _forget(name: str, properties: str) -> None:
    topic = _topics.pop((name, properties), None)
    if topic is not None:
        topic.close()
