"""The task of a topology, which obeys people and reports: with Spark, and without a worker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from common.model.topologies import Code, Report, RunState, Wanted
from orcaflow.topology_orders import Work
from tests.integration.topology_stage import topology_session
from worker.spark.diagnosis.failures import WorkFailedError
from worker.spark.topology.task import TopologyTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

WORDS = """
import json
from pathlib import Path

from orcaflow.spouts import FileSpout
from orcaflow.topology import Bolt, Sink, StatefulBolt, TopologyBuilder

HERE = Path({here!r})


class Split(Bolt):
    outputs = ("word",)

    def process(self, record, emit):
        for word in record["line"].split():
            if word == "poison" and not (HERE / "cure").exists():
                raise ValueError("poison")
            emit(word)


class Count(StatefulBolt):
    outputs = ("word", "count long")

    def initial(self):
        return 0

    def process(self, record, state, emit):
        emit(record["word"], state + {step})
        return state + {step}


class Keep(Sink):
    def write(self, records, batch):
        kept = [[batch.task, *record.values] for record in records]
        (HERE / f"kept-{{batch.number}}-{{batch.task}}").write_text(json.dumps(kept))


def topology():
    builder = TopologyBuilder("words", config={{"topology.max.batch.failures": 2}})
    builder.set_spout("lines", FileSpout(str(HERE / "lines")))
    builder.set_bolt("split", Split(), tasks=2).shuffle_grouping("lines")
    builder.set_bolt("{count}", Count(), tasks=2).fields_grouping("split", "word")
    builder.set_bolt("keep", Keep(), tasks=2).fields_grouping("{count}", "word")
    return builder.create_topology()
"""


class KilledError(Exception):
    """Ends a task as a lost worker does."""


@dataclass(slots=True)
class People:
    """Plays the people and the worker: each report is answered by what is wanted then."""

    work_: Work
    script: Iterator[None]
    wanted: Wanted
    reports: list[Report] = field(default_factory=list)

    def work(self) -> Work:
        return replace(self.work_, wanted=self.wanted)

    def tell(self, report: Report) -> Wanted:
        self.reports.append(Report.of(json.loads(json.dumps(report.document()))))
        next(self.script)
        return self.wanted

    @property
    def last(self) -> Report:
        return self.reports[-1]

    def want(self, **changes: Any) -> None:
        """Change what is wanted."""
        number = self.wanted.number + 1
        if "rebalanced" in changes:
            changes["rebalanced"] = number
        self.wanted = replace(self.wanted, number=number, **changes)


class Place:
    """A topology, its lines, and what its sink has kept."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        (folder / "lines").mkdir()
        (folder / "kept").mkdir()
        self.version = 0
        self.said: list[str] = []
        self.report: Report | None = None
        self.wanted = Wanted(wait_seconds=0)
        self.code = self.coded()

    def coded(self, *, step: int = 1, count: str = "count") -> Code:
        """Return the code of a version that counts by so much."""
        text = WORDS.format(here=str(self.folder), step=step, count=count)
        return Code(main="words_topology.py:topology", files={"words_topology.py": text})

    def add(self, *lines: str) -> None:
        with (self.folder / "lines" / "all.txt").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def run(self, script: Callable[[People], Iterator[None]]) -> People:
        """Run the task until its end, while people do what they do; each `yield` is a report."""
        self.version += 1
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        work = Work(
            name="words",
            version=1,
            generation=1,
            code=self.code,
            wanted=self.wanted,
            report=self.report,
            folder=state,
        )
        people = People(work, iter(()), self.wanted)
        people.script = script(people)
        scratch = self.folder / f"scratch-{self.version}"
        task = TopologyTask(self.spark, work, people, scratch=scratch, say=self.said.append)
        try:
            task.run()
        except (StopIteration, KilledError):
            pass
        finally:
            self.spark = task.spark
            self.report, self.wanted = people.last, people.wanted
        return people

    def counts(self) -> dict[str, int]:
        """Return the highest count of each word."""
        found: dict[str, int] = {}
        for file in self.folder.glob("kept-*"):
            for _, word, count in json.loads(file.read_text()):
                found[word] = max(count, found.get(word, 0))
        return found

    def homes(self) -> dict[str, set[int]]:
        """Return the tasks of the sink that have had each word."""
        found: dict[str, set[int]] = {}
        for file in self.folder.glob("kept-*"):
            for task, word, _ in json.loads(file.read_text()):
                found.setdefault(word, set()).add(task)
        return found


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SparkSession]]:
    with topology_session(tmp_path_factory.mktemp("warehouse")) as made:
        held = [made]
        yield held
        held[0].stop()


