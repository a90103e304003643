"""Topics of Kafka at a real broker of Kafka 4: what the mock cluster of librdkafka can't show."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable

from common import kafka_topic
from common.clock import SystemClock
from common.kafka_topic import OffsetExpiredError, StreamAwayError, last_records
from common.model.streams.bounded import read_bound
from common.model.streams.consumer import connection_properties, librdkafka_properties
from common.model.streams.partitions import TopicPartition
from common.model.streams.reading import read_spec
from common.model.streams.spec import IoConfig, SupervisorSpec
from master.loops.broker_process import BrokerProcess
from master.loops.kafka_offsets import KafkaOffsets
from master.loops.streams import StreamUnreachableError
from orcaflow import spouts
from orcaflow.spouts import KafkaSpout
from tests.broker_questions import ask_kafka
from tests.integration.spark_host import until
from tests.kafka.broker import PASSWORD, USER, Kafka, a_kafka
from tests.unit.stream_specs import SMALL, a_spec
from worker.spark.diagnosis.failures import WorkFailedError
from worker.spark.streaming import kafka_source
from worker.spark.streaming.bounded import resolved
from worker.spark.streaming.documents import read_place
from worker.spark.streaming.kafka_source import KafkaReader

pytestmark = pytest.mark.slow

LONG_AGO = 1_600_000_000_000
NOW = read_bound("latest")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with a_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def an_io(servers: str, topic: str, **consumer: str) -> IoConfig:
    """The configuration of a supervisor that reads the topic; names have _ for dots."""
    document = copy.deepcopy(SMALL)
    more = {name.replace("_", "."): value for name, value in consumer.items()}
    document["spec"]["ioConfig"] |= {
        "topic": topic,
        "consumerProperties": {"bootstrap.servers": servers, **more},
    }
    spec = read_spec(document).spec
    assert isinstance(spec, SupervisorSpec)
    return spec.io


def impatient(patch: pytest.MonkeyPatch) -> None:
    """Have brokers that can't be reached count as away after a second."""
    patch.setattr(kafka_topic, "_LOOK_SECONDS", 1.0)


def look_often(reading: Reading) -> None:
    """Look as a query does, for a busy broker may take longer to refuse than one look waits."""
    for _ in range(100):
        reading.latest()


class Reading:
    """The source of a stream task, in this process."""

    def __init__(
        self,
        folder: Path,
        io: IoConfig,
        starts: Any,
        connection: dict[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        properties = folder / "consumer.json"
        made = librdkafka_properties(io.consumer, {}, connection=connection)
        properties.write_text(json.dumps(made.document()))
        self._reader = KafkaReader(
            kafka_source.options(
                topic=io.topic,
                has_pattern=io.has_pattern,
                starts=starts,
                folder=folder,
                properties=properties,
                at_once=1,
                whole_records=True,
            )
        )
        self.begin = self._reader.initialOffset()

    def latest(self) -> dict[str, int]:
        return self._reader.latestOffset(self.begin, ReadAllAvailable())

    def batches(self, begin: dict[str, int], end: dict[str, int]) -> Iterator[list[Any]]:
        for piece in self._reader.partitions(begin, end):
            for batch in self._reader.read(piece):
                yield [(row["offset"], row["value"]) for row in batch.to_pylist()]

    def rows(self, begin: dict[str, int], end: dict[str, int]) -> list[Any]:
        return [row for batch in self.batches(begin, end) for row in batch]

    def topics(self, begin: dict[str, int], end: dict[str, int]) -> list[tuple[Any, ...]]:
        """Return the topic, the partition and the value of the records of a batch."""
        return sorted(
            (row["topic"], row["partition"], row["value"])
            for piece in self._reader.partitions(begin, end)
            for batch in self._reader.read(piece)
            for row in batch.to_pylist()
        )

    def stop(self) -> None:
        self._reader.stop()


@pytest.fixture
def readings(tmp_path: Path) -> Iterator[Any]:
    """Makes sources, which end with the test."""
    made: list[Reading] = []

    def make(io: IoConfig, starts: Any, connection: dict[str, str] | None = None) -> Reading:
        made.append(Reading(tmp_path / f"source{len(made)}", io, starts, connection))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_what_transactions_have_committed_is_read_and_nothing_else(
    kafka: Kafka, readings: Any
) -> None:
    kafka.create("transactions")
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "t"})
    producer.init_transactions(60)

    def add(count: int, value: bytes) -> None:
        producer.begin_transaction()
        for _ in range(count):
            producer.produce("transactions", value, partition=0)
        assert producer.flush(60) == 0

    add(5, b"kept")
    producer.commit_transaction(60)
    add(5, b"aborted")
    producer.abort_transaction(60)
    add(3, b"kept")
    producer.commit_transaction(60)
    add(2, b"open")
    # Each end of a transaction takes an offset: 5, 11 and 15.
    io = an_io(kafka.servers, "transactions")
    assert ask_kafka(io).latest == {0: 16}
    # A standby that warms up does not wait for what is open either.
    properties = librdkafka_properties(io.consumer, {})
    assert last_records("transactions", properties, 10, partitions=8) == ({0: 6}, {0: 16})
    reading = readings(io, {0: 0})
    assert reading.latest() == {"0": 16}
    kept = [(offset, b"kept") for offset in (0, 1, 2, 3, 4, 12, 13, 14)]
    assert reading.rows({"0": 0}, {"0": 16}) == kept
    # Ends and starts in gaps.
    assert reading.rows({"0": 0}, {"0": 9}) == kept[:5]
    assert reading.rows({"0": 9}, {"0": 12}) == []
    assert reading.rows({"0": 15}, {"0": 16}) == []
    dirty = an_io(kafka.servers, "transactions", isolation_level="read_uncommitted")
    assert ask_kafka(dirty).latest == {0: 18}
    everything = readings(dirty, {0: 0})
    assert everything.latest() == {"0": 18}
    assert [value for _, value in everything.rows({"0": 4}, {"0": 18})] == [
        *[b"kept"],
        *[b"aborted"] * 5,
        *[b"kept"] * 3,
        *[b"open"] * 2,
    ]
    producer.commit_transaction(60)
    until(lambda: reading.latest() == {"0": 19})
    assert reading.rows({"0": 16}, {"0": 19}) == [(16, b"open"), (17, b"open")]


