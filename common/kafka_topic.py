"""Topics of Kafka, read by confluent-kafka: partitions, offsets, and records by exact offsets.

For supervisors, the source of their tasks, and spouts. It commits nothing at the broker, and forms
no group. Errors quote no property, for its value may be a secret.

Only this module creates clients. It checks properties against the allow list again
(`common.model.streams.properties`), right before it passes them to a client.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeVar

from common.errors import SchedulerError
from common.model.streams.consumer import ClientProperties, ConsumerPropertyError
from common.model.streams.partitions import Partition, TopicPartition, number_of, topic_of
from common.model.streams.topic_patterns import PatternTooSlowError, read_pattern

if TYPE_CHECKING:
    from datetime import datetime
    from logging import Logger
    from typing import Self

    from confluent_kafka import Consumer, KafkaError, Message
    from confluent_kafka import TopicPartition as Asked
    from tenacity import RetryCallState

_AT_ONCE: Final = 10_000
_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 300.0
_PROMPT: Final[Mapping[str, int]] = {
    # What a piece has is there already: a fetch that waits for more keeps the next piece waiting,
    # since a broker's connection has one at a time.
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,
}
"""Properties that those given may change."""
_OURS: Final[Mapping[str, str | bool]] = {
    # No group is formed: partitions are assigned, and offsets live with what is published.
    "group.id": "orcaflow",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # An offset that is gone is an error; only people may skip records.
    "auto.offset.reset": "error",
}
_PROPERTY: Final = re.compile(r'property:? "([\w.-]+)"')
_NO_TOPIC: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
_LASTING: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "_AUTHENTICATION"})
_CAUSES: Final = _LASTING | {"_SSL"}
"""Causes of a missing connection, which an answer that does not come hides."""
_MOVING: Final = frozenset(
    {
        *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE"),
        *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"),
    }
)
"""A partition has no leader yet that knows of it, as those that were just made."""
_MOVING_SECONDS: Final = 5.0
_MOVING_LOOK_SECONDS: Final = 0.1
_NOT_THERE: Final = "it does not exist"
_RESET: Final = "reset the supervisor to skip what is lost"
_OF_KAFKA: Final = frozenset(
    {
        *("__consumer_offsets", "__transaction_state", "__share_group_state"),
        *("__cluster_metadata", "__remote_log_metadata"),
    }
)
"""Topics that Kafka uses internally. Patterns do not match them."""
MOST_PARTITIONS: Final = 10_000
"""The most partitions of a supervisor with a pattern."""
_GONE_SECONDS: Final = 30.0
"""The time until a missing topic of a pattern is queried again."""

_Answer = TypeVar("_Answer")


class StreamAwayError(SchedulerError):
    """Records that were there can't be read."""


class BrokerAwayError(StreamAwayError):
    """A broker does not answer just now."""


class OffsetExpiredError(SchedulerError):
    """The stream has lost records before they were read."""


