"""Asks Kafka for the partitions of a topic and the first and next offset of each.

The call blocks, so a dedicated thread makes it. `master.loops.broker_process` queries the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from common.model.streams.consumer import (
    ClientProperties,
    ConsumerPropertyError,
    librdkafka_properties,
)
from common.model.streams.spec import SupervisorSpec
from master.loops.streams import StreamUnreachableError
from master.supervisors.view import StreamSnapshot


class Brokers(Protocol):
    """The process that queries brokers."""

    def ask(
        self, topic: str, properties: ClientProperties, *, has_pattern: bool = False
    ) -> StreamSnapshot: ...


class KafkaOffsets:
    """The offsets of supervisors' topics, queried from the brokers."""

    def __init__(
        self,
        brokers: Brokers,
        *,
        environment: Mapping[str, str],
        connection: Callable[[SupervisorSpec], Mapping[str, str]],
    ) -> None:
        """`environment` contains the variables that properties may name.

        `connection` returns the properties of the connection that a specification names.
        """
        self._brokers = brokers
        self._environment = environment
        self._connection = connection

    def ask(self, spec: SupervisorSpec) -> StreamSnapshot:
        """Return the offsets of a topic or pattern; a missing topic is left without partitions."""
        io = spec.io
        try:
            connection = self._connection(spec) if io.connection else None
            properties = librdkafka_properties(
                io.consumer, self._environment, connection=connection
            )
        except ConsumerPropertyError as error:
            raise StreamUnreachableError(str(error)) from error
        try:
            return self._brokers.ask(io.topic, properties, has_pattern=io.has_pattern)
        except StreamUnreachableError as error:
            raise StreamUnreachableError(f"brokers at {properties.servers}: {error}") from error
