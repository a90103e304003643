"""The loop that takes commands: the room that it offers, the mutex, and the runs that it opens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from common.errors import InvalidDefinitionError
from common.model.cluster import Node, NodeKind
from common.model.commands import CommandType
from common.model.instances import Ownership
from common.model.plans import Drop, Handled, Plan, Reject, Resume, SetIntent
from common.model.slot_share import RoomShare
from common.model.states import ProcessState
from common.runtime import metrics
from common.store.master.ports import FirstStep, LiveMasters, LoadedRun, Planner, Taken
from master.commands.origin import Origin
from master.engine.run import ProcessRun
from master.graphs import GraphCache
from master.loops.command_loop import MUTEX, CommandConfig, CommandLoop
from master.loops.opening import RunBuilder
from master.loops.run_worker import RunWorker
from tests.builders import a_definition_json
from tests.memory.store import MemoryCommandStore
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

    def projects(self, process_instance_ids: Collection[int]) -> dict[int, int]:
        return dict.fromkeys(process_instance_ids, 1)

    def several_projects(self) -> bool:
        return False

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
        live_masters: LiveMasters,
        planner: Planner,
        now: datetime,
        first_step: FirstStep | None = None,
        share: RoomShare | None = None,
    ) -> Taken:
        self.rooms.append(room)
        self.spares.append(spare)
        handled, self.handled = self.handled, ()
        return Taken(handled=handled)


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


def test_a_master_that_is_alone_takes_no_turns_until_another_joins(place: Place) -> None:
    store = Commands()
    commander = Commander(place, store)
    place.zookeeper.deliver()
    other = place.zookeeper.registry()
    commander.loop.run_once()
    with other.mutex.hold(MUTEX, timeout=timedelta()):
        commander.loop.run_once()
        assert len(store.rooms) == 2
        other.membership.join(NodeKind.MASTER, "m2:5678", "")
        place.zookeeper.deliver()
        commander.loop.run_once()
        assert len(store.rooms) == 2
    commander.loop.run_once()
    with other.mutex.hold(MUTEX, timeout=timedelta()):
        # Another one is seen by now.
        commander.loop.run_once()
        assert len(store.rooms) == 3
    other.membership.leave()
    place.zookeeper.deliver()
    commander.loop.run_once()
    with place.zookeeper.registry().mutex.hold(MUTEX, timeout=timedelta()):
        commander.loop.run_once()
    assert len(store.rooms) == 5


def test_a_former_incarnation_that_was_alone_does_not_spare_the_next_one_its_turn(
    place: Place,
) -> None:
    store = Commands()
    commander = Commander(place, store)
    place.zookeeper.deliver()
    commander.loop.run_once()
    # The watch has not fired yet.
    place.identity.become(place.registry.membership.join(NodeKind.MASTER, "m1:5678", ""))
    with place.zookeeper.registry().mutex.hold(MUTEX, timeout=timedelta()):
        commander.loop.run_once()
    assert len(store.rooms) == 1


def test_only_a_failover_counts_as_one(place: Place) -> None:
    def total() -> float:
        return metrics.REGISTRY.get_sample_value("ds_takeovers_total") or 0.0

    failover = replace(RESUMED, command_type=CommandType.RECOVER_TOLERANCE_FAULT_PROCESS)
    before = total()
    for plan in (RESUMED, failover, STOPPED):
        Commander(place, Commands(a_handled(plan))).loop.run_once()
    assert total() == before + 1


class Beginner:
    """A command loop and a run worker on the same tables in memory."""

    def __init__(self, place: Place, *shapes: str) -> None:
        self.master = OneMaster()
        self.master.identity.become(place.node)
        self.loop = CommandLoop(
            MemoryCommandStore(self.master.database),
            mutex=place.registry.mutex,
            membership=place.registry.membership,
            identity=place.identity,
            runs=self.master.runs,
            origin=Origin(zone=UTC_ZONE, graph=self.master.graphs.graph),
            clock=self.master.clock,
        )
        database = self.master.database
        for number, shape in enumerate(shapes):
            definition = database.insert(
                database.definitions,
                name=f"definition {number}",
                release_state=1,
                process_definition_json=a_definition_json(shape),
            )
            database.insert(
                database.commands,
                command_type=int(CommandType.START_PROCESS),
                process_definition_id=definition,
            )

    @property
    def run_ids(self) -> list[int]:
        return [process.id for process in self.master.database.processes]


def test_the_first_tasks_of_a_run_are_written_and_offered_with_the_run(place: Place) -> None:
    beginner = Beginner(place, "a >> b", "c d")
    beginner.loop.run_once()
    master = beginner.master
    first, second = beginner.run_ids
    assert (master.names(first), master.names(second)) == (["a"], ["c", "d"])
    (saved,) = master.saved
    ids = [task.id for run_id in (first, second) for task in master.attempts(run_id)]
    assert [offer.task_instance_id for offer in saved.offers] == ids
    assert master.store.asked == master.store.loads == []


def test_a_run_that_has_begun_goes_on_without_being_read(place: Place) -> None:
    beginner = Beginner(place, "a >> b")
    beginner.loop.run_once()
    master = beginner.master
    (run,) = beginner.run_ids
    # Reported before the run worker has seen the run at all.
    master.end(run, "a")
    master.step()
    assert master.names(run) == ["a", "b"]
    master.end(run, "b")
    master.step()
    assert master.state(run) is ProcessState.SUCCESS
    assert master.store.loads == []


def test_runs_that_have_begun_count_at_once(place: Place) -> None:
    beginner = Beginner(place, "a", "b")
    beginner.loop.run_once()
    runs = beginner.master.runs
    assert (runs.active, runs.active_live) == (2, 2)
    beginner.master.step()
    assert (runs.active, runs.active_live) == (2, 2)


def test_a_run_that_a_comparison_has_found_is_not_replaced_by_its_beginning(place: Place) -> None:
    beginner = Beginner(place, "a >> b")
    master = beginner.master
    begun: list[object] = []
    master.runs.begun = lambda *given: begun.append(given)  # type: ignore[method-assign, assignment]
    beginner.loop.run_once()
    master.step()
    (run,) = beginner.run_ids
    master.end(run, "a")
    master.step()
    assert master.names(run) == ["a", "b"]
    ((runs, saved),) = begun  # type: ignore[misc]
    RunWorker.begun(master.runs, runs, saved)  # type: ignore[has-type]
    master.end(run, "b")
    master.step()
    assert master.state(run) is ProcessState.SUCCESS


def test_a_run_that_cannot_be_opened_is_left_to_the_run_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    beginner = Beginner(place, "a", "b")
    build = RunBuilder.build

    def built(builder: RunBuilder, loaded: LoadedRun) -> ProcessRun:
        if loaded.ownership.process_instance_id == 1:
            raise InvalidDefinitionError(("no run can be made of it",))
        return build(builder, loaded)

    monkeypatch.setattr(RunBuilder, "build", built)
    beginner.loop.run_once()
    master = beginner.master
    assert (master.names(1), master.names(2)) == ([], ["b"])
    master.step()
    assert (master.state(1), master.state(2)) == (ProcessState.FAILURE, ProcessState.RUNNING)
    assert master.process(1).state_reason == "no run can be made of it"


def test_runs_that_have_begun_are_forgotten_with_an_incarnation(place: Place) -> None:
    beginner = Beginner(place, "a")
    beginner.loop.run_once()
    beginner.master.runs.forget_all()
    beginner.master.step()
    # Read again from the tables, which know whose it is.
    assert beginner.master.store.loads == [1]


def test_news_of_a_command_spares_the_question(place: Place) -> None:
    store = Commands()
    store.idle = True
    commander = Commander(place, store)
    commander.loop.heard()
    for _ in range(2):
        assert commander.loop.run_once() == SECOND
    # One pass took what there was; the other asked, and there was nothing.
    assert store.rooms == [2]


class Projects:
    """A command loop with room for ten runs, and definitions of two projects."""

    def __init__(self, place: Place) -> None:
        self.master = OneMaster()
        self.database = self.master.database
        self.master.identity.become(place.node)
        self.queries: list[str] = []
        self.definitions = {
            project: self.database.insert(
                self.database.definitions,
                name=f"definition {project}",
                release_state=1,
                project_id=project,
                process_definition_json=a_definition_json("a"),
            )
            for project in (1, 2)
        }
        self.loop = CommandLoop(
            MemoryCommandStore(self.database),
            mutex=place.registry.mutex,
            membership=place.registry.membership,
            identity=place.identity,
            runs=self.master.runs,
            origin=Origin(zone=UTC_ZONE, graph=self.master.graphs.graph),
            clock=self.master.clock,
            config=CommandConfig(exec_threads=10),
        )

    def put(self, project: int, number: int, **columns: object) -> None:
        for _ in range(number):
            self.database.insert(
                self.database.commands,
                command_type=int(CommandType.START_PROCESS),
                process_definition_id=self.definitions[project],
                **columns,
            )

    def taken(self) -> list[int]:
        """Take commands until the loop rests; return the project of each run."""
        while self.loop.run_once() < SECOND:
            self.master.step()
        return [self.database.project_of(process) for process in self.database.processes]


def test_one_project_cannot_take_all_room_while_another_exists(place: Place) -> None:
    projects = Projects(place)
    projects.put(1, 13)
    assert projects.taken() == [1] * 8
    projects.put(2, 1)
    assert projects.taken() == [*([1] * 8), 2]


def test_a_run_is_taken_though_many_of_another_project_are_ahead_of_it(place: Place) -> None:
    projects = Projects(place)
    projects.put(1, 120)
    projects.put(2, 1)
    assert projects.taken() == [1, 2, *([1] * 6)]


def test_the_only_project_takes_all_room(place: Place) -> None:
    projects = Projects(place)
    projects.database.update(projects.database.definitions, projects.definitions[2], project_id=1)
    projects.put(1, 13)
    assert projects.taken() == [1] * 10


def test_the_end_of_a_run_makes_room_for_its_project(place: Place) -> None:
    projects = Projects(place)
    projects.put(1, 9)
    projects.taken()
    run = next(iter(projects.database.processes)).id
    projects.master.end(run, "a")
    projects.master.step()
    assert projects.taken() == [1] * 9


def test_sub_processes_of_one_project_do_not_take_the_room_of_others(place: Place) -> None:
    projects = Projects(place)
    projects.put(1, 8)
    projects.taken()
    for _ in range(4):
        # As sub processes and runs after a failover, these begin without room.
        projects.master.begin("a")
        projects.master.step()
    projects.put(1, 1)
    projects.put(2, 1)
    assert projects.taken() == [*([1] * 12), 2]
