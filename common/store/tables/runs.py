"""Process instances, the attempts at their tasks, and the sub processes among them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)

from common.model.memory_factor import MAX_MEMORY_FACTOR
from common.model.states import (
    FINISHED_TASK_CODES,
    HELD_TASK_STATES,
    LIVE_PROCESS_CODES,
    LIVE_TASK_CODES,
    TERMINAL_PROCESS_CODES,
    WANTED_PROCESS_STATES,
    WANTED_TASK_STATES,
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    TaskDependType,
    TaskState,
    TimeoutStrategy,
)
from common.store.tables.columns import (
    COMMAND_TYPES,
    EXECUTION_STATES,
    among,
    code,
    known_often,
    listed,
    metadata,
    not_empty,
    number,
    own_id,
    quoted,
    seen_by_reader,
    time,
    time_now,
)

# Attempts that the master itself carries out: they run without a worker.
WORKERLESS_TASK_TYPES: Final = ("SUB_PROCESS", "DEPENDENT")

RARE_ENDS_OF_RUNS: Final = tuple(
    each for each in TERMINAL_PROCESS_CODES if each != ProcessState.SUCCESS
)
_RARE_ENDS_OF_ATTEMPTS: Final = tuple(
    each for each in FINISHED_TASK_CODES if each != TaskState.SUCCESS
)

process_instance: Final = Table(
    "t_ds_process_instance",
    metadata,
    own_id(),
    # Wider than a definition's name, from which it is made with two numbers behind it.
    Column("name", String(320), nullable=False),
    number("process_definition_id"),
    code("state"),
    code("recovery", 0),
    time_now("start_time"),
    time("end_time"),
    number("run_times", 1),
    Column("host", String(255)),
    code("command_type"),
    Column("command_param", Text),
    code("task_depend_type", 2),
    code("max_try_times", 0),
    code("failure_strategy", 0),
    code("warning_type", 0),
    number("warning_group_id", 0),
    time("schedule_time"),
    time("command_start_time"),
    Column("global_params", Text),
    Column("process_instance_json", Text, nullable=False),
    code("flag", 1),
    time_now("update_time"),
    number("is_sub_process", 0),
    number("executor_id"),
    Column("locations", Text),
    Column("connects", Text),
    Column("history_cmd", Text),
    Column("dependence_schedule_times", Text),
    number("process_instance_priority", 2),
    number("worker_group_id", -1),
    number("timeout", 0),
    number("tenant_id", -1),
    Column("owner_incarnation", BigInteger),
    Column("owner_epoch", BigInteger, server_default=text("0"), nullable=False),
    code("wanted_state", nullable=True),
    time("wanted_at"),
    Column("state_reason", Text),
    number("root_id", 0),
    number("parent_task_instance_id", 0),
    Column("run_scope", Text),
    time("restart_time"),
    time("wanted_deadline"),
    code("timeout_strategy", 0),
    code("timeout_flag", 0),
    # The zone in which the run reads its dates; NULL is the cluster's own.
    Column("timezone_id", String(40)),
    # The execution type of its schedule; NULL leaves that to the definition.
    code("execution_type", nullable=True),
    # The command that began it, whatever was put for it since; NULL before revision 0002.
    Column("command_id", BigInteger),
    # The version of the definition that a restart has given it; NULL: the one in its name.
    number("definition_version", nullable=True),
    # Its moment where that differs from the schedule time; NULL if it does not.
    time("business_time"),
    # Its start, moved forward by the time for which it lay ended or waited for its turn.
    time("duration_from"),
    not_empty("name"),
    known_often("state", EXECUTION_STATES),
    known_often("recovery", range(2)),
    known_often("command_type", COMMAND_TYPES),
    known_often("task_depend_type", TaskDependType),
    known_often("failure_strategy", FailureStrategy),
    known_often("warning_type", range(5)),
    known_often("flag", range(2)),
    known_often("is_sub_process", range(2)),
    known_often("process_instance_priority", Priority),
    known_often("wanted_state", WANTED_PROCESS_STATES),
    known_often("timeout_strategy", TimeoutStrategy),
    known_often("timeout_flag", range(2)),
    known_often("execution_type", ExecutionType),
    CheckConstraint("owner_epoch >= 0", name="owner_epoch"),
    CheckConstraint(
        f"NOT state {among(TERMINAL_PROCESS_CODES)} OR end_time IS NOT NULL",
        name="ended_has_end_time",
    ),
    info=seen_by_reader(
        "id name process_definition_id state recovery start_time end_time run_times host "
        "command_type task_depend_type max_try_times failure_strategy warning_type "
        "warning_group_id schedule_time command_start_time flag update_time is_sub_process "
        "executor_id history_cmd process_instance_priority worker_group_id timeout tenant_id "
        "owner_incarnation owner_epoch wanted_state wanted_at root_id parent_task_instance_id "
        "run_scope restart_time wanted_deadline timeout_strategy timeout_flag timezone_id "
        "execution_type command_id definition_version "
        "business_time duration_from",
        masked="state_reason",
    ),
)
Index("process_instance_index", process_instance.c.process_definition_id, process_instance.c.id)
Index("start_time_index", process_instance.c.start_time)
# The run that a command became.
Index(
    "t_ds_process_instance_command_idx",
    process_instance.c.command_id,
    postgresql_where=text("command_id IS NOT NULL"),
)
# The question of a DEPENDENT: the runs of a definition for a time, however many came since.
Index(
    "t_ds_process_instance_business_idx",
    process_instance.c.process_definition_id,
    func.coalesce(
        process_instance.c.business_time,
        process_instance.c.schedule_time,
        process_instance.c.start_time,
    ),
)
# Failover and start-up: what belongs to this master, of the few that still go on.
Index(
    "t_ds_process_instance_live_idx",
    process_instance.c.host,
    postgresql_where=text(f"state IN ({listed(LIVE_PROCESS_CODES)})"),
)
# People look for what has failed or was stopped: the few among many that succeeded.
Index(
    "t_ds_process_instance_rare_end_idx",
    process_instance.c.state,
    process_instance.c.id,
    postgresql_where=text(f"state IN ({listed(RARE_ENDS_OF_RUNS)})"),
)
# The overview's question: how did the last run of each definition end?
LAST_RUN: Final = (
    f"state IN ({ProcessState.FAILURE:d}, {ProcessState.SUCCESS:d})"
    " AND parent_task_instance_id = 0"
    " AND split_part(coalesce(history_cmd, ''), ',', 1) <> 'COMPLEMENT_DATA'"
)
"""The condition of a run that failed or succeeded, apart from sub processes and complements."""
Index(
    "t_ds_process_instance_last_idx",
    process_instance.c.process_definition_id,
    process_instance.c.id,
    postgresql_where=text(LAST_RUN),
)
# The live sub-processes of a tree, to limit their number.
Index(
    "t_ds_process_instance_tree_idx",
    process_instance.c.root_id,
    postgresql_where=text(f"root_id <> 0 AND state IN ({listed(LIVE_PROCESS_CODES)})"),
)
# An owner's slow look for pauses and stops whose notification it missed.
Index(
    "t_ds_process_instance_wanted_idx",
    process_instance.c.host,
    postgresql_where=text("wanted_state IS NOT NULL"),
)
# The run of a serial definition whose turn comes next.
Index(
    "t_ds_process_instance_waiting_idx",
    process_instance.c.process_definition_id,
    process_instance.c.id,
    postgresql_where=text(f"state = {ProcessState.SERIAL_WAIT:d}"),
)
# The runs that may time out.
Index(
    "t_ds_process_instance_timeout_idx",
    process_instance.c.id,
    postgresql_where=text(
        "timeout > 0 AND timeout_flag = 0"
        f" AND state IN ({ProcessState.RUNNING:d}, {ProcessState.READY_PAUSE:d})"
    ),
)

task_instance: Final = Table(
    "t_ds_task_instance",
    metadata,
    own_id(),
    Column("name", String(255), nullable=False),
    Column("task_type", String(64), nullable=False),
    number("process_definition_id"),
    Column(
        "process_instance_id",
        Integer,
        ForeignKey("t_ds_process_instance.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("task_json", Text, nullable=False),
    code("state"),
    time("submit_time"),
    time("start_time"),
    time("end_time"),
    Column("host", String(255)),
    Column("execute_path", Text),
    Column("log_path", Text),
    code("alert_flag", 0),
    number("retry_times", 0),
    number("pid", nullable=True),
    Column("app_link", Text),
    Column("ui_link", Text),
    Column("history_link", Text),
    Column("progress", Text),
    Column("usage", Text),
    code("flag", 1),
    number("retry_interval", 0),
    number("max_retry_times", 0),
    number("task_instance_priority", 2),
    number("worker_group_id", -1),
    number("executor_id", nullable=True),
    number("attempt", 1),
    Column("worker_incarnation", BigInteger),
    code("wanted_state", nullable=True),
    Column("settled", Boolean, server_default=text("false"), nullable=False),
    time("retry_at"),
    number("exit_code", nullable=True),
    Column("reason", Text),
    Column("failure_reason", String(32)),
    Column("memory_factor", Double, server_default=text("1"), nullable=False),
    Column("pid_start_time", Double),
    Column("input_pool", Text),
    Column("var_pool", Text),
    Column("branch", Text),
    Column("evidence", Text),
    time("due_at"),
    number("timeout_seconds", nullable=True),
    code("timeout_strategy", nullable=True),
    time("lost_at"),
    # Also the index by process instance that the contract has.
    UniqueConstraint("process_instance_id", "name", "attempt"),
    not_empty("name"),
    not_empty("task_type"),
    known_often("state", EXECUTION_STATES),
    known_often("alert_flag", range(2)),
    known_often("flag", range(2)),
    known_often("task_instance_priority", Priority),
    known_often("wanted_state", WANTED_TASK_STATES),
    known_often("timeout_strategy", TimeoutStrategy),
    CheckConstraint("attempt >= 1", name="attempt"),
    # Neither does NaN lie there, which PostgreSQL takes for the largest number.
    CheckConstraint(f"memory_factor BETWEEN 1 AND {MAX_MEMORY_FACTOR:g}", name="memory_factor"),
    CheckConstraint(
        f"state <> {TaskState.RUNNING:d} OR (host IS NOT NULL AND worker_incarnation IS NOT NULL)"
        f" OR task_type IN ({quoted(WORKERLESS_TASK_TYPES)})",
        name="running_has_worker",
    ),
    CheckConstraint(
        f"NOT state {among(FINISHED_TASK_CODES)} OR end_time IS NOT NULL",
        name="finished_has_end_time",
    ),
    CheckConstraint(
        f"flag = 1 OR state {among(FINISHED_TASK_CODES)}",
        name="superseded_is_finished",
    ),
    CheckConstraint(
        f"NOT settled OR state {among(FINISHED_TASK_CODES)}",
        name="settled_is_finished",
    ),
    info=seen_by_reader(
        "id name task_type process_definition_id process_instance_id state submit_time "
        "start_time end_time host alert_flag retry_times pid app_link progress usage flag "
        "retry_interval max_retry_times task_instance_priority worker_group_id executor_id "
        "attempt worker_incarnation wanted_state settled retry_at exit_code failure_reason "
        "memory_factor branch due_at timeout_seconds timeout_strategy lost_at",
        masked="reason",
    ),
)
# One valid attempt of a node, whatever races: the second INSERT fails instead of running twice.
Index(
    "t_ds_task_instance_one_valid_idx",
    task_instance.c.process_instance_id,
    task_instance.c.name,
    unique=True,
    postgresql_where=text("flag = 1"),
)
# An owner's question: what has ended, or is still to end, in my runs?
Index(
    "t_ds_task_instance_unsettled_idx",
    task_instance.c.process_instance_id,
    postgresql_where=text("NOT settled"),
)
# Failover's question: what did this worker have in hand?
Index(
    "t_ds_task_instance_live_idx",
    task_instance.c.host,
    postgresql_where=text(f"state IN ({listed(LIVE_TASK_CODES)})"),
)
# The same of attempts.
Index(
    "t_ds_task_instance_rare_end_idx",
    task_instance.c.state,
    task_instance.c.id,
    postgresql_where=text(f"state IN ({listed(_RARE_ENDS_OF_ATTEMPTS)})"),
)
# The attempts of missing workers, until none of their processes is left.
Index(
    "t_ds_task_instance_lost_idx",
    task_instance.c.id,
    postgresql_where=text("lost_at IS NOT NULL"),
)
# The queue's question: what should have a znode?
Index(
    "t_ds_task_instance_submitted_idx",
    task_instance.c.id,
    postgresql_where=text(f"state = {TaskState.SUBMITTED:d} AND flag = 1"),
)
# The attempts held by a delay or for want of slots.
Index(
    "t_ds_task_instance_held_idx",
    task_instance.c.due_at,
    postgresql_where=text(f"state IN ({listed(HELD_TASK_STATES)})"),
)
# The attempts that masters themselves carry out.
Index(
    "t_ds_task_instance_workerless_idx",
    task_instance.c.process_instance_id,
    postgresql_where=text(
        f"state = {TaskState.RUNNING:d} AND task_type IN ({quoted(WORKERLESS_TASK_TYPES)})"
    ),
)
# The attempts that may time out.
Index(
    "t_ds_task_instance_timeout_idx",
    task_instance.c.id,
    postgresql_where=text(f"timeout_seconds IS NOT NULL AND state = {TaskState.RUNNING:d}"),
)

relation_process_instance: Final = Table(
    "t_ds_relation_process_instance",
    metadata,
    own_id(),
    number("parent_process_instance_id"),
    number("parent_task_instance_id"),
    number("process_instance_id", 0),
    info=seen_by_reader(
        "id parent_process_instance_id parent_task_instance_id process_instance_id"
    ),
)
Index(
    "t_ds_relation_process_instance_parent_idx",
    relation_process_instance.c.parent_process_instance_id,
)
Index(
    "t_ds_relation_process_instance_task_idx",
    relation_process_instance.c.parent_task_instance_id,
)
Index(
    "t_ds_relation_process_instance_child_idx",
    relation_process_instance.c.process_instance_id,
)
