"""The query of a stream task: the source of Kafka, from some offsets on, and a writer of batches.

All that it keeps is in a folder of the task: its checkpoint, the properties of the consumer, and
the documents between the task and the source. Whoever starts it writes the limits first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

from pyspark.sql.utils import is_remote

from common.model.streams.consumer import ClientProperties
from common.model.streams.spec import KafkaFormat, Offsets, SupervisorSpec
from worker.spark.streaming import kafka_source
from worker.spark.streaming.batch_relay import BatchRelay
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
_STOP_SECONDS: Final = 10.0


class Query:
    """A query that runs, in this process's driver or in a Connect server."""

    def __init__(self, running: StreamingQuery, relay: BatchRelay | None = None) -> None:
        self._running = running
        self._relay = relay
        self._end: Future[None] = Future()
        Thread(target=self._await, name="end of query", daemon=True).start()

    def has_ended(self, *, within_seconds: float) -> bool:
        """Wait for its end; raise the error that has ended it."""
        wait([self._end], timeout=within_seconds)
        if not self._end.done():
            return False
        self._end.result()
        return True

    def stop(self) -> None:
        """End it with the batch that it is at; it may be over already."""
        if not self._end.done():
            self._running.stop()
            # A session is not closed as long as anybody asks for something in it.
            wait([self._end], timeout=_STOP_SECONDS)
        if self._relay is not None:
            self._relay.close()

    def _await(self) -> None:
        # One question for all of the time: in a server each is an operation with a thread.
        try:
            self._running.awaitTermination()
        except BaseException as error:  # noqa: BLE001  # Whoever waits raises it.
            self._end.set_exception(error)
        else:
            self._end.set_result(None)


def start_query(
    spark: SparkSession,
    spec: SupervisorSpec,
    *,
    folder: Path,
    properties: ClientProperties,
    starts: Offsets,
    cores: int,
    write: Callable[[DataFrame, int], None],
) -> Query:
    """Start the query, which reads on so many `cores` at once; `write` is called in this process.

    `properties` are those of the consumer, and may hold secrets.
    """
    for key, value in {**SETTINGS, **CHECKPOINTING, **POLLING}.items():
        spark.conf.set(key, value)
    # All streams of a server are read by the same Pythons; nothing of an author's runs there.
    spark.conf.unset("spark.sql.execution.pyspark.python")
    spark.dataSource.register(kafka_source.KafkaSource)
    consumer = folder / _CONSUMER
    replace(consumer, properties.document())
    source = kafka_source.options(
        topic=spec.io.topic,
        has_pattern=spec.io.has_pattern,
        starts=starts,
        folder=folder,
        properties=consumer,
        at_once=cores,
        whole_records=isinstance(spec.io.input_format, KafkaFormat),
        fields=RowReader(spec.schema, spec.io.input_format, Accepted()).source_fields,
    )
    relay = BatchRelay(spark, folder, write) if is_remote() else None
    try:
        running = (
            spark.readStream.format(kafka_source.NAME)
            .options(**source)
            .load()
            .writeStream.foreachBatch(write if relay is None else relay.call)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
    except BaseException:
        if relay is not None:
            relay.close()
        raise
    return Query(running, relay)
