"""A topic that flows into a dataset on a real cluster, whose daemons are killed in the middle.

One supervisor from its submission to its suspension: what is asserted is each record, by its number.
"""

from __future__ import annotations

import copy
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from operations.daemons import Kind
from tests import light_jvm
from tests.mock_kafka import Broker, a_broker
from tests.system.cluster import PrivateCluster, private_cluster, task_processes, until
from tests.unit.stream_specs import SMALL

pytestmark = pytest.mark.kills_daemons

SESSION_SECONDS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    home = tmp_path_factory.mktemp("streams")
    settings = {
        **light_jvm.PROFILE,
        "ZOOKEEPER__SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
        "WORKER__KILL_GRACE_SECONDS": "5",
    }
    with private_cluster(home, **settings) as made:
        made.start(masters=2, workers=2)
        yield made


@pytest.fixture
def broker() -> Iterator[Broker]:
    with a_broker() as made:
        made.create("events", 2)
        yield made


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The open task of the supervisor: its attempt, its process and where both are."""

    task_id: int
    pid: int
    host: str
    current: dict[str, int]

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])

    @property
    def is_shared(self) -> bool:
        """True if it has a session in a server, and no driver of its own."""
        with suppress(OSError):
            return b"task_proxy.py" in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return False


class Stream:
    """One supervisor, and all that was produced for it."""

    def __init__(self, cluster: PrivateCluster, broker: Broker) -> None:
        self._cluster = cluster
        self._broker = broker
        self.produced = [0, 0]

    def produce(self, partition: int, count: int) -> None:
        """Append so many events of one day, each with a number that no other has."""
        begin = self.produced[partition]
        self._broker.produce("events", partition, [
            json.dumps({
                "at": f"2026-11-20T{each % 24:02}:30:00Z",
                "origin": "JFK",
                "number": 1_000_000 * partition + each,
            }).encode()
            for each in range(begin, begin + count)
        ])  # fmt: skip
        self.produced[partition] += count

    @property
    def reading(self) -> Reading | None:
        """The task that was started last, once it reads."""
        rows = self._cluster.rows(
            "SELECT i.id, i.pid, i.host, s.status->'current', s.status->>'state'"
            " FROM t_ds_stream_task s JOIN t_ds_task_instance i ON i.id = s.task_instance_id"
            " WHERE NOT s.closed AND i.state = 1 ORDER BY s.id DESC LIMIT 1"
        )
        if not rows or rows[0][4] != "READING":
            return None
        task_id, pid, host, current, _ = rows[0]
        return Reading(task_id=task_id, pid=pid, host=host, current=current)

    @property
    def owner(self) -> int | None:
        """The port of the master that holds the lease."""
        ((owner,),) = self._cluster.rows("SELECT owner FROM t_ds_supervisor_runtime")
        return None if owner is None else int(owner.rpartition(":")[2])

    def await_reading(self, is_so: Callable[[Reading], bool] = lambda _: True) -> Reading:
        found: list[Reading] = []

        def reads() -> bool:
            found[:] = [each for each in (self.reading,) if each is not None and is_so(each)]
            return bool(found)

        until(reads)
        return found[0]

    def await_all_read(self) -> Reading:
        wanted = {str(partition): count for partition, count in enumerate(self.produced)}
        return self.await_reading(lambda task: task.current == wanted)

    def await_published(self) -> None:
        wanted = list(enumerate(self.produced))

        def are_published() -> bool:
            stored = 'SELECT partition, "offset" FROM t_ds_dataset_offsets ORDER BY partition'
            return self._cluster.rows(stored) == wanted

        until(are_published)

    def check(self) -> None:
        """Each record is there once."""
        rows = self._cluster.told(
            *("dataset", "query", "flights", "--columns", "number,rows", "--limit", "10000")
        )
        found = Counter({each["number"]: 0 for each in rows})
        for each in rows:
            found[each["number"]] += each["rows"]
        assert found == Counter(
            1_000_000 * partition + each
            for partition, count in enumerate(self.produced)
            for each in range(count)
        )

    def log(self, task: Reading) -> str:
        ((path,),) = self._cluster.rows(
            "SELECT log_path FROM t_ds_task_instance WHERE id = %s", task.task_id
        )
        return Path(path).read_text(encoding="utf-8")


def test_each_record_is_published_once_whoever_is_killed(
    cluster: PrivateCluster, broker: Broker, tmp_path: Path
) -> None:
    stream = Stream(cluster, broker)
    stream.produce(0, 300)
    document = copy.deepcopy(SMALL)
    document["spec"]["ioConfig"] |= {
        "consumerProperties": {"bootstrap.servers": broker.servers},
        "startDelay": "PT0S",
        "period": "PT1S",
        "useEarliestOffset": True,
    }
    file = tmp_path / "flights.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    assert cluster.told("stream", "submit", str(file))["outcome"] == "created"
    task = stream.await_all_read()

    # A worker that is back soon goes on with the task, which has read meanwhile.
    owner = stream.owner
    assert owner is not None
    cluster.kill(Kind.MASTER, owner)
    cluster.kill(Kind.WORKER, task.port)
    stream.produce(0, 50)
    stream.produce(1, 70)
    cluster.start_again(Kind.WORKER, task.port)
    after = stream.await_all_read()
    assert (after.task_id, after.pid) == (task.task_id, task.pid)
    until(lambda: stream.owner not in (None, owner))
    assert cluster.orcaflow("stream", "handoff", "flights", "0").returncode == 0
    stream.await_published()
    stream.check()
    until(lambda: task_processes(cluster.home, task.task_id) == [])
    said = stream.log(task)
    assert "published sequence 0: 420 rows in 24 segments" in said
    assert "left processes behind" not in said

    # Another task shares the Spark server of its worker, which never comes back: a third one reads
    # what was read and not published again.
    again = cluster.told("stream", "submit", str(file), "--profile", "default")
    assert again["outcome"] == "changed"
    assert cluster.orcaflow("stream", "handoff", "flights", "0").returncode == 0
    stream.produce(1, 30)
    stream.await_reading(lambda each: each.is_shared)
    task = stream.await_all_read()
    # PostgreSQL is away for a moment, and the task reads on.
    cluster.restart_postgres(lambda: stream.produce(0, 20))
    after = stream.await_all_read()
    assert (after.task_id, after.pid) == (task.task_id, task.pid)
    owner = stream.owner
    assert owner is not None
    cluster.kill(Kind.WORKER, task.port)
    cluster.kill(Kind.MASTER, owner)
    stream.produce(0, 11)
    # There has to be somebody.
    cluster.start_again(Kind.MASTER, owner)
    after = stream.await_reading(lambda each: each.task_id != task.task_id)
    assert after.port != task.port
    stream.produce(1, 5)
    stream.await_all_read()
    assert cluster.orcaflow("stream", "suspend", "flights").returncode == 0
    stream.await_published()
    stream.check()
    until(lambda: cluster.told("stream", "status", "flights")["tasks"] == [])

    # Of the daemons that live, one master keeps the supervisor, and one worker has read for it.
    alive = cluster.pids()
    masters = [cluster.metrics(kind, port) for kind, port in alive if kind is Kind.MASTER]
    assert sum(each['ds_supervisors{state="SUSPENDED"}'] for each in masters) == 1
    assert sum(each["ds_stream_lag_records"] for each in masters) == 0
    worker = cluster.metrics(Kind.WORKER, after.port)
    assert worker['ds_publications_total{outcome="published"}'] >= 1
    assert worker['ds_stream_records_total{kind="processed"}'] >= 5


def test_each_record_of_all_topics_of_a_pattern_is_published_once(
    cluster: PrivateCluster, broker: Broker, tmp_path: Path
) -> None:
    document = copy.deepcopy(SMALL)
    document["spec"]["dataSchema"]["dataSource"] = "clicks"
    del document["spec"]["ioConfig"]["topic"]
    document["spec"]["ioConfig"] |= {
        "topicPattern": "clicks-.*",
        "consumerProperties": {"bootstrap.servers": broker.servers},
        "startDelay": "PT0S",
        "period": "PT1S",
        # The group of the third topic does not have the other two, so no hand-over has to come.
        "taskCount": 2,
    }
    document["spec"]["tuningConfig"] = {"type": "kafka", "offsetFetchPeriod": "PT5S"}
    produced: dict[str, int] = {}

    def produce(topic: str, count: int) -> None:
        """Append events, each with a number that no other has."""
        begin = produced.setdefault(topic, 0)
        first = 1_000_000 * list(produced).index(topic) + begin
        broker.produce(topic, 0, [
            json.dumps({"at": "2026-11-20T04:30:00Z", "origin": topic, "number": each}).encode()
            for each in range(first, first + count)
        ])  # fmt: skip
        produced[topic] = begin + count

    def tasks() -> list[tuple[int, str, dict[str, int]]]:
        """Return the attempts that read or wait, with what they report."""
        return cluster.rows(
            "SELECT i.id, s.status->>'state', s.status->'current' FROM t_ds_stream_task s"
            " JOIN t_ds_task_instance i ON i.id = s.task_instance_id"
            " WHERE s.supervisor = 'clicks' AND NOT s.closed AND i.state = 1 ORDER BY i.id"
        )

    def all_read(besides: int = 0) -> int:
        """Await that all is read; return an attempt that reads, besides this one."""
        wanted = {f"{topic}:0": count for topic, count in produced.items()}
        found: list[int] = []

        def is_read() -> bool:
            reading = [each for each in tasks() if each[1] == "READING" and each[0] != besides]
            found[:] = [each[0] for each in reading]
            return wanted == {name: offset for each in reading for name, offset in each[2].items()}

        until(is_read)
        return found[0]

    for topic in ("clicks-eu", "clicks-us"):
        broker.create(topic, 1)
    # Without `useEarliestOffset`, only new topics are read from the earliest offset.
    file = tmp_path / "clicks.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    submitted = cluster.told("stream", "submit", str(file), "--profile", "default")
    assert submitted["outcome"] == "created"
    until(lambda: [each for each in tasks() if each[1] == "READING"])
    produce("clicks-eu", 30)
    produce("clicks-us", 20)
    first = all_read()
    # What this task has read and not published is read again by another one.
    for pid in task_processes(cluster.home, first):
        os.kill(pid, signal.SIGKILL)
    produce("clicks-us", 5)
    all_read(besides=first)
    broker.create("clicks-in", 1)
    produce("clicks-in", 7)
    all_read()
    lag = {each["partition"] for each in cluster.told("stream", "lag", "clicks")}
    assert lag == {"clicks-eu:0", "clicks-in:0", "clicks-us:0"}
    assert cluster.orcaflow("stream", "suspend", "clicks").returncode == 0
    stored = (
        'SELECT stream, partition, "offset" FROM t_ds_dataset_topic_offsets'
        " WHERE dataset = 'clicks' ORDER BY stream"
    )
    until(lambda: cluster.rows(stored) == [(each, 0, produced[each]) for each in sorted(produced)])
    rows = cluster.told(
        *("dataset", "query", "clicks", "--columns", "number,rows", "--limit", "10000")
    )
    found = Counter({each["number"]: 0 for each in rows})
    for each in rows:
        found[each["number"]] += each["rows"]
    assert found == Counter(
        1_000_000 * place + each
        for place, count in enumerate(produced.values())
        for each in range(count)
    )
