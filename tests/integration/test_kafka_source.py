"""Topics of Kafka, at librdkafka's mock broker: the source alone, in a query of Spark's, in a task."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from sqlalchemy import Engine

from common import kafka_topic
from common.kafka_topic import OffsetExpiredError, StreamAwayError
from common.model.streams.consumer import ClientProperties, ConsumerPropertyError
from common.model.streams.reading import read_spec
from common.model.streams.spec import SupervisorSpec
from common.model.streams.tasks import Assignment, OrderKind, Orders, TaskReport
from common.store.connect import engine
from common.store.streams.offsets import offsets_of_dataset as offsets
from orcaflow import datasets
from tests.integration.dataset_desk import Desk, an_attempt, desk
from tests.integration.spark_jobs import a_session
from tests.integration.stream_conversation import Supervisor
from tests.mock_kafka import Broker, a_broker
from tests.unit.stream_specs import SMALL
from worker.spark.diagnosis.failures import WorkFailedError, is_late_python
from worker.spark.session.job import Job
from worker.spark.streaming import bounded, kafka_source, standby, task
from worker.spark.streaming.batches import BatchWriter
from worker.spark.streaming.documents import Limits, read_place, write_limits
from worker.spark.streaming.kafka_source import KafkaReader, KafkaSource
from worker.spark.streaming.query import Query, start_query
from worker.spark.streaming.standby import warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with a_broker() as broker:
        broker.create("events", 3)
        broker.produce("events", 0, [f"a{number}".encode() for number in range(1_500)])
        broker.produce(
            "events", 1, [b"b"] * 700, key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=17
        )
        yield broker


@pytest.fixture
def folder(tmp_path: Path, broker: Broker) -> Path:
    write_consumer(tmp_path, {"bootstrap.servers": broker.servers})
    return tmp_path


def write_consumer(folder: Path, properties: dict[str, str]) -> None:
    document = ClientProperties(given=properties).document()
    (folder / "consumer.json").write_text(json.dumps(document))


def options(folder: Path, starts: dict[int, int], **more: Any) -> dict[str, str]:
    chosen: dict[str, Any] = {"topic": "events", "at_once": 2, "whole_records": True, **more}
    return kafka_source.options(
        starts=starts, folder=folder, properties=folder / "consumer.json", **chosen
    )


@pytest.fixture
def reader(folder: Path) -> Iterator[KafkaReader]:
    made = KafkaReader(options(folder, {0: 100, 1: 0, 2: 0}))
    yield made
    made.stop()


def read_all(reader: KafkaReader, begin: dict[str, int], end: dict[str, int]) -> list[Any]:
    return [
        row
        for piece in reader.partitions(begin, end)
        for batch in reader.read(piece)
        for row in batch.to_pylist()
    ]


def test_records_are_read_from_exact_starts_to_exact_ends(
    reader: KafkaReader, folder: Path
) -> None:
    begin = reader.initialOffset()
    assert begin == {"0": 100, "1": 0, "2": 0}
    assert reader.latestOffset(begin, ReadAllAvailable()) == {"0": 1_500, "1": 700, "2": 0}
    assert reader.latestOffset(begin, ReadMaxRows(300)) == {"0": 250, "1": 150, "2": 0}
    write_limits(folder, Limits(version=4, ends={0: 102, 1: 1, 2: 0}))
    end = reader.latestOffset(begin, ReadMaxRows(300))
    rows = read_all(reader, begin, end)
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [
        (0, 100, b"a100"),
        (0, 101, b"a101"),
        (1, 0, b"b"),
    ]
    assert (rows[0]["key"], rows[0]["headers"], rows[0]["topic"]) == (None, None, "events")
    assert (rows[2]["key"], rows[2]["timestamp"]) == (b"k", 17)
    assert rows[2]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    place = read_place(folder)
    assert place is not None
    assert (place.version, place.offsets, place.trouble) == (4, {0: 100, 1: 0, 2: 0}, "")
    assert place.latest == {0: 1_500, 1: 700, 2: 0}


def test_nothing_is_committed_at_the_broker(folder: Path, broker: Broker) -> None:
    # With the client's defaults it would commit when it closes.
    reader = KafkaReader(options(folder, {0: 100, 1: 0, 2: 0}))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert len(read_all(reader, reader.initialOffset(), end)) == 2_100
    reader.stop()
    asked = Consumer({"bootstrap.servers": broker.servers, "group.id": "orcaflow"})
    places = [TopicPartition("events", partition) for partition in range(3)]
    found = asked.committed(places, timeout=60)
    assert [place.offset for place in found] == [OFFSET_INVALID] * 3
    # The broker would keep one.
    asked.commit(offsets=[TopicPartition("events", 2, 5)], asynchronous=False)
    assert asked.committed(places[2:], timeout=60)[0].offset == 5
    asked.close()


def test_a_paused_source_reads_nothing_and_reports_its_place(
    reader: KafkaReader, folder: Path
) -> None:
    write_limits(folder, Limits(version=9, paused=True))
    here = {"0": 120, "1": 7, "2": 0}
    assert reader.latestOffset(here, ReadAllAvailable()) == here
    place = read_place(folder)
    assert place is not None
    assert (place.version, place.offsets) == (9, {0: 120, 1: 7, 2: 0})


def test_an_offset_that_is_gone_is_an_error_with_its_cure(reader: KafkaReader) -> None:
    with pytest.raises(OffsetExpiredError, match=r"offset 9000 of partition 0 of events"):
        read_all(reader, {"0": 9_000}, {"0": 9_001})


def test_a_broker_that_does_not_answer_is_a_trouble_and_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_consumer(folder, {"bootstrap.servers": "127.0.0.1:1"})
    monkeypatch.setattr(kafka_topic, "_LOOK_SECONDS", 0.1)
    reader = KafkaReader(options(folder, {0: 3}))
    assert reader.latestOffset({"0": 3}, ReadAllAvailable()) == {"0": 3}
    reader.stop()
    place = read_place(folder)
    assert place is not None
    assert place.trouble


def test_a_property_that_kafka_refuses_is_named(folder: Path) -> None:
    write_consumer(folder, {"bootstrap.server": "hunter2"})
    reader = KafkaReader(options(folder, {0: 3}))
    with pytest.raises(StreamAwayError, match=r"bootstrap\.server") as raised:
        reader.latestOffset({"0": 3}, ReadAllAvailable())
    assert "hunter2" not in str(raised.value)


def test_fields_of_json_come_with_the_values_that_the_source_could_read(
    broker: Broker, folder: Path
) -> None:
    broker.create("fields", 1)
    broker.produce("fields", 0, [b'{"a": 1, "b": "x"}', b"no json", b'{"b": "y"}'])
    made = KafkaReader(
        options(folder, {0: 0}, topic="fields", whole_records=False, fields=["a", "b"])
    )
    rows = read_all(made, {"0": 0}, {"0": 3})
    made.stop()
    assert [row["fields"] for row in rows] == [{"a": "1", "b": "x"}, None, {"a": None, "b": "y"}]
    assert [row["value"] for row in rows][1:] == [b"no json", b'{"b": "y"}']


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with a_session(tmp_path_factory.mktemp("warehouse")) as session:
        session.dataSource.register(KafkaSource)
        yield session


def begun(writer: DataStreamWriter) -> StreamingQuery:
    """Start the first query of a session, and wait until it rests.

    On a busy computer its Python may start too late for Spark, which is no fault of the source.
    """
    for _ in range(5):
        query = writer.start()
        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            query.stop()
            if not is_late_python(error):
                raise
        else:
            return query
    raise AssertionError("Python has started too late five times")


def test_a_query_pauses_goes_on_and_ends_at_exact_offsets(
    spark: SparkSession, folder: Path
) -> None:
    found: list[tuple[int, int]] = []
    sizes: list[int] = []

    def keep(batch: DataFrame, number: int) -> None:
        rows = batch.select("partition", "offset").collect()
        found.extend((row["partition"], row["offset"]) for row in rows)
        sizes.append(len(rows))

    write_limits(folder, Limits(version=1, paused=True))
    source = spark.readStream.format(kafka_source.NAME).options(
        **options(folder, {0: 100, 1: 0}, rows_per_batch=1_000, whole_records=False)
    )
    writer = (
        source.load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = begun(writer)
    try:
        assert found == []
        write_limits(folder, Limits(version=2, ends={0: 1_400, 1: 650}))
        query.processAllAvailable()
        place = read_place(folder)
        assert place is not None
        assert (place.version, place.offsets) == (2, {0: 1_400, 1: 650})
        expected = [*((0, each) for each in range(100, 1_400)), *((1, each) for each in range(650))]
        assert sorted(found) == expected
        assert max(sizes) == 1_000
        write_limits(folder, Limits(version=3))
        query.processAllAvailable()
        assert len(found) == 1_400 + 700
    finally:
        query.stop()


@pytest.fixture
def server(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = engine(url, application_name="here")
    with desk(tmp_path, made, monkeypatch) as served:
        yield served
    made.dispose()


class Attempts:
    """Runs attempts of stream tasks of one dataset, in this process and one after the other."""

    def __init__(
        self, spark: SparkSession, broker: Broker, server: Desk, folder: Path, **consumer: str
    ) -> None:
        self._spark = spark
        self._server = server
        self._folder = folder
        self.engine: Engine = server.engine
        self.said: list[str] = []
        document = copy.deepcopy(SMALL)
        document["spec"]["dataSchema"] |= {
            "dataSource": "departures",
            "dimensionsSpec": {"dimensions": ["origin"]},
        }
        document["spec"]["ioConfig"] |= {
            "topic": "departures",
            "consumerProperties": {"bootstrap.servers": broker.servers},
        }
        spec = read_spec(document).spec
        assert isinstance(spec, SupervisorSpec)
        # As in a row edited with SQL: consumer properties are not checked when a row is read.
        given = {**spec.io.consumer, **consumer}
        self._spec = dataclasses.replace(spec, io=dataclasses.replace(spec.io, consumer=given))

    def run(self, supervisor: Supervisor, checkpoints: Mapping[int, Mapping[int, int]]) -> bool:
        attempt = an_attempt(self.engine)
        self._server.enter(attempt)
        assignment = Assignment(
            name="t",
            supervisor="departures",
            version=1,
            group_id=0,
            base_sequence="index_kafka_departures_0",
            starts={0: 0, 1: 0},
            checkpoints=checkpoints,
        )
        folder = self._folder / f"attempt{attempt}"
        ran = task.StreamTask(
            self._spark,
            self._spec,
            assignment,
            supervisor,
            folder=folder,
            cores=1,
            say=self.said.append,
        )
        try:
            return ran.run()
        finally:
            assert not folder.exists()

    @property
    def rows(self) -> dict[str, int]:
        return published("departures")


def published(dataset: str) -> dict[str, int]:
    """The published records by origin."""
    found: dict[str, int] = {}
    for segment in datasets.segments(dataset).segments:
        for file in segment.files:
            for row in pq.read_table(file, columns=["origin", "rows"]).to_pylist():
                found[row["origin"]] = found.get(row["origin"], 0) + row["rows"]
    return found


def departures(origin: str, count: int) -> list[bytes]:
    """Events of four hours."""
    return [
        json.dumps({"at": f"2026-11-20T{4 + number % 4:02}:30:00Z", "origin": origin}).encode()
        for number in range(count)
    ]


def test_a_standby_leaves_nothing_and_is_given_its_work(
    spark: SparkSession, broker: Broker, folder: Path
) -> None:
    broker.create("warm", 2)
    broker.produce("warm", 0, departures("JFK", 30))
    document = copy.deepcopy(SMALL)
    document["spec"]["ioConfig"] |= {
        "topic": "warm",
        "consumerProperties": {"bootstrap.servers": broker.servers},
    }
    spec = read_spec(document).spec
    assert isinstance(spec, SupervisorSpec)
    written: list[int] = []

    class Writer(BatchWriter):
        def write(self, records: DataFrame, folder: Path, number: int) -> None:
            super().write(records, folder, number)
            written.append(self.written.counts.processed)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(standby, "BatchWriter", Writer)
        # A busy machine takes longer than a task is to wait.
        patched.setattr(standby, "_PATIENCE_SECONDS", 300.0)
        warm_up(spark, spec, folder=folder / "standby", cores=1, secrets={})
    assert written == [10]
    assert not (folder / "standby").exists()
    assert spark.streams.active == []
    missing = replace(spec, io=replace(spec.io, consumer={"bootstrap.servers": "127.0.0.1:1"}))
    with pytest.raises(StreamAwayError):
        warm_up(spark, missing, folder=folder / "standby", cores=1, secrets={})
    assert not (folder / "standby").exists()


def test_a_task_publishes_sequences_once_though_it_dies_behind_a_publication(
    spark: SparkSession,
    broker: Broker,
    server: Desk,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker.create("departures", 2)
    broker.produce("departures", 0, departures("JFK", 300))
    broker.produce("departures", 1, [*departures("LGA", 99), b"no JSON"])
    attempts = Attempts(spark, broker, server, folder)
    first, second = {0: 300, 1: 100}, {0: 340, 1: 100}

    produced: list[str] = []

    def more_is_read(report: TaskReport) -> bool:
        if report.sequences[0].published and not produced:
            broker.produce("departures", 0, departures("EWR", 40))
            produced.append("EWR")
        return report.current == second

    published: list[str] = []

    def dying(*given: Any, **named: Any) -> datasets.Outcome:
        outcome = publish(*given, **named)
        published.append(named["sequence"])
        if len(published) == 2:
            raise ConnectionResetError("it dies")
        return outcome

    publish = datasets.publish
    monkeypatch.setattr(datasets, "publish", dying)
    supervisor = Supervisor([lambda report: report.current == first, more_is_read])
    with pytest.raises(ConnectionResetError, match="it dies"):
        attempts.run(supervisor, {0: {0: 0, 1: 0}})
    assert published == ["index_kafka_departures_0_0", "index_kafka_departures_0_1"]
    last = supervisor.reports[-1]
    assert [(each.start, each.end) for each in last.sequences] == [
        ({0: 0, 1: 0}, first),
        (first, second),
    ]
    assert last.counts == {
        "processed": 439,
        "processedWithError": 0,
        "unparseable": 1,
        "thrownAway": 0,
    }
    assert attempts.rows == {"JFK": 300, "LGA": 99, "EWR": 40}
    # Its substitute reads the same again, and then what came after.
    broker.produce("departures", 1, departures("BOS", 8))
    monkeypatch.setattr(datasets, "publish", publish)
    third = {0: 340, 1: 108}
    supervisor = Supervisor([lambda report: report.current == third], given=Orders(version=7))
    assert attempts.run(supervisor, {1: first, 2: second})
    assert any("another task had done before" in said for said in attempts.said)
    assert attempts.rows == {"JFK": 300, "LGA": 99, "EWR": 40, "BOS": 8}
    with attempts.engine.connect() as db:
        assert {each.partition: each.offset for each in offsets(db, "departures")} == third


class Ranges:
    """Runs tasks of their own, in this process and one after the other."""

    def __init__(self, spark: SparkSession, broker: Broker, server: Desk, folder: Path) -> None:
        self._spark = spark
        self._server = server
        self._reason = folder / "job.reason"
        self.spec = copy.deepcopy(SMALL)
        self.spec["spec"]["dataSchema"] |= {
            "dataSource": "ranged",
            "dimensionsSpec": {"dimensions": ["origin"]},
        }
        self.spec["spec"]["ioConfig"] |= {
            "topic": "ranged",
            "consumerProperties": {"bootstrap.servers": broker.servers},
        }

    def attempt(self) -> None:
        self._server.enter(an_attempt(self._server.engine))

    def run(self, start: Any, end: Any) -> int:
        document = {"kind": "", "spec": self.spec, "from": start, "to": end, "cores": 1}
        return bounded.run(self._spark, Job.of(document, reason_file=self._reason))


@pytest.fixture
def ranges(spark: SparkSession, broker: Broker, server: Desk, folder: Path) -> Ranges:
    broker.create("ranged", 2)
    broker.produce("ranged", 0, departures("JFK", 60))
    broker.produce("ranged", 1, departures("LGA", 40))
    return Ranges(spark, broker, server, folder)


def test_a_range_is_read_without_a_supervisor_and_added_once_by_a_run(
    ranges: Ranges,
    broker: Broker,
    server: Desk,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Its files are cut, and appear all at once.
    ranges.spec["spec"]["tuningConfig"] = {"type": "kafka", "maxRowsPerSegment": 2}
    ranges.attempt()
    publish = datasets.publish

    def dying(*given: Any, **named: Any) -> datasets.Outcome:
        publish(*given, **named)
        raise ConnectionResetError("it dies")

    monkeypatch.setattr(datasets, "publish", dying)
    with pytest.raises(ConnectionResetError):
        ranges.run({"0": 10, "1": 0}, {"0": 50, "1": 40})
    monkeypatch.setattr(datasets, "publish", publish)
    assert published("ranged") == {"JFK": 40, "LGA": 40}
    assert ranges.run({"0": 10, "1": 0}, {"0": 50, "1": 40}) == 0
    assert "an earlier attempt of this task has added the range" in capsys.readouterr().out
    assert published("ranged") == {"JFK": 40, "LGA": 40}
    # Another run reads on; a range without records ends at once.
    ranges.attempt()
    assert ranges.run({"0": 50}, "latest") == 0
    # Departures of an hour are one row.
    assert "read 10 records and published 4 rows: 0 unparseable," in capsys.readouterr().out
    assert published("ranged") == {"JFK": 50, "LGA": 40}
    ranges.attempt()
    assert ranges.run("latest", "latest") == 0
    with server.engine.connect() as db:
        assert offsets(db, "ranged") == ()
    with pytest.raises(WorkFailedError, match="has no partition 2; it has 0, 1"):
        ranges.run({"2": 0}, "latest")
    # Records that can't be read are counted, and named if the specification keeps them.
    broker.produce("ranged", 0, [b"no JSON", b'{"at": "never", "origin": "JFK"}'])
    counted = "read 3 records and published 1 rows: 2 unparseable, 0 with values that could not be"
    capsys.readouterr()
    ranges.attempt()
    assert ranges.run({"0": 59}, "latest") == 0
    said = capsys.readouterr().out
    assert counted in said
    assert "; maxSavedParseExceptions in tuningConfig names such records" in said
    ranges.spec["spec"]["tuningConfig"] = {"type": "kafka", "maxSavedParseExceptions": 1}
    ranges.attempt()
    assert ranges.run({"0": 59}, "latest") == 0
    assert "0 thrown away; such a record is 60 of partition 0" in capsys.readouterr().out


class Late:
    """A query that ends as one does on a computer that is too busy to begin its Python in time."""

    def __init__(self, query: Query) -> None:
        self.stop = query.stop

    def has_ended(self, *, within_seconds: float) -> bool:
        raise RuntimeError("terminated with exception: Python worker failed to connect back.")


def test_a_source_whose_python_begins_too_late_is_started_again(
    spark: SparkSession,
    broker: Broker,
    server: Desk,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts: list[Any] = []

    def start(*given: Any, **named: Any) -> Any:
        starts.append(start_query(*given, **named))
        return Late(starts[0]) if len(starts) == 1 else starts[-1]

    monkeypatch.setattr(task, "start_query", start)
    attempts = Attempts(spark, broker, server, folder)
    assert attempts.run(Supervisor([lambda _: True]), {0: {0: 0, 1: 0}})
    assert len(starts) >= 2  # Another may be late on a busy machine.
    assert [each for each in attempts.said if "did not begin in time" in each]


def test_a_task_is_stopped_or_fails_with_the_reason_of_its_source(
    spark: SparkSession, broker: Broker, server: Desk, folder: Path
) -> None:
    attempts = Attempts(spark, broker, server, folder)
    stopped = Supervisor([], given=Orders(version=1, command=OrderKind.STOP))
    assert not attempts.run(stopped, {0: {0: 0, 1: 0}})
    attempts = Attempts(spark, broker, server, folder, **{"plugin.library.paths": "hunter2"})
    with pytest.raises(ConsumerPropertyError, match=r"plugin\.library\.paths is not") as raised:
        attempts.run(Supervisor([]), {0: {0: 0, 1: 0}})
    assert "hunter2" not in str(raised.value)
