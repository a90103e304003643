"""A simulated process of a stream task: the real course, on a stream and files that are values.

As in `worker.spark.streaming.task`, a source reads between limits and tells its place, batches write
the partials of the sequence that is read, and sequences that were read are published in their order.
A step does one of these, so a process may die, and be out of touch, between any two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

from common.errors import SchedulerError
from common.model.locks import Busy, Lock, LockType
from common.model.segments import AlreadyPublished, Published
from common.model.streams.spec import Offsets
from common.model.streams.tasks import OrderKind, Orders, Sequence, TaskReport, TaskStatus
from common.store.worker.stream_tasks import StreamWork
from tests.memory.datasets import MemoryDatasets, MemoryPart
from worker.spark.streaming.course import Course
from worker.spark.streaming.documents import Place
from worker.spark.streaming.ranges import next_offsets

CHUNK_RECORDS = 40
"""So many records of each partition, one after the other, belong to one chunk of time."""


class AwayError(Exception):
    """The worker does not answer just now."""


class FailedError(Exception):
    """The task ends as a failure."""


@dataclass
class FakeStream:
    """A topic: the first and the next offset of each partition."""

    latest: dict[int, int]
    earliest: dict[int, int]
    is_away: bool = False


@dataclass
class Warehouse:
    """The files of datasets: records, by path; None while one is being written."""

    files: dict[str, tuple[tuple[int, int], ...] | None] = field(default_factory=dict)

    def path(self, task_id: int, write: int, sequence: str, chunk: int) -> str:
        """Return a path that no other write has."""
        return f"{task_id}-{write}/{sequence}/{chunk}"


class Worker(Protocol):
    """The worker of a process, as its socket is: any call may raise `AwayError`."""

    def work(self) -> StreamWork | None: ...

    def orders(self, report: TaskReport | None) -> Orders | None: ...

    def ask(self, what: Callable[[MemoryDatasets], object]) -> object: ...


@dataclass
class StreamProcess:
    """One process. Its dataset and its topic have the same name."""

    task_id: int
    dataset: str
    stream: FakeStream
    warehouse: Warehouse
    worker: Worker
    random: Random
    now: Callable[[], datetime]
    note: Callable[[str], object]
    most_rows: int
    full_at: int | None
    due: timedelta = timedelta()
    began: datetime | None = None
    is_busy: bool = False
    is_standby: bool = False
    course: Course | None = None
    work: StreamWork | None = None
    place: Place | None = None
    at: dict[int, int] = field(default_factory=dict)
    partials: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    writes: int = 0
    written: dict[int, tuple[MemoryPart, ...]] = field(default_factory=dict)
    writing: list[tuple[str, tuple[tuple[int, int], ...]]] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)

    def step(self) -> bool:
        """Do some things; True once all is published. `FailedError` ends the process."""
        try:
            if self.course is None and not self._begins():
                return False
            for _ in range(self.random.randint(1, 10)):
                self.random.choice((self._read, self._look, self._talk, self._publish))()
        except AwayError:
            return False
        except SchedulerError as error:
            raise FailedError(str(error)) from error
        return self.course is not None and self.course.all_published

    def _begins(self) -> bool:
        """Begin, if there is work; a standby reports, hears whether it is to stop, and asks again.

        What it does first, and takes long, is time that passes without a report.
        """
        work = self.worker.work()
        if work is None:
            raise FailedError("the attempt has ended")
        if work.assignment.is_standby:
            if self.random.random() < 0.7:
                self._stand_by()
            return False
        if self.is_standby:
            self.note("has work")
        self.work, self.course = work, Course.begin(work.assignment)
        self.at = dict(self.course.at)
        return True

    def _stand_by(self) -> None:
        self.is_standby = True
        orders = self.worker.orders(TaskReport(state=TaskStatus.STANDBY))
        if orders is None:
            raise FailedError("the attempt has ended")
        if orders.command is OrderKind.STOP:
            raise FailedError("the supervisor has stopped the standby")

    @property
    def _course(self) -> Course:
        assert self.course is not None
        return self.course

    def _read(self) -> None:
        """Between two batches the source tells its place; then comes a batch."""
        course, stream = self._course, self.stream
        if course.all_read:
            return
        latest = self.place.latest if stream.is_away and self.place else dict(stream.latest)
        self.place = Place(version=course.limits.version, offsets=dict(self.at), latest=latest)
        if stream.is_away:
            return
        known = {each: latest.get(each, offset) for each, offset in self.at.items()}
        end = next_offsets(self.at, known, course.limits, self.random.randint(1, self.most_rows))
        for partition, start in self.at.items():
            if start < end[partition] and start < stream.earliest.get(partition, 0):
                raise FailedError(f"offset {start} of partition {partition} is gone")
        sequence = course.sequences[course.reading].id
        self.partials.setdefault(sequence, []).extend(
            (partition, offset)
            for partition, start in self.at.items()
            for offset in range(start, end[partition])
        )
        self.at = end

    def _look(self) -> None:
        if self.place is not None:
            self.course = self._course.placed(self.place)
        rows = len(self.partials.get(self._course.sequences[-1].id, ()))
        if self.full_at is not None and rows >= self.full_at:
            self.course = self._course.filled()

    def _talk(self) -> None:
        latest = {} if self.place is None else self.place.latest
        if self.began is None and self._course.has_begun:
            self.began = self.now()
        report = self._course.report(latest, {"processed": 0}, {}, began=self.began)
        orders = self.worker.orders(report if self.random.random() < 0.8 else None)
        if orders is None:
            raise FailedError("the attempt has ended")
        self.course = self._course.ordered(orders)
        if self.course.stopped:
            raise FailedError("the supervisor has stopped the task")

    def _publish(self) -> None:
        """Take the next step of publishing: locks, files, the publication itself."""
        sequence = self._course.next_to_publish
        if sequence is None:
            return
        ends = sequence.end or {}
        if sequence.id not in self.written:
            self._lock(chunks := _chunks(self.partials.get(sequence.id, ())))
            self._plan_files(sequence, chunks)
        elif self.writing:
            path, rows = self.writing[0]
            if path not in self.begun:
                self.warehouse.files[path] = None
                self.begun.add(path)
            else:
                self.warehouse.files[path] = rows
                self.writing.pop(0)
        else:
            self._ask(sequence, ends)

    def _lock(self, chunks: Iterable[int]) -> None:
        for chunk in chunks:
            answer = self.worker.ask(
                lambda datasets, chunk=chunk: datasets.lock(
                    self.task_id,
                    self.dataset,
                    chunk,
                    kind=LockType.APPEND,
                    priority=75,
                    of_stream=True,
                )
            )
            if isinstance(answer, Busy):
                raise AwayError
            if not isinstance(answer, Lock):
                raise FailedError(f"no lock: {answer}")

    def _plan_files(self, sequence: Sequence, chunks: Iterable[int]) -> None:
        self.writes += 1
        name = self._sequence(sequence)
        records = self.partials.get(sequence.id, [])
        parts = []
        for chunk in chunks:
            path = self.warehouse.path(self.task_id, self.writes, name, chunk)
            parts.append(MemoryPart(chunk=chunk, path=path))
            rows = tuple(each for each in records if each[1] // CHUNK_RECORDS == chunk)
            self.writing.append((path, rows))
        self.written[sequence.id] = tuple(parts)

    def _ask(self, sequence: Sequence, ends: Offsets) -> None:
        if dict(sequence.start) != dict(ends) or self.written[sequence.id]:
            outcome = self.worker.ask(
                lambda datasets: datasets.publish(
                    self.task_id,
                    self.dataset,
                    self.written[sequence.id],
                    sequence=self._sequence(sequence),
                    stream=self.dataset,
                    starts=sequence.start,
                    ends=ends,
                )
            )
            match outcome:
                case Published():
                    self.note("published" if sequence.id == 0 else "published a checkpoint")
                case AlreadyPublished(files=files):
                    self.note("found published")
                    own = {part.path for part in self.written[sequence.id]}
                    if not own & files:
                        for path in own:
                            del self.warehouse.files[path]
                case _:
                    raise FailedError(f"refused: {outcome}")
        self.course = self._course.published(sequence.id)

    def _sequence(self, sequence: Sequence) -> str:
        assert self.work is not None
        return f"{self.work.assignment.base_sequence}_{sequence.id}"


def _chunks(records: Iterable[tuple[int, int]]) -> list[int]:
    return sorted({offset // CHUNK_RECORDS for _, offset in records})
