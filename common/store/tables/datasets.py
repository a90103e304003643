"""Datasets: the segments that hold their rows, the offsets of their streams, and locks on them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, TSTZRANGE

from common.model.locks import (
    BATCH_PRIORITY,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    LockGranularity,
    LockType,
)
from common.store.tables.columns import (
    known_words,
    metadata,
    not_empty,
    number,
    own_id,
    seen_by_reader,
    time,
    time_now,
    word,
)
from common.store.tables.runs import task_instance

MAX_INTERVAL_TEXT: Final = 200

_PRIORITY: Final = f"priority BETWEEN {LOWEST_PRIORITY} AND {HIGHEST_PRIORITY}"


def _dataset() -> Column[str]:
    return Column("dataset", String(255), nullable=False)


def _not_empty_interval() -> CheckConstraint:
    return CheckConstraint(
        "lower_inc(interval) AND NOT upper_inc(interval) AND NOT upper_inf(interval)",
        name="interval",
    )


# A *lock* on an interval of a dataset. Valid while it is not revoked and one of its holders is a
# live attempt: what an ended one leaves behind is removed by whoever next asks for the dataset.
task_lock: Final = Table(
    "t_ds_task_lock",
    metadata,
    own_id(),
    _dataset(),
    Column("group_id", String(255), nullable=False),
    Column("interval", TSTZRANGE, nullable=False),
    Column("version", String(32), nullable=False),
    number("priority", BATCH_PRIORITY),
    word("type"),
    word("granularity", LockGranularity.TIME_CHUNK),
    number("partition_num", nullable=True),
    Column("revoked", Boolean, server_default=text("false"), nullable=False),
    time_now("create_time"),
    not_empty("dataset"),
    known_words("type", LockType),
    known_words("granularity", LockGranularity),
    _not_empty_interval(),
    CheckConstraint(_PRIORITY, name="priority"),
    CheckConstraint("(partition_num IS NULL) = (granularity = 'TIME_CHUNK')", name="partition_num"),
    info=seen_by_reader(
        "id dataset group_id interval version priority type granularity partition_num revoked "
        "create_time",
    ),
)
Index("t_ds_task_lock_dataset_idx", task_lock.c.dataset)
Index("t_ds_task_lock_interval_idx", task_lock.c.interval, postgresql_using="gist")

task_lock_holder: Final = Table(
    "t_ds_task_lock_holder",
    metadata,
    Column("lock_id", Integer, ForeignKey(task_lock.c.id, ondelete="CASCADE"), nullable=False),
    Column("task_id", Integer, ForeignKey(task_instance.c.id, ondelete="CASCADE"), nullable=False),
    PrimaryKeyConstraint("lock_id", "task_id"),
    info=seen_by_reader("lock_id task_id"),
)
Index("t_ds_task_lock_holder_task_idx", task_lock_holder.c.task_id)

# An interval that a held attempt waits for, as its author wrote it, with the values of parameters.
task_lock_request: Final = Table(
    "t_ds_task_lock_request",
    metadata,
    own_id(),
    Column("task_id", Integer, ForeignKey(task_instance.c.id, ondelete="CASCADE"), nullable=False),
    _dataset(),
    Column("interval", String(MAX_INTERVAL_TEXT), nullable=False),
    word("type"),
    number("priority", BATCH_PRIORITY),
    time_now("create_time"),
    not_empty("dataset"),
    known_words("type", LockType),
    CheckConstraint(_PRIORITY, name="priority"),
    info=seen_by_reader("id task_id dataset type priority create_time"),
)
Index("t_ds_task_lock_request_task_idx", task_lock_request.c.task_id)

# The project of a dataset: the first project that published to it or fed it.
dataset: Final = Table(
    "t_ds_dataset",
    metadata,
    Column("name", String(255), primary_key=True),
    number("project_id"),
    time_now("create_time"),
    # `t_ds_share` refers to the dataset by this number.
    Column("id", Integer, Identity(), nullable=False),
    UniqueConstraint("id"),
    not_empty("name"),
    info=seen_by_reader("name project_id create_time id"),
)

# A *segment*: files with the rows of an interval. A dataset's rows are those of its used segments.
# `origin_version` and `origin_num` are what it was written as: one that was added while its
# interval was replaced moves to the version of the replacement.
segment: Final = Table(
    "t_ds_segment",
    metadata,
    _dataset(),
    Column("interval", TSTZRANGE, nullable=False),
    Column("version", String(32), nullable=False),
    number("partition_num"),
    Column("sequence", Text, server_default=text("''"), nullable=False),
    Column("files", JSONB, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("used", Boolean, server_default=text("true"), nullable=False),
    time_now("created"),
    number("task_id", nullable=True),
    number("added_beside", nullable=True),
    Column("origin_version", String(32), nullable=False),
    number("origin_num"),
    PrimaryKeyConstraint("dataset", "interval", "version", "partition_num"),
    not_empty("dataset"),
    _not_empty_interval(),
    CheckConstraint("partition_num >= 0 AND rows >= 0 AND bytes >= 0", name="numbers"),
    CheckConstraint("jsonb_typeof(files) = 'array'", name="files"),
    info=seen_by_reader(
        "dataset interval version partition_num sequence rows bytes used created task_id "
        "added_beside origin_version origin_num",
    ),
)
Index("t_ds_segment_interval_idx", segment.c.interval, postgresql_using="gist")
Index("t_ds_segment_version_idx", segment.c.dataset, segment.c.version)

# A number that a sequence was given for a segment, so that a replica is given the same.
pending_segment: Final = Table(
    "t_ds_pending_segment",
    metadata,
    _dataset(),
    Column("interval", TSTZRANGE, nullable=False),
    Column("sequence", Text, nullable=False),
    Column("previous", Text, server_default=text("''"), nullable=False),
    Column("version", String(32), nullable=False),
    number("partition_num"),
    time_now("created"),
    PrimaryKeyConstraint("dataset", "interval", "version", "partition_num"),
    UniqueConstraint("dataset", "sequence", "interval", "previous"),
    not_empty("dataset"),
    _not_empty_interval(),
    info=seen_by_reader("dataset interval sequence previous version partition_num created"),
)
Index("t_ds_pending_segment_interval_idx", pending_segment.c.interval, postgresql_using="gist")
Index("t_ds_pending_segment_version_idx", pending_segment.c.dataset, pending_segment.c.version)

# How far a stream has been published into a dataset. `version` counts the publications;
# `update_time` is that of the last one, which a trigger notes.
dataset_offsets: Final = Table(
    "t_ds_dataset_offsets",
    metadata,
    _dataset(),
    Column("stream", String(255), nullable=False),
    number("partition"),
    Column("offset", BigInteger, nullable=False),
    time("max_event_time"),
    Column("version", BigInteger, server_default=text("1"), nullable=False),
    time_now("update_time"),
    PrimaryKeyConstraint("dataset", "partition"),
    not_empty("dataset"),
    info=seen_by_reader("dataset stream partition offset max_event_time version update_time"),
)

# The same for supervisors with a pattern of topics: `stream` is the topic of the partition. This is
# a separate table, because the former version relies on the key of the other table, without topic.
dataset_topic_offsets: Final = Table(
    "t_ds_dataset_topic_offsets",
    metadata,
    _dataset(),
    Column("stream", String(255), nullable=False),
    number("partition"),
    Column("offset", BigInteger, nullable=False),
    time("max_event_time"),
    Column("version", BigInteger, server_default=text("1"), nullable=False),
    time_now("update_time"),
    PrimaryKeyConstraint("dataset", "stream", "partition"),
    not_empty("dataset"),
    info=seen_by_reader("dataset stream partition offset max_event_time version update_time"),
)
