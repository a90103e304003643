"""Complements and their dates."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from common.model.complement_states import (
    ComplementState,
    DateState,
    OnFailure,
    Reprocess,
    RunOrder,
)
from common.model.date_rules import DateRule
from common.model.states import FailureStrategy, Priority, TaskDependType
from common.store.tables.columns import (
    code,
    environment_code,
    known,
    known_words,
    listed,
    metadata,
    number,
    own_id,
    seen_by_reader,
    time,
    time_now,
    times,
    word,
)

# A complement: dates of one definition that run as one object. `after_id` is the one that has to
# succeed first, `command_id` the row that asked for it.
complement: Final = Table(
    "t_ds_complement",
    metadata,
    own_id(),
    number("process_definition_id"),
    code("state", 1),
    number("parallelism", 1),
    word("run_order", "ascending"),
    word("on_failure", "stop"),
    word("reprocess", "all"),
    Column("timezone_id", String(40), nullable=False),
    number("after_id", 0),
    number("command_id", 0),
    code("task_depend_type", 2),
    code("failure_strategy", 1),
    code("warning_type", 0),
    number("warning_group_id", 0),
    number("executor_id", 1),
    number("process_instance_priority", 2),
    number("worker_group_id", -1),
    Column("start_node_names", Text),
    Column("start_params", Text),
    *times(),
    time("end_time"),
    Column("state_reason", Text),
    environment_code(),
    # What a date is; complements of former versions have the rule of DolphinScheduler 1.2.
    word("date_rule", "business_date"),
    known("state", ComplementState),
    known("task_depend_type", TaskDependType),
    known("failure_strategy", FailureStrategy),
    known("warning_type", range(5)),
    known("process_instance_priority", Priority),
    known_words("run_order", RunOrder),
    known_words("on_failure", OnFailure),
    known_words("reprocess", Reprocess),
    known_words("date_rule", DateRule),
    CheckConstraint("parallelism BETWEEN 1 AND 1000", name="parallelism"),
    info=seen_by_reader(
        "id process_definition_id state parallelism run_order on_failure reprocess "
        "timezone_id after_id command_id task_depend_type failure_strategy warning_type "
        "warning_group_id executor_id process_instance_priority worker_group_id "
        "start_node_names create_time update_time end_time environment_code "
        "date_rule",
        masked="state_reason",
    ),
)
Index(
    "t_ds_complement_moving_idx",
    complement.c.id,
    postgresql_where=text(
        f"state IN ({listed(state for state in ComplementState if not state.is_ended)})"
    ),
)
# The overview's question: has a later complement of the definition done these dates?
Index("t_ds_complement_definition_idx", complement.c.process_definition_id, complement.c.id)
Index("t_ds_complement_after_idx", complement.c.after_id, postgresql_where=text("after_id <> 0"))
Index(
    "t_ds_complement_command_idx",
    complement.c.command_id,
    postgresql_where=text("command_id <> 0"),
)

complement_date: Final = Table(
    "t_ds_complement_date",
    metadata,
    own_id(),
    Column(
        "complement_id",
        Integer,
        ForeignKey("t_ds_complement.id", ondelete="CASCADE"),
        nullable=False,
    ),
    number("position"),
    time("schedule_time", nullable=False),
    word("state", "pending"),
    number("command_id", 0),
    number("process_instance_id", 0),
    Column("reason", Text),
    time_now("update_time"),
    UniqueConstraint("complement_id", "schedule_time"),
    known_words("state", DateState),
    info=seen_by_reader(
        "id complement_id position schedule_time state command_id process_instance_id update_time",
        masked="reason",
    ),
)
Index(
    "t_ds_complement_date_state_idx",
    complement_date.c.complement_id,
    complement_date.c.state,
    complement_date.c.position,
)
Index(
    "t_ds_complement_date_instance_idx",
    complement_date.c.process_instance_id,
    postgresql_where=text("process_instance_id <> 0"),
)
