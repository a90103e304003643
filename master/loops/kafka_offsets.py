"""Asks Kafka for the partitions of a topic and the first and next offset of each.

Waits for brokers, so it is called in a thread that may. The client is made for each question, since
one that was left idle would keep its own threads and connections; questions are rare.
"""

from __future__ import annotations

import os

from common.kafka_topic import StreamAwayError, Topic
from common.model.streams.consumer import ConsumerPropertyError, librdkafka_properties
from common.model.streams.reading import SERVERS
from common.model.streams.spec import IoConfig
from master.loops.streams import StreamUnreachableError
from master.supervisors.view import StreamSnapshot


def ask_kafka(io: IoConfig) -> StreamSnapshot:
    """Return the offsets of a topic; a topic that does not exist has no partitions."""
    try:
        properties = librdkafka_properties(io.consumer, os.environ)
    except ConsumerPropertyError as error:
        raise StreamUnreachableError(str(error)) from error
    try:
        # Lines of each question would fill the log of a master.
        with Topic(io.topic, properties, has_log=False) as topic:
            partitions = topic.partitions()
            return StreamSnapshot(earliest=topic.first(partitions), latest=topic.last(partitions))
    except StreamAwayError as error:
        servers = properties.get(SERVERS, "")
        raise StreamUnreachableError(f"brokers at {servers}: {error}") from error
