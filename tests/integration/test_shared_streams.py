"""Streaming queries in Spark Connect servers: tasks that read topics, and those of an author's own."""

from __future__ import annotations

import copy
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from common.store.connect import engine
from common.store.tables.datasets import segment
from tests.integration.dataset_desk import Desk, an_attempt, desk
from tests.integration.spark_host import (
    ANOTHER,
    Attempt,
    SparkHost,
    a_profile,
    command,
    kill,
    spark_host,
    until,
)
from tests.mock_kafka import Broker, a_broker
from tests.unit.stream_specs import SMALL

pytestmark = pytest.mark.slow

PROFILES = {"default": a_profile(), "apart": a_profile(python=ANOTHER)}
OWN_STREAM = """
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"
    def schema(self):
        return "number int, python string"
    def streamReader(self, schema):
        return Reader()

class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"next": 0}
    def latestOffset(self):
        return {"next": 3}
    def partitions(self, start, end):
        return [InputPartition((start["next"], end["next"]))]
    def read(self, partition):
        for number in range(*partition.value):
            yield number, sys.executable

def write(batch, number):
    rows = [tuple(row) for row in batch.collect()]
    with open(folder + "/batch", "w") as file:
        json.dump([sys.executable, *rows], file)

folder = os.getcwd()
spark.dataSource.register(Numbers)
query = (
    spark.readStream.format("numbers").load().writeStream.foreachBatch(write)
    .option("checkpointLocation", folder + "/checkpoint").start()
)
query.processAllAvailable()
query.stop()
tell(json.load(open(folder + "/batch")))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with a_broker() as made:
        yield made


@pytest.fixture
def server(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = engine(url, application_name="here")
    with desk(tmp_path, made, monkeypatch) as served:
        yield served
    made.dispose()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkHost]:
    with spark_host(tmp_path_factory.mktemp("host"), PROFILES) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left(host: SparkHost) -> Iterator[None]:
    yield
    host.kill_proxies()
    until(lambda: is_quiet(host))


def is_quiet(host: SparkHost) -> bool:
    """True if nothing of any task is left: servers keep daemons that look data sources up."""
    proxies = [told for pid in host.pythons() if "task_proxy.py" in (told := command(pid))]
    of_servers = [told for told in proxies if "/python -m pyspark.daemon" in told]
    return proxies == of_servers and host.running_jobs() == []


class Streams:
    """Starts tasks that read ranges, each of a topic of its own."""

    def __init__(self, host: SparkHost, broker: Broker, server: Desk) -> None:
        self.host = host
        self._broker = broker
        self._server = server

    def start(self, topic: str, values: list[bytes], end: int, **tuning: Any) -> Attempt:
        self._broker.create(topic, 1)
        self._broker.produce(topic, 0, values)
        return self.again(topic, end, **tuning)

    def again(self, topic: str, end: int, **tuning: Any) -> Attempt:
        spec = copy.deepcopy(SMALL)
        spec["spec"]["dataSchema"]["dataSource"] = topic
        spec["spec"]["ioConfig"] |= {
            "topic": topic,
            "consumerProperties": {"bootstrap.servers": self._broker.servers},
        }
        spec["spec"]["tuningConfig"] = {"type": "kafka", **tuning}
        attempt = an_attempt(self._server.engine)
        return self.host.start(
            "",
            kind="worker.spark.streaming.bounded",
            environment=self._server.let_in(attempt),
            **{"spec": spec, "from": {"0": 0}, "to": {"0": end}, "cores": 1},
        )

    def rows(self, dataset: str) -> int:
        """The rows of all segments of a dataset."""
        rows = select(func.coalesce(func.sum(segment.c.rows), 0))
        with self._server.engine.connect() as db:
            return int(db.execute(rows.where(segment.c.dataset == dataset)).scalar_one())


@pytest.fixture
def streams(host: SparkHost, broker: Broker, server: Desk) -> Streams:
    return Streams(host, broker, server)


def departures(*origins: str) -> list[bytes]:
    at = "2026-11-20T04:30:00Z"
    return [json.dumps({"at": at, "origin": origin}).encode() for origin in origins]


def test_tasks_read_in_one_server_at_once_and_fail_each_by_itself(streams: Streams) -> None:
    good = streams.start("shared-good", departures("JFK", "LGA", "EWR"), 3)
    broken = [*departures("JFK"), b"no JSON", b"{"]
    bad = streams.start("shared-bad", broken, 3, maxParseExceptions=1)
    assert (good.end(), bad.end()) == (0, 1)
    assert "published sequence 0: 3 rows in 1 segments" in good.output
    assert "2 records could not be read" in bad.reason
    assert bad.failure == "DATA_ERROR"
    assert (streams.rows("shared-good"), streams.rows("shared-bad")) == (3, 0)
    assert len(streams.host.servers("default")) == 1


@pytest.mark.parametrize(("profile", "python"), [("default", sys.executable), ("apart", ANOTHER)])
def test_a_stream_of_an_authors_own_has_the_python_of_its_profile(
    host: SparkHost, profile: str, python: str
) -> None:
    code, attempt = host.run(OWN_STREAM, profile=profile)
    assert code == 0, attempt.output
    assert attempt.values == [[python, *([number, python] for number in range(3))]]


def test_of_a_task_that_is_killed_nothing_is_left_and_nothing_is_published(
    streams: Streams,
) -> None:
    # It waits for what is behind the last record.
    killed = streams.start("shared-killed", departures(*("JFK",) * 9), 1_000)
    killed.told("reads shared-killed")
    until(lambda: any(killed.folder.glob("stream/partials/0/batch=*/chunk=*/*.parquet")))
    killed.process.send_signal(signal.SIGKILL)
    killed.end()
    until(lambda: is_quiet(streams.host))
    assert streams.rows("shared-killed") == 0
    assert streams.again("shared-killed", 9).end() == 0
    assert streams.rows("shared-killed") == 1


def test_a_server_that_dies_takes_its_streams_with_it_and_the_next_one_serves_on(
    streams: Streams,
) -> None:
    lost = streams.start("shared-lost", departures("JFK", "LGA"), 1_000)
    lost.told("reads shared-lost")
    (server,) = streams.host.servers("default")
    kill(server)
    assert lost.end() != 0
    assert lost.failure == "SERVER_LOST"
    assert streams.again("shared-lost", 2).end() == 0
    assert streams.rows("shared-lost") == 2