def test_all_topics_of_a_pattern_are_read_and_topics_come_and_go(
    kafka: Kafka, readings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create("clicks-eu", 2)
    kafka.create("clicks-us")
    kafka.create("others-clicks-eu")
    kafka.produce("clicks-eu", [b"eu0"] * 3)
    kafka.produce("clicks-eu", [b"eu1"], partition=1)
    kafka.produce("clicks-us", [b"us0"] * 2)
    io = dataclasses.replace(an_io(kafka.servers, "(clicks|__consumer).*"), has_pattern=True)
    eu_0, eu_1, us_0, jp_0 = (
        TopicPartition(f"clicks-{topic}", number)
        for topic, number in (("eu", 0), ("eu", 1), ("us", 0), ("jp", 0))
    )
    found = ask_kafka(io)
    assert (found.earliest, found.latest) == (
        {eu_0: 0, eu_1: 0, us_0: 0},
        {eu_0: 3, eu_1: 1, us_0: 2},
    )
    properties = librdkafka_properties(io.consumer, {})
    last = last_records(io.topic, properties, 1, partitions=8, has_pattern=True)
    assert last == ({eu_0: 2, eu_1: 0, us_0: 1}, found.latest)
    reading = readings(io, {eu_0: 1, eu_1: 0, us_0: 0})
    end = reading.latest()
    assert end == {"clicks-eu:0": 3, "clicks-eu:1": 1, "clicks-us:0": 2}
    assert reading.topics(reading.begin, end) == [
        *[("clicks-eu", 0, b"eu0")] * 2,
        ("clicks-eu", 1, b"eu1"),
        *[("clicks-us", 0, b"us0")] * 2,
    ]
    # The next query finds a new topic, and leaves out a deleted topic. The source continues with
    # the other topics.
    kafka.create("clicks-jp")
    kafka.produce("clicks-jp", [b"jp0"])
    admin = kafka.admin()
    admin.delete_topics(["clicks-us"])["clicks-us"].result()
    until(lambda: set(ask_kafka(io).latest) == {eu_0, eu_1, jp_0})
    kafka.produce("clicks-eu", [b"more"])
    impatient(monkeypatch)
    until(lambda: reading.latest() == {"clicks-eu:0": 4, "clicks-eu:1": 1, "clicks-us:0": 0})
    place = read_place(reading.folder)
    assert place is not None
    assert place.trouble == "clicks-us: it does not exist"
    nothing = dataclasses.replace(io, topic="none-.*")
    assert ask_kafka(nothing).latest == {}


def test_partitions_that_a_topic_gets_are_found_and_read_from_their_begin(
    kafka: Kafka, readings: Any
) -> None:
    kafka.create("growing")
    kafka.produce("growing", [b"old"])
    io = an_io(kafka.servers, "growing")
    assert ask_kafka(io).latest == {0: 1}
    admin = kafka.admin()
    admin.create_partitions([NewPartitions("growing", 3)])["growing"].result()
    until(lambda: set(ask_kafka(io).latest) == {0, 1, 2})
    kafka.produce("growing", [b"new"] * 2, partition=2)
    found = ask_kafka(io)
    assert (found.earliest, found.latest) == ({0: 0, 1: 0, 2: 0}, {0: 1, 1: 0, 2: 2})
    reading = readings(io, {1: 0, 2: 0})
    end = reading.latest()
    assert end == {"1": 0, "2": 2}
    assert reading.rows(reading.begin, end) == [(0, b"new"), (1, b"new")]


def test_a_range_begins_and_ends_at_times(kafka: Kafka) -> None:
    # Retention would remove records of such times.
    kafka.create("timed", 2, retention_ms="-1")
    for hour in range(4):
        kafka.produce("timed", [b"x"] * 10, timestamp=LONG_AGO + 3_600_000 * hour)
    io = an_io(kafka.servers, "timed")

    def found(start: Any, end: Any) -> tuple[dict[int, int], dict[int, int]]:
        properties = librdkafka_properties(io.consumer, {})
        return resolved(io.topic, properties, read_bound(start), read_bound(end))

    # The second hour, whose first moment belongs to it; partition 1 has nothing.
    assert found("2020-09-13T13:26:40Z", "2020-09-13T14:26:40Z") == ({0: 10, 1: 0}, {0: 20, 1: 0})
    assert found("2020-09-13T13:26:41Z", "2021-01-01") == ({0: 20, 1: 0}, {0: 40, 1: 0})
    assert found("earliest", "2020-09-13") == ({0: 0, 1: 0}, {0: 0, 1: 0})
    assert found({"0": 5}, "latest") == ({0: 5}, {0: 40})


def test_a_topic_that_does_not_exist_has_no_partitions(kafka: Kafka) -> None:
    io = an_io(kafka.servers, "nowhere")
    # A broker would make it for clients of other kinds.
    assert [ask_kafka(io).latest for _ in range(2)] == [{}, {}]
    assert "nowhere" not in kafka.admin().list_topics(timeout=60).topics


def test_offsets_that_retention_has_removed_are_an_error_and_the_rest_is_read(
    kafka: Kafka, readings: Any
) -> None:
    kafka.create("expiring", retention_ms="3600000")
    kafka.produce("expiring", [b"old"] * 100, timestamp=LONG_AGO)
    io = an_io(kafka.servers, "expiring")
    until(lambda: ask_kafka(io).earliest == {0: 100})
    kafka.produce("expiring", [b"new"] * 50)
    found = ask_kafka(io)
    assert (found.earliest, found.latest) == ({0: 100}, {0: 150})
    late = readings(io, {0: 10})
    with pytest.raises(OffsetExpiredError, match="offset 10 of partition 0 of expiring"):
        late.rows(late.begin, late.latest())
    with pytest.raises(WorkFailedError, match="partition 0 of expiring begins at 100"):
        resolved(io.topic, librdkafka_properties(io.consumer, {}), read_bound({"0": 10}), NOW)
    reset = readings(io, {0: 100})
    assert [row[0] for row in reset.rows(reset.begin, reset.latest())] == [*range(100, 150)]


def test_a_spout_reads_what_there_is_over_gaps_and_in_partitions_that_are_added(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create("spouted", retention_ms="3600000")
    kafka.produce("spouted", [b"old"] * 100, timestamp=LONG_AGO)
    spout = KafkaSpout("spouted", kafka.servers)
    late = KafkaSpout("spouted", kafka.servers, start="latest")
    until(lambda: spout.begins() == {"0": 100})
    assert late.begins() == {"0": 100}
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "spouted"})
    producer.init_transactions(60)
    for outcome in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("spouted", b"new", partition=0)
        assert producer.flush(60) == 0
        outcome(60)
    kafka.produce("spouted", [b"last"])
    # The ends of the transactions are at 101 and 103, and what was aborted at 102.
    assert spout.ends({"0": 100}) == {"0": 105}
    found = [row for batch in spout.read("0", 100, 105) for row in batch.to_pylist()]
    assert [(row["offset"], row["value"]) for row in found] == [(100, "new"), (104, "last")]
    assert list(spout.read("0", 101, 104)) == []
    with pytest.raises(OffsetExpiredError, match="offset 10 of partition 0 of spouted"):
        list(spout.read("0", 10, 105))
    monkeypatch.setattr(spouts, "_PARTITIONS_SECONDS", 0.0)
    admin = kafka.admin()
    admin.create_partitions([NewPartitions("spouted", 2)])["spouted"].result()
    until(lambda: set(spout.ends({"0": 105})) == {"0", "1"})
    kafka.produce("spouted", [b"old"] * 10, partition=1, timestamp=LONG_AGO)
    until(lambda: spout.later(["1"]) == {"1": 10})
    for each in (spout, late):
        each.close()


