"""Components of a topology that do what no component should: what is left of their batches.

Each start of a query takes Spark seconds, so without ORCAFLOW_REPEATS there is one fault of each kind,
at one component. With it, as in `bin/test --long`, all are there, so many times each.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from common.model.topologies import Code, Report, Wanted
from common.topology.declaration import Topology, TopologyBuilder
from orcaflow.spouts import ListSpout
from tests.integration.topology_people import People, Place, executed, for_ever, until
from tests.integration.topology_stage import Stage, topology_session
from tests.system.cluster import until as until_so
from tests.topologies import Count, Split
from worker.spark.diagnosis.failures import WorkFailedError
from worker.spark.topology.task import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

IS_LONG = "ORCAFLOW_REPEATS" in os.environ
REPEATS = int(os.environ.get("ORCAFLOW_REPEATS", "1"))
Fault = TypeVar("Fault")


def chosen(faults: Iterable[Fault]) -> list[Fault]:
    """Return the faults of this run: the first, or all of them in a long one."""
    found = list(faults)
    return found if IS_LONG else found[:1]


FAULTY = """
import json
import os
import sys
from pathlib import Path

from orcaflow.spouts import FileSpout
from orcaflow.topology import Bolt, Sink, StatefulBolt, TopologyBuilder

HERE = Path({here!r})


def loops():
    while True:
        pass


def sleeps():
    time.sleep(10_000)


def exits():
    os._exit(3)


def leaves():
    sys.exit("enough")


def fills():
    bytearray(1 << 50)


def work(component, first, second):
    fault = globals().get(first)
    if second != component or fault is None:
        return
    pid = HERE / f"pid-{{component}}"
    if not (HERE / "cure").exists():
        pid.write_text(str(os.getpid()))
        fault()
    former = pid.read_text()
    if former != str(os.getpid()) and Path("/proc", former).exists():
        (HERE / "overlap").write_text(former)


class Split(Bolt):
    outputs = ("word", "next")

    def process(self, record, emit):
        with open(HERE / "effects", "a") as file:
            file.write(record["line"] + "\\n")
        words = [*record["line"].split(), ""]
        work("split", *words[:2])
        for word, following in zip(words, words[1:]):
            emit(word, following)


class Count(StatefulBolt):
    outputs = ("word", "next", "count long")

    def initial(self):
        return 0

    def process(self, record, state, emit):
        work("count", record["word"], record["next"])
        emit(*record.values, state + 1)
        return state + 1


class Keep(Sink):
    def write(self, records, batch):
        for record in records:
            work("keep", record["word"], record["next"])
        kept = [[batch.task, record["word"], record["count"]] for record in records]
        (HERE / f"kept-{{batch.number}}-{{batch.task}}").write_text(json.dumps(kept))


def topology():
    builder = TopologyBuilder("words", config={config!r})
    builder.set_spout("lines", FileSpout(str(HERE / "lines")))
    builder.set_bolt("split", Split(), tasks=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), tasks=2).fields_grouping("split", "word")
    builder.set_bolt("keep", Keep(), tasks=2).fields_grouping("count", "word")
    return builder.create_topology()
"""


class Faulty(Place):
    """A topology whose components do what a line says, unless there is a cure."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.lines: list[str] = []
        self.configure()

    def configure(self, **config: object) -> None:
        found = {f"topology.{key.replace('_', '.')}": value for key, value in config.items()}
        text = FAULTY.format(here=str(self.folder), config=found)
        self.code = Code(main="faulty.py:topology", files={"faulty.py": text})

    def add(self, *lines: str) -> None:
        super().add(*lines)
        self.lines += lines

    @property
    def words(self) -> Counter[str]:
        return Counter(word for line in self.lines for word in line.split())

    def await_all(self, people: People) -> Iterator[None]:
        yield from until(people, lambda report: executed(report, "keep") == self.words.total())

    def check(self) -> None:
        """Each word was counted once and written once, and each line was seen by a bolt."""
        assert self.counts() == self.words
        assert self.written() == self.words
        seen = Counter((self.folder / "effects").read_text().splitlines())
        assert seen >= Counter(self.lines)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with topology_session(tmp_path_factory.mktemp("warehouse")) as made:
        yield made


@pytest.fixture
def place(session: SparkSession, tmp_path: Path) -> Faulty:
    return Faulty(session, tmp_path)


def is_failing(report: Report) -> bool:
    return report.failures > 0


TOLD = {
    "loops": "a batch of query count took longer than 600 s",
    "exits": "a process of its components has ended by itself",
    "leaves": "{}, task [01]: SystemExit: enough \\(faulty.py:",
    "fills": "{}, task [01]: MemoryError",
}


def has_begun(place: Faulty, component: str) -> bool:
    """Return True once a component does what it should not."""
    file = place.folder / f"pid-{component}"
    return file.exists() and file.read_text() != ""


