"""Standbys: tasks that are started ahead of a hand-over, and are given work in its very step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from common.model.streams.tasks import TaskStatus
from master.supervisors.decisions import (
    AskPause,
    AssignTask,
    EndSupervisor,
    KillTask,
    SetEnds,
    StartStandby,
    StartTask,
    StopTask,
)
from master.supervisors.notices import GracefulShutdown, HandOver, Reset, Scale
from tests.unit.stream_world import World, a_world, reading_world

HOUR = 3600.0


def prepared(**io: object) -> World:
    """Return a world half a minute before a hand-over, with standbys that nobody has claimed."""
    world = reading_world(**io)
    world.run(after=HOUR - 40)
    return world


def standbys_of(world: World) -> list[str]:
    return [name for name in world.live if world.tasks[name].standby_of is not None]


def pause(world: World) -> None:
    """Have the reading tasks asked to pause, and answer."""
    world.run(after=40)
    assert world.made(AskPause)
    world.answer()


def test_standbys_get_their_work_in_the_step_that_tells_their_predecessors_the_ends() -> None:
    world = prepared(replicas=2)
    assert len(world.made(StartStandby)) == 2
    assert len({each.base_sequence for each in world.made(StartStandby)}) == 1
    standbys = standbys_of(world)
    world.begin()
    pause(world)
    world.run()
    ends = world.made(SetEnds)[0].ends
    assert {each.name: each.starts for each in world.made(AssignTask)} == dict.fromkeys(
        standbys, ends
    )
    assert world.memory.reading[0].tasks == tuple(standbys)
    assert world.made(StartTask) == world.made(StopTask) == []
    # From now on they are tasks as any others.
    world.begin()
    world.answer()
    world.run()
    assert world.made(KillTask) == world.made(StopTask) == []
    assert world.memory.reading[0].tasks == tuple(standbys)


def test_standbys_are_started_once_for_a_group_and_half_a_short_duration_ahead() -> None:
    world = reading_world(taskDuration="PT40S")
    world.run(after=19)
    assert standbys_of(world) == []
    world.run(after=1)
    (standby,) = standbys_of(world)
    world.fail(standby)
    world.run()
    world.run()
    assert standbys_of(world) == []
    # Whatever they are, they are nobody's work, and no failure of the stream's tasks.
    assert world.memory.health.failed_tasks == 0


def test_a_hand_over_waits_for_standbys_that_are_being_prepared_and_for_no_others() -> None:
    world = prepared()
    world.run(after=40)
    assert len(world.made(AskPause)) == 1
    world = prepared()
    (standby,) = standbys_of(world)
    world.change(standby, assigned=True, assigned_at=world.now, status=TaskStatus.STARTING)
    world.run(after=50)
    assert world.made(AskPause) == []
    world.run(after=10)
    assert len(world.made(AskPause)) == 1
    world = prepared()
    world.change(
        standbys_of(world)[0], assigned=True, assigned_at=world.now, status=TaskStatus.STARTING
    )
    world.run(after=50)
    world.begin(*standbys_of(world))
    world.run(after=1)
    assert len(world.made(AskPause)) == 1


def test_a_hand_over_that_somebody_wants_waits_for_its_standbys() -> None:
    world = reading_world()
    world.run(HandOver(group_ids=frozenset({0})))
    world.run()
    assert len(world.made(StartStandby)) == 1
    world.run(after=9)
    assert world.made(AskPause) == []
    assert world.memory.requested == {0}
    world.run(after=1)
    assert len(world.made(AskPause)) == 1
    assert world.memory.requested == frozenset()


def test_missing_standbys_are_made_up_for_by_new_tasks() -> None:
    world = prepared(replicas=2)
    ready, unready = standbys_of(world)
    world.begin(ready)
    world.change(unready, assigned=True, assigned_at=world.now)
    world.run(after=60)
    world.answer()
    world.run(after=30)
    assert [each.name for each in world.made(AssignTask)] == [ready]
    (other,) = world.made(StartTask)
    assert other.starts == world.made(AssignTask)[0].starts
    # It does not get ready: there is no use in it.
    assert [each.task for each in world.made(StopTask)] == [unready]
    world.run(after=80)
    assert unready in [each.task for each in world.made(KillTask)]


def test_those_that_are_ready_come_first() -> None:
    world = prepared(replicas=2)
    first, second = standbys_of(world)
    world.begin(second)
    world.change(first, assigned=True, assigned_at=world.now)
    world.run(after=40)
    world.run(after=20)
    world.answer()
    world.spec = replace(world.spec, io=replace(world.spec.io, replicas=1))
    world.run()
    assert [each.name for each in world.made(AssignTask)] == [second]
    assert [each.task for each in world.made(StopTask)] == [first]


def _suspend(world: World) -> None:
    world.spec = replace(world.spec, suspended=True)
    world.run()


def _stop(world: World) -> None:
    world.run(GracefulShutdown())
    world.run()


def _rescale(world: World) -> None:
    world.run(Scale(task_count=2))
    world.run()


@pytest.mark.parametrize("end", [_suspend, _stop, _rescale])
def test_standbys_that_are_not_needed_are_ended(end: Callable[[World], None]) -> None:
    world = prepared()
    (standby,) = standbys_of(world)
    world.begin()
    end(world)
    ended = world.made(KillTask) + world.made(StopTask)
    assert [each.task for each in ended] == [standby]
    assert world.made(AskPause)
    world.answer()
    world.run()
    assert world.made(AssignTask) == []
    if end is _stop:
        assert world.made(EndSupervisor)


def test_who_wants_no_successor_starts_no_standbys() -> None:
    bounds = {"startSequenceNumbers": {"0": 0}, "endSequenceNumbers": {"0": 50}}
    world = a_world({0: 20}, boundedStreamConfig=bounds)
    world.run()
    world.begin()
    world.run(after=HOUR - 10)
    assert world.made(StartStandby) == []
    world = reading_world(idleConfig={"enabled": True, "inactiveAfterMillis": 1_000})
    world.run()
    world.run()
    world.run(after=HOUR - 50)
    assert world.made(StartStandby) == []


def test_no_more_groups_get_standbys_than_may_end() -> None:
    world = prepared(taskCount=2, stopTaskCount=1)
    assert len(standbys_of(world)) == 1


def test_a_new_owner_goes_on_with_the_standbys_that_it_finds() -> None:
    world = prepared(replicas=2)
    world.begin()
    standbys = standbys_of(world)
    world.lose_master()
    world.run()
    assert standbys_of(world) == standbys
    assert world.made(StopTask) == world.made(KillTask) == world.made(StartStandby) == []
    pause(world)
    world.lose_master()
    # The pause was of the former owner's, so they are asked again.
    world.run()
    world.answer()
    world.run()
    assert sorted(each.name for each in world.made(AssignTask)) == sorted(standbys)


def test_a_new_owner_ends_standbys_that_nobody_will_need_soon() -> None:
    world = reading_world()
    world.run(HandOver(group_ids=frozenset({0})))
    world.run()
    (standby,) = standbys_of(world)
    world.lose_master()
    world.run()
    assert [each.task for each in world.made(StopTask)] == [standby]


def test_a_group_that_is_lost_is_read_again_by_its_standbys() -> None:
    world = prepared()
    world.begin()
    (standby,) = standbys_of(world)
    world.run(Reset(), after=1)
    world.run(after=1)
    assert [each.name for each in world.made(AssignTask)] == [standby]
    world = prepared()
    world.begin()
    (standby,) = standbys_of(world)
    world.fail(world.memory.reading[0].tasks[0])
    world.run(after=1)
    assert [each.name for each in world.made(AssignTask)] == [standby]


def test_a_task_that_fails_beside_its_replica_is_replaced_by_a_new_one() -> None:
    world = prepared(replicas=2)
    world.begin()
    world.fail(world.memory.reading[0].tasks[0])
    world.run(after=1)
    assert world.made(AssignTask) == []
    assert len(world.made(StartTask)) == 1


def test_a_standby_that_was_given_work_counts_as_one_that_reads_only_after_its_start() -> None:
    world = prepared()
    (standby,) = standbys_of(world)
    world.change(standby, assigned=True, assigned_at=world.now, status=TaskStatus.STANDBY)
    pause(world)
    world.run()
    assert world.memory.reading[0].tasks == (standby,)
    world.run(after=HOUR)
    assert world.made(AskPause) == []
    assert world.now < world.tasks[standby].assigned_at + timedelta(hours=1, minutes=5)  # type: ignore[operator]


def test_standbys_make_room_for_a_group_that_nobody_reads() -> None:
    world = prepared(replicas=2)
    standbys = standbys_of(world)
    world.begin(*standbys)
    first, second = world.memory.reading[0].tasks
    world.fail(first)
    world.run(after=1)
    assert len(world.made(StartTask)) == 1
    assert world.made(StopTask) == []
    world.fail(second)
    world.run(after=1)
    assert sorted(each.task for each in world.made(StopTask)) == sorted(standbys)
