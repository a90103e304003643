"""The spout of topics of Kafka, at librdkafka's mock broker: without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from common import kafka_topic
from common.kafka_topic import OffsetExpiredError, StreamAwayError
from common.model.streams.consumer import ConsumerPropertyError
from common.topology.components import streams_of
from orcaflow.spouts import KafkaSpout
from tests.integration.spark_host import until
from tests.mock_kafka import Broker, a_broker

pytestmark = pytest.mark.slow

# The protocol's numbers of errors.
_UNKNOWN_TOPIC_OR_PARTITION = 3
_LEADER_NOT_AVAILABLE = 5
_TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with a_broker() as broker:
        broker.create("events", 2)
        broker.produce("events", 0, [b"a%d" % number for number in range(500)], key=b"k")
        broker.produce("events", 1, [b"\xff\x00"], timestamp=1_600_000_000_123)
        yield broker


def rows(read: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in read for row in batch.to_pylist()]


@pytest.fixture
def spouts() -> Iterator[Any]:
    made: list[KafkaSpout] = []

    def make(*given: Any, **named: Any) -> KafkaSpout:
        made.append(KafkaSpout(*given, **named))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_records_are_read_by_their_offsets_and_the_same_ones_again(
    broker: Broker, spouts: Any
) -> None:
    spout = spouts("events", broker.servers)
    assert spout.begins() == {"0": 0, "1": 0}
    assert spout.ends({}) == {"0": 500, "1": 1}
    (stream,) = streams_of(spout).values()
    assert stream.types == ("string", "string", "long", "long", "timestamp")
    for _ in range(2):
        found = rows(spout.read("0", 100, 300))
        assert [values[:4] for values in found] == [
            ("k", f"a{number}", 0, number) for number in range(100, 300)
        ]
    at = datetime(2020, 9, 13, 12, 26, 40, 123_000, UTC)
    assert rows(spout.read("1", 0, 1)) == [(None, "\N{REPLACEMENT CHARACTER}\0", 1, 0, at)]
    assert rows(spout.read("1", 1, 1)) == []
    bare = pickle.loads(pickle.dumps(spouts("events", broker.servers, binary=True)))
    assert rows(bare.read("1", 0, 1)) == [(None, b"\xff\x00", 1, 0, at)]
    assert rows(bare.read("0", 7, 8))[0][:2] == (b"k", b"a7")
    bare.close()


def test_a_topology_may_begin_behind_the_last_record(broker: Broker, spouts: Any) -> None:
    spout = spouts("events", broker.servers, start="latest")
    assert spout.begins() == {"0": 500, "1": 1}
    # What comes later has no record that somebody has missed.
    assert spout.later(["1"]) == {"1": 0}


def test_what_is_lost_is_told_with_its_cure(broker: Broker, spouts: Any) -> None:
    spout = spouts("events", broker.servers)
    with pytest.raises(OSError, match="partition 0 of events ends at 500, and was read up to 501"):
        spout.ends({"0": 501})
    with pytest.raises(OffsetExpiredError, match=r"offset 9000 of partition 0 .* submit it anew"):
        rows(spout.read("0", 9_000, 9_001))


def test_a_broker_that_is_away_is_a_trouble_and_comes_back(
    broker: Broker, spouts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_topic, "_LOOK_SECONDS", 0.1)
    away = spouts("events", "127.0.0.1:1")
    for ask in (away.begins, lambda: away.ends({}), lambda: away.later(["0"])):
        with pytest.raises(ConnectionError, match="the topic events can't be read"):
            ask()
    monkeypatch.undo()
    spout = spouts("events", broker.servers)
    assert spout.ends({}) == {"0": 500, "1": 1}
    broker.go_down()
    with monkeypatch.context() as patch:
        patch.setattr(kafka_topic, "_LOOK_SECONDS", 0.1)
        with pytest.raises(ConnectionError):
            spout.ends({})
    broker.come_up()

    def is_back() -> bool:
        with suppress(ConnectionError):
            return bool(spout.ends({}) == {"0": 500, "1": 1})
        return False

    until(is_back)


def test_a_topic_without_a_leader_is_a_trouble_and_one_that_is_refused_an_error(
    broker: Broker, spouts: Any
) -> None:
    broker.create("changing", 1)
    for code, kind, words in (
        (_LEADER_NOT_AVAILABLE, ConnectionError, "can't be read: Broker: Leader not available"),
        (_TOPIC_AUTHORIZATION_FAILED, StreamAwayError, "Topic authorization failed"),
        (_UNKNOWN_TOPIC_OR_PARTITION, StreamAwayError, "the topic changing does not exist"),
    ):
        broker.refuse("changing", code)
        with pytest.raises(kind, match=words):
            spouts("changing", broker.servers).ends({})
    broker.refuse("changing", 0)
    assert spouts("changing", broker.servers).ends({}) == {"0": 0}


def test_a_secret_is_of_the_environment_and_in_no_error(
    broker: Broker, spouts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOUT_SECRET", "hunter2")
    secret = {"type": "environment", "variable": "SPOUT_SECRET"}
    spout = spouts("events", broker.servers, properties={"fetch.min.bytes": secret})
    with pytest.raises(ConsumerPropertyError, match=r"properties\.fetch\.min\.bytes") as told:
        spout.ends({})
    assert "hunter2" not in str(told.value)
    assert b"hunter2" not in pickle.dumps(spout)
    good = spouts("events", broker.servers, properties={"client.id": secret})
    assert good.ends({}) == {"0": 500, "1": 1}
