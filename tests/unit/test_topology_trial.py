"""Topologies run in this process: what each task received and emitted."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from common.topology.checking import InvalidTopologyError
from common.topology.components import (
    FORGET,
    ArrowBolt,
    Batch,
    Bolt,
    Emit,
    EmitError,
    EmitRows,
    Outputs,
    Record,
    Rows,
    Spout,
)
from common.topology.declaration import Topology, TopologyBuilder
from common.topology.hashing import spark_hash, storm_hash
from common.topology.trial import On
from tests.topologies import ByLength, Count, Forward, Kept, Lines, Numbers, Split, Switch, words

TEXT = [("the cat",), ("the dog",), ("",), ("a cat and the dog",)]


def forwards(
    tasks: int, spouts: int = 1, spout: Spout | None = None
) -> tuple[TopologyBuilder, int]:
    builder = TopologyBuilder("t")
    builder.set_spout("s", spout or Lines(), tasks=spouts)
    return builder, tasks


def counts(topology: Topology, bolt: str, given: list[tuple[object, ...]]) -> list[int]:
    """Count the records that each task of a bolt received."""
    trial = topology.test({"s": given})
    return [len(task.received) for task in trial.tasks(bolt)]


def test_words_are_counted_each_by_one_task() -> None:
    trial = words().create_topology().test({"lines": TEXT})
    found = [state for task in trial.tasks("count") for state in task.states.items()]
    assert dict(found) == {("the",): 3, ("cat",): 2, ("dog",): 2, ("a",): 1, ("and",): 1}
    assert len(found) == 5
    assert trial.emitted("split", "errors") == [("", "empty")]
    assert Counter(word for word, _ in trial.emitted("count")) == Counter(
        word for (word,) in trial.received("count")
    )


@pytest.mark.parametrize(("hashing", "hashed"), [("spark", spark_hash), ("storm", storm_hash)])
def test_fields_go_to_the_task_that_their_hash_names(hashing: str, hashed: object) -> None:
    builder = TopologyBuilder("t", hash=hashing)  # type: ignore[arg-type]
    builder.set_spout("s", Lines(), tasks=3)
    builder.set_bolt("b", Forward(), tasks=5).fields_grouping("s", "line")
    given = [(f"line {number}",) for number in range(40)]
    trial = builder.create_topology().test({"s": given})
    for task, found in enumerate(trial.tasks("b")):
        assert all(hashed(record.values) % 5 == task for record in found.received)  # type: ignore[operator]
    assert sorted(trial.received("b")) == sorted(given)


@pytest.mark.parametrize("cycles", [1, 2, 7])
def test_a_shuffle_gives_each_task_one_record_of_each_cycle(cycles: int) -> None:
    builder, tasks = forwards(6)
    builder.set_bolt("b", Forward(), tasks=tasks).shuffle_grouping("s")
    topology = builder.create_topology()
    assert counts(topology, "b", [("x",)] * (6 * cycles)) == [cycles] * 6


def test_the_cycles_of_a_shuffle_differ_in_their_order() -> None:
    builder, tasks = forwards(5, spout=Numbers())
    builder.set_bolt("b", Forward(), tasks=tasks).shuffle_grouping("s")
    trial = builder.create_topology().test({"s": [(number,) for number in range(50)]})
    reached = {
        record.values[0]: task
        for task, found in enumerate(trial.tasks("b"))
        for record in found.received
    }
    orders = {tuple(reached[cycle * 5 + place] for place in range(5)) for cycle in range(10)}
    assert len(orders) > 1


def test_global_all_and_none() -> None:
    builder, _ = forwards(1)
    builder.set_bolt("lowest", Forward(), tasks=3).global_grouping("s")
    builder.set_bolt("each", Forward(), tasks=3).all_grouping("s")
    builder.set_bolt("any", Forward(), tasks=3).none_grouping("s")
    topology = builder.create_topology()
    given = [("x",)] * 30
    assert counts(topology, "lowest", given) == [30, 0, 0]
    assert counts(topology, "each", given) == [30, 30, 30]
    assert sum(counts(topology, "any", given)) == 30


@pytest.mark.parametrize(
    ("spouts", "tasks", "expected"), [(4, 4, [3, 3, 3, 3]), (4, 2, [6, 6]), (2, 6, [2] * 6)]
)
def test_local_or_shuffle_moves_nothing_where_it_can(
    spouts: int, tasks: int, expected: list[int]
) -> None:
    builder, _ = forwards(tasks, spouts, Numbers())
    builder.set_bolt("b", Forward(), tasks=tasks).local_or_shuffle_grouping("s")
    trial = builder.create_topology().test({"s": [(number,) for number in range(12)]})
    assert [len(task.received) for task in trial.tasks("b")] == expected
    if spouts == tasks:
        assert all(
            record.task == task
            for task, found in enumerate(trial.tasks("b"))
            for record in found.received
        )


def test_a_partial_key_has_two_tasks_and_shares_its_load() -> None:
    builder, _ = forwards(1)
    builder.set_bolt("b", Forward(), tasks=8).partial_key_grouping("s", "line")
    topology = builder.create_topology()
    for key in range(20):
        found = [number for number in counts(topology, "b", [(f"key {key}",)] * 10) if number]
        assert found == [5, 5]


class Astray:
    def choose(self, record: Record, tasks: int) -> tuple[int, ...]:
        return (tasks,)


class Odd:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def choose(self, record: Record, tasks: int) -> Any:
        return self.answer


def test_a_grouping_of_ones_own_may_copy_or_drop_and_is_held_to_the_tasks() -> None:
    builder, _ = forwards(1)
    builder.set_bolt("b", Forward(), tasks=3).custom_grouping("s", ByLength())
    topology = builder.create_topology()
    assert counts(topology, "b", [("",), ("a",), ("bb",), ("ccc",), ("dddd",)]) == [1, 2, 1]

    builder.set_bolt("c", Forward(), tasks=3).custom_grouping("s", Astray())
    with pytest.raises(
        EmitError, match=r"Astray has chosen \(3,\) for 'c', whose tasks are 0 to 2"
    ):
        builder.create_topology().test({"s": [("a",)]})


def test_a_direct_record_goes_where_its_emitter_says_or_nowhere() -> None:
    builder, _ = forwards(1, spout=Numbers())
    builder.set_bolt("switch", Switch()).shuffle_grouping("s")
    builder.set_bolt("b", Forward(), tasks=3).direct_grouping("switch", "out")
    assert counts(builder.create_topology(), "b", [(0,), (2,), (2,), (3,), (-1,)]) == [1, 0, 2]


class Doubling(Split):
    def process(self, record: Record, emit: Emit) -> None:
        emit(record["line"], record["line"])


class Elsewhere(Split):
    def process(self, record: Record, emit: Emit) -> None:
        emit(record["line"], stream="else")


class Pointing(Split):
    def process(self, record: Record, emit: Emit) -> None:
        emit.direct(0, record["line"])


class Aimless(Switch):
    def process(self, record: Record, emit: Emit) -> None:
        emit(1, stream="out")


@pytest.mark.parametrize(
    ("bolt", "said"),
    [
        (Doubling(), "b: 2 values emitted on 'default', which has 1 fields: word"),
        (Elsewhere(), "b: it declares no stream 'else'; it declares default, errors"),
        (Pointing(), "b: the stream 'default' is not direct"),
        (Aimless(), "b: the stream 'out' is direct; emit by `emit.direct(task, …)`"),
    ],
)
def test_an_emission_that_was_not_declared_is_told(bolt: Bolt, said: str) -> None:
    builder, _ = forwards(1)
    builder.set_bolt("b", bolt).shuffle_grouping("s")
    with pytest.raises(EmitError) as caught:
        builder.create_topology().test({"s": [("x",)]})
    assert str(caught.value) == said


def test_a_sink_gets_the_share_of_each_task_with_the_batch() -> None:
    Kept.written.clear()
    builder, _ = forwards(1, 2, Numbers())
    builder.set_bolt("kept", Kept(), tasks=2).shuffle_grouping("s")
    builder.create_topology().test({"s": [(number,) for number in range(4)]})
    assert {batch for batch, _ in Kept.written} == {Batch("t", 0, task=0), Batch("t", 0, task=1)}
    assert sorted(values for _, values in Kept.written) == [(0,), (1,), (2,), (3,)]


def test_inputs_of_named_streams_and_of_unknown_spouts() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    topology = builder.create_topology()
    with pytest.raises(EmitError, match="s: it declares no stream 'late'; it declares default"):
        topology.test({"s": [On("late", ("x",))]})
    with pytest.raises(EmitError, match="there is no spout 'b'"):
        topology.test({"b": []})


def test_a_record_names_the_fields_that_it_has() -> None:
    record = Record((1, 2), ("a", "b"), "s")
    assert (record["b"], list(record)) == (2, [1, 2])
    with pytest.raises(KeyError, match="no field 'c' in its stream 'default'; there are a, b"):
        record["c"]


def test_the_first_count_of_a_key_comes_from_initial() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Words())
    builder.set_bolt("count", Count(first=10)).fields_grouping("s", "word")
    trial = builder.create_topology().test({"s": [("a",), ("a",)]})
    assert trial["count", 0].states == {("a",): 12}


@pytest.mark.parametrize("answer", [None, 1, ["0"], [[0]]])
def test_a_grouping_that_answers_no_tasks_is_told(answer: Any) -> None:
    builder, _ = forwards(1)
    builder.set_bolt("b", Forward(), tasks=2).custom_grouping("s", Odd(answer))
    with pytest.raises(EmitError, match="Odd has chosen"):
        builder.create_topology().test({"s": [("a",)]})


@pytest.mark.parametrize("task", ["0", None, 1.0, True])
def test_a_direct_record_names_its_task_by_a_number(task: Any) -> None:
    builder, _ = forwards(1, spout=Numbers())
    builder.set_bolt("switch", Astern(task)).shuffle_grouping("s")
    with pytest.raises(EmitError, match="switch: a task is a number, not"):
        builder.create_topology().test({"s": [(1,)]})


class Astern(Switch):
    def __init__(self, task: Any) -> None:
        self.task = task

    def process(self, record: Record, emit: Emit) -> None:
        emit.direct(self.task, record.values[0], stream="out")


@pytest.mark.parametrize(
    ("declared", "value", "said"),
    [
        ("a", 5, "5 is no string, but of type int"),
        ("a long", "5", "'5' is no long, but of type str"),
        ("a long", True, "True is no long, but of type bool"),
        ("a long", 1 << 63, "9223372036854775808 has more than 64 bits"),
        ("a double", "x", "'x' is no double, but of type str"),
        ("a boolean", 1, "1 is no boolean, but of type int"),
        ("a binary", "x", "'x' is no binary, but of type str"),
        ("a timestamp", datetime(2026, 1, 1), "datetime.datetime(2026, 1, 1, 0, 0) has no zone"),  # noqa: DTZ001
        ("a date", datetime(2026, 1, 1, tzinfo=UTC), "is no date, but of type datetime"),
    ],
)
def test_a_value_of_another_type_is_told(declared: str, value: Any, said: str) -> None:
    with pytest.raises(EmitError, match=re.escape(said)):
        emitted(declared, value)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("a", "x"),
        ("a", None),
        ("a long", -(1 << 63)),
        ("a double", 5),
        ("a double", 0.5),
        ("a boolean", False),
        ("a binary", b"x"),
        ("a timestamp", datetime(2026, 1, 1, tzinfo=UTC)),
        ("a date", date(2026, 1, 1)),
        ("a object", ["x", {}]),
    ],
)
def test_a_value_is_of_its_type_or_missing(declared: str, value: Any) -> None:
    assert emitted(declared, value) == [(value,)]


def emitted(declared: str, value: Any) -> list[tuple[Any, ...]]:
    """Have a spout emit a value on a field so declared."""
    spout = Lines()
    spout.outputs = (declared,)  # type: ignore[misc]
    builder, _ = forwards(1, spout=spout)
    return builder.create_topology().test({"s": [(value,)]}).emitted("s")


def test_a_key_that_no_hash_knows_is_refused() -> None:
    spout = Lines()
    spout.outputs = ("line object",)  # type: ignore[misc]
    builder, _ = forwards(1, spout=spout)
    builder.set_bolt("b", Forward()).fields_grouping("s", "line")
    with pytest.raises(InvalidTopologyError, match="is a object, which can't be grouped by"):
        builder.create_topology()


class Doubled(ArrowBolt):
    outputs: ClassVar[Outputs] = {"default": ("line long",), "names": ("name",)}

    def process(self, rows: Rows, emit: EmitRows) -> None:
        numbers = rows.rows.column("line")
        emit(pa.RecordBatch.from_arrays([pc.multiply(numbers, 2)], names=["line"]))
        named = pa.table({"name": pc.cast(numbers, pa.string())})
        emit(named, stream="names")


def test_an_arrow_bolt_takes_and_emits_tables() -> None:
    builder, _ = forwards(1, spout=Numbers())
    builder.set_bolt("double", Doubled(), tasks=2).shuffle_grouping("s")
    builder.set_bolt("b", Forward()).global_grouping("double")
    trial = builder.create_topology().test({"s": [(number,) for number in range(4)]})
    assert sorted(trial.received("b")) == [(0,), (2,), (4,), (6,)]
    assert sorted(trial.emitted("double", "names")) == [("0",), ("1",), ("2",), ("3",)]


class Wild(ArrowBolt):
    outputs = ("line long",)

    def __init__(self, made: Any) -> None:
        self.made = made

    def process(self, rows: Rows, emit: EmitRows) -> None:
        emit(self.made)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ([1], "an Arrow bolt emits tables of Arrow, not [1]"),
        (pa.table({"other": [1]}), "columns other emitted on 'default', which has line"),
        (pa.table({"line": ["x"]}), "rows emitted on 'default': Failed to parse string: 'x'"),
    ],
)
def test_a_table_that_was_not_declared_is_told(made: Any, said: str) -> None:
    builder, _ = forwards(1, spout=Numbers())
    builder.set_bolt("wild", Wild(made)).shuffle_grouping("s")
    with pytest.raises(EmitError, match=re.escape(f"wild: {said}")):
        builder.create_topology().test({"s": [(1,)]})


class Once(Count):
    def process(self, record: Record, state: int, emit: Emit) -> Any:
        return FORGET if state else state + 1


def test_a_key_can_be_forgotten() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Words())
    builder.set_bolt("once", Once()).fields_grouping("s", "word")
    trial = builder.create_topology().test({"s": [("a",), ("b",), ("a",)]})
    assert trial["once", 0].states == {("b",): 1}


class Words(Lines):
    outputs = ("word",)
