"""People and a worker of a topology's task, played by a test, and a place with its lines."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.model.topologies import Code, Report, Wanted
from orcaflow.topology_orders import Work
from worker.spark.topology.task import TopologyTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        self.skipped_seconds = 0.0
        self.report: Report | None = None
        self.wanted = Wanted(wait_seconds=0)
        self.code = self.coded()
        self.code_version = 1

    def coded(self, *, step: int = 1, count: str = "count", poison: str = "poison") -> Code:
        """Return the code of a version that counts by so much, and fails at a word."""
        text = WORDS.replace('"poison" and', f'"{poison}" and')
        text = text.format(here=str(self.folder), step=step, count=count)
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
            version=self.code_version,
            generation=1,
            code=self.code,
            wanted=self.wanted,
            report=self.report,
            folder=state,
        )
        people = People(work, iter(()), self.wanted)
        people.script = script(people)
        scratch = self.folder / f"scratch-{self.version}"
        task = TopologyTask(
            self.spark,
            work,
            people,
            scratch=scratch,
            say=self.said.append,
            clock=lambda: time.monotonic() + self.skipped_seconds,
        )
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
        for _, word, count in kept(self.folder):
            found[word] = max(count, found.get(word, 0))
        return found

    def written(self) -> Counter[str]:
        """Return how often each word was written, by batches that each count once."""
        return Counter(word for _, word, _ in kept(self.folder))

    def homes(self) -> dict[str, set[int]]:
        """Return the tasks of the sink that have had each word."""
        found: dict[str, set[int]] = {}
        for task, word, _ in kept(self.folder):
            found.setdefault(word, set()).add(task)
        return found


def kept(folder: Path) -> Iterator[tuple[int, str, int]]:
    """Yield all that a sink has written here: its task, a word, its count."""
    for file in folder.glob("kept-*"):
        yield from json.loads(file.read_text(encoding="utf-8"))


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
