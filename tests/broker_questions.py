"""Broker queries that run in the test's process, so that the test's patches apply."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from common.model.streams.consumer import ClientProperties
from common.model.streams.spec import IoConfig
from master.broker_program import answer
from master.loops.broker_process import read_answer
from master.loops.kafka_offsets import KafkaOffsets
from master.supervisors.view import StreamSnapshot
from tests.unit.stream_specs import a_spec


class Here:
    """A replacement for `BrokerProcess` that calls the program's function in this process."""

    def ask(
        self, topic: str, properties: ClientProperties, *, has_pattern: bool = False
    ) -> StreamSnapshot:
        request = {"topic": topic, "pattern": has_pattern, "properties": properties.document()}
        return read_answer(json.dumps(answer(json.dumps(request).encode())).encode())


def ask_kafka(io: IoConfig, connection: Mapping[str, str] | None = None) -> StreamSnapshot:
    """Return the offsets of a topic as the master reads them."""
    offsets = KafkaOffsets(Here(), environment={}, connection=lambda _: connection or {})
    return offsets.ask(dataclasses.replace(a_spec(), io=io))
