"""A stream's rows a second: JSON from a topic, rolled up, written as Parquet by chunk.

No daemon takes part: the topic is at librdkafka's mock broker in this process, Spark is a driver of
two threads, with the options of a stream task's. Beside it, in turns, the bare query: the same source, and the values as they are written
as Parquet, without a look into them. The first query of each kind warms Spark up and does not count.

A second comparison reads times by a pattern and by Spark's own parser, alternately.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.model.streams.joda import reader_of
from common.model.streams.reading import read_spec
from common.model.streams.spec import SupervisorSpec
from tests.bench.figures import Figure, Target
from tests.bench.stage import Stage
from tests.mock_kafka import a_broker
from worker.spark.jvm.java_command import LATE_C2
from worker.spark.streaming import joda, kafka_source
from worker.spark.streaming.batches import BatchWriter
from worker.spark.streaming.documents import Limits, write_limits
from worker.spark.streaming.query import CHECKPOINTING
from worker.spark.streaming.rows import SETTINGS, Accepted, RowReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The mock broker keeps about 5 MB of a partition.
_PARTITIONS, _RECORDS = 12, 40_000
_ROWS = _PARTITIONS * _RECORDS
_TEXTS = 2_000_000
_PATTERN, _SPARK_PATTERN = "yyyy-MM-dd'T'HH:mm:ssZ", "yyyy-MM-dd'T'HH:mm:ssxxx"
_SPEC: dict[str, Any] = {
    "type": "kafka",
    "dataSchema": {
        "dataSource": "flights",
        "timestampSpec": {"column": "at"},
        "dimensionsSpec": {"dimensions": ["origin", "carrier"]},
        "metricsSpec": [
            {"type": "count", "name": "rows"},
            {"type": "longSum", "name": "delay", "fieldName": "delay"},
        ],
        "granularitySpec": {"segmentGranularity": "HOUR", "queryGranularity": "MINUTE"},
    },
    "ioConfig": {
        "topic": "flights",
        "consumerProperties": {"bootstrap.servers": "broker:9092"},
        "inputFormat": {"type": "json"},
    },
}


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Measure without the stage, which is not used: there is nothing to start."""
    del stage
    folder = Path(tempfile.mkdtemp(prefix="orcaflow-bench-"))
    try:
        with a_broker() as broker:
            broker.create("flights", _PARTITIONS)
            for partition in range(_PARTITIONS):
                broker.produce("flights", partition, [_event(each) for each in range(_RECORDS)])
            properties = {"bootstrap.servers": broker.servers}
            (folder / "consumer.json").write_text(json.dumps(properties), encoding="utf-8")
            spark = _session(folder)
            try:
                return [*_figures(spark, folder, runs), _of_parser(spark, runs)]
            finally:
                spark.stop()
    finally:
        shutil.rmtree(folder)


def _figures(spark: SparkSession, folder: Path, runs: int) -> list[Figure]:
    rolled_up, bare = [], []
    for run in range(runs + 1):
        rolled_up.append(_ROWS / _timed(spark, folder / f"rows{run}", _rolling_up, _fields()))
        bare.append(_ROWS / _timed(spark, folder / f"bare{run}", _bare))
    ratios = tuple(ours / plain for ours, plain in zip(rolled_up[1:], bare[1:], strict=True))
    return [
        Figure(
            name="streams.rows",
            unit="rows/s",
            values=tuple(rolled_up[1:]),
            target=Target(limit=60_000, at_least=True),
        ),
        Figure(name="streams.bare_rows", unit="rows/s", values=tuple(bare[1:])),
        Figure(
            name="streams.of_bare",
            unit="x",
            values=ratios,
            target=Target(limit=0.6, at_least=True),
        ),
    ]


def _of_parser(spark: SparkSession, runs: int) -> Figure:
    """Return the time that a pattern takes for usual texts, by the time of Spark's own parser."""
    from pyspark.sql import functions as f

    moment = f.timestamp_seconds(f.col("id") * 37 + 1_356_998_400)
    texts = spark.range(_TEXTS, numPartitions=2).select(
        f.date_format(moment, "yyyy-MM-dd'T'HH:mm:ss'+01:00'").alias("at")
    )
    texts = texts.cache()
    texts.count()
    by_pattern = joda.micros_read(f.col("at"), reader_of(_PATTERN), trimmed=True)
    by_parser = f.unix_micros(f.try_to_timestamp(f.col("at"), f.lit(_SPARK_PATTERN)))
    ratios = []
    for _ in range(runs + 1):
        seconds = []
        for column in (by_pattern, by_parser):
            began = time.monotonic()
            if texts.agg(f.count(column)).collect()[0][0] != _TEXTS:
                raise ValueError("texts of times were not read")
            seconds.append(time.monotonic() - began)
        ratios.append(seconds[0] / seconds[1])
    texts.unpersist()
    return Figure(
        name="streams.pattern_of_parser",
        unit="x",
        values=tuple(ratios[1:]),
        target=Target(limit=2),
    )


def _timed(
    spark: SparkSession,
    folder: Path,
    writer: Callable[[Path], Callable[[DataFrame, int], None]],
    fields: Sequence[str] = (),
) -> float:
    """Return the seconds from the first batch's order to the end of the last."""
    folder.mkdir()
    write_limits(folder, Limits(version=1, paused=True))
    options = kafka_source.options(
        topic="flights",
        starts=dict.fromkeys(range(_PARTITIONS), 0),
        folder=folder,
        properties=folder.parent / "consumer.json",
        at_once=2,
        whole_records=False,
        fields=fields,
    )
    records = spark.readStream.format(kafka_source.NAME).options(**options).load()
    query = (
        records.writeStream.foreachBatch(writer(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        began = time.monotonic()
        ends = dict.fromkeys(range(_PARTITIONS), _RECORDS)
        write_limits(folder, Limits(version=2, ends=ends))
        query.processAllAvailable()
        return time.monotonic() - began
    finally:
        query.stop()


def _spec() -> SupervisorSpec:
    spec = read_spec(_SPEC).spec
    if not isinstance(spec, SupervisorSpec):
        raise TypeError("a specification was read as a tombstone")
    return spec


def _fields() -> tuple[str, ...]:
    spec = _spec()
    return RowReader(spec.schema, spec.io.input_format, Accepted()).source_fields


def _rolling_up(folder: Path) -> Callable[[DataFrame, int], None]:
    writer = BatchWriter(_spec(), Accepted(), range(_PARTITIONS))

    def write(records: DataFrame, number: int) -> None:
        writer.write(records, folder, number)

    return write


def _bare(folder: Path) -> Callable[[DataFrame, int], None]:
    def write(records: DataFrame, number: int) -> None:
        records.select("partition", "offset", "value").write.parquet(str(folder / str(number)))

    return write


def _event(number: int) -> bytes:
    event = {
        "at": f"2013-01-01T{number // 3_600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "origin": ("JFK", "EWR", "LGA")[number % 3],
        "carrier": f"C{number % 16}",
        "delay": number % 90,
    }
    return json.dumps(event).encode()


def _session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession as Session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        Session.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.extraJavaOptions", " ".join((*LATE_C2, "-XX:+UseParallelGC")))
        .config(map={**SETTINGS, **CHECKPOINTING})
        .getOrCreate()
    )
    spark.dataSource.register(kafka_source.KafkaSource)
    return spark