def test_who_reads_needs_the_password_and_the_certificate(
    kafka: Kafka, readings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create("secret")
    kafka.produce("secret", [b"told"])

    def told(password: str) -> dict[str, str]:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "bootstrap.servers": kafka.secure_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="{USER}" password="{password}";',
        }

    def connected(password: str) -> dict[str, str]:
        pem = kafka.certificate.read_text(encoding="ascii")
        return connection_properties({**told(password), "ssl.ca.pem": pem})

    io = dataclasses.replace(
        an_io(kafka.secure_servers, "secret"), consumer={}, connection="secure"
    )
    assert ask_kafka(io, connected(PASSWORD)).latest == {0: 1}
    reading = readings(io, {0: 0}, connected(PASSWORD))
    assert reading.rows(reading.begin, reading.latest()) == [(0, b"told")]
    # The master's broker process has to work without access to this account's files.
    process = BrokerProcess(clock=SystemClock())
    offsets = KafkaOffsets(process, environment={}, connection=lambda _: connected(PASSWORD))
    try:
        assert offsets.ask(dataclasses.replace(a_spec(), io=io)).latest == {0: 1}
    finally:
        process.close()
    impatient(monkeypatch)
    with pytest.raises(StreamUnreachableError, match="Authentication failed") as unreachable:
        ask_kafka(io, connected("hunter3"))
    assert "hunter3" not in str(unreachable.value)
    reading = readings(io, {0: 0}, connected("hunter3"))
    with pytest.raises(StreamAwayError, match="Authentication failed") as refused:
        look_often(reading)
    assert "hunter3" not in str(refused.value)
    with pytest.raises(StreamUnreachableError, match="certificate"):
        ask_kafka(dataclasses.replace(io, consumer=told(PASSWORD), connection=""))


