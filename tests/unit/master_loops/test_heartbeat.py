"""The master's heartbeat: its return after a lost session, and its patience with the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import Heartbeat, Node, NodeKind
from common.registry.protocol import RegistryUnavailableError
from master.identity import Identity
from master.loops.database_loop import DatabaseLoop
from master.loops.heartbeat import HeartbeatLoop
from tests.builders import NOON
from tests.memory.registry import MemoryZooKeeper
from tests.one_master import OneMaster
from tests.simulation.virtual_clock import VirtualClock

PATIENCE = timedelta(seconds=15)
FREE = timedelta()


class Masters:
    """ZooKeeper, with sessions that outlast every test, and the time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(days=1))

    def pass_time(self, seconds: float) -> None:
        self.clock.move_to(self.clock.elapsed + timedelta(seconds=seconds))

    def alive(self) -> set[str]:
        return {
            node.address for node in self.zookeeper.registry().membership.nodes(NodeKind.MASTER)
        }


class Beating:
    """The heartbeat of one master, and its queries to the database."""

    def __init__(self, masters: Masters, address: str) -> None:
        self.masters = masters
        self.registry = masters.zookeeper.registry()
        self.identity = Identity(self.registry.membership)
        self.is_cut = False
        self.joins: list[Node | None] = []
        self.database = DatabaseLoop(self._ask, clock=masters.clock)
        self.runs = OneMaster().runs
        self.loop = HeartbeatLoop(
            membership=self.registry.membership,
            identity=self.identity,
            runs=self.runs,
            address=address,
            text=self._text,
            is_clean=self._is_clean,
            joined=lambda: self.joins.append(self.identity.node),
            database_away=self.database.away,
            database_patience=PATIENCE,
        )
        self.loop.run_once()

    def _ask(self) -> None:
        if self.is_cut:
            raise ServiceUnreachableError("cut off")

    def _is_clean(self, node: Node) -> bool:
        self._ask()
        return True

    def _text(self) -> str:
        return Heartbeat(
            host="m",
            pid=1,
            cpu=0.0,
            memory=0.0,
            load=0.0,
            created=NOON,
            beaten=NOON,
            database_away=self.database.shown(),
        ).text()

    def step(self) -> None:
        self.database.run_once()
        self.loop.run_once()


@pytest.fixture
def masters() -> Masters:
    return Masters()


def live(masters: Masters, seconds: int, *all_of_them: Beating) -> None:
    for _ in range(seconds):
        masters.pass_time(1)
        for each in all_of_them:
            each.step()


def test_the_loops_hear_of_each_incarnation_once_it_is_this_master_s(masters: Masters) -> None:
    one = Beating(masters, "m1:1")
    first = one.identity.node
    masters.zookeeper.expire(one.registry)
    one.registry.pulse()
    one.step()
    assert one.joins == [first, one.identity.node]
    assert one.identity.node not in (first, None)


def test_a_master_without_the_database_leaves_to_one_that_has_it(masters: Masters) -> None:
    one, other = Beating(masters, "m1:1"), Beating(masters, "m2:2")
    first = one.identity.node
    # What it holds goes too.
    with one.registry.mutex.hold("masters", timeout=FREE) as held:
        assert held
        one.is_cut = True
        live(masters, 15, one, other)
        assert (masters.alive(), one.identity.node) == ({"m1:1", "m2:2"}, first)
        live(masters, 3, one, other)
        assert (masters.alive(), one.identity.node) == ({"m2:2"}, None)
        with other.registry.mutex.hold("masters", timeout=FREE) as free:
            assert free
    live(masters, 100, one, other)
    assert masters.alive() == {"m2:2"}
    one.is_cut = False
    live(masters, 1, one, other)
    assert masters.alive() == {"m1:1", "m2:2"}
    assert one.identity.node not in (first, None)


def test_masters_that_all_miss_the_database_wait_together(masters: Masters) -> None:
    one, other = Beating(masters, "m1:1"), Beating(masters, "m2:2")
    nodes = one.identity.node, other.identity.node
    one.is_cut = other.is_cut = True
    live(masters, 600, one, other)
    assert (one.identity.node, other.identity.node) == nodes
    assert masters.alive() == {"m1:1", "m2:2"}
    other.is_cut = False
    live(masters, 3, one, other)
    assert masters.alive() == {"m2:2"}


def test_a_master_that_is_alone_waits(masters: Masters) -> None:
    one = Beating(masters, "m1:1")
    one.is_cut = True
    live(masters, 600, one)
    assert masters.alive() == {"m1:1"}


def test_a_short_absence_is_shown_and_changes_nothing(masters: Masters) -> None:
    def shown() -> bool:
        return "databaseAway" in masters.zookeeper.children("masters")["m1:1"].text

    one, other = Beating(masters, "m1:1"), Beating(masters, "m2:2")
    first = one.identity.node
    for _ in range(5):
        one.is_cut = True
        live(masters, 6, one, other)
        assert shown()
        one.is_cut = False
        live(masters, 6, one, other)
        assert not shown()
    assert one.identity.node == first


def test_a_query_without_an_answer_counts_from_its_start(masters: Masters) -> None:
    away: list[float] = []

    def ask() -> None:
        masters.pass_time(20)
        away.append(database.away().total_seconds())
        raise ServiceUnreachableError("the line is dead")

    database = DatabaseLoop(ask, clock=masters.clock)
    database.run_once()
    masters.pass_time(1)
    assert (away, database.away().total_seconds()) == ([20], 21)


def test_a_master_that_was_frozen_looks_again_before_it_leaves(masters: Masters) -> None:
    one, other = Beating(masters, "m1:1"), Beating(masters, "m2:2")
    first = one.identity.node
    # It was frozen during its query.
    one.database._sent_at = masters.clock.monotonic()
    masters.pass_time(60)
    one.loop.run_once()
    live(masters, 5, one, other)
    assert one.identity.node == first


def test_a_departure_that_zookeeper_did_not_hear_of_is_made_again(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Beating(masters, "m1:1"), Beating(masters, "m2:2")
    retire: Callable[[], None] = one.registry.membership.retire

    def deaf() -> None:
        raise RegistryUnavailableError("no answer")

    monkeypatch.setattr(one.registry.membership, "retire", deaf)
    one.is_cut = True
    live(masters, 20, one, other)
    assert (masters.alive(), one.identity.node) == ({"m1:1", "m2:2"}, None)
    monkeypatch.setattr(one.registry.membership, "retire", retire)
    live(masters, 1, one, other)
    assert masters.alive() == {"m2:2"}


def test_nobody_sees_a_master_that_can_t_ask_the_tables(masters: Masters) -> None:
    one = Beating(masters, "m1:1")
    masters.zookeeper.expire(one.registry)
    one.registry.pulse()
    one.is_cut = True
    live(masters, 10, one)
    assert masters.alive() == set()
    one.is_cut = False
    live(masters, 1, one)
    assert masters.alive() == {"m1:1"}
