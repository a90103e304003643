"""A topology on a real cluster, whose processes are killed in the middle of its batches.

One topology from its submission to its end: what is asserted is how often each word was counted.
With ORCAFLOW_REPEATS each fault comes so many times.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from operations.daemons import Kind
from tests import light_jvm
from tests.integration.topology_people import kept
from tests.system.cluster import PrivateCluster, private_cluster, task_processes, until

pytestmark = pytest.mark.kills_daemons

REPEATS = int(os.environ.get("ORCAFLOW_REPEATS", "1"))
SESSION_SECONDS = 4
LOG_LIMIT = 1_000_000
# Without repeats far more than the log may have, and with them what an issue asks for.
PRINTED_BYTES = 64_000_000 if REPEATS == 1 else 1_000_000_000

WORDS = f"""
import json
import sys
import time
from pathlib import Path

from orcaflow.spouts import FileSpout
from orcaflow.topology import Bolt, Sink, StatefulBolt, TopologyBuilder

HERE = Path({{here!r}})


class Split(Bolt):
    outputs = ("word",)

    def process(self, record, emit):
        for word in record["line"].split():
            if word == "hold" and not (HERE / "go").exists():
                (HERE / "holding").touch()
                time.sleep(10_000)
            if word == "print":
                for _ in range({PRINTED_BYTES} // 1_000_000):
                    print("x" * 999_999)
            emit(word)


class Count(StatefulBolt):
    outputs = ("word", "count long")

    def initial(self):
        return 0

    def process(self, record, state, emit):
        emit(record["word"], state + 1)
        return state + 1


class Keep(Sink):
    def write(self, records, batch):
        rows = [[batch.task, *record.values] for record in records]
        place = f"kept-{{{{batch.number}}}}-{{{{batch.task}}}}"
        (HERE / f".{{{{place}}}}").write_text(json.dumps(rows))
        (HERE / f".{{{{place}}}}").rename(HERE / place)


def topology():
    builder = TopologyBuilder("words")
    builder.set_spout("lines", FileSpout(str(HERE / "lines")))
    builder.set_bolt("split", Split(), tasks=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), tasks=2).fields_grouping("split", "word")
    builder.set_bolt("keep", Keep(), tasks=2).fields_grouping("count", "word")
    return builder.create_topology()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    settings = {
        **light_jvm.PROFILE,
        "ZOOKEEPER__SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
        "WORKER__KILL_GRACE_SECONDS": "5",
        "WORKER__LOG_LIMIT_BYTES": str(LOG_LIMIT),
    }
    with private_cluster(tmp_path_factory.mktemp("topologies"), **settings) as made:
        made.start(masters=2, workers=2)
        yield made


@dataclass(frozen=True, slots=True)
class Running:
    """The attempt that runs a topology, its process and where both are."""

    task_id: int
    pid: int
    host: str

    @property
    def port(self) -> int:
        return int(self.host.rpartition(":")[2])