def test_records_are_read_once_though_the_broker_is_killed_meanwhile(
    kafka: Kafka, readings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"%04d" % number + b"." * 2_000 for number in range(2_000)]
    kafka.create("killed")
    kafka.produce("killed", values)
    # No more than a part may be on its way before the kill.
    monkeypatch.setattr(kafka_topic, "_AT_ONCE", 100)
    io = an_io(
        kafka.servers,
        "killed",
        fetch_message_max_bytes="20000",
        fetch_max_bytes="20000",
        queued_min_messages="1",
        queued_max_messages_kbytes="40",
        message_max_bytes="20000",
        fetch_queue_backoff_ms="10",
        reconnect_backoff_max_ms="200",
    )
    reading = readings(io, {0: 0})
    end = reading.latest()
    assert end == {"0": 2_000}
    batches = reading.batches(reading.begin, end)
    rows = next(batches)
    assert len(rows) < 2_000
    kafka.kill()
    with monkeypatch.context() as patch:
        impatient(patch)
        assert reading.latest() == end
        with pytest.raises(StreamUnreachableError):
            ask_kafka(io)
    place = read_place(reading.folder)
    assert place is not None
    assert place.trouble
    kafka.start()
    for batch in batches:
        rows += batch
    assert rows == [*enumerate(values)]
    kafka.produce("killed", [b"after"])
    until(lambda: reading.latest() == {"0": 2_001})
    place = read_place(reading.folder)
    assert place is not None
    assert not place.trouble
