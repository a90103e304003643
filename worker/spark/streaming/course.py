"""The course of a stream task: its sequences, the orders that it has heard, what it may read now.

Pure: orders of the supervisor and places of the source go in, limits for the source and reports to
the supervisor come out. Only between two batches does the source tell its place, and it never
passes the end of a sequence before the task has seen it there. So no batch belongs to two
sequences, and what a report says is done, is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, assert_never

from common.errors import SchedulerError
from common.model.streams.spec import Offsets
from common.model.streams.tasks import (
    Assignment,
    OrderKind,
    Orders,
    Sequence,
    TaskReport,
    TaskStatus,
)
from worker.spark.streaming.documents import Limits, Place


class OrderError(SchedulerError):
    """An order contradicts what the task has done. It ends, and its range is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The progress of a task. Sequences before `reading` have been read, the last may be open.

    `bound`: the end of a bounded range, where the task ends by itself. `settled`: the source has
    told its place since it knows the limits.
    """

    sequences: tuple[Sequence, ...]
    at: Offsets
    bound: Offsets | None = None
    reading: int = 0
    limits: Limits = field(default_factory=lambda: Limits(version=1))
    heard: Orders = field(default_factory=Orders)
    obeyed: int = 0
    has_begun: bool = False
    settled: bool = False
    full: bool = False
    stopped: bool = False

    @classmethod
    def begin(cls, assignment: Assignment) -> Course:
        """Return the course of a task that has done nothing yet."""
        starts = sorted(assignment.checkpoints.items())
        ends = [*(offsets for _, offsets in starts[1:]), None]
        sequences = tuple(
            Sequence(id=number, start=start, end=end)
            for (number, start), end in zip(starts, ends, strict=True)
        )
        return _limited(cls(sequences=sequences, at=starts[0][1], bound=assignment.ends))

    @property
    def all_read(self) -> bool:
        """True if there is nothing left but to publish."""
        return self.reading == len(self.sequences)

    @property
    def all_published(self) -> bool:
        return self.all_read and all(each.published for each in self.sequences)

    @property
    def next_to_publish(self) -> Sequence | None:
        """The first sequence that was read and is not published."""
        read = self.sequences[: self.reading]
        return next((each for each in read if not each.published), None)

    @property
    def is_open(self) -> bool:
        """True if the sequence that is read has no end yet, and some of it was read."""
        if self.all_read:
            return False
        present = self.sequences[self.reading]
        return present.end is None and dict(present.start) != dict(self.at)

    def ordered(self, orders: Orders) -> Course:
        """Take note of orders; those that are known already change nothing. Raises `OrderError`."""
        if orders.version <= self.heard.version:
            return self
        heard = replace(self, heard=orders)
        match orders.command:
            case OrderKind.STOP:
                return replace(heard, stopped=True, obeyed=orders.version)
            case OrderKind.PAUSE:
                # It is obeyed once the source has stopped, and has told where.
                obeyed = orders.version if self.all_read else self.obeyed
                return _limited(replace(heard, obeyed=obeyed))
            case OrderKind.RESUME:
                return _limited(replace(heard, obeyed=orders.version))
            case OrderKind.END:
                return _limited(replace(_ended(heard, orders), obeyed=orders.version))
            case _:
                assert_never(orders.command)

    def placed(self, place: Place) -> Course:
        """Take note of the source's place."""
        known = place.version >= self.limits.version
        moved = replace(self, at=place.offsets, has_begun=True, settled=known)
        if not known:
            return moved
        if self.heard.command is OrderKind.PAUSE and self.limits.paused:
            moved = replace(moved, obeyed=self.heard.version)
        while not moved.all_read:
            present = moved.sequences[moved.reading]
            if present.end is None and _is_at(moved, moved.bound):
                present = replace(present, end=moved.bound)
                moved = replace(moved, sequences=(*moved.sequences[:-1], present))
            if not _is_at(moved, present.end):
                break
            moved = replace(moved, reading=moved.reading + 1)
        return _limited(moved)

    def filled(self) -> Course:
        """Ask for the end of the open sequence, and read nothing until it has one."""
        return _limited(replace(self, full=True)) if self.is_open else self

    def published(self, number: int) -> Course:
        """Take note that a sequence is published."""
        return replace(
            self,
            sequences=tuple(
                replace(each, published=True) if each.id == number else each
                for each in self.sequences
            ),
        )

    def report(
        self,
        latest: Offsets,
        counts: Mapping[str, int],
        errors: Mapping[str, Any],
        *,
        began: datetime | None = None,
    ) -> TaskReport:
        """Return the report to the supervisor; `latest` are the ends of the stream."""
        return TaskReport(
            state=self._state,
            began=began,
            obeyed=self.obeyed,
            current=self.at,
            sequences=self.sequences,
            full=self.sequences[-1].start if self.full and self.settled else None,
            lag={
                partition: max(0, latest[partition] - offset)
                for partition, offset in self.at.items()
                if partition in latest
            },
            counts=counts,
            errors=errors,
        )

    @property
    def _state(self) -> TaskStatus:
        if not self.has_begun:
            return TaskStatus.STARTING
        if self.all_read:
            return TaskStatus.PUBLISHING
        return TaskStatus.PAUSED if self.limits.paused and self.settled else TaskStatus.READING


def _is_at(course: Course, offsets: Offsets | None) -> bool:
    return offsets is not None and dict(offsets) == dict(course.at)


def _ended(course: Course, orders: Orders) -> Course:
    """Give the open sequence its end."""
    found = next((each for each in course.sequences if each.id == orders.sequence), None)
    if found is None or orders.end is None:
        known = ", ".join(str(each.id) for each in course.sequences)
        raise OrderError(f"the task was told to end its sequence {orders.sequence}; it has {known}")
    end = dict(orders.end)
    if found.end is not None:
        if dict(found.end) != end:
            raise OrderError(
                f"sequence {found.id} was to end at {dict(found.end)}, and is now to end at {end}"
            )
        return course
    if end.keys() != course.at.keys():
        raise OrderError(f"the end {end} has not the partitions that are read: {dict(course.at)}")
    # While closed sequences are read, the place is still before the open one.
    passed = {each: offset for each, offset in course.at.items() if offset > end[each]}
    if passed or any(end[each] < offset for each, offset in found.start.items()):
        raise OrderError(f"sequence {found.id} can't end at {end}: {dict(course.at)} was reached")
    closed = (*course.sequences[:-1], replace(found, end=end))
    if not orders.finish:
        closed = (*closed, Sequence(id=found.id + 1, start=end))
    return replace(course, sequences=closed, full=False)


def _limited(course: Course) -> Course:
    """Have the limits follow; each change of them has a number of its own."""
    ends = course.bound if course.all_read else course.sequences[course.reading].end or course.bound
    paused = course.all_read or course.full or course.heard.command is OrderKind.PAUSE
    if (paused, ends) == (course.limits.paused, course.limits.ends):
        return course
    limits = Limits(version=course.limits.version + 1, paused=paused, ends=ends)
    return replace(course, limits=limits, settled=False)
