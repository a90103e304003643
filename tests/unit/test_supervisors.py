"""A supervisor's decisions: groups, replicas, hand-overs, checkpoints and what other owners left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from common.model.streams.sequences import base_sequence_name, work_of
from common.model.streams.tasks import TaskStatus
from master.supervisors.decisions import (
    AskPause,
    AssignTask,
    KillTask,
    RecordStarts,
    Remember,
    RemoveOffsets,
    ResumeTasks,
    ScheduleRun,
    SetEnds,
    StartStandby,
    StartTask,
    StopTask,
)
from master.supervisors.health import State
from master.supervisors.notices import (
    Checkpoint,
)
from master.supervisors.view import StreamTask, TaskEnd
from tests.unit.stream_specs import a_spec
from tests.unit.stream_world import (
    NOON,
    World,
    a_world,
    fail_publication,
    hand_over,
    reading_world,
)

HOUR = 3600


def test_a_first_run_makes_a_group_for_each_remainder_with_its_replicas() -> None:
    world = a_world({0: 9, 1: 9, 2: 9}, taskCount=2, replicas=2)
    world.run()
    started = world.made(StartTask)
    assert [(each.group_id, dict(each.starts)) for each in started] == [
        (0, {0: 0, 2: 0}),
        (0, {0: 0, 2: 0}),
        (1, {1: 0}),
        (1, {1: 0}),
    ]
    assert len({each.name for each in started}) == 4
    assert started[0].base_sequence == started[1].base_sequence
    assert started[0].name.startswith(started[0].base_sequence)
    assert world.memory.health.state is State.RUNNING
    assert world.decisions[-1] == Remember(memory=world.memory)


def test_more_groups_than_partitions_are_not_made() -> None:
    world = a_world({0: 9, 1: 9}, taskCount=10)
    world.run()
    assert sorted(world.memory.reading) == [0, 1]


@pytest.mark.parametrize(("earliest", "start"), [("true", 3), ("false", 9)])
def test_the_first_start_is_asked_of_the_stream_and_stored_at_once(
    earliest: str, start: int
) -> None:
    world = a_world({0: 9}, useEarliestOffset=earliest)
    world.earliest = {0: 3}
    world.run()
    assert world.made(RecordStarts) == [RecordStarts(offsets={0: start})]
    assert world.made(StartTask)[0].starts == {0: start}
    world.latest = {0: 50}
    world.fail(world.live[0])
    world.run()
    # Not the latest of now: the records in between would be lost.
    assert world.made(StartTask)[0].starts == {0: start}


def test_a_stored_offset_comes_before_the_stream() -> None:
    world = a_world({0: 9})
    world.stored = {0: 5}
    world.run()
    assert world.made(StartTask)[0].starts == {0: 5}
    assert world.made(RecordStarts) == []


def test_a_run_within_a_second_of_the_last_is_put_off() -> None:
    world = a_world()
    world.run()
    at = world.now
    assert world.run(after=0.5) == (ScheduleRun(at=at + timedelta(seconds=1)),)


def test_a_failed_task_is_replaced_at_the_starts_of_its_group() -> None:
    world = reading_world(replicas=2)
    before = world.memory.reading[0]
    failed = world.live[0]
    world.fail(failed)
    world.run()
    after = world.memory.reading[0]
    assert failed not in after.tasks
    assert len(after.tasks) == 2
    assert (after.starts, after.base_sequence) == (before.starts, before.base_sequence)
    assert world.made(StartTask)[0].base_sequence == before.base_sequence
    assert world.memory.health.failed_tasks == 1


def test_a_task_that_is_gone_counts_as_failed() -> None:
    world = reading_world()
    del world.tasks[world.live[0]]
    world.run()
    assert len(world.made(StartTask)) == 1


def test_nothing_changes_while_all_is_well() -> None:
    world = reading_world(taskCount=2, replicas=2)
    world.run()
    assert [type(each) for each in world.decisions] == [ScheduleRun, Remember]


def test_a_group_that_has_read_long_enough_is_handed_over_at_the_greatest_offsets() -> None:
    world = a_world({0: 100}, replicas=2)
    world.run()
    fast, slow = world.live
    world.begin()
    world.read(fast, 60)
    world.read(slow, 40)
    world.run(after=HOUR)
    asked = world.made(AskPause)
    assert [each.tasks for each in asked] == [(fast, slow)]
    world.answer(fast)
    world.run()
    assert world.made(SetEnds) == []
    world.answer(slow)
    world.run()
    ends = world.made(SetEnds)[0]
    assert (ends.tasks, ends.ends, ends.finish) == ((fast, slow), {0: 60}, True)
    # The next group starts there at once, without waiting for the publication.
    assert {dict(each.starts)[0] for each in world.made(StartTask)} == {60}
    assert len(world.memory.publishing) == 1
    assert world.stored == {0: 0}


def test_a_publication_ends_the_other_replicas() -> None:
    world = reading_world(replicas=2)
    first, second = world.live
    world.now += timedelta(hours=1)
    hand_over(world)
    assert world.publish(first)
    world.run()
    assert [each.task for each in world.made(StopTask)] == [second]
    assert world.memory.publishing == ()
    assert world.stored == {0: 100, 1: 100}


def test_a_task_that_does_not_pause_in_time_is_killed_and_the_others_go_on() -> None:
    world = reading_world(replicas=2)
    good, silent = world.live
    world.run(after=HOUR)
    world.answer(good)
    world.run(after=79)
    assert world.made(KillTask) == []
    world.run(after=1)
    assert [each.task for each in world.made(KillTask)] == [silent]
    assert world.made(SetEnds)[0].tasks == (good,)


def test_a_group_of_which_no_task_pauses_is_read_again() -> None:
    world = reading_world()
    (silent,) = world.live
    world.run(after=HOUR)
    world.run(after=80)
    assert [each.task for each in world.made(KillTask)] == [silent]
    assert world.made(StartTask)[0].starts == {0: 0, 1: 0}


def test_a_task_that_does_not_note_its_ends_is_killed() -> None:
    world = reading_world(replicas=2)
    good, silent = world.live
    world.run(after=HOUR)
    world.answer()
    world.run()
    world.answer(good)
    world.run(after=80)
    assert [each.task for each in world.made(KillTask)] == [silent]
    assert world.memory.publishing[0].tasks == (good,)


def test_an_unassigned_task_is_killed_at_the_hand_over() -> None:
    world = a_world(replicas=2)
    world.run()
    good, waiting = world.live
    world.begin(good)
    world.run(after=HOUR)
    assert [each.task for each in world.made(KillTask)] == [waiting]
    assert world.made(AskPause)[0].tasks == (good,)


def test_no_more_groups_end_at_once_than_stop_task_count() -> None:
    world = reading_world(taskCount=2, stopTaskCount=1)
    world.run(after=HOUR)
    assert len(world.made(AskPause)) == 1
    world.run()
    assert world.made(AskPause) == []


def test_runs_are_scheduled_for_the_end_of_the_duration_and_a_minute_before() -> None:
    world = a_world({0: 9})
    world.run()
    world.begin()
    begun = world.now
    world.run()
    assert world.made(ScheduleRun) == [ScheduleRun(at=begun + timedelta(minutes=59))]
    world.run(after=3520)
    assert world.made(StartStandby) == []
    world.run()
    world.begin()
    world.run(after=30)
    assert ScheduleRun(at=begun + timedelta(hours=1)) in world.decisions


def _late_publication(world: World) -> None:
    world.run(after=1800)


@pytest.mark.parametrize("end", [fail_publication, _late_publication])
def test_a_publication_that_fails_has_its_range_read_again(end: Callable[[World], None]) -> None:
    world = reading_world()
    world.now += timedelta(hours=1)
    hand_over(world)
    world.begin()
    successor = world.memory.reading[0].tasks
    end(world)
    assert set(successor) <= {each.task for each in world.made(KillTask)}
    assert world.memory.publishing == ()
    assert world.made(StartTask)[0].starts == {0: 0, 1: 0}
    assert "read again" in world.events[-1]


def test_an_earlier_group_that_publishes_still_tells_the_start_of_one_that_is_read_again() -> None:
    world = a_world({0: 10})
    world.run()
    world.begin()
    world.read(world.live[0])
    world.now += timedelta(hours=1)
    hand_over(world)
    world.begin()
    (reader,) = world.memory.reading[0].tasks
    world.fail(reader)
    world.run()
    assert world.made(StartTask)[0].starts == {0: 10}


def test_a_reading_group_that_succeeded_is_followed_from_the_store() -> None:
    world = reading_world(replicas=2)
    first, second = world.live
    world.stored = {0: 70, 1: 80}
    world.change(first, end=TaskEnd.SUCCESS)
    world.run()
    assert [each.task for each in world.made(StopTask)] == [second]
    assert world.made(StartTask)[0].starts == {0: 70, 1: 80}


def test_message_times_are_fixed_when_a_group_is_made() -> None:
    world = a_world(lateMessageRejectionPeriod="PT2H", earlyMessageRejectionPeriod="PT1H")
    world.run(after=0)
    started = world.made(StartTask)[0]
    assert started.min_time == NOON - timedelta(hours=2)
    assert started.max_time == NOON + timedelta(hours=2)
    world.begin()
    world.fail(world.live[0])
    world.run()
    # No other task was left, so it is another group, with times of its own.
    assert world.made(StartTask)[0].min_time == NOON - timedelta(hours=2) + timedelta(seconds=10)


def test_a_start_date_rejects_what_is_before_it() -> None:
    world = a_world(lateMessageRejectionStartDateTime="2012-12-31T00:00:00Z")
    world.run()
    assert world.made(StartTask)[0].min_time == NOON - timedelta(hours=36)
    assert world.made(StartTask)[0].max_time is None


# Partitions


def test_new_partitions_are_read_from_the_earliest_after_the_transition() -> None:
    world = reading_world(useEarliestOffset="false")
    world.latest = {0: 100, 1: 100, 2: 50}
    world.run()
    due = world.now + timedelta(minutes=2)
    assert world.memory.early_stop_at == due
    assert ScheduleRun(at=due - timedelta(minutes=1)) in world.decisions
    world.run(after=60)
    assert len(world.made(StartStandby)) == 1
    assert ScheduleRun(at=world.now + timedelta(seconds=10)) in world.decisions
    world.begin()
    world.run(after=59)
    assert world.made(AskPause) == []
    world.run(after=1)
    assert len(world.made(AskPause)) == 1
    world.answer()
    world.run()
    assert world.made(AssignTask)[0].starts == {0: 100, 1: 100, 2: 0}
    assert world.memory.early_stop_at is None


def test_a_new_owner_reads_partitions_from_the_earliest_that_came_between() -> None:
    world = reading_world(useEarliestOffset="false", taskCount=3)
    world.lose_master()
    world.latest = {0: 100, 1: 100, 2: 50}
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{2: 0}]


def test_a_group_of_new_partitions_alone_begins_at_once() -> None:
    world = reading_world(taskCount=3)
    world.latest = {0: 100, 1: 100, 2: 50}
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{2: 0}]
    assert world.memory.early_stop_at is None


def test_partitions_that_are_gone_stay_known() -> None:
    world = reading_world()
    world.latest = {0: 100}
    world.run()
    assert world.memory.partitions == (0, 1)


def test_a_partition_that_is_gone_fails_the_run_and_the_others_are_read() -> None:
    world = reading_world()
    world.latest = {0: 100}
    world.fail(world.live[0])
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{0: 0}]
    assert "partition 1 of 'events' is gone" in world.memory.health.errors[-1].text
    world.begin()
    world.run()
    assert world.memory.early_stop_at is None
    world.latest = {0: 100, 1: 100}
    world.run()
    world.run(after=120)
    world.begin()
    world.run()
    world.answer()
    world.run()
    assert world.made(AssignTask)[0].starts == {0: 0, 1: 0}


def test_a_task_whose_row_says_nothing_is_stopped() -> None:
    world = a_world()
    world.tasks["odd"] = StreamTask(name="odd", base_sequence="", starts={}, checkpoints={})
    world.tasks["odder"] = replace(world.tasks["odd"], name="odder", status=TaskStatus.PUBLISHING)
    world.run()
    assert [each.task for each in world.made(StopTask)] == ["odd"]
    assert world.memory.publishing[0].tasks == ("odder",)


def test_an_expired_offset_fails_the_run_with_advice_and_harms_no_other_group() -> None:
    world = a_world({0: 100, 1: 100}, taskCount=2)
    world.stored, world.earliest = {0: 5, 1: 50}, {0: 20, 1: 20}
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{1: 50}]
    error = world.memory.health.errors[-1]
    assert "offset 5 of partition 0" in error.text
    assert "resetOffsetAutomatically" in error.text
    assert world.memory.health.failed_runs == 1


def test_expired_offsets_are_reset_automatically_one_partition_a_run() -> None:
    world = a_world({0: 100, 1: 100}, tuningConfig={"resetOffsetAutomatically": True})
    world.stored, world.earliest = {0: 5, 1: 6}, {0: 20, 1: 20}
    world.run()
    assert world.made(RemoveOffsets) == [RemoveOffsets(partitions=(0,), expected={0: 5})]
    assert "has expired" in world.events[-1]
    world.run()
    assert world.made(RemoveOffsets) == [RemoveOffsets(partitions=(1,), expected={1: 6})]
    world.run()
    assert world.made(StartTask)[0].starts == {0: 20, 1: 20}


# Checkpoints


def _checkpoint(world: World, previous: dict[int, int]) -> Checkpoint:
    base = world.memory.reading[0].base_sequence
    return Checkpoint(group_id=0, base_sequence=base, previous=previous)


def _checkpointed(world: World) -> None:
    world.run(_checkpoint(world, {0: 0, 1: 0}))
    world.answer()
    world.run()
    world.answer()
    world.run()


def test_a_checkpoint_closes_a_sequence_and_all_read_on() -> None:
    world = reading_world(replicas=2)
    _checkpointed(world)
    assert world.memory.reading[0].checkpoints == {0: {0: 0, 1: 0}, 1: {0: 100, 1: 100}}
    assert world.memory.reading[0].conversation is None
    assert {task.status for task in world.tasks.values()} == {TaskStatus.READING}
    assert not any(task.finishing for task in world.tasks.values())


def test_a_second_request_for_the_same_checkpoint_changes_nothing() -> None:
    world = reading_world(replicas=2)
    world.run(_checkpoint(world, {0: 0, 1: 0}))
    before = world.memory
    world.run(_checkpoint(world, {0: 0, 1: 0}))
    assert world.memory == before
    _checkpointed(world)
    before = world.memory
    world.run(_checkpoint(world, {0: 0, 1: 0}))
    assert (world.memory, world.made(AskPause)) == (before, [])


def test_a_checkpoint_after_one_that_never_was_is_an_error() -> None:
    world = reading_world()
    world.run(_checkpoint(world, {0: 7, 1: 7}))
    assert "never had" in world.memory.health.errors[-1].text
    assert world.made(AskPause) == []


def test_a_checkpoint_of_a_group_that_publishes_is_ignored_and_of_an_unknown_one_an_error() -> None:
    world = reading_world()
    asked = _checkpoint(world, {0: 0, 1: 0})
    world.now += timedelta(hours=1)
    hand_over(world)
    world.run(asked)
    assert "publishes" in world.events[-1]
    world.run(replace(asked, base_sequence="unknown"))
    assert "unknown" in world.memory.health.errors[-1].text


def test_a_checkpoint_without_new_records_only_resumes() -> None:
    world = a_world()
    world.run()
    world.begin()
    world.run(_checkpoint(world, {0: 0, 1: 0}))
    world.answer()
    world.run()
    assert len(world.made(ResumeTasks)) == 1
    assert sorted(world.memory.reading[0].checkpoints) == [0]


def test_a_replica_starts_at_the_checkpoint_that_is_published() -> None:
    world = reading_world(replicas=2)
    _checkpointed(world)
    first, second = world.live
    world.publish_first(first)
    world.fail(second)
    world.run()
    started = world.made(StartTask)[0]
    assert started.checkpoints == {1: {0: 100, 1: 100}}
    # It is the same work, whatever of it is done.
    assert started.starts == {0: 0, 1: 0}
    assert world.tasks[first].end is None


def test_tasks_whose_checkpoints_disagree_are_killed() -> None:
    world = reading_world(replicas=3)
    first, second, third = world.live
    world.change(second, checkpoints={0: {0: 0, 1: 0}, 1: {0: 9, 1: 9}})
    world.fail(third)
    world.run()
    assert [each.task for each in world.made(KillTask)] == [second]
    assert first in world.memory.reading[0].tasks


def test_a_group_that_disagrees_with_the_store_is_dropped() -> None:
    world = reading_world(replicas=2)
    first, second = world.live
    world.stored = {0: 55, 1: 55}
    world.fail(second)
    world.run()
    assert first in [each.task for each in world.made(KillTask)]
    assert world.made(StartTask)[0].starts == {0: 55, 1: 55}


# A new owner


def test_a_new_owner_joins_the_tasks_of_the_former() -> None:
    world = reading_world(taskCount=2, replicas=2)
    groups = world.memory.reading
    tasks = set(world.live)
    world.lose_master()
    world.run()
    assert set(world.live) == tasks
    assert world.made(StartTask) == []
    assert {each.base_sequence for each in world.memory.reading.values()} == {
        each.base_sequence for each in groups.values()
    }


def test_a_new_owner_resumes_paused_tasks() -> None:
    world = reading_world(replicas=2)
    world.run(after=HOUR)
    world.answer()
    world.lose_master()
    world.run()
    assert [set(each.tasks) for each in world.made(ResumeTasks)] == [set(world.live)]


def test_a_new_owner_lets_publishing_tasks_finish_and_starts_after_them() -> None:
    world = reading_world(replicas=2)
    world.now += timedelta(hours=1)
    world.run()
    world.answer()
    world.run()
    successors = [each.name for each in world.made(StartTask)]
    for name in successors:
        del world.tasks[name]
    world.lose_master()
    world.run()
    assert len(world.memory.publishing) == 1
    assert len(world.memory.publishing[0].tasks) == 2
    assert world.made(StartTask)[0].starts == {0: 100, 1: 100}


def test_offsets_of_publishing_tasks_only_raise_the_next_start() -> None:
    world = reading_world(completionTimeout="P1D")
    world.now += timedelta(hours=1)
    hand_over(world)
    world.begin()
    for name in world.memory.reading[0].tasks:
        world.read(name)
    world.latest = {0: 120, 1: 120}
    for name in world.memory.reading[0].tasks:
        world.read(name)
    world.now += timedelta(hours=1)
    hand_over(world)
    assert len(world.memory.publishing) == 2
    for name in world.memory.reading[0].tasks:
        del world.tasks[name]
    world.lose_master()
    world.run()
    assert world.made(StartTask)[0].starts == {0: 120, 1: 120}


def test_an_unset_end_of_a_publishing_task_asks_the_store() -> None:
    world = a_world()
    base = base_sequence_name(
        world.spec, work_of(world.spec), starts={0: 0, 1: 0}, min_time=None, max_time=None
    )
    world.tasks["t"] = StreamTask(
        name="t",
        base_sequence=base,
        starts={0: 0, 1: 0},
        checkpoints={0: {0: 0, 1: 0}},
        status=TaskStatus.PUBLISHING,
        assigned=True,
        started=world.now,
    )
    world.stored = {0: 3, 1: 4}
    world.run()
    assert world.made(StartTask)[0].starts == {0: 3, 1: 4}


@pytest.mark.parametrize(
    "io", [{"topic": "other"}, {"inputFormat": {"type": "json"}, "taskCount": 2}]
)
def test_a_task_of_other_work_or_layout_is_stopped_and_killed_if_it_stays(
    io: dict[str, Any],
) -> None:
    world = reading_world()
    (old,) = world.live
    world.lose_master()
    world.spec = a_spec(useEarliestOffset=True, **io)
    world.run()
    assert [each.task for each in world.made(StopTask)] == [old]
    world.run()
    assert world.made(StopTask) == []
    world.run(after=80)
    assert [each.task for each in world.made(KillTask)] == [old]


def test_a_changed_specification_hands_reading_groups_over() -> None:
    world = reading_world()
    world.spec = a_spec(useEarliestOffset=True, topic="other")
    world.run()
    assert len(world.made(AskPause)) == 1
    assert world.made(KillTask) == world.made(StopTask) == []


def test_a_setting_that_only_paces_leaves_tasks_alone() -> None:
    world = reading_world()
    world.spec = a_spec(useEarliestOffset=True, period="PT1S", completionTimeout="PT1M")
    world.run()
    assert world.made(AskPause) == []
