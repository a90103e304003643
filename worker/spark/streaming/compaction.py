"""Merges the small segments of a dataset's chunks, and compares what is there before and after.

Runs in the task's own process, in a session that is already open. Each chunk is done by itself:
a lock REPLACE of low priority, under which streams may go on adding; its files are read, written as
fewer ones, read again and compared; then they replace what was read, in one publication. Whoever
is more important revokes the lock, and then the publication is refused. A task that dies leaves
files that nothing names; another attempt goes on with the chunks that are left.

Rows are compared by their number and by two sums of hashes over all of their columns, whatever
their order. With metrics, rows of one time and the same dimensions become one: then times and
dimensions are compared so, and each metric by what it comes to over the whole chunk.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from common.model.compaction import is_worth_it, read_metrics
from common.model.failures import FailureReason
from common.model.streams.schema import TIME_COLUMN
from common.model.streams.spec import DataSchema
from orcaflow import datasets
from worker.spark.diagnosis.failures import WorkFailedError
from worker.spark.streaming.rollup import CHUNK, finished, merged, quoted, totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from worker.spark.session.job import Job

_ROWS: Final = "rows"
_SEEDS: Final = ("first", "second")
_NEAR: Final = 1e-9
"""By so much, relatively, sums of fractions may differ, which depend on the order of addition."""


def run(spark: SparkSession, job: Job) -> int:
    """Compact what is worth it; 0, or raises what goes wrong, with what was done standing."""
    document = job.document
    given = document["metrics"]

    try:
        Compaction(
            spark,
            str(document["dataset"]),
            most_rows=int(document["most_rows"]),
            priority=int(document["priority"]),
            schema=read_metrics(given) if given else None,
            say=job.say,
        ).run(str(document["interval"]))
    except datasets.LockLostError as error:
        raise WorkFailedError(
            f"others needed the chunk more, so it stays as it was: {error}",
            FailureReason.DATA_ERROR,
        ) from error
    except datasets.DatasetError as error:
        raise WorkFailedError(str(error), FailureReason.DATA_ERROR) from error
    return 0


class Compaction:
    """The compaction of chunks of one dataset."""

    def __init__(
        self,
        spark: SparkSession,
        dataset: str,
        *,
        most_rows: int,
        priority: int,
        schema: DataSchema | None,
        say: Callable[[str], None],
    ) -> None:
        """`schema` has the metrics to merge rows by; None leaves rows as they are."""
        self._spark = spark
        self._dataset = dataset
        self._most_rows = most_rows
        self._priority = priority
        self._schema = schema
        self._say = say

    def run(self, interval: str) -> None:
        """Compact the chunks of an interval that are worth it, one after the other."""
        found = datasets.segments(self._dataset, interval)
        chunks: defaultdict[tuple[str, str], list[datasets.StoredSegment]] = defaultdict(list)
        for each in found.segments:
            # Texts of this one form are in the order of their times.
            if each.start < str(found.start) or each.end > str(found.end):
                raise WorkFailedError(
                    f"{interval} cuts the chunk {each.start}/{each.end} of {self._dataset}; name"
                    " an interval of whole chunks",
                    FailureReason.CONFIGURATION,
                )
            chunks[each.start, each.end].append(each)
        worth = [chunk for chunk, held in chunks.items() if self._is_worth_it(held)]
        done = sum(self._compact(f"{start}/{end}") for start, end in worth)
        self._say(f"compacted {done} of {len(chunks)} chunks of {self._dataset} in {interval}")

    def _is_worth_it(self, held: Sequence[datasets.StoredSegment]) -> bool:
        rows, files = sum(each.rows for each in held), sum(len(each.files) for each in held)
        return is_worth_it(rows, files, self._most_rows)

    def _compact(self, chunk: str) -> bool:
        version = datasets.ask_lock(self._dataset, chunk, kind="REPLACE", priority=self._priority)
        if version is None:
            self._say(f"{chunk} stays as it is: others have a lock on it (`orcaflow locks list`)")
            return False
        # What is added from now on stays beside what is written here.
        held = datasets.segments(self._dataset, chunk).segments
        if not self._is_worth_it(held):
            return False
        before = self._read(name for each in held for name in each.files)
        stored = sum(each.rows for each in held)
        if (rows := before.count()) != stored:
            raise WorkFailedError(
                f"the files of {self._dataset} {chunk} have {rows} rows, and its segments {stored}:"
                " a file was changed; nothing was compacted",
                FailureReason.DATA_ERROR,
            )
        place = datasets.allocate(self._dataset)
        folder = place.path / _ROWS
        merged_ = before if self._schema is None else _rolled_up(before, self._schema)
        (
            # One writer fills each file before it begins the next.
            (merged_.coalesce(1) if self._schema is None else merged_.repartition(1))
            .write.option("maxRecordsPerFile", self._most_rows)
            .parquet(str(folder))
        )
        files = sorted(folder.glob("*.parquet"))
        if not files:
            raise WorkFailedError(
                f"Spark has written its rows elsewhere: the folder {place.path.parent} must be one"
                " for this worker and all executors (worker.datasets_dir)",
                FailureReason.CONFIGURATION,
            )
        after = self._read(map(str, files))
        self._compare(chunk, before, after)
        counts = _rows_by_file(after)
        written = [each for each in files if counts.get(each.name)] or files[:1]
        datasets.publish(
            place,
            [
                datasets.Files(chunk, (f"{_ROWS}/{each.name}",), counts.get(each.name, 0))
                for each in written
            ],
            replaces=chunk,
        )
        self._say(
            f"{chunk}: {len(held)} segments with {stored} rows became {len(written)} with"
            f" {sum(counts.values())}"
        )
        return True

    def _read(self, files: Iterable[str]) -> DataFrame:
        reader = self._spark.read.option("mergeSchema", "true")
        return reader.parquet(*files)

    def _compare(self, chunk: str, before: DataFrame, after: DataFrame) -> None:
        if self._schema is None:
            same = sorted(before.columns) == sorted(after.columns)
            what, same = "rows", same and fingerprint(before) == fingerprint(after)
        else:
            keys = _keys(before, self._schema)
            what, same = (
                "times and dimensions",
                fingerprint(before.select(*keys).distinct()) == fingerprint(after.select(*keys)),
            )
            if same:
                what = "metrics"
                first, second = _totals(before, self._schema), _totals(after, self._schema)
                same = all(map(_is_near, first, second))
        if not same:
            raise WorkFailedError(
                f"the {what} of {self._dataset} {chunk} would not be the same after the compaction;"
                " nothing was published",
                FailureReason.DATA_ERROR,
            )


def fingerprint(frame: DataFrame) -> tuple[Any, ...]:
    """Return what is equal for frames of the same rows, in whatever order, and no others."""
    values: list[Column] = []
    for name in sorted(frame.columns):
        column = f.col(quoted(name))
        if frame.schema[name].dataType.typeName() in ("array", "map", "struct", "variant"):
            # A hash passes over what is missing in them, and can't be had of maps.
            column = f.to_json(f.struct(column), {"ignoreNullFields": "false"})
        values += [column, column.isNull()]
    hashes = [f.xxhash64(f.lit(seed), *values).cast("decimal(38, 0)") for seed in _SEEDS]
    (row,) = frame.agg(f.count(f.lit(1)), *(f.sum(each) for each in hashes)).collect()
    return tuple(row)


def _rolled_up(frame: DataFrame, schema: DataSchema) -> DataFrame:
    return finished(merged(_partials(frame, schema), schema), schema)


def _partials(frame: DataFrame, schema: DataSchema) -> DataFrame:
    """Return rows of a dataset as partials of a batch."""
    metrics = [each.name for each in schema.metrics]
    lacking = [name for name in (TIME_COLUMN, *metrics) if name not in frame.columns]
    if lacking:
        raise WorkFailedError(
            f"params.metricsSpec: the dataset has no column {lacking[0]!r}; it has"
            f" {', '.join(frame.columns)}",
            FailureReason.CONFIGURATION,
        )
    return frame.select(
        f.lit(0).alias(CHUNK),
        f.unix_micros(f.col(TIME_COLUMN)).alias("time"),
        *(f.col(quoted(each)).alias(f"d:{each}") for each in _dimensions(frame, schema)),
        *(f.col(quoted(each)).alias(f"m:{each}") for each in metrics),
    )


def _dimensions(frame: DataFrame, schema: DataSchema) -> list[str]:
    others = {TIME_COLUMN, *(each.name for each in schema.metrics)}
    return [each for each in frame.columns if each not in others]


def _keys(frame: DataFrame, schema: DataSchema) -> list[str]:
    return [quoted(each) for each in (TIME_COLUMN, *_dimensions(frame, schema))]


def _totals(frame: DataFrame, schema: DataSchema) -> Sequence[Any]:
    (row,) = _partials(frame, schema).agg(*totals(schema)).collect()
    return tuple(row)


def _is_near(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        if math.isnan(first) or math.isnan(second):
            return math.isnan(first) and math.isnan(second)
        return math.isclose(first, second, rel_tol=_NEAR, abs_tol=_NEAR)
    return bool(first == second)


def _rows_by_file(frame: DataFrame) -> dict[str, int]:
    counted = frame.groupBy(f.input_file_name().alias("file")).count().collect()
    return {Path(row["file"]).name: int(row["count"]) for row in counted}
