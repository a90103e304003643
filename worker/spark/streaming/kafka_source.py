"""Reads a topic of Kafka as a streaming source of Spark, by confluent-kafka.

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
import re
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from common.errors import SchedulerError
from common.model.streams.spec import Offsets
from common.model.streams.tasks import offsets_document, offsets_of
from worker.spark.streaming.documents import (
    Place,
    read_limits,
    write_place,
)
from worker.spark.streaming.ranges import Piece, next_offsets, pieces
from worker.spark.streaming.records import RECORD

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self

    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, Message

NAME: Final = "orcaflow_kafka"
"""The format of streams that are read here."""

_AT_ONCE: Final = 10_000
_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 300.0
_LEAST_ROWS: Final = 5_000
_ROWS_PER_BATCH: Final = 200_000
_PROMPT: Final[Mapping[str, int]] = {
    # What a piece has is there already: a fetch that waits for more keeps the next piece waiting,
    # since a broker's connection has one at a time.
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,
}
"""Properties that `consumerProperties` may change."""
_OURS: Final[Mapping[str, str | bool]] = {
    # No group is formed: partitions are assigned, and offsets live with what is published.
    "group.id": "orcaflow",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # An offset that is gone is an error; only a supervisor may skip records.
    "auto.offset.reset": "error",
}
_PROPERTY: Final = re.compile(r'property:? "([\w.-]+)"')
_NO_TOPIC: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
_LASTING: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "_AUTHENTICATION"})


_Answer = TypeVar("_Answer")


class StreamAwayError(SchedulerError):
    """Records that were there can't be read."""


class OffsetExpiredError(SchedulerError):
    """The stream has lost records before they were read."""


class KafkaSource(DataSource):
    """The source; its options are those of `options`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return RECORD

    def streamReader(self, schema: StructType) -> KafkaReader:  # noqa: N802
        return KafkaReader(self.options)


def options(
    *,
    topic: str,
    starts: Offsets,
    folder: Path,
    properties: Path,
    at_once: int,
    whole_records: bool,
    rows_per_batch: int = _ROWS_PER_BATCH,
) -> dict[str, str]:
    """Return the options of the source.

    `folder` has the limits, `properties` is a file. Only with `whole_records` are keys, headers and
    timestamps read: they cost time, and few formats use them.
    """
    return {
        "topic": topic,
        "starts": json.dumps(offsets_document(starts)),
        "folder": str(folder),
        "properties": str(properties),
        "at_once": str(at_once),
        "whole_records": str(whole_records),
        "rows_per_batch": str(rows_per_batch),
    }


class _Range(InputPartition):
    """A piece of a batch, for one task."""

    def __init__(self, piece: Piece[int]) -> None:
        super().__init__((piece.partition, piece.start, piece.end))


class KafkaReader(DataSourceStreamReader):
    """Plans batches in one process of Spark's, and reads them in others."""

    def __init__(self, options_: MutableMapping[str, str]) -> None:
        self._topic = options_["topic"]
        self._starts = offsets_of(json.loads(options_["starts"]))
        self._folder = options_["folder"]
        self._properties = options_["properties"]
        self._at_once = int(options_["at_once"])
        self._whole_records = options_["whole_records"] == "True"
        self._rows = int(options_["rows_per_batch"])
        self._latest: dict[int, int] = {}

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
        number, start, end = partition.value
        yield from self._records(Piece(partition=number, start=start, end=end))

    def stop(self) -> None:
        _forget(self._properties)

    def _look(self, partitions: Sequence[int]) -> str:
        """Note the latest offsets; return the trouble if the broker does not answer."""
        from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

        asked = [TopicPartition(self._topic, each, OFFSET_END) for each in partitions]
        try:
            answers = _consumer(self._properties).offsets_for_times(asked, timeout=_LOOK_SECONDS)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
        except KafkaException as error:
            return self._trouble(_reason(self._properties, error.args[0]))
        self._latest = {answer.partition: answer.offset for answer in answers}
        return ""

    def _records(self, piece: Piece[int]) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import TopicPartition

        consumer = _consumer(self._properties)
        consumer.assign([TopicPartition(self._topic, piece.partition, piece.start)])
        try:
            yield from self._until(consumer, piece)
        finally:
            consumer.unassign()

    def _until(self, consumer: Consumer, piece: Piece[int]) -> Iterator[pa.RecordBatch]:
        """Yield records up to the end, which may lie in a gap that a transaction has left."""
        position = piece.start
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while position < piece.end:
            before = position
            # A client that is asked for more than there is waits until its time is over.
            count = min(_AT_ONCE, piece.end - position)
            messages, position = self._taken(
                consumer.consume(count, timeout=_POLL_SECONDS), position, piece
            )
            if messages:
                yield self._batch(piece.partition, messages)
            if position > before:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif (refusal := _refusals.pop(self._properties, None)) is not None:
                self._trouble(refusal)
            elif time.monotonic() > deadline:
                raise StreamAwayError(
                    f"partition {piece.partition} of {self._topic} gave no record from offset"
                    f" {position} on for {_PATIENCE_SECONDS:g} s, though it goes to {piece.end}"
                )

    def _taken(
        self, consumed: Sequence[Message], position: int, piece: Piece[int]
    ) -> tuple[list[Message], int]:
        """Return the records of a piece, and the offset up to which all is known now."""
        found: list[Message] = []
        for message in consumed:
            error, offset = message.error(), message.offset()
            if error is None:
                if offset is None or offset >= piece.end:
                    return found, piece.end
                found.append(message)
                position = offset + 1
            elif error.name() == "_PARTITION_EOF":
                position = max(position, offset or 0)
            elif error.name() == "_AUTO_OFFSET_RESET":
                raise OffsetExpiredError(
                    f"offset {position} of partition {piece.partition} of {self._topic} is not in"
                    " the stream any more; reset the supervisor to skip what is lost"
                )
            else:
                self._trouble(error)
        return found, position

    def _trouble(self, error: KafkaError) -> str:
        """Return the text of an error that may pass; raise one that will not."""
        if error.name() in _NO_TOPIC:
            raise StreamAwayError(f"the topic {self._topic} does not exist")
        if error.fatal() or error.name() in _LASTING:
            raise StreamAwayError(f"the topic {self._topic} can't be read: {error.str()}")
        return str(error.str())

    def _batch(self, partition: int, messages: Sequence[Message]) -> pa.RecordBatch:
        import pyarrow as pa

        count = len(messages)
        none = pa.nulls(count)
        key, stamps, headers = none.cast(pa.binary()), none.cast(pa.int64()), none
        header_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        if self._whole_records:
            key = pa.array([each.key() for each in messages], pa.binary())
            stamps = pa.array([each.timestamp()[1] for each in messages], pa.int64())
            headers = pa.array([_headers(each) for each in messages], header_type)
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(self._topic, count),
                pa.repeat(pa.scalar(partition, pa.int32()), count),
                pa.array([each.offset() for each in messages], pa.int64()),
                stamps,
                key,
                pa.array([each.value() for each in messages], pa.binary()),
                headers if self._whole_records else none.cast(header_type),
            ],
            names=RECORD.fieldNames(),
        )


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers: Any = message.headers()
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]


