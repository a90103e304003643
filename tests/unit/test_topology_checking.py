"""A topology's mistakes are all told at once, each with its place."""

from __future__ import annotations

from typing import Any

import pytest

from common.topology.checking import InvalidTopologyError
from common.topology.components import Bolt, Sink, Spout, StatefulBolt, Stream
from common.topology.config import notes_of_config
from common.topology.declaration import TopologyBuilder
from tests.topologies import ByLength, Count, Forward, Kept, Lines, Split, Switch, words


def mistakes(builder: TopologyBuilder) -> list[str]:
    with pytest.raises(InvalidTopologyError) as caught:
        builder.create_topology()
    return list(caught.value.mistakes)


def test_a_good_topology_has_the_parts_that_were_declared() -> None:
    topology = words().create_topology()
    assert [(part.id, part.executors, part.tasks) for part in topology.parts] == [
        ("lines", 1, 2),
        ("split", 2, 3),
        ("count", 1, 4),
    ]


def test_all_mistakes_are_told_at_once() -> None:
    builder = TopologyBuilder("9 lives")
    builder.set_spout("lines", Lines(), 3, tasks=2)
    builder.set_bolt("split", Split()).shuffle_grouping("line").shuffle_grouping("lines", "all")
    builder.set_bolt("count", Count()).fields_grouping("split", ["wort"])
    builder.set_bolt("idle", Forward())
    found = mistakes(builder)
    assert [mistake.partition(": ")[0] for mistake in found] == [
        "name",
        "lines",
        "split",
        "split",
        "count",
        "idle",
    ]
    assert "3 executors are more than its 2 tasks" in found[1]
    assert "there is no component 'line'; there are lines, split" in found[2]
    assert "'lines' has no stream 'all'; it declares default" in found[3]
    assert "'split' has no field 'wort' in its stream 'default'; it has word" in found[4]
    assert "it takes no stream" in found[5]


class Doubled(Spout):
    outputs = ("a", "b", "a")


class Nameless(Spout):
    outputs = ("a b",)


class UnpicklableChooser(ByLength):
    def __init__(self) -> None:
        self.made = lambda: None


class Talking(Kept):
    outputs = ("a",)


class Unpicklable(Forward):
    def __init__(self) -> None:
        self.made = lambda: None


class Odd(Spout):
    """Declares whatever it is given."""

    def __init__(self, outputs: Any) -> None:
        self.outputs = outputs  # type: ignore[misc]


@pytest.mark.parametrize(
    ("spout", "said"),
    [
        (Doubled(), "the field 'a' is there 2 times"),
        (Nameless(), "the type 'b' of the field 'a' is unknown; there are string, long"),
        (object(), "object is neither a Spout, a Bolt, an ArrowBolt, a StatefulBolt nor a Sink"),
    ],
)
def test_a_component_that_can_not_be_one(spout: Any, said: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", spout)
    assert any(said in mistake for mistake in mistakes(builder))


@pytest.mark.parametrize(
    ("bolt", "said"),
    [
        (Talking(), "a sink emits nothing; Talking.outputs must be empty"),
        (Unpicklable(), "the object of Unpicklable can't be pickled"),
    ],
)
def test_a_bolt_that_can_not_be_one(bolt: Any, said: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    builder.set_bolt("b", bolt).shuffle_grouping("s")
    (mistake,) = mistakes(builder)
    assert mistake.startswith("b: ")
    assert said in mistake


@pytest.mark.parametrize("outputs", [5, (1, 2), {"default": 5}, {"default": [["a"]]}, {7: ["a"]}])
def test_outputs_that_are_none_are_told(outputs: Any) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Odd(outputs))
    builder.set_bolt("b", Forward()).fields_grouping("s", "a")
    found = mistakes(builder)
    assert found[0].startswith("s: "), found


@pytest.mark.parametrize("fields", [[1], [["a"]], [None]])
def test_fields_to_group_by_that_are_none_are_told(fields: Any) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    builder.set_bolt("b", Forward()).fields_grouping("s", fields)
    (mistake,) = mistakes(builder)
    assert mistake.startswith("b: input 1: 's' has no field ")


@pytest.mark.parametrize("base", [Bolt, StatefulBolt, Sink])
def test_a_component_without_its_method_can_not_be_made(base: Any) -> None:
    with pytest.raises(TypeError, match=r"process|write"):
        type("Unfinished", (base,), {})()


def test_a_stream_is_taken_once_by_a_bolt() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    builder.set_bolt("b", Forward()).shuffle_grouping("s").all_grouping("s")
    assert mistakes(builder) == ["b: input 2: it takes the stream 'default' of 's' already"]


@pytest.mark.parametrize("number", [0, -1, 1_001, True, 2.0, "2"])
def test_a_number_of_tasks_that_is_none(number: Any) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines(), tasks=number)
    (mistake,) = mistakes(builder)
    assert "tasks must be a number from 1 to 1,000" in mistake


