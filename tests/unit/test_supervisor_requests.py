"""Requests of people to a supervisor: resets, suspension, stops, scale, bounded ranges; idleness."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from master.supervisors.decisions import (
    AskPause,
    EndSupervisor,
    KillTask,
    RemoveOffsets,
    SaveTaskCount,
    SetOffsets,
    StartStandby,
    StartTask,
    StopTask,
)
from master.supervisors.health import State
from master.supervisors.notices import (
    GracefulShutdown,
    HandOver,
    NoticeQueue,
    Reset,
    ResetOffsets,
    Run,
    Scale,
    Shutdown,
)
from master.supervisors.scaling import wanted_task_count
from tests.unit.stream_specs import a_spec
from tests.unit.stream_world import (
    World,
    a_world,
    fail_publication,
    hand_over,
    reading_world,
)


def test_a_reset_forgets_all_and_leaves_publishing_groups_alone() -> None:
    world = reading_world()
    world.now += timedelta(hours=1)
    hand_over(world)
    world.begin()
    publishing = world.memory.publishing[0].tasks
    readers = world.memory.reading[0].tasks
    world.run(Reset())
    assert world.made(RemoveOffsets) == [RemoveOffsets(partitions=None)]
    assert [each.task for each in world.made(KillTask)] == list(readers)
    assert world.memory.publishing[0].tasks == publishing
    world.run()
    assert world.made(StartTask)[0].starts == {0: 0, 1: 0}


def test_a_reset_of_partitions_kills_their_groups_alone() -> None:
    world = reading_world(taskCount=2)
    (reader,) = world.memory.reading[1].tasks
    world.run(Reset(offsets={1: 999}))
    assert world.made(RemoveOffsets) == [RemoveOffsets(partitions=(1,))]
    assert [each.task for each in world.made(KillTask)] == [reader]
    assert sorted(world.memory.reading) == [0]


def test_a_reset_that_was_carried_out_is_ignored() -> None:
    world = reading_world()
    world.stored = {}
    world.run(Reset(offsets={0: 5}))
    assert world.made(RemoveOffsets) == world.made(KillTask) == []
    world.run(Reset(offsets={0: 0}))
    assert len(world.made(RemoveOffsets)) == 1


def test_a_reset_leaves_what_was_published_since_it_was_asked_for() -> None:
    world = reading_world(taskCount=3)
    world.latest = {0: 100, 1: 100, 2: 100}
    world.run()
    world.stored = {0: 70, 1: 5, 2: 7}
    world.run(Reset(offsets={0: 0, 1: 0, 2: 0}, seen={0: 5, 1: 5}))
    assert world.made(RemoveOffsets) == [
        RemoveOffsets(partitions=(2,)),
        RemoveOffsets(partitions=(1,), expected={1: 5}),
    ]
    assert "partition 0 was ignored: it is published up to 70 by now, and was up to 5" in " ".join(
        world.events
    )
    assert sorted(world.memory.reading) == [0]
    world.run(Reset(offsets={0: 0}, seen={0: 5}))
    assert world.made(RemoveOffsets) == world.made(KillTask) == []


def test_a_reset_of_another_stream_is_ignored() -> None:
    world = reading_world()
    world.run(Reset(stream="other"))
    assert world.made(RemoveOffsets) == world.made(KillTask) == []
    assert "'other'" in world.events[-1]


def test_reset_offsets_are_stored_beside_the_others() -> None:
    world = reading_world(taskCount=2)
    world.run(ResetOffsets(offsets={1: 40}))
    assert world.made(SetOffsets) == [SetOffsets(offsets={1: 40})]
    assert world.stored == {0: 0, 1: 40}
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{1: 40}]


def test_a_reset_while_publishing_can_not_be_undone_by_the_publication() -> None:
    world = reading_world()
    world.now += timedelta(hours=1)
    hand_over(world)
    (publisher,) = world.memory.publishing[0].tasks
    world.run(ResetOffsets(offsets={0: 50, 1: 50}))
    assert not world.publish(publisher)
    world.run()
    assert world.stored == {0: 50, 1: 50}


# Suspension, stop, idleness, scale


def test_a_suspended_supervisor_publishes_and_starts_nothing() -> None:
    world = reading_world()
    world.spec = replace(world.spec, suspended=True)
    hand_over(world)
    assert world.made(StartTask) == []
    assert world.memory.reading == {}
    assert world.memory.health.state is State.SUSPENDED


def test_a_graceful_stop_ends_once_all_groups_publish() -> None:
    world = reading_world()
    world.run(GracefulShutdown())
    assert not world.has_ended
    hand_over(world)
    assert world.has_ended
    assert world.memory.health.state is State.STOPPING
    assert world.made(KillTask) == []


def test_a_graceful_stop_does_not_wait_longer_than_its_time_out() -> None:
    world = reading_world()
    (silent,) = world.live
    world.run(GracefulShutdown())
    world.run()
    world.run(after=75)
    assert world.has_ended
    assert [each.task for each in world.made(KillTask)] == [silent]


def test_a_hard_stop_leaves_tasks_alone() -> None:
    world = reading_world()
    world.run(Shutdown())
    assert world.has_ended
    assert world.made(KillTask) == world.made(AskPause) == []
    assert EndSupervisor() in world.decisions


def test_an_idle_supervisor_starts_no_tasks_until_something_comes() -> None:
    idle = {"enabled": True, "inactiveAfterMillis": 60_000}
    world = reading_world(idleConfig=idle)
    world.run()
    # The run before this one was the last that found records.
    world.run(after=49)
    assert world.memory.health.state is State.RUNNING
    world.run(after=1)
    assert world.memory.health.state is State.IDLE
    world.now += timedelta(hours=1)
    hand_over(world)
    assert world.memory.reading == {}
    assert world.memory.health.state is State.IDLE
    world.latest = {0: 101, 1: 100}
    world.run()
    assert world.memory.health.state is State.RUNNING
    assert len(world.made(StartTask)) == 1


def test_the_time_of_a_suspension_does_not_make_a_supervisor_idle() -> None:
    world = reading_world(idleConfig={"enabled": True, "inactiveAfterMillis": 60_000})
    world.run()
    spec = world.spec
    world.spec = replace(spec, suspended=True)
    hand_over(world)
    assert all(map(world.publish, world.live))
    world.run()
    world.spec = spec
    world.run(after=3600)
    assert world.memory.health.state is State.RUNNING
    world.run(after=60)
    assert world.memory.health.state is State.IDLE


def test_records_that_nobody_has_read_keep_a_supervisor_from_being_idle() -> None:
    world = a_world(idleConfig={"enabled": True, "inactiveAfterMillis": 1_000})
    for _ in range(5):
        world.run()
        world.begin()
    assert world.memory.health.state is State.RUNNING


def test_some_groups_are_handed_over_on_request() -> None:
    world = reading_world(taskCount=2)
    world.run(HandOver(group_ids=frozenset({1, 7})))
    assert "no reading task group 7" in world.events[-1]
    world.run()
    assert [each.group_id for each in world.made(StartStandby)] == [1]
    assert world.made(AskPause) == []
    world.begin()
    world.run()
    assert [each.tasks for each in world.made(AskPause)] == [world.memory.reading[1].tasks]


def test_a_new_number_of_groups_is_saved_once_all_are_handed_over() -> None:
    world = reading_world()
    world.run(Scale(task_count=2))
    world.run()
    assert world.made(SaveTaskCount) == world.made(StartTask) == []
    world.answer()
    world.run()
    assert world.made(SaveTaskCount) == [SaveTaskCount(task_count=2)]
    world.answer()
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{0: 100}, {1: 100}]
    assert len(world.memory.publishing) == 1


def test_a_failed_publication_ends_all_groups_that_build_on_it_whatever_their_layout() -> None:
    world = reading_world()
    world.run(Scale(task_count=2))
    hand_over(world)
    world.run()
    world.begin()
    fail_publication(world)
    assert [dict(each.starts) for each in world.made(StartTask)] == [{0: 0}, {1: 0}]


@pytest.mark.parametrize("why", ["suspended", "publishing", "same", "soon", "pausing"])
def test_a_scale_is_refused(why: str) -> None:
    scaler = {"taskCountMin": 1, "taskCountMax": 9}
    world = reading_world(autoScalerConfig=scaler)
    count = 2
    if why == "suspended":
        world.spec = replace(world.spec, suspended=True)
    elif why == "publishing":
        world.now += timedelta(hours=1)
        hand_over(world)
    elif why == "same":
        count = 1
    elif why == "soon":
        world.memory = replace(world.memory, last_scaled_at=world.now)
    else:
        world.run(HandOver(group_ids=frozenset({0})))
        world.run()
        world.begin()
        world.run()
    world.run(Scale(task_count=count))
    assert world.memory.rescaling is None


# Bounded ranges


def _bounded(**io: Any) -> World:
    bounds = {
        "startSequenceNumbers": {"0": 10, "1": 20},
        "endSequenceNumbers": {"0": 50, "1": 20},
    }
    return a_world(boundedStreamConfig=bounds, **io)


def test_a_bounded_range_is_read_to_its_ends_and_ends_the_supervisor() -> None:
    world = _bounded(replicas=2)
    world.run()
    # Partition 1 has nothing to read.
    assert [(each.starts, each.ends) for each in world.made(StartTask)] == [({0: 10}, {0: 50})] * 2
    world.begin()
    first, second = world.live
    world.read(first)
    world.run()
    assert len(world.memory.publishing) == 1
    assert world.publish(first)
    world.run()
    assert [each.task for each in world.made(StopTask)] == [second]
    world.run()
    assert EndSupervisor(is_complete=True) in world.decisions
    assert world.published == [(0, 10, 50)]


def test_a_bounded_range_may_be_handed_over_on_its_way() -> None:
    world = _bounded()
    world.run()
    world.begin()
    world.read(world.live[0], 15)
    world.run(after=3600)
    world.answer()
    world.run()
    assert [(each.starts, each.ends) for each in world.made(StartTask)] == [({0: 25}, {0: 50})]


def test_a_bounded_range_before_which_something_is_missing_says_so() -> None:
    world = _bounded()
    world.stored = {0: 5}
    world.run()
    assert "reset its offsets first" in world.memory.health.errors[-1].text
    assert world.made(StartTask) == []


def test_a_bounded_range_of_a_partition_that_does_not_exist_says_so() -> None:
    world = _bounded()
    world.latest = {0: 100}
    world.run()
    assert "no partition 1" in world.memory.health.errors[-1].text


# Notices and scale


def test_a_queue_drops_a_notice_that_equals_a_waiting_one() -> None:
    queue = NoticeQueue()
    assert queue.put(Run())
    assert queue.put(Reset(offsets={0: 1}))
    assert not queue.put(Run())
    assert not queue.put(Reset(offsets={0: 1}))
    assert queue.put(Reset(offsets={0: 2}))
    assert len(queue) == 3
    assert queue.take() == Run()
    assert queue.put(Run())
    assert queue.take() == Reset(offsets={0: 1})


def test_an_empty_queue_has_nothing_to_take() -> None:
    assert NoticeQueue().take() is None


@pytest.mark.parametrize(
    ("lags", "count", "wanted"),
    [
        ([], 2, 2),
        ([6_000_000] * 3 + [0] * 7, 2, 4),
        ([6_000_000] * 2 + [2_000_000] * 8, 2, 2),
        ([6_000_000] * 9, 7, 8),
        ([6_000_000] * 9, 8, 8),
        ([0] * 9 + [2_000_000], 2, 1),
        ([0] * 9, 1, 1),
        ([0] * 8 + [2_000_000] * 2, 2, 2),
    ],
)
def test_the_number_of_groups_follows_the_lag(lags: list[int], count: int, wanted: int) -> None:
    config = {"enableTaskAutoScaler": True, "taskCountMin": 1, "taskCountMax": 8}
    rule = a_spec(autoScalerConfig=config).io.scaling
    assert rule is not None
    assert wanted_task_count(rule, lags, task_count=count, partitions=20) == wanted
    assert wanted_task_count(rule, lags, task_count=count, partitions=1) <= count


def test_a_duration_begins_when_the_task_reads_or_five_minutes_after_its_claim() -> None:
    world = a_world(replicas=2)
    world.run()
    (reads, hangs) = world.live
    for name in world.live:
        world.change(name, assigned=True, assigned_at=world.now)
    world.run(after=3700)
    world.begin(reads)
    assert world.made(AskPause) == []
    world.fail(reads)
    world.run(after=185)
    assert world.made(AskPause) == []
    world.run(after=15)
    assert hangs in world.made(AskPause)[0].tasks
    world = a_world()
    world.run()
    (reads,) = world.live
    world.change(reads, assigned_at=world.now)
    world.now += timedelta(minutes=4)
    world.begin(reads)
    world.run(after=3599)
    assert world.made(AskPause) == []
    world.begin()
    world.run(after=1)
    assert world.made(AskPause)