_consumers: dict[str, Consumer] = {}
"""The consumers of this process, by their files of properties: to connect takes time."""
_refusals: dict[str, KafkaError] = {}
"""The refusals that they have heard on the way to a connection, which no call returns."""


def _consumer(properties: str) -> Consumer:
    if properties not in _consumers:
        _consumers[properties] = made_consumer(
            json.loads(Path(properties).read_text(encoding="utf-8")),
            hear=lambda error: _hear(properties, error),
        )
    return _consumers[properties]


def _hear(properties: str, error: KafkaError) -> None:
    if error.name() in _LASTING:
        _refusals[properties] = error


def _reason(properties: str, error: KafkaError) -> KafkaError:
    """Return the reason of an error: who is refused is told that time is over."""
    consumer = _consumers[properties]
    if not consumer.assignment():
        consumer.poll(0)  # Only to hear; a record would be lost.
    return _refusals.pop(properties, error)


def _forget(properties: str) -> None:
    _refusals.pop(properties, None)
    consumer = _consumers.pop(properties, None)
    if consumer is not None:
        consumer.close()


def made_consumer(properties: Mapping[str, str], *, hear: Callable[[KafkaError], None]) -> Consumer:
    """Return a consumer of librdkafka's properties; `StreamAwayError` names a refused one.

    `hear` is told of errors that belong to no call, whenever the consumer is polled.
    """
    from confluent_kafka import Consumer as Made
    from confluent_kafka import KafkaException

    try:
        return Made({**_PROMPT, **properties, **_OURS, "error_cb": hear})
    except KafkaException as error:
        # The client may quote the value, which may be a secret.
        refused = _PROPERTY.search(error.args[0].str())
        named = "" if refused is None else f".{refused[1]}"
        raise StreamAwayError(
            f"consumerProperties{named} can't be used by the client of Kafka"
        ) from None


class Topic:
    """A topic as it is now. What a broker does not answer is a `StreamAwayError`."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        self._name = name
        self._refusals: list[KafkaError] = []
        self._consumer = made_consumer(properties, hear=self._refusals.append)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._consumer.close()

    def partitions(self) -> list[int]:
        """Return the numbers of its partitions; none if it does not exist."""

        def ask() -> list[int]:
            topics = self._consumer.list_topics(self._name, timeout=_LOOK_SECONDS).topics
            return sorted(topics[self._name].partitions) if self._name in topics else []

        return self._asked(ask)

    def first(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offsets of the first records that are still there."""
        from confluent_kafka import OFFSET_BEGINNING

        return self._offsets(partitions, OFFSET_BEGINNING)

    def last(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offsets behind all that may be read, outside open transactions."""
        from confluent_kafka import OFFSET_END

        return self._offsets(partitions, OFFSET_END)

    def at(self, partitions: Sequence[int], moment: datetime) -> dict[int, int]:
        """Return the offsets of the first records that are not before a time, where there are."""
        return self._offsets(partitions, int(moment.timestamp() * 1000))

    def _offsets(self, partitions: Sequence[int], which: int) -> dict[int, int]:
        from confluent_kafka import KafkaException, TopicPartition

        def ask() -> dict[int, int]:
            asked = [TopicPartition(self._name, each, which) for each in partitions]
            answers = self._consumer.offsets_for_times(asked, timeout=_LOOK_SECONDS)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return {each.partition: each.offset for each in answers if each.offset >= 0}

        return self._asked(ask) if partitions else {}

    def _asked(self, ask: Callable[[], _Answer]) -> _Answer:
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            self._consumer.poll(0)  # Only to hear: nothing is assigned.
            lasting = [each for each in self._refusals if each.name() in _LASTING]
            told = (lasting or [error.args[0]])[0].str()
            raise StreamAwayError(f"the topic {self._name} can't be looked at: {told}") from error


def last_records(
    name: str, properties: Mapping[str, str], most: int, *, partitions: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Return starts and ends of the last records, so many each, of the first few partitions.

    `StreamAwayError` if the broker does not answer, or there is no such topic.
    """
    with Topic(name, properties) as topic:
        few = topic.partitions()[:partitions]
        if not few:
            raise StreamAwayError(f"the topic {name} does not exist")
        first, last = topic.first(few), topic.last(few)
    return {each: max(first[each], last[each] - most) for each in few}, last
