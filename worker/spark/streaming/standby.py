"""A stream task without work: it prepares itself, and waits until its supervisor assigns it some.

It reads and writes a few of the stream's last records, as a task does, into a folder that is thrown
away. So Spark's processes for the source are there, and its code for the writer is compiled, before
the work comes. Nothing of that is kept, and none of it is needed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from common.kafka_topic import last_records
from common.model.streams.consumer import librdkafka_properties
from common.model.streams.spec import Offsets, SupervisorSpec
from common.model.streams.tasks import OrderKind, Orders, TaskReport, TaskStatus
from worker.spark.streaming.batches import BatchWriter
from worker.spark.streaming.documents import Limits, read_place, write_limits
from worker.spark.streaming.query import Query, start_query
from worker.spark.streaming.rows import Accepted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Work = TypeVar("Work")

_REST_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 20.0
_PARTITIONS: Final = 8
"""The partitions of which some records are read to warm up, at most."""
_RECORDS: Final = 10
"""The last records of each of these."""


class Conversation(Protocol):
    """The task's end of the conversation with its supervisor (`conversation`)."""

    def tell(self, report: TaskReport) -> Orders | None: ...


def awaited_work(conversation: Conversation, ask: Callable[[], Work | None]) -> Work | None:
    """Ask until there is work, and return it; None if the supervisor stops this attempt before."""
    report = TaskReport(state=TaskStatus.STANDBY)
    while True:
        orders = conversation.tell(report)
        if orders is not None and orders.command is OrderKind.STOP:
            return None
        found = ask()
        if found is not None:
            return found
        time.sleep(_REST_SECONDS)


def warm_up(
    spark: SparkSession,
    spec: SupervisorSpec,
    *,
    folder: Path,
    cores: int,
    secrets: Mapping[str, str],
    connection: Mapping[str, str] | None = None,
) -> None:
    """Read and write some records that nobody keeps, for a while. `folder` is made, and removed.

    Any error of the stream, of its records or of Spark passes through.
    """
    folder.mkdir(mode=0o700)
    try:
        properties = librdkafka_properties(spec.io.consumer, secrets, connection=connection)
        starts, ends = last_records(
            spec.io.topic,
            properties,
            _RECORDS,
            partitions=_PARTITIONS,
            has_pattern=spec.io.has_pattern,
        )
        write_limits(folder, Limits(version=1, ends=ends))
        writer = BatchWriter(spec, Accepted(), starts)

        def write(records: DataFrame, number: int) -> None:
            writer.write(records, folder / "rows", number)

        query = start_query(
            spark,
            spec,
            folder=folder,
            properties=properties,
            starts=starts,
            cores=cores,
            write=write,
        )
        try:
            _await(query, folder, ends)
        finally:
            query.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await(query: Query, folder: Path, ends: Offsets) -> None:
    """Wait until all is read. A broker that says nothing any more is not waited for."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        place = read_place(folder)
        if place is not None and dict(place.offsets) == dict(ends):
            return
        query.has_ended(within_seconds=_REST_SECONDS)
