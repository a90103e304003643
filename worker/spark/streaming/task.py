"""Runs a stream task: a query that reads a topic as its supervisor orders, and publishes.

A thin shell around `course`, which decides. Three threads: Spark's own runs the batches, another
publishes sequences that were read, and this one listens, looks where the source is, and reports. So
neither a long batch nor a long publication keeps the supervisor waiting.

All that Spark writes here is scratch, in a folder that goes with the attempt: a new attempt begins
from what is published.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from common.errors import InvalidSpecError, SchedulerError
from common.model.failures import FailureReason
from common.model.intervals import Interval, instant_text
from common.model.streams.consumer import ConsumerPropertyError, librdkafka_properties
from common.model.streams.partitions import Partition, shown_partition
from common.model.streams.reading import read_spec
from common.model.streams.spec import Offsets, SupervisorSpec
from common.model.streams.tasks import Assignment, Orders, Sequence, TaskReport, TaskStatus
from orcaflow import datasets, stream_orders
from worker.spark.diagnosis.failures import WorkFailedError, is_late_python
from worker.spark.streaming.batches import (
    BatchWriter,
    NewFile,
    chunks_of,
    rows_of_batch,
    write_segments,
)
from worker.spark.streaming.conversation import WorkerConversation
from worker.spark.streaming.course import Course
from worker.spark.streaming.documents import Place, read_place, write_limits
from worker.spark.streaming.query import Query, start_query
from worker.spark.streaming.rows import Accepted
from worker.spark.streaming.standby import awaited_work, warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from worker.spark.session.job import Job

_REST_SECONDS: Final = 0.25
_MOST_STARTS: Final = 3
_TALK_SECONDS: Final = 0.5
_LOCK_SECONDS: Final = 1.0
_SHOWN_ERRORS: Final = 100
FOLDER: Final = "stream"
_SCRATCH: Final = "standby"
_ROWS: Final = "rows"
_NO_WRITE: Final = "0" * 16
"""The name of a write without a folder, for offsets alone."""
_OF_SOURCE: Final = re.compile(
    r"\b(StreamAwayError|OffsetExpiredError|PastTheEndError|ConsumerPropertyError): (.+)"
)
"""Errors of the source, of which the process of the task has no more than the text of Spark's."""


class Conversation(Protocol):
    """The task's end of the conversation with its supervisor (`conversation`)."""

    def tell(self, report: TaskReport) -> Orders | None:
        """Tell how far the task has come, and return the last orders; None if nobody hears it."""
        ...


@dataclass(slots=True, kw_only=True)
class _Reading:
    """The sequence that batches are written for at present."""

    folder: Path
    begun: float = field(default_factory=time.monotonic)
    rows: Counter[datetime] = field(default_factory=Counter)


def run(spark: SparkSession, job: Job) -> int:
    """Do the work that the worker names; 0 if it was published, or the supervisor stopped it."""

    try:
        folder, conversation = job.reason_file.parent / FOLDER, WorkerConversation()
        work: stream_orders.Work | None = stream_orders.work()
        if work is not None and _assignment(work).is_standby:
            work = _on_standby(spark, work, conversation, folder=folder, job=job)
        if work is None:
            job.say("stopped by its supervisor, which has no work for it")
            return 0
        task = StreamTask(
            spark,
            _spec(work),
            _assignment(work),
            conversation,
            folder=folder,
            cores=job.document["cores"],
            say=job.say,
            secrets=work.secrets,
            connection=work.connection,
        )
        if not task.run():
            job.say("stopped by its supervisor: what it had not published is nobody's any more")
    except (SchedulerError, datasets.DatasetError) as error:
        raise failure_of(error) from error
    return 0


