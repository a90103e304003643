"""Streams that are asked in threads, and the properties of their consumers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue

import pytest
from confluent_kafka import KafkaError

from common.model.streams.consumer import ConsumerPropertyError, librdkafka_properties
from common.model.streams.spec import EnvironmentSecret, IoConfig, SupervisorSpec, TextFormat
from master.loops.streams import MOST_AT_ONCE, AskedStreams, StreamUnreachableError
from master.supervisors.view import StreamFailure, StreamSnapshot
from tests.broker_questions import ask_kafka
from tests.mock_kafka import a_broker
from tests.simulation.virtual_clock import VirtualClock
from tests.unit.master_loops.place import SECOND
from tests.unit.stream_specs import SECRET, a_spec

SNAPSHOT = StreamSnapshot(earliest={0: 0}, latest={0: 5})
JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";'
)


class Brokers:
    """Brokers that answer once they are told to."""

    def __init__(self) -> None:
        self.answers: SimpleQueue[Callable[[], StreamSnapshot]] = SimpleQueue()
        self.heard = threading.Event()
        self.clock = VirtualClock()
        self.streams = AskedStreams(self.ask, clock=self.clock, woken=self.heard.set)

    def ask(self, _spec: SupervisorSpec) -> StreamSnapshot:
        return self.answers.get()()

    def say(self, answer: Callable[[], StreamSnapshot]) -> None:
        self.heard.clear()
        self.answers.put(answer)
        assert self.heard.wait(30)


def test_an_answer_is_awaited_by_nobody() -> None:
    brokers = Brokers()
    assert brokers.streams.look(a_spec(), project_id=1) is None
    brokers.say(lambda: SNAPSHOT)
    assert brokers.streams.look(a_spec(), project_id=1) == SNAPSHOT
    assert brokers.streams.look(a_spec(topic="others"), project_id=1) is None


def test_brokers_that_hang_count_as_away_after_a_while() -> None:
    brokers = Brokers()
    assert brokers.streams.look(a_spec(), project_id=1) is None
    brokers.clock.move_to(31 * SECOND)
    found = brokers.streams.look(a_spec(), project_id=1)
    assert isinstance(found, StreamFailure)
    assert "broker:9092 have not answered for 31 s" in found.reason
    brokers.say(lambda: SNAPSHOT)
    assert brokers.streams.look(a_spec(), project_id=1) == SNAPSHOT
    brokers.streams.forget("flights")


def test_x107_brokers_that_hang_delay_only_the_queries_of_their_project() -> None:
    release, entered, answered = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)
    asked: list[str] = []

    def ask(spec: SupervisorSpec) -> StreamSnapshot:
        asked.append(spec.io.topic)
        entered.release()
        if spec.io.topic.startswith("dev"):
            assert release.wait(60)
        return SNAPSHOT

    def spec_of(topic: str) -> SupervisorSpec:
        spec = a_spec(topic=topic)
        return replace(spec, schema=replace(spec.schema, dataset=topic))

    clock = VirtualClock()
    streams = AskedStreams(ask, clock=clock, woken=answered.release)
    dev = [spec_of(f"dev{number}") for number in range(MOST_AT_ONCE + 4)]
    for each in dev:
        assert streams.look(each, project_id=1) is None
    assert all(entered.acquire(timeout=30) for _ in range(MOST_AT_ONCE))
    clock.move_to(31 * SECOND)
    waiting = [each for each in dev if each.io.topic not in asked]
    assert len(waiting) == 4
    found = streams.look(waiting[0], project_id=1)
    assert isinstance(found, StreamFailure)
    assert "16 other queries of the project wait for answers" in found.reason
    streams.look(spec_of("prod"), project_id=2)
    assert answered.acquire(timeout=30)
    assert streams.look(spec_of("prod"), project_id=2) == SNAPSHOT
    # The brokers of a supervisor that ended while its query waited are not queried.
    streams.forget(waiting[0].id)
    release.set()
    left = [each for each in dev if each is not waiting[0]]
    assert all(answered.acquire(timeout=30) for _ in left)
    assert all(streams.look(each, project_id=1) == SNAPSHOT for each in left)
    assert sorted(asked) == sorted(["prod", *(each.io.topic for each in left)])


def test_an_error_of_the_client_is_a_failure_of_the_stream() -> None:
    def refuse() -> StreamSnapshot:
        raise StreamUnreachableError("no broker there")

    def break_down() -> StreamSnapshot:
        raise RuntimeError(SECRET)

    for answer, reason in ((refuse, "no broker there"), (break_down, "RuntimeError")):
        brokers = Brokers()
        brokers.streams.look(a_spec(), project_id=1)
        brokers.say(answer)
        found = brokers.streams.look(a_spec(), project_id=1)
        assert isinstance(found, StreamFailure)
        assert reason in found.reason
        assert SECRET not in found.reason


def test_properties_of_java_s_client_are_those_of_ours() -> None:
    given: dict[str, str | EnvironmentSecret] = {
        "bootstrap.servers": "b:1",
        "value.deserializer": "x",
        "sasl.jaas.config": EnvironmentSecret(variable="LOGIN"),
    }
    assert librdkafka_properties(given, {"LOGIN": JAAS.format('a\\"b')}).given == {
        "bootstrap.servers": "b:1",
        "sasl.username": "u",
        "sasl.password": 'a"b',
    }


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("ssl.truststore.password", SECRET, "PEM"),
        ("no.such", SECRET, "docs/streams.md"),
        ("sasl.jaas.config", f"Krb5LoginModule required password={SECRET}", "sasl.username"),
        ("sasl.jaas.config", f'x.PlainLoginModule required password="{SECRET}"', "double quotes"),
        ("sasl.password", EnvironmentSecret(variable="NOT_SET"), "NOT_SET"),
    ],
)
def test_a_property_without_an_equal_is_refused_with_a_cure(
    name: str, value: str | EnvironmentSecret, hint: str
) -> None:
    with pytest.raises(ConsumerPropertyError, match=hint) as caught:
        librdkafka_properties({name: value}, {})
    assert SECRET not in str(caught.value)


def an_io(**consumer: str) -> IoConfig:
    return IoConfig(topic="events", consumer=consumer, input_format=TextFormat(type="json"))


def test_kafka_tells_the_offsets_of_each_partition() -> None:
    with a_broker() as broker:
        servers = {"bootstrap.servers": broker.servers, "isolation.level": "read_committed"}
        assert ask_kafka(an_io(**servers)) == StreamSnapshot(earliest={}, latest={})
        broker.create("events", 2)
        broker.produce("events", 1, [b"x", b"y"])
        found = ask_kafka(an_io(**servers))
    assert (found.earliest, found.latest) == ({0: 0, 1: 0}, {0: 0, 1: 2})


def test_leaders_that_move_meanwhile_are_asked_again() -> None:
    with a_broker() as broker:
        broker.create("events", 1)
        broker.produce("events", 0, [b"x"])
        broker.refuse_offsets([KafkaError.NOT_LEADER_FOR_PARTITION] * 3)
        found = ask_kafka(an_io(**{"bootstrap.servers": broker.servers}))
    assert (found.earliest, found.latest) == ({0: 0}, {0: 1})


def test_a_property_that_the_client_may_not_have_is_named_without_its_value() -> None:
    for name in ("security.protocol", "no.such"):
        with pytest.raises(StreamUnreachableError, match=f"consumerProperties.{name} ") as caught:
            ask_kafka(an_io(**{"bootstrap.servers": "b:1", name: SECRET}))
        assert SECRET not in str(caught.value)