@pytest.mark.parametrize("fault", chosen(TOLD))
def test_a_batch_that_a_component_spoils_is_done_once_the_component_is_well(
    place: Faulty, fault: str
) -> None:
    cure = place.folder / "cure"

    def script(people: People) -> Iterator[None]:
        for _ in range(REPEATS):
            for component in chosen(("count", "split", "keep")):
                place.add("the cat", f"{fault} {component}", "the dog")
                if fault == "loops":
                    yield from until(people, lambda _, at=component: has_begun(place, at))
                    place.skipped_seconds += 601
                yield from until(people, is_failing)
                assert re.search(TOLD[fault].format(component), people.last.trouble)
                cure.touch()
                # The next try is made at once.
                place.skipped_seconds += 60
                yield from place.await_all(people)
                assert people.last.failures == 0
                cure.unlink()
                (place.folder / f"pid-{component}").unlink()
        people.want(killed=True)
        yield from for_ever()

    place.run(script)
    place.check()
    assert not (place.folder / "overlap").exists()


@pytest.mark.parametrize("component", chosen(("split", "count", "keep")))
def test_a_kill_ends_a_component_that_loops(place: Faulty, component: str) -> None:
    pid = place.folder / f"pid-{component}"
    for _ in range(REPEATS):
        place.add(f"loops {component}")

        def script(people: People) -> Iterator[None]:
            yield from until(people, lambda _: has_begun(place, component))
            people.want(killed=True)
            yield from for_ever()

        place.run(script)
        # Spark ends a process that does not listen a few seconds after its task.
        until_so(lambda: not Path("/proc", pid.read_text()).exists(), within=60)
        pid.unlink()
        place.wanted, place.report = Wanted(wait_seconds=0), None


PARTS = ("state", "state/heritage.json", "state/checkpoints", "state/checkpoints/count",
         "state/checkpoints/count/offsets", "state/checkpoints/count/state")  # fmt: skip


def test_a_topology_whose_checkpoints_are_gone_is_refused_until_they_are_back(
    place: Faulty,
) -> None:
    for _ in range(REPEATS):
        place.add("the cat", "the dog")

        def all_done(people: People) -> Iterator[None]:
            yield from place.await_all(people)

        place.run(all_done)
        for part in PARTS:
            (place.folder / part).rename(place.folder / "gone")
            with pytest.raises(WorkFailedError, match=r"are gone from .*: bring back"):
                place.run(all_done)
            if (place.folder / part).exists():
                shutil.rmtree(place.folder / part)
            (place.folder / "gone").rename(place.folder / part)
    place.add("the end")
    place.run(all_done)
    place.check()


TEXT = [("the cat and the dog",), ("a cat",), ("the end",), ("and so on and on",)] * 3


def counting(stage: Stage, text: Sequence[tuple[str]]) -> Topology:
    builder = TopologyBuilder("words", config={"topology.max.spout.pending": 4})
    builder.set_spout("lines", ListSpout(text, ("line",), partitions=2))
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    builder.set_bolt("count", Count()).fields_grouping("split", "word")
    builder.set_bolt("seen", stage.witness("seen")).fields_grouping("count", "word")
    return builder.create_topology()


@pytest.fixture(scope="module")
def counted(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a topology that has counted in several batches."""
    stage = Stage(session, tmp_path_factory.mktemp("counted"))
    stage.run(counting(stage, TEXT))
    return stage.folder


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def garbled(file: Path) -> None:
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(each ^ 0xFF for each in content[middle : middle + 8])
    file.write_bytes(content)


def removed(file: Path) -> None:
    file.unlink()


NEWEST_STATE = "count/state/0/0/*.changelog"
DAMAGES = [
    (NEWEST_STATE, cut),
    (NEWEST_STATE, emptied),
    (NEWEST_STATE, garbled),
    (NEWEST_STATE, removed),
    ("count/offsets/*", cut),
    ("count/offsets/*", emptied),
    ("count/offsets/*", garbled),
    ("count/commits/*", emptied),
]


@pytest.mark.parametrize(("pattern", "damage"), chosen(DAMAGES))
def test_a_damaged_checkpoint_is_told_and_nothing_is_counted_anew(
    session: SparkSession, counted: Path, tmp_path: Path, pattern: str, damage: Any
) -> None:
    for number in range(REPEATS):
        # Spark knows states that it has read by their folder.
        folder = tmp_path / str(number)
        folder.mkdir()
        stage = Stage(session, folder)
        shutil.copytree(counted / "checkpoints", folder / "checkpoints")
        files = [each for each in (folder / "checkpoints").glob(pattern) if each.name[0] != "."]
        newest = max(files, key=lambda file: int(file.stem))
        # Not every file system keeps such sums, by which Hadoop's own would tell.
        newest.with_name(f".{newest.name}.crc").unlink()
        damage(newest)
        with pytest.raises(Exception, match=r".") as raised:
            stage.run(counting(stage, TEXT * 2))
        assert stage.received("seen") == {}
        assert "bring back what it was from a copy, or kill the" in reason_of(raised.value)