def _on_standby(
    spark: SparkSession,
    work: stream_orders.Work,
    conversation: Conversation,
    *,
    folder: Path,
    job: Job,
) -> stream_orders.Work | None:
    """Prepare for work of this specification; return the work once there is some."""
    conversation.tell(TaskReport(state=TaskStatus.STARTING))
    try:
        warm_up(
            spark,
            _spec(work),
            folder=folder.with_name(_SCRATCH),
            cores=job.document["cores"],
            secrets=work.secrets,
            connection=work.connection,
        )
    except Exception as error:  # noqa: BLE001  # Spark raises anything.
        # It was to save time. Whatever is wrong, the task says so if it matters.
        reason = next(iter(str(failure_of(error)).splitlines()), "")
        job.say(f"on standby; it will begin slowly, for its warm-up failed: {reason}")
    else:
        job.say("on standby")

    def ask() -> stream_orders.Work | None:
        found = stream_orders.work()
        return None if _assignment(found).is_standby else found

    return awaited_work(conversation, ask)


def _spec(work: stream_orders.Work) -> SupervisorSpec:
    spec = read_spec(work.spec).spec
    if not isinstance(spec, SupervisorSpec):
        raise WorkFailedError("the supervisor is terminated", FailureReason.CONFIGURATION)
    return spec


def _assignment(work: stream_orders.Work) -> Assignment:
    return Assignment.of(
        work.assignment,
        name=work.name,
        supervisor=work.supervisor,
        version=work.version,
        group_id=work.group_id,
        base_sequence=work.base_sequence,
    )


