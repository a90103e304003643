"""The course of a stream task: orders and places in, limits and reports out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.streams.tasks import (
    Assignment,
    OrderKind,
    Orders,
    Sequence,
    TaskReport,
    TaskStatus,
)
from worker.spark.streaming.course import Course, OrderError
from worker.spark.streaming.documents import Place
from worker.spark.streaming.ranges import next_offsets

START = {0: 10, 1: 20}


def begun(
    checkpoints: Mapping[int, Mapping[int, int]] | None = None,
    ends: Mapping[int, int] | None = None,
) -> Course:
    assignment = Assignment(
        name="t",
        supervisor="flights",
        version=1,
        group_id=0,
        base_sequence="b",
        starts=START,
        checkpoints=checkpoints or {0: START},
        ends=ends,
    )
    return Course.begin(assignment)


def at(course: Course, offsets: Mapping[int, int], *, version: int | None = None) -> Course:
    """The source tells its place; it knows the limits unless another version is given."""
    known = course.limits.version if version is None else version
    return course.placed(Place(version=known, offsets=offsets))


def order(version: int, command: OrderKind, **more: Any) -> Orders:
    return Orders(version=version, command=command, **more)


def end(version: int, ends: Mapping[int, int], sequence: int = 0, *, finish: bool = True) -> Orders:
    return order(version, OrderKind.END, end=ends, sequence=sequence, finish=finish)


def told(course: Course) -> TaskReport:
    return course.report({}, {}, {})


def test_a_task_starts_reads_and_tells_its_place() -> None:
    course = begun()
    assert (told(course).state, told(course).current) == (TaskStatus.STARTING, START)
    assert (course.limits.paused, course.limits.ends) == (False, None)
    course = at(course, {0: 12, 1: 20})
    report = course.report({0: 15, 1: 20}, {"processed": 2}, {"trouble": ""})
    assert (report.state, report.current, report.lag) == (
        TaskStatus.READING,
        {0: 12, 1: 20},
        {0: 3, 1: 0},
    )
    assert (report.counts, report.errors) == ({"processed": 2}, {"trouble": ""})
    assert report.sequences == (Sequence(id=0, start=START),)


def test_a_pause_is_obeyed_where_the_source_stops() -> None:
    course = at(begun(), {0: 12, 1: 20})
    before = course.limits.version
    course = course.ordered(order(1, OrderKind.PAUSE))
    assert course.limits.paused
    # A batch is running, which was planned before the source heard of it.
    course = at(course, {0: 15, 1: 21}, version=before)
    assert (told(course).state, told(course).obeyed) == (TaskStatus.READING, 0)
    course = at(course, {0: 15, 1: 21})
    report = told(course)
    assert (report.state, report.obeyed, report.current) == (TaskStatus.PAUSED, 1, {0: 15, 1: 21})
    assert course.ordered(order(1, OrderKind.PAUSE)) is course
    course = course.ordered(order(2, OrderKind.RESUME))
    assert (told(course).state, told(course).obeyed) == (TaskStatus.READING, 2)
    assert not course.limits.paused


def test_a_task_finishes_at_the_ends_that_were_agreed() -> None:
    course = at(begun().ordered(order(1, OrderKind.PAUSE)), {0: 15, 1: 21})
    ends = {0: 18, 1: 21}
    course = course.ordered(end(2, ends))
    assert (told(course).state, told(course).obeyed) == (TaskStatus.READING, 2)
    assert (course.limits.paused, course.limits.ends) == (False, ends)
    assert course.ordered(end(3, ends)).sequences == course.sequences
    course = at(at(course, {0: 16, 1: 21}), ends)
    assert told(course).state is TaskStatus.PUBLISHING
    assert course.next_to_publish == Sequence(id=0, start=START, end=ends)
    # A late order to pause is no reason to wait.
    assert told(course.ordered(order(4, OrderKind.PAUSE))).obeyed == 4
    course = course.published(0)
    assert course.all_published
    assert told(course).sequences[0].published


def test_after_a_checkpoint_the_next_sequence_begins_where_the_last_one_ends() -> None:
    course = at(begun().ordered(order(1, OrderKind.PAUSE)), {0: 15, 1: 21})
    ends = {0: 18, 1: 25}
    course = course.ordered(end(2, ends, finish=False))
    assert told(course).sequences == (
        Sequence(id=0, start=START, end=ends),
        Sequence(id=1, start=ends),
    )
    # It is at the ends, but may not know yet that it has to stop there.
    assert at(course, ends, version=course.limits.version - 1).next_to_publish is None
    course = at(course, ends)
    assert course.next_to_publish == course.sequences[0]
    assert (course.reading, course.limits.ends, course.all_read) == (1, None, False)
    course = at(course.ordered(order(3, OrderKind.PAUSE)), {0: 20, 1: 25})
    course = at(course.ordered(end(4, {0: 20, 1: 25}, 1)), {0: 20, 1: 25})
    assert (course.all_read, course.all_published) == (True, False)
    assert course.published(0).next_to_publish == course.sequences[1]


def test_a_substitute_goes_through_the_sequences_that_its_group_has_closed() -> None:
    first, second = {0: 15, 1: 25}, {0: 16, 1: 30}
    course = begun({2: first, 3: second})
    assert (course.at, course.limits.ends) == (first, second)
    course = course.ordered(end(1, {0: 17, 1: 30}, 3))
    assert course.limits.ends == second
    course = at(course, second)
    assert (course.reading, course.limits.ends) == (1, {0: 17, 1: 30})


@pytest.mark.parametrize(
    ("orders", "problem"),
    [
        (end(1, {0: 14, 1: 25}), "can't end at"),
        (end(1, {0: 15}), "has not the partitions"),
        (end(1, {0: 15, 1: 25}, 7), "was told to end its sequence 7; it has 0"),
        (order(1, OrderKind.END, sequence=0), "was told to end its sequence 0"),
    ],
)
def test_an_order_that_can_not_be_obeyed_is_an_error(orders: Orders, problem: str) -> None:
    with pytest.raises(OrderError, match=problem):
        at(begun(), {0: 15, 1: 21}).ordered(orders)


def test_two_ends_for_one_sequence_are_an_error() -> None:
    course = at(begun(), {0: 15, 1: 21}).ordered(end(1, {0: 15, 1: 21}))
    with pytest.raises(OrderError, match="sequence 0 was to end at"):
        course.ordered(end(2, {0: 15, 1: 22}))


def test_a_full_sequence_is_closed_before_anything_else_is_read() -> None:
    assert not begun().filled().full, "nothing was read of it"
    course = at(begun(), {0: 15, 1: 21}).filled()
    assert told(course).full is None, "it may still read"
    course = at(course, {0: 16, 1: 21})
    assert (told(course).state, told(course).full) == (TaskStatus.PAUSED, START)
    course = course.ordered(order(1, OrderKind.RESUME))
    assert (told(course).obeyed, course.limits.paused) == (1, True)
    course = course.ordered(end(2, {0: 16, 1: 21}, finish=False))
    assert (told(course).full, course.limits.paused) == (None, False)


def test_a_bounded_range_ends_by_itself() -> None:
    ends = {0: 12, 1: 20}
    course = begun(ends=ends)
    assert course.limits.ends == ends
    course = at(course, ends)
    assert (told(course).state, course.next_to_publish) == (
        TaskStatus.PUBLISHING,
        Sequence(id=0, start=START, end=ends),
    )
    assert at(begun(ends=START), START).all_read


def test_a_stopped_task_has_nothing_more_to_do() -> None:
    course = begun().ordered(order(4, OrderKind.STOP))
    assert (course.stopped, told(course).obeyed) == (True, 4)


@dataclass
class Source:
    """A source as Spark runs it: it asks between two batches, and does what it then knows."""

    latest: dict[int, int]
    place: Place = field(default_factory=lambda: Place(version=0, offsets=START))
    batches: list[tuple[int, dict[int, int], dict[int, int]]] = field(default_factory=list)

    def ask(self, course: Course, rows: int) -> None:
        begin = dict(self.place.offsets)
        self.place = Place(version=course.limits.version, offsets=begin)
        end_ = next_offsets(begin, self.latest, course.limits, rows)
        if end_ != begin:
            # The place is told when Spark asks again; the batch is of what the task reads now.
            self.batches.append((course.sequences[course.reading].id, begin, end_))
            self.place = Place(version=course.limits.version, offsets=end_)


@given(
    st.lists(
        st.sampled_from(("batch", "look", "grow", "pause", "resume", "check", "full")), max_size=60
    ),
    st.integers(1, 9),
)
def test_sequences_hold_every_record_once_whatever_comes_in_which_order(
    steps: list[str], rows: int
) -> None:
    course, source = begun(), Source(latest=dict(START))
    steps = [*steps, "pause", "batch", "look", "finish", *["batch", "look"] * 80]
    for number, step in enumerate(steps, 1):
        paused = told(course).state is TaskStatus.PAUSED and course.heard.version == course.obeyed
        match step:
            case "batch" if not course.all_read:
                source.ask(course, rows)
            case "look" if not course.all_read:
                course = course.placed(source.place)
            case "grow":
                source.latest = {each: offset + 5 for each, offset in source.latest.items()}
            case "pause" if not course.all_read:
                course = course.ordered(order(number, OrderKind.PAUSE))
            case "resume":
                course = course.ordered(order(number, OrderKind.RESUME))
            case "full":
                course = course.filled()
            case "check" | "finish" if paused or step == "finish":
                last = course.sequences[-1]
                if last.end is None:
                    ends = {
                        each: max(offset, last.start[each], source.place.offsets[each])
                        for each, offset in course.at.items()
                    }
                    finish = step == "finish"
                    course = course.ordered(end(number, ends, last.id, finish=finish))
    assert course.all_read
    position = {sequence.id: dict(sequence.start) for sequence in course.sequences}
    for sequence_id, begin, end_ in source.batches:
        assert position[sequence_id] == begin
        position[sequence_id] = end_
    assert [position[each.id] for each in course.sequences] == [
        each.end for each in course.sequences
    ]
