"""Findings about data and the ends of logs: what attempts leave beside their rows."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from common.model.quality import QualityLevel, QualityState
from common.store.tables.columns import (
    known_words,
    metadata,
    number,
    own_id,
    seen_by_reader,
    time,
    time_now,
    word,
)
from common.store.tables.runs import task_instance

# The findings of the rules of DATA_QUALITY tasks; once for each attempt.
quality_result: Final = Table(
    "t_ds_quality_result",
    metadata,
    own_id(),
    Column(
        "task_instance_id",
        Integer,
        ForeignKey(task_instance.c.id, ondelete="CASCADE"),
        nullable=False,
    ),
    number("process_instance_id"),
    number("process_definition_id"),
    Column("task_name", String(255), nullable=False),
    time("moment", nullable=False),
    Column("rule", String(200), nullable=False),
    Column("type", String(40), nullable=False),
    Column("target", String(200), nullable=False),
    word("level"),
    word("state"),
    Column("value", Double),
    Column("expected", String(200), nullable=False),
    Column("rows", BigInteger),
    Column("failed", BigInteger),
    Column("detail", Text, nullable=False),
    time_now("create_time"),
    UniqueConstraint("task_instance_id", "rule"),
    known_words("level", QualityLevel),
    known_words("state", QualityState),
    info=seen_by_reader(
        "id task_instance_id process_instance_id process_definition_id task_name moment rule "
        "type target level state value expected rows failed create_time",
        masked="detail",
    ),
)
Index(
    "t_ds_quality_result_former_idx",
    quality_result.c.process_definition_id,
    quality_result.c.task_name,
    quality_result.c.rule,
    quality_result.c.moment,
)

# The end of a failed attempt's log, for when its worker's host is gone.
task_log_tail: Final = Table(
    "t_ds_task_log_tail",
    metadata,
    own_id(),
    Column(
        "task_instance_id",
        Integer,
        ForeignKey(task_instance.c.id, ondelete="CASCADE"),
        nullable=False,
    ),
    Column("size", BigInteger, nullable=False),
    Column("tail", LargeBinary, nullable=False),
    time_now("create_time"),
    UniqueConstraint("task_instance_id"),
    info=seen_by_reader("id task_instance_id size create_time"),
)
