"""Asks Kafka for the partitions of a topic and the first and next offset of each.

Waits for brokers, so it is called in a thread that may. The client is made for each question, since
one that was left idle would keep its own threads and connections; questions are rare.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from common.model.streams.consumer import ConsumerPropertyError, librdkafka_properties
from common.model.streams.reading import SERVERS
from common.model.streams.spec import IoConfig
from master.loops.streams import StreamUnreachableError
from master.supervisors.view import StreamSnapshot

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException

_PROPERTY: Final = re.compile(r'property:? "([\w.-]+)"')
_TIMEOUT_SECONDS: Final = 10.0
_NO_TOPIC: Final = "UNKNOWN_TOPIC_OR_PART"
_REFUSED: Final = frozenset({"_AUTHENTICATION", "_SSL"})


def ask_kafka(io: IoConfig) -> StreamSnapshot:
    """Return the offsets of a topic; a topic that does not exist has no partitions."""
    # Not before a supervisor needs it: it takes memory and a thread.
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException

    try:
        properties = librdkafka_properties(io.consumer, os.environ)
    except ConsumerPropertyError as error:
        raise StreamUnreachableError(str(error)) from error
    servers = properties.get(SERVERS, "")
    refusals: list[KafkaError] = []
    try:
        # A client of another kind has brokers make the topic that it asks for.
        consumer = Consumer(
            {
                **properties,
                "group.id": "orcaflow",
                "enable.auto.commit": False,
                "error_cb": refusals.append,
            },
            logger=_silent(),
        )
    except KafkaException as error:
        refused = _PROPERTY.search(_text(error))
        if refused is None:
            raise StreamUnreachableError(
                "consumerProperties are refused by Kafka's client"
            ) from None
        # The client may quote the value, which may be a secret.
        raise StreamUnreachableError(
            f"consumerProperties.{refused[1]} is refused by the Kafka client"
        ) from None
    try:
        partitions = _partitions(consumer, io)
        return StreamSnapshot(
            earliest=_offsets(consumer, io, partitions, OFFSET_BEGINNING),
            latest=_offsets(consumer, io, partitions, OFFSET_END),
        )
    except KafkaException as error:
        consumer.poll(0)  # It hears why it was refused, which no call says.
        told = next((each.str() for each in refusals if each.name() in _REFUSED), _text(error))
        raise StreamUnreachableError(
            f"the topic {io.topic!r} at {servers} could not be looked at: {told}"
        ) from error
    finally:
        consumer.close()


def _partitions(consumer: Consumer, io: IoConfig) -> list[int]:
    from confluent_kafka import KafkaException

    topics = consumer.list_topics(io.topic, timeout=_TIMEOUT_SECONDS).topics
    if io.topic not in topics:
        return []
    found = topics[io.topic]
    if found.error is not None and found.error.name() != _NO_TOPIC:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def _offsets(consumer: Consumer, io: IoConfig, partitions: list[int], which: int) -> dict[int, int]:
    """Return what the client may read; transactions that are open are behind the end of that."""
    from confluent_kafka import KafkaException, TopicPartition

    if not partitions:
        return {}
    asked = [TopicPartition(io.topic, each, which) for each in partitions]
    answers = consumer.offsets_for_times(asked, timeout=_TIMEOUT_SECONDS)
    for each in answers:
        if each.error is not None:
            raise KafkaException(each.error)
    return {each.partition: each.offset for each in answers}


def _text(error: KafkaException) -> str:
    return str(error.args[0].str()) if error.args else "unknown"


def _silent() -> Any:
    """Return a logger that drops the client's own lines, which may quote properties."""
    import logging

    logger = logging.getLogger("orcaflow.kafka")
    logger.disabled = True
    return logger
