"""The queries and levels of topologies, and which versions can follow each other."""

from __future__ import annotations

from common.topology.declaration import Topology, TopologyBuilder
from common.topology.plan import queries_of
from common.topology.succession import heritage, obstacles
from tests.topologies import Count, Forward, Kept, Lines, Split, words


def branches() -> Topology:
    """A spout with a branch that counts and one that does not; both end in one sink."""
    builder = TopologyBuilder("branches")
    builder.set_spout("lines", Lines(), tasks=2)
    builder.set_bolt("split", Split(), tasks=3).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), tasks=4).fields_grouping("split", "word")
    builder.set_bolt("early", Forward(), tasks=2).shuffle_grouping("lines")
    builder.set_bolt("late", Forward(), tasks=5).shuffle_grouping("early")
    kept = builder.set_bolt("kept", Kept(), tasks=2)
    kept.shuffle_grouping("early").shuffle_grouping("count")
    return builder.create_topology()


def test_a_query_begins_at_a_spout_or_at_the_last_stateful_bolt() -> None:
    plain, stateful = queries_of(branches())
    assert (plain.head, plain.spouts, plain.ahead) == ("lines", ("lines",), ())
    assert plain.levels == ({"early": 0}, {"late": 0, "kept": 5})
    assert (stateful.head, stateful.spouts, stateful.ahead) == ("count", ("lines",), ("split",))
    assert stateful.levels == ({"kept": 0},)


def test_each_input_of_a_query_is_an_edge_of_its_own() -> None:
    plain, stateful = queries_of(branches())
    assert [(e.number, e.taken.component, e.bolt, e.level, e.base) for e in plain.edges] == [
        (0, "lines", "early", 1, 0),
        (1, "early", "late", 2, 0),
        (2, "early", "kept", 2, 5),
    ]
    assert [(e.taken.component, e.bolt) for e in stateful.edges] == [
        ("lines", "split"),
        ("split", "count"),
        ("count", "kept"),
    ]


def test_a_bolt_stands_behind_all_that_it_takes() -> None:
    builder = TopologyBuilder("long")
    builder.set_spout("s", Lines())
    builder.set_bolt("a", Forward()).shuffle_grouping("s")
    builder.set_bolt("b", Forward()).shuffle_grouping("a")
    builder.set_bolt("c", Forward()).shuffle_grouping("s").shuffle_grouping("b")
    (query,) = queries_of(builder.create_topology())
    assert query.levels == ({"a": 0}, {"b": 0}, {"c": 0})


def test_a_record_is_sent_to_each_that_takes_it_and_to_all_tasks_of_some() -> None:
    builder = TopologyBuilder("copies")
    builder.set_spout("s", Lines())
    builder.set_bolt("a", Forward(), tasks=3).shuffle_grouping("s")
    builder.set_bolt("b", Forward(), tasks=4).all_grouping("s")
    (query,) = queries_of(builder.create_topology())
    assert query.copies_of("s") == 5
    assert query.copies_of("a") == 0


def test_slots_are_shared_by_type() -> None:
    _, stateful = queries_of(branches())
    assert stateful.slots == ("bigint_0", "string_0")


def changed(**changes: object) -> TopologyBuilder:
    builder = TopologyBuilder("words")
    builder.set_spout(str(changes.get("spout", "lines")), Lines(), tasks=2)
    builder.set_bolt("split", Split(), 2, tasks=3).shuffle_grouping(
        str(changes.get("spout", "lines"))
    )
    count = builder.set_bolt(str(changes.get("count", "count")), Count(), tasks=8)
    count.fields_grouping("split", "word")
    return builder


def test_a_version_with_the_same_states_goes_on() -> None:
    former = heritage(words().create_topology())
    assert list(obstacles(former, heritage(changed().create_topology()))) == []


def test_a_version_with_other_states_or_spouts_says_why_it_can_not_go_on() -> None:
    former = heritage(words().create_topology())
    assert list(obstacles(former, heritage(changed(count="other").create_topology()))) == [
        "the states of count would be lost: there is no query 'count' any more"
    ]
    assert list(obstacles(former, heritage(changed(spout="texts").create_topology()))) == [
        "query 'count' reads texts, and its checkpoint has places of lines"
    ]
    pairs = {
        "count": {"spouts": ["lines"], "stateful": [{"bolt": "count", "key": ["string", "long"]}]}
    }
    (said,) = obstacles(former, pairs)
    assert said == (
        "query 'count' has the states of count by string+long, and its checkpoint those of count"
        " by string"
    )