@pytest.mark.parametrize("wrong", ["md5", ["storm"], None])
def test_an_unknown_hash_is_told(wrong: Any) -> None:
    builder = TopologyBuilder("t", hash=wrong)
    builder.set_spout("s", Lines())
    assert mistakes(builder) == [f"hash: {wrong!r} is unknown; there are spark and storm"]


@pytest.mark.parametrize("name", ["", "__ack", "a b", "é", "a" * 101, "\u202eabc", "a\n", 7])
def test_a_name_that_is_none(name: Any) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout(name, Lines())
    assert any("this id is none" in mistake for mistake in mistakes(builder))


def test_an_id_is_taken_once() -> None:
    builder = words()
    builder.set_bolt("split", Forward()).shuffle_grouping("lines")
    (mistake,) = mistakes(builder)
    assert mistake == "split: this id is taken; each spout and bolt needs its own"


def test_a_topology_without_a_spout_and_with_a_cycle() -> None:
    builder = TopologyBuilder("t")
    builder.set_bolt("a", Forward()).shuffle_grouping("b")
    builder.set_bolt("b", Forward()).shuffle_grouping("a")
    none, cycle = mistakes(builder)
    assert none.startswith("spouts: there is none")
    assert cycle == "a cycle: 'a' → 'b' → 'a'; Spark's plans have none"


def test_direct_streams_and_direct_groupings_belong_together() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    builder.set_bolt("switch", Switch()).shuffle_grouping("s")
    builder.set_bolt("plain", Forward()).shuffle_grouping("switch", "out")
    builder.set_bolt("eager", Forward()).direct_grouping("s")
    builder.set_bolt("right", Forward()).direct_grouping("switch", "out")
    plain, eager = mistakes(builder)
    assert "is direct: only `direct_grouping` takes it" in plain
    assert "is not direct; declare it as Stream(…, direct=True)" in eager


def test_a_stateful_bolt_takes_streams_by_fields_alone() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    builder.set_bolt("count", Count()).shuffle_grouping("s")
    (mistake,) = mistakes(builder)
    assert "take the stream by `fields_grouping`" in mistake


def test_a_stateful_bolt_behind_a_fork_is_refused_unless_the_fork_is_a_spout() -> None:
    builder = words()
    builder.set_bolt("again", Count()).fields_grouping("lines", "line")
    builder.create_topology()
    builder.set_bolt("log", Kept()).shuffle_grouping("split")
    (mistake,) = mistakes(builder)
    assert mistake.startswith("count: a stateful bolt behind 'split'")


class Paired(Spout):
    outputs = {"one": Stream(("a",)), "two": Stream(("a", "b"))}  # noqa: RUF012


def test_a_key_has_one_number_of_fields() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Paired())
    count = builder.set_bolt("count", Count())
    count.fields_grouping("s", "a", "one").fields_grouping("s", ["a", "b"], "two")
    assert mistakes(builder) == ["count: its inputs are grouped by different numbers of fields"]


