"""Tasks and supervisors that are stuck: expired starts, paused tasks, missed ends, failing steps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from common.errors import NotAllowedError
from common.model.streams.tasks import TaskStatus
from master.supervisors.decisions import (
    AskPause,
    KillTask,
    RemoveOffsets,
    ResumeTasks,
    StartTask,
)
from master.supervisors.failing import Failing, after_error
from master.supervisors.health import State
from master.supervisors.notices import Checkpoint
from tests.unit.stream_world import NOON, World, a_world, hand_over, reading_world

RESETS = {"resetOffsetAutomatically": True}
HOUR = 3600


# Starts that have expired


def test_a_task_is_not_replaced_at_an_expired_offset_while_its_replica_reads_on() -> None:
    world = reading_world(replicas=2)
    first, second = world.live
    world.earliest = {0: 50, 1: 0}
    world.fail(first)
    world.run()
    assert world.made(StartTask) == []
    assert world.tasks[second].end is None
    assert "offset 0 of partition 0 of 'events' has expired" in world.events[-1]
    assert "handed over" in world.events[-1]
    hand_over(world)
    assert len(world.events) == 1
    started = [task for task in world.tasks.values() if task.starts == {0: 100, 1: 100}]
    assert len(started) == 2
    assert world.publish(second)
    assert world.published == [(0, 0, 100), (1, 0, 100)]


def test_replicas_that_fail_in_turn_at_an_expired_offset_are_given_up_together() -> None:
    world = a_world(replicas=2)
    world.run()
    first, second = world.live
    world.change(second, assigned=True, status=TaskStatus.STARTING)
    world.earliest = {0: 50, 1: 50}
    world.fail(first)
    world.run()
    assert world.made(StartTask) == []
    assert [each.task for each in world.made(KillTask)] == [second]
    assert "offset 0 of partition 0" in world.memory.health.errors[-1].text


def test_replicas_are_started_at_an_offset_that_was_reset_after_the_former_has_expired() -> None:
    world = a_world(replicas=2, tuningConfig=RESETS)
    world.run()
    first, _ = world.live
    world.earliest = {0: 50, 1: 0}
    world.fail(first)
    world.run()
    assert world.made(RemoveOffsets) == [RemoveOffsets(partitions=(0,), expected={0: 0})]
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{0: 50, 1: 0}] * 2


def test_a_replacement_after_a_published_checkpoint_begins_there_and_is_started() -> None:
    world = reading_world(replicas=2)
    first, second = world.live
    checkpoint(world, {0: 0, 1: 0})
    world.publish_first(first)
    world.earliest = {0: 100, 1: 100}
    world.fail(second)
    world.run()
    assert [dict(each.checkpoints) for each in world.made(StartTask)] == [{1: {0: 100, 1: 100}}]


def test_a_group_does_not_begin_at_the_expired_end_of_one_that_still_publishes() -> None:
    world = reading_world(tuningConfig=RESETS)
    (task,) = world.live
    world.earliest = {0: 150, 1: 150}
    world.latest = {0: 200, 1: 200}
    world.run(after=HOUR)
    world.answer()
    world.run()
    assert (world.made(StartTask), world.made(RemoveOffsets)) == ([], [])
    assert "has expired" in world.memory.health.errors[-1].text
    world.answer()
    world.read(task)
    assert world.publish(task)
    for _ in range(3):
        world.run()
    (started,) = [each for each in world.tasks.values() if each.end is None]
    assert started.starts == {0: 150, 1: 150}


def test_an_expired_end_that_no_group_publishes_gives_way_to_the_stored_offset() -> None:
    world = a_world()
    world.run()
    world.fail(*world.live)
    world.memory = replace(world.memory, reading={}, offsets={0: 5, 1: 30})
    world.stored, world.earliest = {}, {0: 20, 1: 20}
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{0: 20, 1: 30}]


# Paused tasks


def checkpoint(world: World, previous: dict[int, int]) -> None:
    """Have the group of a world agree on the end of a sequence."""
    base = world.memory.reading[0].base_sequence
    world.run(Checkpoint(group_id=0, base_sequence=base, previous=previous))
    world.answer()
    world.run()
    world.answer()
    world.run()


def paused_without_records() -> World:
    """Return a world with two tasks that were paused, and then ordered to resume."""
    world = a_world(replicas=2)
    world.run()
    world.begin()
    base = world.memory.reading[0].base_sequence
    world.run(Checkpoint(group_id=0, base_sequence=base, previous={0: 0, 1: 0}))
    world.answer()
    world.run()
    assert len(world.made(ResumeTasks)) == 1
    return world


def test_a_paused_task_that_does_not_read_on_is_killed_and_replaced() -> None:
    world = paused_without_records()
    first, second = world.live
    world.answer(first)
    world.run(after=79)
    assert world.made(KillTask) == []
    world.run(after=1)
    assert [each.task for each in world.made(KillTask)] == [second]
    assert "resume" in world.made(KillTask)[0].reason
    assert len(world.made(StartTask)) == 1
    assert world.tasks[first].end is None


def test_a_group_of_which_no_paused_task_reads_on_is_read_again() -> None:
    world = paused_without_records()
    world.run(after=80)
    assert len(world.made(KillTask)) == 2
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] in ([{0: 0, 1: 0}] * 2, [])
    assert len(world.live) == 2


def test_tasks_that_read_on_are_left_alone() -> None:
    world = paused_without_records()
    world.answer()
    world.run()
    assert world.memory.reading[0].conversation is None
    world.run(after=HOUR / 2)
    assert world.made(KillTask) == []


def test_a_new_owner_kills_a_task_that_does_not_obey_an_order_to_read_on() -> None:
    world = paused_without_records()
    first, second = world.live
    world.answer(first)
    world.lose_master()
    world.run()
    assert (world.made(ResumeTasks), world.made(KillTask)) == ([], [])
    world.run(after=80)
    assert [each.task for each in world.made(KillTask)] == [second]


def test_a_hand_over_does_not_wait_for_tasks_that_are_to_read_on() -> None:
    world = paused_without_records()
    world.spec = replace(world.spec, suspended=True)
    world.run()
    assert len(world.made(AskPause)) == 1


# Checkpoints


def test_a_checkpoint_two_behind_is_an_error_and_one_behind_is_not() -> None:
    world = reading_world(replicas=2)
    for end in (0, 100):
        checkpoint(world, {0: end, 1: end})
        world.latest = {0: end + 200, 1: end + 200}
        for name in world.live:
            world.read(name)
    group = world.memory.reading[0]
    assert len(group.checkpoints) == 3
    for number, errors in ((1, 0), (0, 1)):
        notice = Checkpoint(
            group_id=0, base_sequence=group.base_sequence, previous=group.checkpoints[number]
        )
        world.run(notice)
        assert (world.made(AskPause), len(world.memory.health.errors)) == ([], errors)
    assert "missed the ends of a sequence" in world.memory.health.errors[-1].text


# Steps that fail


def failed(times: int, *, every: float = 10) -> Failing:
    failing: Failing | None = None
    for number in range(times):
        now = NOON + timedelta(seconds=every * number)
        failing = after_error(failing, ZeroDivisionError("hunter2"), master="m1:5678", now=now)
    assert failing is not None
    return failing


def test_three_failed_steps_within_a_while_make_a_supervisor_unhealthy() -> None:
    assert not failed(2).is_due
    assert not failed(20, every=0.1).is_due
    failing = failed(3)
    assert failing.is_due
    assert failing.health.state is State.UNHEALTHY_SUPERVISOR
    assert not failing.health.state.is_healthy


def test_an_error_of_years_ago_does_not_count() -> None:
    assert failed(5, every=HOUR).count == 1


def test_the_message_of_a_foreign_error_is_not_shown_since_it_may_hold_a_secret() -> None:
    shown = failed(3).health.errors[0].text
    assert "ZeroDivisionError" in shown
    assert "m1:5678" in shown
    assert "hunter2" not in shown
    ours = after_error(None, NotAllowedError("not now"), master="m1:5678", now=NOON)
    assert "not now" in ours.text