class Words:
    """One topology, and all lines that were written for it."""

    def __init__(self, cluster: PrivateCluster, folder: Path) -> None:
        self._cluster = cluster
        self.folder = folder
        self.words: Counter[str] = Counter()
        (folder / "lines").mkdir()
        self.file = folder / "words.py"
        self.file.write_text(WORDS.format(here=str(folder)), encoding="utf-8")

    def add(self, *lines: str) -> None:
        with (self.folder / "lines" / "all.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        for line in lines:
            self.words.update(line.split())

    def await_counted(self) -> Running:
        """Wait until each word was counted; return who does it."""
        until(lambda: sum(1 for _ in kept(self.folder)) >= self.words.total())
        self.check()
        running = self.running()
        assert running is not None
        return running

    def check(self) -> None:
        """Each word was counted once, in the order in which its counts were written."""
        assert Counter(word for _, word, _ in kept(self.folder)) == self.words
        assert all(
            sorted(count for _, each, count in kept(self.folder) if each == word)
            == list(range(1, self.words[word] + 1))
            for word in self.words
        )

    def running(self) -> Running | None:
        rows = self._cluster.rows(
            "SELECT i.id, i.pid, i.host FROM t_ds_topology t"
            " JOIN t_ds_task_instance i ON i.id = t.task_instance_id"
            " WHERE t.name = 'words' AND i.state = 1 AND i.pid IS NOT NULL"
        )
        return Running(*rows[0]) if rows else None

    def await_another(self, former: Running) -> Running:
        """Wait until another attempt runs it."""
        found: list[Running] = []

        def has_come() -> bool:
            found[:] = [
                each
                for each in (self.running(),)
                if each is not None and each.task_id != former.task_id
            ]
            return bool(found)

        until(has_come)
        return found[0]

    def log(self, task_id: int) -> Path:
        ((path,),) = self._cluster.rows(
            "SELECT log_path FROM t_ds_task_instance WHERE id = %s", task_id
        )
        return Path(path)


@pytest.fixture
def words(cluster: PrivateCluster, tmp_path: Path) -> Words:
    made = Words(cluster, tmp_path)
    made.add("the cat and the dog")
    done = cluster.told("topology", "submit", f"{made.file}:topology")
    assert done["outcome"] == "created"
    return made


def is_without_zookeeper(cluster: PrivateCluster, port: int) -> bool:
    return cluster.metrics(Kind.WORKER, port)['ds_zk_state{state="lost"}'] == 1


@pytest.mark.timeout(600 * REPEATS)
def test_each_word_is_counted_once_whoever_is_killed(cluster: PrivateCluster, words: Words) -> None:
    task = words.await_counted()
    for _ in range(REPEATS):
        # A worker that is back soon goes on with the task, which has counted meanwhile.
        cluster.kill(Kind.WORKER, task.port)
        words.add("the dog is away")
        cluster.start_again(Kind.WORKER, task.port)
        assert words.await_counted() == task

        # ZooKeeper is away for longer than a session, and nothing is counted anew.
        assert cluster.daemons.stop_one("zookeeper", None)
        until(partial(is_without_zookeeper, cluster, task.port))
        words.add("the cat is alone")
        cluster.daemons.start_zookeeper()
        assert words.await_counted() == task

        # A component prints more than a log may have.
        words.add("print the cat")
        assert words.await_counted() == task
        log = words.log(task.task_id)
        until(lambda log=log: log.stat().st_size < 2 * LOG_LIMIT)

        # The task's process is gone in the middle of a batch: its next attempt does that again.
        words.add("hold the door", "the end")
        holding = words.folder / "holding"
        until(holding.exists)
        os.kill(task.pid, signal.SIGKILL)
        (words.folder / "go").touch()
        until(lambda lost=task: task_processes(cluster.home, lost.task_id) == [])
        task, lost = words.await_another(task), task
        assert words.await_counted() == task

        # The task's worker never comes back: the other one goes on, and begins no count anew.
        for file in (holding, words.folder / "go"):
            file.unlink()
        words.add("hold the line")
        until(holding.exists)
        cluster.kill(Kind.WORKER, task.port)
        (words.folder / "go").touch()
        task, lost = words.await_another(task), task
        assert task.port != lost.port
        words.add("and so on")
        assert words.await_counted() == task
        cluster.start_again(Kind.WORKER, lost.port)
        until(lambda lost=lost: task_processes(cluster.home, lost.task_id) == [])
        for file in (holding, words.folder / "go"):
            file.unlink()

    killed = cluster.orcaflow("topology", "kill", "words", "--wait", "0")
    assert killed.returncode == 0, killed.stderr
    until(lambda: task_processes(cluster.home, task.task_id) == [])
    status = cluster.told("topology", "status", "words")
    assert status["status"] == "KILLED"
    words.check()
    assert list((cluster.home / "topologies").glob("words*")) == []