def test_a_grouping_of_ones_own_needs_a_method() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    builder.set_bolt("b", Forward()).custom_grouping("s", ByLength())
    builder.create_topology()
    builder.set_bolt("c", Forward()).custom_grouping("s", object())  # type: ignore[arg-type]
    assert mistakes(builder) == ["c: input 1: object has no method `choose(record, tasks)`"]


def test_a_grouping_of_ones_own_is_pickled_too() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    builder.set_bolt("b", Forward()).custom_grouping("s", UnpicklableChooser())
    (mistake,) = mistakes(builder)
    assert mistake.startswith("b: input 1: the object of UnpicklableChooser can't be pickled")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"topology.on.eror": "skip"}, "config: 'topology.on.eror' is unknown; there are topology"),
        ({"topology.on.error": "ignore"}, "must be fail, skip, dead_letter, not 'ignore'"),
        ({"topology.max.spout.pending": 0}, "must be a whole number from 1 to 100,000,000, not 0"),
        ({"topology.max.spout.pending": True}, "not True"),
        ({"topology.disable.loadaware.messaging": "no"}, "must be true or false, not 'no'"),
        ({"topology.disable.loadaware.messaging": 0}, "must be true or false, not 0"),
        ({5: 1}, "config: 5 is no name of a setting"),
    ],
)
def test_a_setting_that_is_none_is_told(config: Any, said: str) -> None:
    builder = TopologyBuilder("t", config=config)
    builder.set_spout("s", Lines())
    (mistake,) = mistakes(builder)
    assert said in mistake


def test_settings_of_components_and_of_storm() -> None:
    builder = TopologyBuilder("t", config={"topology.workers": 3, "mine": object})
    builder.set_spout("s", Lines(), config={"topology.max.spout.pending": 5})
    builder.create_topology()
    builder.set_bolt("b", Forward(), config={"topology.batch.interval.millis": 5}).global_grouping(
        "s"
    )
    (mistake,) = mistakes(builder)
    assert mistake.startswith("b: config: topology.batch.interval.millis is a setting of the topo")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("topology.tick.tuple.freq.secs", "a StatefulBolt says by `due` when its key is woken"),
        ("topology.bolts.window.length.count", "windows are states of a StatefulBolt"),
        ("topology.tasks", "give the tasks of each component"),
        ("topology.trident.batch.emit.interval.millis", "write the topology with spouts and bolts"),
        ("topology.environment", "an environment gives variables"),
    ],
)
def test_a_setting_of_storm_that_changes_results_is_refused_with_the_cure(
    key: str, said: str
) -> None:
    builder = TopologyBuilder("t", config={key: 1})
    builder.set_spout("s", Lines())
    (mistake,) = mistakes(builder)
    assert mistake.startswith(f"config: {key!r} of Storm is not supported: {said}")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("topology.acker.executors", "has no effect here: a committed batch is the ack"),
        ("topology.workers", "submit it with --cores and --memory"),
        ("topology.worker.childopts", "submit it with --memory"),
        ("topology.kryo.register", "has no effect here: declared types give the format"),
        ("topology.bolts.outgoing.overflow.buffer.enable", "Spark moves records in batches"),
        ("topology.message.timeout.secs", "limits a whole batch; in Storm, a single record"),
        ("topology.max.spout.pending", "limits the records of each spout in a batch"),
        ("nimbus.host", "it is a setting of a Storm cluster"),
        ("topology.batch.interval.millis", ""),
        ("topology.disable.loadaware.messaging", ""),
        ("mine.workers", ""),
        ("supervisors", ""),
    ],
)
def test_a_setting_without_its_effect_in_storm_has_a_note(key: str, said: str) -> None:
    found = list(notes_of_config("config", [key]))
    assert len(found) == bool(said)
    assert all(said in each for each in found)


def test_stateful_bolts_of_one_chain_share_their_number_of_tasks() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("s", Lines())
    builder.set_bolt("first", Count(), tasks=2).fields_grouping("s", "line")
    builder.set_bolt("second", Count(), tasks=3).fields_grouping("first", "word")
    (mistake,) = mistakes(builder)
    assert mistake.startswith("second: the stateful bolts before it have another number of tasks")