class Topic:
    """The current state of a topic, or of all topics of a pattern. The first query connects.

    `BrokerAwayError` if a broker does not answer, `StreamAwayError` for what will not pass by
    itself: a topic that does not exist, a log-in that is refused.
    """

    def __init__(
        self,
        name: str,
        properties: ClientProperties,
        *,
        key: str = "consumerProperties",
        cure: str = _RESET,
        has_log: bool = True,
        has_pattern: bool = False,
    ) -> None:
        """`key` is the name of the properties for errors, `cure` that of an offset that is gone.

        `has_log` says whether the client's own lines go to standard error. With `has_pattern`,
        `name` is a pattern, and all partitions are `TopicPartition`s.
        """
        self._name = name
        self._pattern = read_pattern(name) if has_pattern else None
        self._cure = cure
        self._refusals: list[KafkaError] = []
        self.troubles: dict[str, str] = {}
        """Topics of the pattern about which the last query failed, with the reason."""
        self._gone: dict[str, float] = {}
        """Topics of the pattern that did not exist at these times."""
        self._consumer = _made_consumer(
            properties, key, hear=self._refusals.append, has_log=has_log
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    def partitions(self) -> list[Partition]:
        """Return its partitions; none if it does not exist.

        A pattern leaves out topics that can't be described now. `troubles` names them.
        """
        from confluent_kafka import KafkaException

        if self._pattern is not None:
            return self._asked(self._matching)

        def ask() -> list[Partition]:
            topics = self._consumer.list_topics(self._name, timeout=_LOOK_SECONDS).topics
            if self._name not in topics:
                return []
            found = topics[self._name]
            # Without a leader, or a right to it, a topic shows no partition either.
            if found.error is not None and found.error.name() not in _NO_TOPIC:
                raise KafkaException(found.error)
            return sorted(found.partitions)

        return self._asked(ask)

    def _matching(self) -> list[Partition]:
        """Return the partitions of all topics that match."""
        assert self._pattern is not None
        self.troubles = {}
        found: list[Partition] = []
        for name, topic in self._consumer.list_topics(timeout=_LOOK_SECONDS).topics.items():
            try:
                if name in _OF_KAFKA or not self._pattern.matches(name):
                    continue
            except PatternTooSlowError:
                raise StreamAwayError(
                    f"the match of topicPattern with the topic {name} takes too many steps; write"
                    " a simpler pattern"
                ) from None
            if topic.error is not None and topic.error.name() not in _NO_TOPIC:
                self.troubles[name] = topic.error.str()
            found += [TopicPartition(name, number) for number in topic.partitions]
        if len(found) > MOST_PARTITIONS:
            raise StreamAwayError(
                f"the topics of topicPattern have {len(found):,} partitions; a supervisor reads"
                f" {MOST_PARTITIONS:,} at most"
            )
        return sorted(found)

    def first(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offsets of the first records that are still there."""
        from confluent_kafka import OFFSET_BEGINNING

        return self._offsets(partitions, OFFSET_BEGINNING)

    def last(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offsets behind all that may be read, outside open transactions."""
        from confluent_kafka import OFFSET_END

        return self._offsets(partitions, OFFSET_END)

    def at(self, partitions: Sequence[Partition], moment: datetime) -> dict[Partition, int]:
        """Return the offsets of the first records that are not before a time, where there are."""
        return self._offsets(partitions, int(moment.timestamp() * 1000))

    def records(self, partition: Partition, start: int, end: int) -> Iterator[list[Message]]:
        """Yield the records from `start` up to but not including `end`, many at a time.

        Both may lie in a gap that a transaction has left. One piece is read at a time. A broker
        that is away is waited for, for five minutes.
        """
        self._consumer.assign([self._place(partition, start)])
        try:
            yield from self._until(partition, start, end)
        finally:
            self._consumer.unassign()

    def _until(self, partition: Partition, start: int, end: int) -> Iterator[list[Message]]:
        position = start
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while position < end:
            before = position
            # A client that is asked for more than there is waits until its time is over.
            consumed = self._consumer.consume(min(_AT_ONCE, end - position), timeout=_POLL_SECONDS)
            messages, position = self._taken(consumed, partition, position, end)
            if messages:
                yield messages
            refusal = self._refusal(_LASTING)
            if position > before:
                deadline = time.monotonic() + _PATIENCE_SECONDS
            elif refusal is not None:
                raise self._error(refusal)
            elif time.monotonic() > deadline:
                raise StreamAwayError(
                    f"{self._shown(partition)} gave no record from offset"
                    f" {position} on for {_PATIENCE_SECONDS:g} s, though it goes to {end}"
                )

    def _taken(
        self, consumed: Sequence[Message], partition: Partition, position: int, end: int
    ) -> tuple[list[Message], int]:
        """Return the records of a piece, and the offset up to which all is known now."""
        found: list[Message] = []
        for message in consumed:
            error, offset = message.error(), message.offset()
            if error is None:
                if offset is None or offset >= end:
                    return found, end
                found.append(message)
                position = offset + 1
            elif error.name() == "_PARTITION_EOF":
                position = max(position, offset or 0)
            elif error.name() == "_AUTO_OFFSET_RESET":
                raise OffsetExpiredError(
                    f"offset {position} of {self._shown(partition)} is not in the stream any more;"
                    f" {self._cure}"
                )
            else:
                told = self._error(error)
                if not isinstance(told, BrokerAwayError):
                    raise told
        return found, position

    def _place(self, partition: Partition, offset: int) -> Asked:
        from confluent_kafka import TopicPartition as Made

        return Made(topic_of(partition, self._name), number_of(partition), offset)

    def _shown(self, partition: Partition) -> str:
        return f"partition {number_of(partition)} of {topic_of(partition, self._name)}"

    def _offsets(self, partitions: Sequence[Partition], which: int) -> dict[Partition, int]:
        """Query offsets. With a pattern, the failure of a topic does not affect other topics."""
        if self._pattern is None:
            return self._asked_offsets(partitions, which)
        over = time.monotonic() - _GONE_SECONDS
        self._gone = {topic: since for topic, since in self._gone.items() if since > over}
        self.troubles |= dict.fromkeys(self._gone, _NOT_THERE)
        left = [each for each in partitions if topic_of(each, "") not in self._gone]
        try:
            return self._asked_offsets(left, which)
        except StreamAwayError as error:
            failure = error
        there = {topic_of(each, "") for each in self.partitions()}
        found: dict[Partition, int] = {}
        for topic, own in groupby(sorted(left), key=lambda each: topic_of(each, "")):
            if topic not in there:
                self._gone[topic] = time.monotonic()
                self.troubles[topic] = _NOT_THERE
                continue
            try:
                found |= self._asked_offsets(list(own), which)
            except StreamAwayError as error:
                self.troubles[topic] = str(error)
        self.troubles |= dict.fromkeys(self._gone, _NOT_THERE)
        if not found:
            raise failure
        return found

    def _asked_offsets(self, partitions: Sequence[Partition], which: int) -> dict[Partition, int]:
        from confluent_kafka import KafkaException
        from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

        def ask() -> dict[Partition, int]:
            asked = [self._place(each, which) for each in partitions]
            answers = self._consumer.offsets_for_times(asked, timeout=_LOOK_SECONDS)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            found = {(each.topic, each.partition): each.offset for each in answers}
            return {
                each: offset
                for each in partitions
                if (offset := found[topic_of(each, self._name), number_of(each)]) >= 0
            }

        def learn_leaders(_state: RetryCallState) -> None:
            self.partitions()

        asking = Retrying(
            retry=retry_if_exception(_is_moving),
            stop=stop_after_delay(_MOVING_SECONDS),
            wait=wait_fixed(_MOVING_LOOK_SECONDS),
            before_sleep=learn_leaders,
            reraise=True,
        )
        return self._asked(lambda: asking(ask)) if partitions else {}

    def _asked(self, ask: Callable[[], _Answer]) -> _Answer:
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            # Who is refused is told that time is over.
            if not self._consumer.assignment():
                self._consumer.poll(0)  # Only to hear; a record would be lost.
            raise self._error(self._refusal(_CAUSES) or error.args[0]) from error

    def _refusal(self, names: Collection[str]) -> KafkaError | None:
        """Return a refusal that was heard on the way to a connection, which no call returns."""
        found = [each for each in self._refusals if each.name() in names]
        self._refusals.clear()
        return found[0] if found else None

    def _error(self, error: KafkaError) -> StreamAwayError:
        if error.name() in _NO_TOPIC:
            what = "the topic" if self._pattern is None else "a topic of the pattern"
            return StreamAwayError(f"{what} {self._name} does not exist")
        lasts = error.fatal() or error.name() in _LASTING
        kind = StreamAwayError if lasts else BrokerAwayError
        what = "the topic" if self._pattern is None else "the topics of the pattern"
        return kind(f"{what} {self._name} can't be read: {error.str()}")


def _is_moving(error: BaseException) -> bool:
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException) and error.args[0].name() in _MOVING


def _made_consumer(
    properties: ClientProperties, key: str, *, hear: Callable[[KafkaError], None], has_log: bool
) -> Consumer:
    """Return a consumer of librdkafka's properties; `StreamAwayError` names a refused one.

    `hear` is told of errors that belong to no call, whenever the consumer is polled.
    """
    from confluent_kafka import Consumer as Made
    from confluent_kafka import KafkaException

    try:
        allowed = properties.checked(key)
    except ConsumerPropertyError as error:
        raise StreamAwayError(str(error)) from None
    log: dict[str, Any] = {} if has_log else {"logger": _silent()}
    try:
        return Made({**_PROMPT, **allowed, **_OURS, "error_cb": hear}, **log)
    except KafkaException as error:
        # The client may quote the value, which may be a secret.
        refused = _PROPERTY.search(error.args[0].str())
        named = "" if refused is None else f".{refused[1]}"
        raise StreamAwayError(f"{key}{named} can't be used by the client of Kafka") from None


def _silent() -> Logger:
    """Return a logger that drops the client's lines."""
    import logging

    logger = logging.getLogger("orcaflow.kafka")
    logger.disabled = True
    return logger


def last_records(
    name: str,
    properties: ClientProperties,
    most: int,
    *,
    partitions: int,
    has_pattern: bool = False,
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Return starts and ends of the last records, so many each, of the first few partitions.

    `StreamAwayError` if the broker does not answer, or there is no such topic.
    """
    with Topic(name, properties, has_pattern=has_pattern) as topic:
        few = topic.partitions()[:partitions]
        if not few:
            raise StreamAwayError(f"the topic {name} does not exist")
        first, last = topic.first(few), topic.last(few)
    return {each: max(first[each], last[each] - most) for each in few}, last
