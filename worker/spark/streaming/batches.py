"""Writes batches of records as partials, and makes the files of segments of them.

    <folder>/batch=<number>/chunk=<start>/…    the partials of a sequence, by batch
    <target>/chunk=<start>/….parquet           its segments: a file each, with so many rows at most

A batch is counted while it is written. Of parse errors as many as wanted are kept, and more than
the limit end the stream. Nothing is published here; a batch that is written again replaces itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from common.errors import SchedulerError
from common.model.intervals import Interval
from common.model.streams.chunks import chunk_of, moment_at
from common.model.streams.partitions import (
    Partition,
    TopicPartition,
    name_several_topics,
    number_of,
)
from common.model.streams.spec import SupervisorSpec
from worker.spark.streaming.rollup import CHUNK, finished, merged, partials
from worker.spark.streaming.rows import Accepted, RowReader, RowState

_MOST_SHOWN: Final = 1_000
_BATCH: Final = "batch"


class TooManyParseErrorsError(SchedulerError):
    """More records could not be read than the specification allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Records by what became of them, as Druid counts them; `flawed` ones are rows all the same."""

    processed: int = 0
    flawed: int = 0
    unparseable: int = 0
    thrown_away: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            processed=self.processed + other.processed,
            flawed=self.flawed + other.flawed,
            unparseable=self.unparseable + other.unparseable,
            thrown_away=self.thrown_away + other.thrown_away,
        )

    @property
    def errors(self) -> int:
        return self.flawed + self.unparseable

    @property
    def all(self) -> int:
        return self.processed + self.flawed + self.unparseable + self.thrown_away

    def document(self) -> dict[str, int]:
        """Return the counts by Druid's names."""
        return {
            "processed": self.processed,
            "processedWithError": self.flawed,
            "unparseable": self.unparseable,
            "thrownAway": self.thrown_away,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseError:
    """A record that could not be read, or not all of it, with the beginning of its value."""

    partition: Partition
    offset: int
    flawed: bool
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file with rows of one chunk, by its name below the target."""

    interval: Interval
    name: str
    rows: int


@dataclass(slots=True, kw_only=True)
class Written:
    """All that the batches of a task have come to so far."""

    counts: Counts = field(default_factory=Counts)
    errors: list[ParseError] = field(default_factory=list)
    event_times: dict[Partition, datetime] = field(default_factory=dict)
    """The greatest time of a row that was not too late or too early, by partition."""


class BatchWriter:
    """Writes the batches of one task, of whose records `partitions` are all partitions."""

    def __init__(
        self, spec: SupervisorSpec, accepted: Accepted, partitions: Collection[Partition]
    ) -> None:
        self._spec = spec
        self._reader = RowReader(spec.schema, spec.io.input_format, accepted)
        self._partitions = sorted(partitions)
        self.written = Written()

    def write(self, records: DataFrame, folder: Path, number: int) -> None:
        """Write a batch; `TooManyParseErrorsError` if the limit is passed with it."""
        parsed = self._reader.open(records)
        if self._reader.discovers:
            # It is read twice: for the names of columns, and for their values.
            parsed.persist()
        try:
            self._write(parsed, folder / f"{_BATCH}={number}")
        finally:
            if self._reader.discovers:
                parsed.unpersist()

    def _write(self, parsed: DataFrame, folder: Path) -> None:
        rows = self._reader.rows(parsed, self._reader.discover(parsed))
        seen = Observation()
        observed = rows.observe(seen, *self._figures)
        partial = partials(observed, self._spec.schema)
        partial.write.mode("overwrite").partitionBy(CHUNK).parquet(str(folder))
        counts = self._note(seen.get)
        tuning = self._spec.tuning
        if counts.errors and len(self.written.errors) < tuning.max_saved_parse_exceptions:
            self._keep(rows, tuning.max_saved_parse_exceptions - len(self.written.errors))
        if self.written.counts.errors > tuning.max_parse_exceptions:
            raise TooManyParseErrorsError(
                f"{self.written.counts.errors} records could not be read as the specification"
                f" wants it, and tuningConfig.maxParseExceptions is {tuning.max_parse_exceptions}"
            )

    @cached_property
    def _figures(self) -> list[Column]:
        state = f.col("state")
        is_kept = state == int(RowState.KEPT)
        figures = {
            "processed": is_kept & ~f.col("flawed"),
            "flawed": f.col("flawed"),
            "unparseable": state == int(RowState.UNPARSEABLE),
            "thrown_away": state == int(RowState.THROWN_AWAY),
        }
        # `count_if` would add a column to each row for each of them.
        counted = [
            f.count(f.when(condition, f.lit(1))).alias(name) for name, condition in figures.items()
        ]
        kept_at = f.when(is_kept, f.col("micros"))
        times = [
            f.max(f.when(_is_of(each), kept_at)).alias(f"at{place}")
            for place, each in enumerate(self._partitions)
        ]
        return [*counted, *times]

    def _note(self, figures: Mapping[str, Any]) -> Counts:
        counts = Counts(
            processed=figures["processed"],
            flawed=figures["flawed"],
            unparseable=figures["unparseable"],
            thrown_away=figures["thrown_away"],
        )
        self.written.counts += counts
        for place, partition in enumerate(self._partitions):
            micros = figures[f"at{place}"]
            if micros is not None:
                moment = moment_at(micros)
                before = self.written.event_times.get(partition, moment)
                self.written.event_times[partition] = max(before, moment)
        return counts

    def _keep(self, rows: DataFrame, most: int) -> None:
        """Keep some of a batch's errors. It is read again, which ends once enough are kept."""
        wrong = rows.where((f.col("state") == int(RowState.UNPARSEABLE)) | f.col("flawed"))
        shown = f.make_valid_utf8(f.substring("value", 1, _MOST_SHOWN).cast("string"))
        columns = ("topic", "partition", "offset", "flawed", shown.alias("shown"))
        found = wrong.select(*columns).limit(most)
        self.written.errors += [
            ParseError(
                partition=TopicPartition(row["topic"], row["partition"])
                if name_several_topics(self._partitions)
                else row["partition"],
                offset=row["offset"],
                flawed=row["flawed"],
                value=row["shown"] or "",
            )
            for row in found.collect()
        ]


def _is_of(partition: Partition) -> Column:
    """Return the condition that a record is of a partition."""
    is_number = f.col("partition") == number_of(partition)
    if isinstance(partition, int):
        return is_number
    return (f.col("topic") == partition.topic) & is_number


def chunks_of(folder: Path, spec: SupervisorSpec) -> tuple[Interval, ...]:
    """Return the chunks of which the partials of a sequence have rows."""
    starts = {_start_of(path) for path in folder.glob(f"{_BATCH}=*/{CHUNK}=*")}
    return tuple(chunk_of(start, spec.schema.segment_granularity) for start in sorted(starts))


def rows_of_batch(folder: Path, number: int) -> Counter[datetime]:
    """Return the rows of a batch's partials by the starts of their chunks."""
    from pyarrow.parquet import read_metadata

    found: Counter[datetime] = Counter()
    for path in (folder / f"{_BATCH}={number}").glob(f"{CHUNK}=*/*.parquet"):
        found[_start_of(path.parent)] += read_metadata(path).num_rows
    return found


def write_segments(
    spark: SparkSession, folder: Path, spec: SupervisorSpec, target: Path
) -> tuple[NewFile, ...]:
    """Make the files of segments of a sequence's partials; none if it has no rows."""
    from pyarrow.parquet import read_metadata

    if not any(folder.glob(f"{_BATCH}=*/{CHUNK}=*/*.parquet")):
        return ()
    staged = spark.read.option("mergeSchema", "true").parquet(str(folder))
    rows = merged(staged.drop(_BATCH).withColumn(CHUNK, f.col(CHUNK).cast("bigint")), spec.schema)
    # A chunk's rows stand together, so that no more files are made of them than are needed.
    (
        finished(rows, spec.schema, keep=(CHUNK,))
        .repartition(CHUNK)
        .write.option("maxRecordsPerFile", spec.tuning.max_rows_per_segment)
        .mode("overwrite")
        .partitionBy(CHUNK)
        .parquet(str(target))
    )
    return tuple(
        NewFile(
            interval=chunk_of(_start_of(path.parent), spec.schema.segment_granularity),
            name=str(path.relative_to(target)),
            rows=read_metadata(path).num_rows,
        )
        for path in sorted(target.glob(f"{CHUNK}=*/*.parquet"))
    )


def _start_of(chunk: Path) -> datetime:
    return moment_at(int(chunk.name.removeprefix(f"{CHUNK}=")))
