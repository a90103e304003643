"""Runs a STREAM task without a supervisor: it reads a range of a topic, publishes it, and ends.

The ends of the range are known once it has begun; nobody gives orders. Its rows appear all at once,
as those that any task of a run adds: what an attempt of the same task of the same run has added is
not added again. The offsets of the dataset's stream are nobody's business here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import SchedulerError
from common.kafka_topic import Topic
from common.model.failures import FailureReason
from common.model.intervals import Interval
from common.model.locks import BATCH_PRIORITY
from common.model.streams.bounded import EARLIEST, Bound, read_bound, read_range_spec
from common.model.streams.consumer import ClientProperties, librdkafka_properties
from common.model.streams.partitions import Partition
from common.model.streams.spec import Offsets
from common.model.streams.tasks import Assignment, Orders, Sequence, TaskReport
from orcaflow import datasets
from worker.spark.diagnosis.failures import WorkFailedError
from worker.spark.streaming.task import FOLDER, StreamTask, failure_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from worker.spark.session.job import Job

_KEY: Final = "range"
"""Tells the task's publication from others of it; there is one alone."""


def run(spark: SparkSession, job: Job) -> int:
    """Read the range and have its rows appear; 0, or raises what went wrong."""
    document = job.document

    try:
        spec = read_range_spec(document["spec"])
        dataset = spec.schema.dataset
        if datasets.was_published(dataset, _KEY):
            job.say(f"an earlier attempt of this task has added the range to {dataset}")
            return 0
        bounds = read_bound(document["from"]), read_bound(document["to"])
        secrets = document.get("secrets", {})
        properties = librdkafka_properties(spec.io.consumer, secrets)
        starts, ends = resolved(spec.io.topic, properties, *bounds)
        job.say(f"the range is {_shown(starts, ends)}")
        task = RangeTask(
            spark,
            spec,
            assignment_of(dataset, starts, ends),
            Unsupervised(),
            folder=job.reason_file.parent / FOLDER,
            cores=document["cores"],
            say=job.say,
            secrets=secrets,
        )
        task.run()
        job.say(task.summary())
    except (SchedulerError, datasets.DatasetError) as error:
        raise failure_of(error) from error
    return 0


class Unsupervised:
    """The conversation of a task that nobody gives orders to."""

    def tell(self, report: TaskReport) -> Orders | None:
        return Orders()


class RangeTask(StreamTask):
    """A stream task that publishes one sequence, as an append of its run's task."""

    def summary(self) -> str:
        """Return one line about the records of the range, for its log."""
        written = self._writer.written
        counts = written.counts
        hint = ""
        if written.errors:
            one = written.errors[0]
            hint = f"; such a record is {one.offset} of partition {one.partition}"
        elif counts.errors:
            hint = "; maxSavedParseExceptions in tuningConfig names such records"
        return (
            f"read {counts.all} records and published {self._published_rows} rows:"
            f" {counts.unparseable} unparseable, {counts.flawed} with values that could not be"
            f" converted, {counts.thrown_away} thrown away{hint}"
        )

    def _is_full(self) -> bool:
        # Nobody would close the sequence; its files are cut all the same.
        return False

    def _moves_offsets(self, sequence: Sequence) -> bool:
        return False

    def _ask_lock(self, chunk: Interval) -> str | None:
        priority = self._spec.priority
        return datasets.ask_lock(
            self._spec.schema.dataset,
            str(chunk),
            kind="APPEND",
            priority=BATCH_PRIORITY if priority is None else priority,
        )

    def _appear(
        self,
        place: datasets.Allocation,
        files: list[datasets.Files],
        sequence: Sequence,
    ) -> datasets.Outcome:
        return datasets.publish(place, files, key=_KEY)


def assignment_of(dataset: str, starts: Offsets, ends: Offsets) -> Assignment:
    """Return the work of a range."""
    return Assignment(
        name=dataset,
        supervisor=dataset,
        version=0,
        group_id=0,
        base_sequence=dataset,
        starts=starts,
        checkpoints={0: starts},
        ends=ends,
    )


def resolved(
    name: str, properties: ClientProperties, start: Bound, end: Bound
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Ask the broker for the offsets of bounds. Without any that are named, all partitions count.

    A time is the first record that is not before it, and the end of what is there if there is none.
    """
    with Topic(name, properties) as topic:
        named = start.offsets or end.offsets
        known = topic.partitions()
        partitions = sorted(known if named is None else named)
        unknown = [each for each in partitions if each not in known]
        if unknown:
            raise WorkFailedError(
                f"the topic {name} has no partition {unknown[0]}; it has"
                f" {', '.join(map(str, known)) or 'none'}",
                FailureReason.CONFIGURATION,
            )
        first, last = topic.first(partitions), topic.last(partitions)

        def at(bound: Bound) -> dict[Partition, int]:
            if bound.offsets is not None:
                return dict(bound.offsets)
            if bound.time is not None:
                found = topic.at(partitions, bound.time)
                return {each: found.get(each, last[each]) for each in partitions}
            return first if bound.word == EARLIEST else last

        starts, ends = at(start), at(end)
    gone = [each for each in partitions if starts[each] < first[each] and ends[each] > starts[each]]
    if gone:
        raise WorkFailedError(
            f"partition {gone[0]} of {name} begins at {first[gone[0]]}: the records from"
            f" {starts[gone[0]]} on are not in the stream any more",
            FailureReason.DATA_ERROR,
        )
    return starts, {each: max(starts[each], ends[each]) for each in partitions}


def _shown(starts: Offsets, ends: Offsets) -> str:
    return ", ".join(f"{each}: {starts[each]} to {ends[each]}" for each in sorted(starts))
