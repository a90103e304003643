"""Schedules, and the outcomes of their fires."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from common.model.schedules import FireOutcome, MisfirePolicy
from common.model.states import ExecutionType, FailureStrategy, Priority, ReleaseState
from common.store.tables.columns import (
    code,
    environment_code,
    known,
    known_words,
    metadata,
    not_empty,
    number,
    own_id,
    seen_by_reader,
    time,
    time_now,
    time_now_nullable,
    times,
    word,
)

# `counted_from` is set while the next fire has to be worked out, by a trigger whenever what decides
# it is changed; `fault` says why the row can't fire.
schedule: Final = Table(
    "t_ds_schedules",
    metadata,
    own_id(),
    number("process_definition_id"),
    time_now("start_time"),
    Column(
        "end_time",
        DateTime(timezone=True),
        server_default=text("'9999-01-01 00:00:00+00'"),
        nullable=False,
    ),
    Column("crontab", String(256), nullable=False),
    code("failure_strategy", 1),
    number("user_id", 1),
    code("release_state", 0),
    code("warning_type", 0),
    number("warning_group_id", 0),
    number("process_instance_priority", 2),
    number("worker_group_id", -1),
    *times(),
    Column("timezone_id", String(40)),
    word("missing_time", "shift"),
    word("repeated_time", "first"),
    word("misfire_policy", "fire_once"),
    number("misfire_limit", 10),
    # In seconds; 0 is none.
    number("deadline", 0),
    code("execution_type", nullable=True),
    Column("start_params", Text),
    time_now_nullable("counted_from"),
    time("next_fire_time"),
    Column("fault", Text),
    environment_code(),
    not_empty("crontab"),
    known("failure_strategy", FailureStrategy),
    known("release_state", ReleaseState),
    known("warning_type", range(5)),
    known("process_instance_priority", Priority),
    known("execution_type", ExecutionType),
    known_words("missing_time", ("shift", "skip")),
    known_words("repeated_time", ("first", "second", "both")),
    known_words("misfire_policy", MisfirePolicy),
    CheckConstraint("misfire_limit BETWEEN 1 AND 1000", name="misfire_limit"),
    CheckConstraint("deadline >= 0", name="deadline"),
    CheckConstraint("end_time > start_time", name="window"),
    info=seen_by_reader(
        "id process_definition_id start_time end_time crontab failure_strategy user_id "
        "release_state warning_type warning_group_id process_instance_priority "
        "worker_group_id create_time update_time timezone_id missing_time repeated_time "
        "misfire_policy misfire_limit deadline execution_type counted_from next_fire_time "
        "environment_code",
        masked="fault",
    ),
)
Index("t_ds_schedules_definition_idx", schedule.c.process_definition_id)
# The schedules that are due, and those whose next fire has to be computed first.
Index(
    "t_ds_schedules_due_idx",
    schedule.c.next_fire_time,
    postgresql_where=text("release_state = 1 AND fault IS NULL"),
)
Index(
    "t_ds_schedules_unplanned_idx",
    schedule.c.id,
    postgresql_where=text("release_state = 1 AND fault IS NULL AND counted_from IS NOT NULL"),
)

# The outcome of each fire. It outlives its schedule, as history: hence no foreign key.
schedule_fire: Final = Table(
    "t_ds_schedule_fire",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    number("schedule_id"),
    time("fire_time", nullable=False),
    word("outcome"),
    number("process_definition_id"),
    number("command_id", 0),
    number("process_instance_id", 0),
    Column("reason", Text),
    time_now("create_time"),
    UniqueConstraint("schedule_id", "fire_time"),
    known_words("outcome", FireOutcome),
    info=seen_by_reader(
        "id schedule_id fire_time outcome process_definition_id command_id "
        "process_instance_id create_time",
        masked="reason",
    ),
)
Index(
    "t_ds_schedule_fire_definition_idx",
    schedule_fire.c.process_definition_id,
    schedule_fire.c.fire_time,
)
# The few fires of which an overview reports that they were missed.
Index(
    "t_ds_schedule_fire_missed_idx",
    schedule_fire.c.fire_time,
    postgresql_where=text(f"outcome = '{FireOutcome.MISSED.value}'"),
)
Index(
    "t_ds_schedule_fire_command_idx",
    schedule_fire.c.command_id,
    postgresql_where=text("command_id <> 0"),
)
