"""The common part of tests of every manager: a fake, its configuration, and a sweep of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from common.model.states import TaskState
from common.spark_config import SparkConfig
from tests.integration.managers.bench import TAGS, Bench, labels, yarn_tags
from tests.integration.managers.kubernetes import FakeKubernetes
from tests.integration.managers.yarn import FakeYarn
from tests.memory.store import MemoryDatabase, MemoryTaskStore
from tests.simulation.virtual_clock import VirtualClock
from worker.loops.sweep_loop import SweepLoop, configured
from worker.spark.managers.settings import ManagerSettings

SWEEPS_A_MINUTE = 6


class Ground:
    """A fake manager and a worker's host."""

    def __init__(self, home: Path, kind: str) -> None:
        self.fake: FakeYarn | FakeKubernetes
        if kind == "yarn":
            self.fake, self.name, master = FakeYarn(), "YARN", "yarn"
            self.spark = SparkConfig(yarn_urls=self.fake.url)
        else:
            (home / "token").write_text("a-token\n")
            self.fake, self.name = FakeKubernetes(), "Kubernetes"
            master = f"k8s://{self.fake.url}"
            self.spark = SparkConfig(
                kubernetes_url=self.fake.url,
                kubernetes_token_file=str(home / "token"),
                kubernetes_namespace="jobs",
            )
        self.bench = Bench(home, spark=self.spark, fake_url=self.fake.url, master=master)

    def close(self) -> None:
        self.fake.trouble = ""
        self.fake.kills_at_all = True
        self.bench.close()
        self.fake.close()

    def left_by(self, number: int) -> None:
        """An application that runs with the tag of this attempt."""
        tag = self.bench.tag(number)
        if isinstance(self.fake, FakeYarn):
            self.fake.submit(yarn_tags(tag))
        else:
            self.fake.submit(labels(tag))

    def live(self) -> int:
        return len(self.fake.live())

    def kills(self) -> int:
        """The number of requests for a kill that were answered."""
        with self.fake.lock:
            return self.fake.kills

    def submitted(self) -> int:
        """The number of submissions."""
        with self.fake.lock:
            return sum(asked.path == "/fake/submit" for asked in self.fake.asked)

    def end_well(self) -> None:
        if isinstance(self.fake, FakeYarn):
            self.fake.end_all()
        else:
            self.fake.end()


class Sweeper:
    """Another worker's sweep, with the tables in memory and a virtual clock."""

    def __init__(self, ground: Ground) -> None:
        self.database = MemoryDatabase()
        self.clock = VirtualClock()
        self.process = self.database.insert(
            self.database.processes,
            process_definition_id=1,
            name="daily",
            state=1,
            command_type=0,
            process_instance_json="{}",
            executor_id=1,
        )
        self.loop = SweepLoop(
            store=MemoryTaskStore(self.database),
            managers=configured(ManagerSettings.of(ground.spark)),
            tags=TAGS,
            clock=self.clock,
        )

    def knows(self, number: int, state: TaskState) -> None:
        """Insert this attempt in this state."""
        self.database.insert(
            self.database.tasks,
            id=number,
            name=f"task {number}",
            task_type="SPARK",
            process_definition_id=1,
            process_instance_id=self.process,
            task_json="{}",
            state=int(state),
            start_time=self.clock.now(),
            end_time=None if state is TaskState.RUNNING else self.clock.now(),
            host="w:1",
            worker_incarnation=1,
        )

    def pass_by(self) -> None:
        """One pass, and the rest after it."""
        rest = self.loop.run_once()
        self.clock.move_to(self.clock.elapsed + rest)

    def minutes(self) -> timedelta:
        return self.clock.elapsed
