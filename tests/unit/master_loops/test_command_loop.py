"""The loop that takes commands: the room that it offers, the mutex, and the runs that it opens."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.instances import Ownership
from common.model.plans import Drop, Handled, Plan, Reject, Resume, SetIntent
from common.model.states import ProcessState
from common.runtime import metrics
from common.store.master.ports import Planner
from master.commands.origin import Origin
from master.graphs import GraphCache
from master.loops.command_loop import MUTEX, CommandConfig, CommandLoop
from tests.one_master import OneMaster
from tests.unit.master_loops.place import SECOND, UTC_ZONE, Place


class Commands:
    """A command table that hands out the test's commands, and records the room it was given."""

    def __init__(self, *handled: Handled) -> None:
        self.handled = handled
        self.rooms: list[int] = []
        self.spares: list[int] = []
        self.idle = False
        self.forgotten: list[datetime] = []
        self.old_batches = 0

    def waiting(self) -> bool:
        return not self.idle

    def forget(self, *, before: datetime) -> bool:
        self.forgotten.append(before)
        self.old_batches -= 1
        return self.old_batches > 0

    def take(
        self,
        *,
        node: Node,
        limit: int,
        room: int,
        spare: int,
        live_masters: frozenset[Node],
        planner: Planner,
        now: datetime,
    ) -> tuple[Handled, ...]:
        self.rooms.append(room)
        self.spares.append(spare)
        handled, self.handled = self.handled, ()
        return handled


class Commander:
    """A command loop with a run worker that has runs or none."""

    def __init__(self, place: Place, store: Commands, *, admitted: bool = True) -> None:
        self.master = OneMaster()
        self.waits = 0
        self.loop = CommandLoop(
            store,
            mutex=place.registry.mutex,
            membership=place.registry.membership,
            identity=place.identity,
            runs=self.master.runs,
            origin=Origin(zone=UTC_ZONE, graph=GraphCache().graph),
            clock=place.clock,
            admitted=lambda: admitted,
            waits=self._waits,
            config=CommandConfig(exec_threads=2),
        )

    def _waits(self) -> None:
        self.waits += 1


def test_commands_are_taken_for_the_room_that_is_left(place: Place) -> None:
    store = Commands()
    commander = Commander(place, store)
    for _ in range(3):
        commander.loop.run_once()
        commander.master.begin("a")
    assert store.rooms == [2, 1, 0]


def test_a_complement_s_runs_take_room_from_its_other_dates_only(place: Place) -> None:
    store = Commands()
    commander = Commander(place, store)
    run = commander.master.begin("a")
    commander.master.database.update(
        commander.master.database.processes, run, history_cmd="COMPLEMENT_DATA"
    )
    commander.master.step()
    commander.loop.run_once()
    assert (store.rooms, store.spares) == ([2], [1])


def test_a_loaded_host_still_takes_what_needs_no_room_and_rests_1523(place: Place) -> None:
    store = Commands()
    assert Commander(place, store, admitted=False).loop.run_once() == SECOND
    assert store.rooms == [0]


def a_handled(plan: Plan, ownership: Ownership | None = None) -> Handled:
    return Handled(command_id=1, plan=plan, ownership=ownership)


RESUMED = Resume(process_instance_id=7, epoch=1, command_type=CommandType.RECOVER_SERIAL_WAIT)


STOPPED = SetIntent(
    process_instance_id=7, command_type=CommandType.STOP, wanted_state=ProcessState.STOP
)


def test_an_instance_that_has_become_this_master_s_is_opened(place: Place) -> None:
    ownership = Ownership(process_instance_id=7, host="m1:5678", epoch=2)
    commander = Commander(place, Commands(a_handled(RESUMED, ownership)))
    assert commander.loop.run_once() == timedelta()
    assert commander.master.runs.active == 1
    assert commander.waits == 0


@pytest.mark.parametrize("plan", [STOPPED, Drop(reason="no"), Reject(reason="no")])
def test_a_command_without_an_instance_does_not_wake_the_hold_loop(
    place: Place, plan: Plan
) -> None:
    commander = Commander(place, Commands(a_handled(plan)))
    commander.loop.run_once()
    assert commander.waits == 0


def test_a_dropped_command_is_logged_with_the_reason(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    dropped = a_handled(Drop(reason="process instance 7 has not begun"))
    with caplog.at_level("INFO"):
        Commander(place, Commands(dropped)).loop.run_once()
    (record,) = [each for each in caplog.records if each.getMessage() == "command was dropped"]
    assert (vars(record)["command_id"], vars(record)["reason"]) == (
        1,
        "process instance 7 has not begun",
    )


def test_old_lines_of_the_ledger_are_forgotten_at_the_start_and_every_hour(place: Place) -> None:
    store = Commands()
    store.idle = True
    commander = Commander(place, store)
    start, elapsed = place.clock.now(), timedelta()
    for _ in range(2 * 3600 + 1):
        commander.loop.run_once()
        elapsed += SECOND
        place.clock.move_to(elapsed)
    hours = [start + number * timedelta(hours=1) for number in range(3)]
    assert store.forgotten == [hour - timedelta(days=30) for hour in hours]


def test_many_old_lines_are_forgotten_pass_by_pass(place: Place) -> None:
    store = Commands()
    store.old_batches = 3
    commander = Commander(place, store)
    for _ in range(5):
        commander.loop.run_once()
    assert len(store.forgotten) == 3


def test_t40_nobody_rests_with_the_mutex_in_hand(place: Place) -> None:
    commander = Commander(place, Commands())
    mutex = place.zookeeper.registry().mutex
    assert commander.loop.run_once() == SECOND
    # The loop rests now.
    with mutex.hold(MUTEX, timeout=timedelta()) as held:
        assert held


def test_t40_without_commands_the_mutex_is_not_asked_for(place: Place) -> None:
    store = Commands()
    store.idle = True
    commander = Commander(place, store)
    with place.zookeeper.registry().mutex.hold(MUTEX, timeout=timedelta()) as held:
        assert held
        # A loop that fails to get the mutex retries at once; one that does not want it rests.
        assert commander.loop.run_once() == SECOND
    assert store.rooms == []


def test_only_a_failover_counts_as_one(place: Place) -> None:
    def total() -> float:
        return metrics.REGISTRY.get_sample_value("ds_takeovers_total") or 0.0

    failover = replace(RESUMED, command_type=CommandType.RECOVER_TOLERANCE_FAULT_PROCESS)
    before = total()
    for plan in (RESUMED, failover, STOPPED):
        Commander(place, Commands(a_handled(plan))).loop.run_once()
    assert total() == before + 1
