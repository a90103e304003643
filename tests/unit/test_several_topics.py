"""Supervisors with a pattern of topics: names of partitions, groups, topics that come and go."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from common.errors import InvalidSpecError
from common.model.streams.bounded import read_bound, read_range_spec
from common.model.streams.partitions import (
    TopicPartition,
    group_of,
    read_chosen,
    read_partition,
)
from common.model.streams.progress import OpenTask, PartitionProgress, fed_partitions
from common.model.streams.reading import read_spec
from common.model.streams.sequences import work_of
from common.model.streams.spec import Bounds, KafkaFormat, SupervisorSpec
from common.model.streams.tasks import Assignment, TaskReport, offsets_document, offsets_of
from common.model.task_type import ValueFaultError
from common.store.master.supervisor_ports import SupervisorRows
from master.loops.supervisor_steps import view_of
from master.supervisors.decisions import AskPause, AssignTask, RecordStarts, StartTask
from master.supervisors.notices import Reset, ResetOffsets
from master.supervisors.status import status_of
from master.supervisors.view import Memory, StreamSnapshot
from tests.unit.stream_specs import SMALL, changed
from tests.unit.stream_world import World, hand_over
from worker.spark.streaming.documents import Limits
from worker.spark.streaming.ranges import next_offsets, pieces

IO = "spec.ioConfig"
EU, US, NEW = TopicPartition("eu", 0), TopicPartition("us", 0), TopicPartition("new", 0)
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def with_pattern(pattern: str = ".*", **io: Any) -> dict[str, Any]:
    document = changed(changed(SMALL, f"{IO}.topic", None), f"{IO}.topicPattern", pattern)
    for key, value in io.items():
        document = changed(document, f"{IO}.{key}", value)
    return document


def spec_of(document: dict[str, Any]) -> SupervisorSpec:
    spec = read_spec(document).spec
    assert isinstance(spec, SupervisorSpec)
    return spec


def a_world(latest: dict[TopicPartition, int], **io: Any) -> World:
    io = {"useEarliestOffset": True} | io
    return World(spec=spec_of(with_pattern(**io)), latest=dict(latest))


def mistakes(document: dict[str, Any]) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        read_spec(document)
    return "; ".join(caught.value.mistakes)


def test_a_partition_is_a_number_or_a_topic_with_a_number() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a.b-c", 0): 3}
    document = offsets_document(offsets)
    assert list(document) == ["a.b-c:0", "b:9", "b:10"]
    assert offsets_of(document) == offsets
    # Stored offsets of one topic keep their form.
    assert offsets_document({10: 1, 9: 2}) == {"9": 2, "10": 1}
    assert offsets_of({"9": 2, "10": 1}) == {9: 2, 10: 1}
    # After a change of the specification, old tasks may have the other kind of partitions.
    assert sorted([EU, 3, US, 1]) == [1, 3, EU, US]


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:", ":1", "a:-1", "-1", "01", "a:1:2", "a b:1", f"{'a' * 250}:1", "2147483648"],
)
def test_other_texts_are_no_partitions(text: str) -> None:
    with pytest.raises(ValueError, match="is not a partition"):
        read_partition(text)


def test_a_reset_names_partitions_and_whole_topics() -> None:
    assert read_chosen(["3", "eu:0", "us:*", "123:*"]) == ([3, EU], ["us", "123"])
    with pytest.raises(ValueError, match="is not a partition"):
        read_chosen(["u s:*"])


def test_documents_of_tasks_keep_partitions_of_topics() -> None:
    made = Assignment(
        name="t",
        supervisor="s",
        version=1,
        group_id=0,
        base_sequence="b",
        starts={EU: 1},
        checkpoints={0: {EU: 1}, 1: {EU: 5}},
    )
    read = Assignment.of(
        made.document(), name="t", supervisor="s", version=1, group_id=0, base_sequence="b"
    )
    assert read == made
    report = TaskReport(current={EU: 3, US: 4}, lag={EU: 0})
    assert TaskReport.of(report.document()) == report


def test_a_group_follows_from_topic_and_number_as_in_druid() -> None:
    # Math.abs(31 * topic.hashCode() + partition) % taskCount, by Java.
    assert [group_of(TopicPartition("clicks-eu", each), 7) for each in range(3)] == [2, 1, 0]
    assert group_of(TopicPartition("polygenelubricants", 0), 5) == 3
    assert group_of(10, 7) == 3


def test_a_pattern_of_several_topics_is_read() -> None:
    spec = spec_of(with_pattern("clicks-.*"))
    assert (spec.io.topic, spec.io.has_pattern) == ("clicks-.*", True)
    assert "possessive" in mistakes(with_pattern("a++"))
    assert work_of(spec) != work_of(spec_of(changed(SMALL, f"{IO}.topic", "clicks-.*")))
    # As Druid shows it.
    shown = with_pattern("clicks-.*", stream="clicks-.*")
    assert read_spec(shown).ignored == ()


def test_a_key_of_former_examples_of_druid_is_listed_as_without_effect() -> None:
    # Druid's documentation of 0.22 has it, and Druid drops it.
    format_ = {"type": "kafka", "valueFormat": {"type": "json"}, "headerLabelPrefix": "h."}
    read = read_spec(with_pattern(inputFormat=format_))
    assert read.ignored == ("spec.ioConfig.inputFormat.headerLabelPrefix",)
    assert isinstance(read.spec, SupervisorSpec)
    assert isinstance(read.spec.io.input_format, KafkaFormat)
    assert read.spec.io.input_format.header_prefix == "kafka.header."


def test_bounds_have_partitions_of_the_same_kind() -> None:
    bounds = {"startSequenceNumbers": {"eu:0": 1}, "endSequenceNumbers": {"eu:0": 9}}
    spec = spec_of(with_pattern(boundedStreamConfig=bounds))
    assert spec.io.bounds == Bounds(starts={EU: 1}, ends={EU: 9})
    numbers = {"startSequenceNumbers": {"0": 1}, "endSequenceNumbers": {"0": 9}}
    assert "must be a topic:number" in mistakes(with_pattern(boundedStreamConfig=numbers))
    one = changed(SMALL, f"{IO}.boundedStreamConfig", bounds)
    assert "must be a number" in mistakes(one)


def test_a_range_of_a_topic_takes_no_pattern() -> None:
    with pytest.raises(ValueFaultError, match="a range is of one topic"):
        read_range_spec(with_pattern())
    with pytest.raises(ValueFaultError):
        read_bound({"eu:0": 5})


def test_partitions_of_all_topics_are_grouped_and_their_starts_stored() -> None:
    world = a_world({EU: 9, US: 5}, useEarliestOffset="false")
    world.run()
    (started,) = world.made(StartTask)
    assert started.starts == {EU: 9, US: 5}
    assert world.made(RecordStarts) == [RecordStarts(offsets={EU: 9, US: 5})]
    several = a_world({TopicPartition("clicks-eu", each): 1 for each in range(3)}, taskCount=7)
    several.run()
    assert [each.group_id for each in several.made(StartTask)] == [0, 1, 2]


def test_a_topic_that_appears_is_read_from_its_earliest_record() -> None:
    world = a_world({EU: 9, US: 5}, useEarliestOffset="false")
    world.run()
    world.begin()
    world.latest[NEW] = 50
    world.earliest[NEW] = 20
    world.run()
    world.run(after=60)
    world.begin()
    world.run(after=60)
    assert len(world.made(AskPause)) == 1
    world.answer()
    world.run()
    assert world.made(AssignTask)[0].starts == {EU: 9, NEW: 20, US: 5}


def test_a_topic_that_is_deleted_leaves_once_its_tasks_end_and_returns_where_it_was() -> None:
    world = a_world({EU: 9, US: 5})
    world.run()
    world.begin()
    for name in world.live:
        world.read(name)
    del world.latest[US]
    world.run()
    assert world.memory.partitions == (EU,)
    assert [each for each in world.events if "topics left the supervisor: us" in each]
    # There is one alert. The records that were read of the topic are published.
    told = len(world.events)
    world.run(after=3600)
    world.answer()
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{EU: 9}]
    assert len(world.events) == told
    assert world.memory.publishing[0].ends == {EU: 9, US: 5}
    assert world.memory.health.state.is_healthy
    world.latest[US] = 8
    world.run()
    assert world.memory.partitions == (EU, US)
    assert world.memory.offsets[US] == 5


def test_a_topic_in_trouble_stays_and_the_others_are_read() -> None:
    world = a_world({EU: 9, US: 5})
    world.run()
    del world.latest[US]
    world.troubles = {"us": "no leader"}
    world.lose_master()
    for name in world.live:
        world.fail(name)
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{EU: 0}]
    assert world.memory.health.errors == ()
    world.memory = Memory(partitions=(EU, US))
    world.tasks.clear()
    world.run()
    assert world.memory.partitions == (EU, US)
    assert world.memory.health.errors[-1].text == "partition us:0 can't be read now: no leader"


def test_no_topic_that_matches_is_an_error_of_the_stream() -> None:
    world = a_world({EU: 1})
    world.latest.clear()
    world.run()
    assert world.memory.health.errors[-1].text == "no topic matches the pattern '.*'"


def test_another_pattern_keeps_the_offsets_of_all_topics() -> None:
    world = a_world({EU: 9, US: 5})
    world.run()
    world.begin()
    for name in world.live:
        world.read(name)
    world.spec = spec_of(with_pattern("eu.*", useEarliestOffset=True))
    del world.latest[US]
    hand_over(world)
    for name in tuple(world.live):
        world.publish(name)
    assert world.stored == {EU: 9, US: 5}
    world.spec = spec_of(with_pattern(useEarliestOffset="false"))
    world.latest[US] = 7
    world.run()
    world.begin()
    hand_over(world)
    assert world.memory.reading[0].starts == {EU: 9, US: 5}


def test_lag_and_status_are_by_topic_and_partition() -> None:
    world = a_world({EU: 9, US: 5})
    world.run()
    world.begin()
    view = world.view()
    status = status_of(view, world.memory, now=world.now)
    assert status["stream"] == ".*"
    assert status["minimumLag"] == {"eu:0": 9, "us:0": 5}
    assert (status["aggregateLag"], status["partitions"]) == (14, 2)
    assert status["latestOffsets"] == {"eu:0": 9, "us:0": 5}
    assert status["activeTasks"][0]["lag"] == {"eu:0": 9, "us:0": 5}


def test_one_partition_or_topic_is_reset_and_the_others_stay() -> None:
    world = a_world({EU: 9, US: 5})
    world.run()
    world.begin()
    world.run(Reset(offsets={US: 0}))
    assert EU in world.stored
    assert US not in world.stored
    world.run(ResetOffsets(offsets={US: 3}))
    world.run()
    assert [dict(each.starts) for each in world.made(StartTask)] == [{EU: 0, US: 3}]


def test_stored_offsets_count_for_the_kind_of_their_supervisor_alone() -> None:
    def stored(document: dict[str, Any]) -> Any:
        rows = SupervisorRows(
            version=1,
            is_tombstone=False,
            spec_version=1,
            document={},
            suspended=False,
            stored={0: ("events", 7), EU: ("eu", 8)},
            tasks=(),
            requests=(),
        )
        stream = StreamSnapshot(earliest={}, latest={})
        spec = spec_of(document)
        view = view_of(rows, spec=spec, work="", epoch=1, memory=Memory(), stream=stream)
        return view.stored

    assert stored(SMALL) == {0: 7}
    assert stored(with_pattern()) == {EU: 8}


def test_nobody_waits_for_a_topic_that_is_gone_and_that_no_task_reads() -> None:
    each = PartitionProgress(offset=5, since=NOON)
    stored = {0: each, EU: each, US: each}
    latest = {EU: 9}
    assert set(fed_partitions(stored, (), latest)) == {0, EU}
    reads = OpenTask(starts={US: 1})
    assert set(fed_partitions(stored, (reads,), latest)) == {0, EU, US}
    # Before the first query of the broker, no topic is known to be deleted.
    assert set(fed_partitions(stored, (), {})) == {0, EU, US}


def test_batches_are_shared_between_topics() -> None:
    begin, latest = {EU: 0, US: 10}, {EU: 100, US: 20}
    assert next_offsets(begin, latest, Limits(), 60) == {EU: 50, US: 20}
    ends = Limits(ends={EU: 4, US: 12})
    assert next_offsets(begin, latest, ends, None) == {EU: 4, US: 12}
    found = pieces(begin, {EU: 4, US: 12}, 2, 1)
    assert {each.partition for each in found} == {EU, US}
