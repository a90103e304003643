"""The query of a stream task: the source of Kafka, from some offsets on, and a writer of batches.

All that it keeps is in a folder of the task: its checkpoint, the properties of the consumer, and
the documents between the task and the source. Whoever starts it writes the limits first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.model.streams.spec import KafkaFormat, Offsets, SupervisorSpec
from worker.spark.streaming import kafka_source
from worker.spark.streaming.documents import replace
from worker.spark.streaming.rows import SETTINGS, Accepted, RowReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINTING: Final[Mapping[str, str]] = {
    # The other one starts `readlink` for each look at a file of a local folder: together that takes
    # longer than a small batch. Both look whether the file is there, and rename.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of the session for queries whose checkpoints are in folders of this computer."""
POLLING: Final[Mapping[str, str]] = {
    # A source that has nothing is asked so often whether it has more, and told to pause.
    "spark.sql.streaming.pollingDelay": "250ms",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""Settings of the session for the query, beside those for records."""

_CONSUMER: Final = "consumer.json"


def start_query(
    spark: SparkSession,
    spec: SupervisorSpec,
    *,
    folder: Path,
    properties: Mapping[str, str],
    starts: Offsets,
    write: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Start the query; `properties` are those of the consumer, and may hold secrets."""
    for key, value in {**SETTINGS, **CHECKPOINTING, **POLLING}.items():
        spark.conf.set(key, value)
    spark.dataSource.register(kafka_source.KafkaSource)
    consumer = folder / _CONSUMER
    replace(consumer, properties)
    source = kafka_source.options(
        topic=spec.io.topic,
        starts=starts,
        folder=folder,
        properties=consumer,
        at_once=spark.sparkContext.defaultParallelism,
        whole_records=isinstance(spec.io.input_format, KafkaFormat),
        fields=RowReader(spec.schema, spec.io.input_format, Accepted()).source_fields,
    )
    return (
        spark.readStream.format(kafka_source.NAME)
        .options(**source)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
