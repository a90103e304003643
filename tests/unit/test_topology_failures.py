"""Errors of components and of checkpoints, as people are told of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from common.topology.components import Emit, Outputs, Record, Spout, StatefulBolt
from common.topology.declaration import TopologyBuilder
from common.topology.plan import queries_of
from orcaflow.spouts import ListSpout
from tests.topologies import Kept
from worker.spark.topology import checkpoints
from worker.spark.topology.checkpoints import DamagedCheckpointError
from worker.spark.topology.keyed import _Change, _Kept, _Store
from worker.spark.topology.program import Pickled, Program
from worker.spark.topology.spout_source import SpoutReader, options
from worker.spark.topology.stages import ComponentFailedError, failed_at
from worker.spark.topology.task import reason_of


class Bad(Spout):
    outputs: Outputs = ("line",)

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def ends(self, begun: Mapping[str, int]) -> Mapping[str, int]:
        if self._fault == "ends":
            raise ValueError("no end")
        return {"0": 3}

    def read(self, partition: str, start: int, end: int) -> Iterator[tuple[Any, ...]]:
        yield ("good",)
        if self._fault == "raises":
            json.loads("{")
        yield ("two", "values") if self._fault == "arity" else (7,)


def reader_of(spout: Spout, folder: Path) -> SpoutReader:
    builder = TopologyBuilder("bad")
    builder.set_spout("lines", spout)
    builder.set_bolt("kept", Kept()).shuffle_grouping("lines")
    topology = builder.create_topology()
    (query,) = queries_of(topology)
    file = folder / "program"
    file.write_bytes(Pickled.of(Program(topology, query)).content)
    return SpoutReader(options(file, "lines", scratch=folder, at_once=1))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("arity", "lines, task 0: EmitError: lines: 2 values emitted on 'default', which has 1"),
        ("type", "lines, task 0: EmitError: lines: the field 'line' of the stream 'default': 7"),
        ("raises", "lines, task 0: JSONDecodeError: "),
    ],
)
def test_a_spout_that_fails_is_told_with_its_line(tmp_path: Path, fault: str, told: str) -> None:
    reader = reader_of(Bad(fault), tmp_path)
    (piece,) = reader.partitions({"0": 0}, {"0": 3})
    with pytest.raises(ComponentFailedError) as raised:
        list(reader.read(piece))
    assert str(raised.value).startswith(told)
    assert "(test_topology_failures.py:" in str(raised.value)


def test_a_spout_that_does_not_know_its_end_is_told(tmp_path: Path) -> None:
    reader = reader_of(Bad("ends"), tmp_path)
    with pytest.raises(ComponentFailedError, match="lines, task 0: ValueError: no end"):
        reader.latestOffset({}, ReadAllAvailable())


def test_a_spout_is_read_by_the_pieces_of_its_places(tmp_path: Path) -> None:
    reader = reader_of(ListSpout([(str(each),) for each in range(5)], ("line",)), tmp_path)
    (piece,) = reader.partitions({"0": 1}, {"0": 4})
    assert sum(batch.num_rows for batch in reader.read(piece)) == 3


def test_the_place_of_an_error_is_the_line_of_the_author_and_not_of_a_library() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    assert "(test_topology_failures.py:" in str(failed_at("split", 1, raised.value))


class Values:
    """The state of one key, as Spark's state store has it."""

    def __init__(self) -> None:
        self.value: Any = None

    def get(self) -> Any:
        return self.value

    def update(self, value: Any) -> None:
        self.value = value


class Gather(StatefulBolt):
    outputs = ("word",)

    def initial(self) -> Any:
        return []

    def process(self, record: Record, state: Any, emit: Emit) -> Any:
        state.append(record["word"])
        if record["word"] == "poison":
            raise ValueError("not this one")
        if record["word"] == "lock":
            state.append(threading.Lock())
        return state


def change_of(values: Values) -> _Change:
    return _Change(Gather(), _Store(values, None), _Kept("gather", {}), None, undoes=True)


def a_record(word: str) -> Record:
    return Record((word,), ("word",), "split")


def test_a_record_that_fails_leaves_the_state_as_it_was() -> None:
    values = Values()
    change = change_of(values)
    change.process(a_record("good"))
    for _ in range(3):
        with pytest.raises(ValueError, match="not this one"):
            change.process(a_record("poison"))
    change.process(a_record("better"))
    change.keep()
    assert change_of(values).state == ["good", "better"]


def test_a_state_that_can_not_be_pickled_is_told() -> None:
    change = change_of(Values())
    change.process(a_record("lock"))
    with pytest.raises(TypeError, match="a state of type list can't be kept: cannot pickle"):
        change.keep()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "An error occurred while calling o1.save.\n: x.SparkException: Job aborted\n  at y",
            "x.SparkException: Job aborted",
        ),
        ("Traceback\n  stages.ComponentFailedError: a, task 0: E: f (g.py:1)\n more", "a, task 0"),
        ("Job aborted: Python worker exited unexpectedly (crashed)", "has ended by itself"),
        ("x: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error", "bring back what it was"),
        ("Failed to read log file file:/x/offsets/7. ", "bring back what it was"),
    ],
)
def test_a_reason_is_a_sentence_for_people(text: str, told: str) -> None:
    assert told in reason_of(RuntimeError(text))


class Folder:
    """The folder of a topology that has done batches 0 to 2 of its only query."""

    def __init__(self, path: Path) -> None:
        self.path = path
        heritage = {"count": {"spouts": ["lines"], "stateful": [{"bolt": "count"}]}}
        (path / "heritage.json").write_text(json.dumps(heritage))
        self.checkpoint = path / "checkpoints" / "count"
        (self.checkpoint / "state").mkdir(parents=True)
        (self.checkpoint / "metadata").touch()
        conf = json.dumps({"conf": {"spark.sql.shuffle.partitions": "4"}})
        for log, text in (("offsets", f"v1\n{conf}\n-\n"), ("commits", "v1\n{}")):
            (self.checkpoint / log).mkdir()
            for number in range(3):
                (self.checkpoint / log / str(number)).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_nothing_is_missing_of_a_whole_checkpoint(folder: Folder) -> None:
    assert [*checkpoints.missing(folder.path)] == []
    assert checkpoints.kept_tasks(folder.checkpoint) == 4
    assert not checkpoints.is_open(folder.checkpoint)
    (folder.checkpoint / "commits" / "2").unlink()
    assert checkpoints.is_open(folder.checkpoint)


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("heritage.json", "heritage.json"),
        ("checkpoints", "checkpoints"),
        ("checkpoints/count", "checkpoints"),
        ("checkpoints/count/offsets", "checkpoints"),
        ("checkpoints/count/metadata", "checkpoints/count"),
        ("checkpoints/count/state", "checkpoints/count/state"),
    ],
)
def test_a_part_of_a_checkpoint_that_is_gone_is_missed(
    folder: Folder, gone: str, told: str
) -> None:
    (folder.path / gone).rename(folder.path / "away")
    assert [*checkpoints.missing(folder.path)] == [told]


@pytest.mark.parametrize("text", ["", "v1\n", "v1\nnone\n", 'v1\n{"conf": 3}\n', "v1\n{}\n-\n"])
def test_a_log_that_is_damaged_is_told_with_the_cure(folder: Folder, text: str) -> None:
    (folder.checkpoint / "offsets" / "2").write_text(text)
    with pytest.raises(DamagedCheckpointError, match=r"offsets/2 is damaged; bring back"):
        checkpoints.kept_tasks(folder.checkpoint)
