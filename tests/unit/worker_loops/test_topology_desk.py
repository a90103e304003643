"""A topology's task tells often how far it has come, and the tables are written seldom."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.topologies import Report, RunState, Wanted
from common.store.worker.topologies import HeldByAnother, HeldTopology, TopologyWork
from tests.memory.registry import MemoryZooKeeper
from tests.simulation.virtual_clock import VirtualClock
from worker.datasets.topologies import TopologyDesk, TopologyFolders
from worker.workspace import Account

NODE = Node(address="w:1", incarnation=1)
RUNNING = Report(state=RunState.RUNNING, obeyed=0, batch=3, lag={"lines": 7})


@dataclass
class Tables:
    """The orders to topologies by attempt, and the statements that were asked."""

    rows: dict[int, Wanted] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def work(self, node: Node, task_instance_id: int) -> TopologyWork | HeldByAnother | None:
        return None

    def held(self, node: Node, task_instance_ids: Collection[int]) -> Mapping[int, HeldTopology]:
        self.asked.append("held")
        return {
            each: HeldTopology(name="words", wanted=self.rows[each])
            for each in task_instance_ids
            if each in self.rows
        }

    def report(self, node: Node, task_instance_id: int, report: Report) -> bool:
        self.asked.append(f"report {report.state} {report.batch}")
        return task_instance_id in self.rows


class Place:
    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.tables = Tables(rows={7: Wanted()})
        self.node: Node | None = NODE
        self.zookeeper = MemoryZooKeeper(clock=self.clock)
        self.registry = self.zookeeper.registry()
        self.desk = TopologyDesk(
            self.tables,
            TopologyFolders(folder, cluster="c", for_tenants=False),
            node=lambda: self.node,
            clock=self.clock,
            beats=self.registry.worker_beats,
        )

    def tell(self, report: Report | None, *, after: float = 0, task: int = 7) -> object:
        self.clock.move_to(self.clock.elapsed + timedelta(seconds=after))
        return self.desk.wanted(task, report)["outcome"]

    def beat(self) -> dict[str, Any] | None:
        """The heartbeat that others see."""
        found = self.registry.worker_beats.beats("words")
        assert found.keys() <= {NODE.address}
        return json.loads(found[NODE.address]) if found else None


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_state_is_written_at_once_and_figures_every_two_seconds(place: Place) -> None:
    later = replace(RUNNING, batch=4)
    assert place.tell(RUNNING) == "wanted"
    place.tell(later, after=1)
    place.tell(later, after=1)
    place.tell(replace(later, state=RunState.PAUSED), after=0.1)
    place.tell(replace(later, state=RunState.PAUSED, trouble="no answer"), after=0.1)
    assert place.tables.asked == [
        "held",
        "report RUNNING 3",
        "report RUNNING 4",
        "report PAUSED 4",
        "report PAUSED 4",
    ]


def test_a_report_that_says_nothing_new_is_written_every_ten_seconds(place: Place) -> None:
    for _ in range(25):
        place.tell(RUNNING, after=1)
    assert place.tables.asked.count("report RUNNING 3") == 3


def test_an_attempt_has_a_heartbeat_while_it_tells_how_far_it_is(place: Place) -> None:
    assert place.beat() is None
    begun = place.clock.now()
    place.tell(replace(RUNNING, version=2))
    assert place.beat() == {
        "time": begun.isoformat(),
        "topology": "words",
        "version": 2,
        "state": "RUNNING",
        "executors": {},
        "batch": 3,
        "lag": {"lines": 7},
    }
    for _ in range(2):
        place.tell(replace(RUNNING, batch=4), after=1.4)
        assert (place.beat() or {})["batch"] == 3
    place.tell(replace(RUNNING, batch=4), after=0.2)
    assert (place.beat() or {})["batch"] == 4
    place.desk.end_beats(lambda: {7, 8})
    assert place.beat() is not None
    place.desk.end_beats(lambda: {8})
    assert place.beat() is None


def test_an_attempt_that_is_told_to_end_has_no_heartbeat_any_more(place: Place) -> None:
    place.tell(RUNNING)
    place.tables.rows.clear()
    place.desk.look()
    assert place.tell(RUNNING, after=1) == "ended"
    assert place.beat() is None


def test_the_heartbeat_of_the_next_attempt_stays_as_the_former_ends(place: Place) -> None:
    place.tell(RUNNING)
    place.tables.rows[8] = Wanted()
    place.tell(replace(RUNNING, batch=9), task=8)
    place.desk.end_beats(lambda: {8})
    assert (place.beat() or {})["batch"] == 9
    place.desk.end_beats(lambda: ())
    assert place.beat() is None


def test_a_heartbeat_that_nobody_takes_is_in_no_task_s_way(place: Place) -> None:
    place.registry.cut_off()
    assert place.tell(RUNNING) == "wanted"
    place.registry.reconnect()
    assert place.tell(RUNNING, after=3) == "wanted"
    assert place.beat() is not None
    assert place.tables.asked == ["held", "report RUNNING 3"]


def test_a_task_that_tells_nothing_is_told_what_is_wanted(place: Place) -> None:
    assert place.desk.wanted(7, None) == {"outcome": "wanted", "wanted": Wanted().document()}
    assert place.tables.asked == ["held"]


def test_an_attempt_that_runs_here_no_more_is_told_so_and_its_report_is_not_believed_written(
    place: Place,
) -> None:
    assert place.desk.wanted(7, None)["outcome"] == "wanted"
    place.tables.rows.clear()
    assert place.tell(RUNNING) == "ended"
    assert place.tell(RUNNING) == "ended"
    assert place.tables.asked == ["held", "report RUNNING 3"]


def test_what_people_want_is_told_from_memory_and_looked_for_seldom(place: Place) -> None:
    place.tell(RUNNING)
    news: list[object] = []
    place.desk.cache.changed = lambda: news.append(place.desk.watch(7, 0))
    assert place.desk.watch(7, 0) is None
    assert place.desk.look() == timedelta(seconds=5)
    place.tables.rows[7] = wanted = Wanted(number=1, active=False)
    assert place.desk.watch(7, 0) is None
    assert news == []
    place.desk.look()
    answer = {"outcome": "wanted", "wanted": wanted.document()}
    assert news == [answer]
    assert place.desk.wanted(7, RUNNING) == answer
    place.tables.rows.clear()
    place.desk.look()
    assert (place.desk.watch(7, 1) or {})["outcome"] == "ended"
    assert place.tables.asked.count("held") == 4


def test_a_folder_is_the_attempt_s_alone_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    folders = TopologyFolders(tmp_path / "topologies", cluster="c", for_tenants=True)
    own = Account(name="own", uid=os.geteuid(), gid=os.getegid(), groups=(), home="/")
    made = folders.make("words", 2, own)
    (made / "offsets").write_text("7")
    assert folders.make("words", 2, own) == made == tmp_path / "topologies" / "c-words-2"
    assert (made / "offsets").read_text() == "7"
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    # Tenants pass through, and see no other's names.
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o711


def test_a_folder_that_is_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    folders = TopologyFolders(tmp_path / "topologies", cluster="c", for_tenants=False)
    folders.make("words", 1, None)
    (tmp_path / "topologies" / "c-words-2").symlink_to(tmp_path)
    with pytest.raises(OSError, match="c-words-2"):
        folders.make("words", 2, None)


def test_a_worker_without_a_session_or_of_a_new_incarnation_ends_nothing(place: Place) -> None:
    place.tables.rows.clear()
    nodes = iter([NODE, Node(address="w:1", incarnation=2)])
    desk = TopologyDesk(
        place.tables,
        TopologyFolders(Path(), cluster="c", for_tenants=False),
        node=lambda: next(nodes),
        clock=place.clock,
    )
    with pytest.raises(ServiceUnreachableError, match="another incarnation"):
        desk.wanted(7, RUNNING)
    place.node = None
    with pytest.raises(ServiceUnreachableError, match="no session"):
        place.tell(RUNNING)