@pytest.fixture
def place(session: list[SparkSession], tmp_path: Path) -> Iterator[Place]:
    made = Place(session[0], tmp_path)
    yield made
    session[0] = made.spark


def until(people: People, is_so: Callable[[Report], bool]) -> Iterator[None]:
    """Let reports come until one is so."""
    while not people.reports or not is_so(people.last):
        yield


def for_ever() -> Iterator[None]:
    """Let reports come until the task ends."""
    while True:
        yield


def executed(report: Report, component: str) -> int:
    found = next((each for each in report.components if each.id == component), None)
    return 0 if found is None else sum(found.windows[":all-time"].executed.values())


def test_a_topology_is_paused_rebalanced_renewed_and_killed(place: Place) -> None:
    place.add("the cat", "the dog")

    def script(people: People) -> Iterator[None]:
        yield from until(people, lambda report: executed(report, "keep") == 4)
        assert people.last.state is RunState.RUNNING
        people.want(active=False)
        yield from until(people, lambda report: report.state is RunState.PAUSED)
        place.add("a cat and a dog")
        yield from until(people, lambda report: report.lag == {"lines": 1})
        people.want(active=True)
        yield from until(people, lambda report: executed(report, "keep") == 9)
        people.want(rebalanced=0, tasks={"count": 3, "split": 1, "keep": 5}, cores=2)
        yield from until(people, lambda report: report.obeyed == people.wanted.number)
        assert people.last.cores == 2
        place.add("the end")
        yield from until(people, lambda report: executed(report, "keep") == 11)
        people.work_ = replace(people.work_, version=2, code=place.coded(step=10))
        people.want()
        yield from until(people, lambda report: report.version == 2)
        place.add("the end")
        yield from until(people, lambda report: executed(report, "keep") == 13)
        people.work_ = replace(people.work_, version=3, code=place.coded(count="other"))
        people.want()
        yield from until(people, lambda report: "version 3 can't take over" in report.trouble)
        assert people.last.version == 2
        people.want(killed=True)
        yield from for_ever()

    people = place.run(script)
    assert place.counts() == {"the": 13, "cat": 2, "dog": 2, "a": 2, "and": 1, "end": 11}
    assert not (place.folder / "state").exists()
    assert people.reports[0].state is RunState.STARTING
    assert not people.reports[0].components
    beat = json.loads((place.folder / "scratch-1" / "beat.json").read_text())
    assert (beat["topology"], beat["version"], beat["batch"]) == ("words", 2, people.last.batch)
    states = {report.state for report in people.reports}
    assert states >= {RunState.STARTING, RunState.RUNNING, RunState.PAUSED}
    count = next(each for each in people.last.components if each.id == "count")
    assert count.tasks == 3
    assert "the" in count.hot_key
    acked = next(each for each in people.last.components if each.id == "lines")
    assert acked.windows[":all-time"].acked == {"default": 5}


def test_another_task_goes_on_where_the_former_was_lost(place: Place) -> None:
    place.add("the cat", "the dog")

    def lost(people: People) -> Iterator[None]:
        yield from until(people, lambda report: executed(report, "keep") == 4)
        raise KilledError

    place.run(lost)
    place.add("the end")

    def more(people: People) -> Iterator[None]:
        # The figures go on too.
        yield from until(people, lambda report: executed(report, "keep") == 6)

    place.run(more)
    assert place.counts() == {"the": 3, "cat": 1, "dog": 1, "end": 1}

    shutil.rmtree(place.folder / "state")
    with pytest.raises(WorkFailedError, match="the checkpoints of topology words are gone"):
        place.run(more)


def test_a_batch_that_fails_is_tried_again_and_then_given_up(place: Place) -> None:
    place.add("the cat", "poison")

    def healed(people: People) -> Iterator[None]:
        yield from until(people, lambda report: report.failures == 1)
        assert people.last.state is RunState.WAITING
        assert "split, task" in people.last.trouble
        (place.folder / "cure").touch()
        yield from until(people, lambda report: executed(report, "keep") == 3)

    people = place.run(healed)
    assert people.last.failures == 0
    assert place.counts() == {"the": 1, "cat": 1, "poison": 1}
    (error,) = {(each.component, each.error) for each in people.last.errors}
    assert error[0] == "split"
    assert "ValueError: poison (words_topology.py:" in error[1]

    (place.folder / "cure").unlink()
    place.add("poison")
    with pytest.raises(WorkFailedError, match="a batch has failed 3 times: split, task"):
        place.run(lambda _: for_ever())
