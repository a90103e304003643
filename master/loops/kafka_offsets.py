"""Asks Kafka for the partitions of a topic and the first and next offset of each.

Waits for brokers, so it is called in a thread that may. The client is made for each question, since
one that was left idle would keep its own threads and connections; questions are rare.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from common.model.streams.consumer import ConsumerPropertyError, librdkafka_properties
from common.model.streams.reading import SERVERS
from common.model.streams.spec import IoConfig
from master.loops.streams import StreamUnreachableError
from master.supervisors.view import StreamSnapshot

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

_PROPERTY: Final = re.compile(r'property:? "([\w.-]+)"')
_TIMEOUT_SECONDS: Final = 10.0
_OF_CONSUMERS_ALONE: Final = ("fetch.", "max.poll.", "isolation.level", "check.crcs", "enable.")


def ask_kafka(io: IoConfig) -> StreamSnapshot:
    """Return the offsets of a topic; a topic that does not exist has no partitions."""
    # Not before a supervisor needs it: it takes memory and a thread.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, OffsetSpec

    try:
        properties = librdkafka_properties(io.consumer, os.environ)
    except ConsumerPropertyError as error:
        raise StreamUnreachableError(str(error)) from error
    servers = properties.get(SERVERS, "")
    given = {
        name: value
        for name, value in properties.items()
        if not name.startswith(_OF_CONSUMERS_ALONE)
    }
    try:
        admin = AdminClient(given, logger=_silent())
        topics = admin.list_topics(io.topic, timeout=_TIMEOUT_SECONDS).topics
        partitions = sorted(topics[io.topic].partitions) if io.topic in topics else []
        return StreamSnapshot(
            earliest=_offsets(admin, io, partitions, OffsetSpec.earliest()),
            latest=_offsets(admin, io, partitions, OffsetSpec.latest()),
        )
    except KafkaException as error:
        reason = error.args[0].str() if error.args else "unknown"
        refused = _PROPERTY.search(reason)
        if refused is not None:
            # The client may quote the value, which may be a secret.
            raise StreamUnreachableError(
                f"consumerProperties.{refused[1]} is refused by the Kafka client"
            ) from None
        raise StreamUnreachableError(
            f"the topic {io.topic!r} at {servers} could not be looked at: {reason}"
        ) from error


def _offsets(admin: Any, io: IoConfig, partitions: list[int], which: Any) -> dict[int, int]:
    from confluent_kafka import IsolationLevel, TopicPartition

    if not partitions:
        return {}
    isolation = (
        IsolationLevel.READ_UNCOMMITTED
        if io.consumer.get("isolation.level") == "read_uncommitted"
        else IsolationLevel.READ_COMMITTED
    )
    asked: dict[TopicPartition, Future[Any]] = admin.list_offsets(
        {TopicPartition(io.topic, each): which for each in partitions},
        isolation_level=isolation,
        request_timeout=_TIMEOUT_SECONDS,
    )
    return {each.partition: answer.result().offset for each, answer in asked.items()}


def _silent() -> Any:
    """Return a logger that drops the client's own lines, which may quote properties."""
    import logging

    logger = logging.getLogger("orcaflow.kafka")
    logger.disabled = True
    return logger