class StreamTask:
    """One task from its start to the publication of its last sequence."""

    def __init__(
        self,
        spark: SparkSession,
        spec: SupervisorSpec,
        assignment: Assignment,
        conversation: Conversation,
        *,
        folder: Path,
        cores: int,
        say: Callable[[str], None],
        secrets: Mapping[str, str] | None = None,
        connection: Mapping[str, str] | None = None,
    ) -> None:
        """`folder` is created, and removed at the end.

        `secrets` are the variables that the specification names, and `connection` has the
        properties of the connection that it names.
        """
        self._spark = spark
        self._spec = spec
        self._assignment = assignment
        self._conversation = conversation
        self._folder = folder
        self._cores = cores
        self._say = say
        self._secrets = secrets or {}
        self._connection = connection
        self._course = Course.begin(assignment)
        accepted = Accepted(least=assignment.min_time, most=assignment.max_time)
        self._writer = BatchWriter(spec, accepted, assignment.starts)
        self._reading = _Reading(folder=self._partials(self._course.sequences[0]))
        self._event_times: dict[int, dict[Partition, datetime]] = {}
        self._place: Place | None = None
        self._failure: BaseException | None = None
        self._publishing: tuple[Sequence, Future[None]] | None = None
        self._published_rows = 0
        self._query: Query
        self._starts = 0
        self._stopping = threading.Event()
        self._began: datetime | None = None
        self._is_alone = False
        self._reported: object = None
        self._reported_at = 0.0

    def run(self) -> bool:
        """Read and publish; False if the supervisor has stopped the task before its end."""
        self._folder.mkdir(mode=0o700)
        publisher = ThreadPoolExecutor(1, thread_name_prefix="publish")
        try:
            self._talk()
            self._query = self._started()
            try:
                self._go_on(publisher)
            finally:
                self._query.stop()
            return not self._course.stopped
        finally:
            self._stopping.set()
            publisher.shutdown(cancel_futures=True)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _started(self) -> Query:
        self._starts += 1
        spec, io = self._spec, self._spec.io
        write_limits(self._folder, self._course.limits)
        starts = self._course.at
        self._say(f"reads {io.topic} into {spec.schema.dataset} from {_shown(starts)}")
        return start_query(
            self._spark,
            spec,
            folder=self._folder,
            properties=librdkafka_properties(
                io.consumer, self._secrets, connection=self._connection
            ),
            starts=starts,
            cores=self._cores,
            write=self._write,
        )

    def _write(self, records: DataFrame, number: int) -> None:
        """Write a batch; on a thread of Spark's, by which an error would come as its text alone."""
        try:
            reading = self._reading
            self._writer.write(records, reading.folder, number)
            reading.rows += rows_of_batch(reading.folder, number)
        except BaseException as error:
            self._failure = error
            raise

    def _go_on(self, publisher: ThreadPoolExecutor) -> None:
        """Look, publish and talk, until all is published or the task is stopped."""
        while True:
            if not self._course.all_read:
                self._look()
            self._follow_publication(publisher)
            self._talk()
            if self._course.stopped or self._course.all_published:
                return
            if not self._course.all_read:
                self._rest()
            else:
                self._query.stop()
                self._stopping.wait(_REST_SECONDS)

    def _rest(self) -> None:
        """Wait for a while, or for the end of the query, which is a failure here.

        A query whose source has never begun is started once more, some times: nothing was read.
        """
        try:
            has_ended = self._query.has_ended(within_seconds=_REST_SECONDS)
        except Exception as error:
            if self._place is None and self._starts < _MOST_STARTS and is_late_python(error):
                self._say("its Python did not begin in time; it is started again")
                self._query.stop()
                self._query = self._started()
                return
            raise self._failure or failure_of(error) from error
        if has_ended:
            raise WorkFailedError("the query has ended by itself", FailureReason.EXIT_CODE)

    def _talk(self) -> None:
        """Report twice a second, and at once what the supervisor may wait for; hear the orders."""
        report, now = self._report(), time.monotonic()
        weighty = (report.state, report.obeyed, report.sequences, report.full)
        if weighty == self._reported and now < self._reported_at + _TALK_SECONDS:
            return
        orders = self._conversation.tell(report)
        if (orders is None) != self._is_alone:
            self._is_alone = orders is None
            self._say(
                "its worker does not answer; it goes on with the orders that it has"
                if self._is_alone
                else "its worker answers again"
            )
        if orders is not None:
            self._reported, self._reported_at = weighty, now
            self._change(self._course.ordered(orders))

    def _report(self) -> TaskReport:
        written, place = self._writer.written, self._place
        if self._began is None and self._course.has_begun:
            self._began = datetime.now(UTC)
        return self._course.report(
            {} if place is None else place.latest,
            written.counts.document(),
            {
                "trouble": "" if place is None else place.trouble,
                "parse": [
                    {
                        "partition": shown_partition(each.partition),
                        "offset": each.offset,
                        "value": each.value,
                    }
                    for each in written.errors[:_SHOWN_ERRORS]
                ],
            },
            began=self._began,
        )

    def _look(self) -> None:
        """See where the source is, and whether the segments of its sequence are full."""
        place = read_place(self._folder)
        if place is not None:
            if place.trouble != ("" if self._place is None else self._place.trouble):
                self._say(f"the stream is away: {place.trouble}" if place.trouble else "it is back")
            self._place = place
            self._change(self._course.placed(place))
        if self._course.is_open and self._is_full():
            self._change(self._course.filled())

    def _is_full(self) -> bool:
        tuning, reading = self._spec.tuning, self._reading
        if reading.rows and max(reading.rows.values()) >= tuning.max_rows_per_segment:
            return True
        if tuning.max_total_rows is not None and reading.rows.total() >= tuning.max_total_rows:
            return True
        period = tuning.intermediate_handoff_period
        return period is not None and timedelta(seconds=time.monotonic() - reading.begun) >= period

    def _change(self, course: Course) -> None:
        """Go on with a course; the source hears of its limits last, for it waits for them."""
        before, self._course = self._course, course
        for sequence in course.sequences[before.reading : course.reading]:
            # No batch runs until the source has new limits.
            self._event_times[sequence.id] = dict(self._writer.written.event_times)
            self._say(f"sequence {sequence.id} was read up to {_shown(course.at)}")
        if course.reading > before.reading and not course.all_read:
            folder = self._partials(course.sequences[course.reading])
            self._reading = _Reading(folder=folder)
        if course.limits != before.limits:
            write_limits(self._folder, course.limits)

    def _follow_publication(self, publisher: ThreadPoolExecutor) -> None:
        if self._publishing is not None:
            sequence, future = self._publishing
            if not future.done():
                return
            self._publishing = None
            future.result()
            self._course = self._course.published(sequence.id)
        following = self._course.next_to_publish
        if following is not None and not self._course.stopped:
            self._publishing = (following, publisher.submit(self._publish, following))

    def _publish(self, sequence: Sequence) -> None:
        """Make the segments of a sequence and have them appear; on a thread of its own."""
        spec, folder = self._spec, self._partials(sequence)
        chunks = chunks_of(folder, spec)
        if not chunks and not self._moves_offsets(sequence):
            return
        for chunk in chunks:
            self._lock(chunk)
        dataset = spec.schema.dataset
        # Without rows there is no chunk to lock, and so no folder; offsets move all the same.
        place = datasets.Allocation(dataset=dataset, path=folder, write=_NO_WRITE)
        written: tuple[NewFile, ...] = ()
        if chunks:
            place = datasets.allocate(dataset)
            written = write_segments(self._spark, folder, spec, place.path / _ROWS)
        files = [
            datasets.Files(str(each.interval), (f"{_ROWS}/{each.name}",), each.rows)
            for each in written
        ]
        outcome = self._appear(place, files, sequence)
        rows = sum(each.rows for each in written)
        again = ", which another task had done before" if outcome.again else ""
        self._published_rows += rows
        self._say(
            f"published sequence {sequence.id}: {rows} rows in {len(written)} segments{again}"
        )
        shutil.rmtree(folder, ignore_errors=True)

    def _moves_offsets(self, sequence: Sequence) -> bool:
        """Return True if a sequence is to be published though it has no rows."""
        return dict(sequence.start) != dict(sequence.end or {})

    def _appear(
        self, place: datasets.Allocation, files: list[datasets.Files], sequence: Sequence
    ) -> datasets.Outcome:
        """Publish the files of a sequence with the offsets that they stand for."""
        covered = datasets.Range(
            stream=self._spec.io.topic,
            starts={shown_partition(each): at for each, at in sequence.start.items()},
            ends={shown_partition(each): at for each, at in (sequence.end or {}).items()},
            max_event_times={
                shown_partition(partition): instant_text(at)
                for partition, at in self._event_times[sequence.id].items()
            },
        )
        name = f"{self._assignment.base_sequence}_{sequence.id}"
        return datasets.publish(place, files, sequence=name, stream_range=covered)

    def _ask_lock(self, chunk: Interval) -> str | None:
        """Ask for the lock of a chunk, which all tasks of the stream share."""
        return datasets.ask_lock(
            self._spec.schema.dataset,
            str(chunk),
            kind="APPEND",
            priority=self._spec.priority,
            stream=True,
        )

    def _lock(self, chunk: Interval) -> None:
        """Get the lock of a chunk; wait for whoever has it."""
        waits = False
        while self._ask_lock(chunk) is None:
            if not waits:
                self._say(f"waits for a lock on {chunk}: `orcaflow locks list` shows who has it")
            waits = True
            if self._stopping.wait(_LOCK_SECONDS):
                raise WorkFailedError("the task was stopped", FailureReason.KILLED)

    def _partials(self, sequence: Sequence) -> Path:
        return self._folder / "partials" / str(sequence.id)


def failure_of(error: BaseException) -> BaseException:
    """Return an error as people should read it: what is known of it needs no traceback."""
    found = _OF_SOURCE.search(str(error))
    if found is not None:
        is_property = found[1] == ConsumerPropertyError.__name__
        reason = FailureReason.CONFIGURATION if is_property else FailureReason.DATA_ERROR
        return WorkFailedError(found[2].strip(), reason)
    if isinstance(error, InvalidSpecError | ConsumerPropertyError):
        return WorkFailedError(str(error), FailureReason.CONFIGURATION)
    if isinstance(error, SchedulerError | datasets.DatasetError):
        return WorkFailedError(str(error), FailureReason.DATA_ERROR)
    return error


def _shown(offsets: Offsets) -> str:
    return ", ".join(f"{partition}: {offsets[partition]}" for partition in sorted(offsets))
