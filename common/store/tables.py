"""Every table of the database, as SQLAlchemy Core objects: the schema as the code sees it.

Names and codes are those of the behavioural contract. What Orcaflow adds are columns with defaults
(listed in `sql/README.md`). Defaults live in the database, so that a row typed by hand needs no
more than a program's row. A CHECK says what must never be, whoever writes; a partial index serves
one loop's question.

Nothing here connects or queries. `common.store.schema` turns this into DDL, adds the triggers, and
compares it with a real database; the other modules of `common.store` build statements from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)

from common.model.commands import INTENT_COMMANDS, OWN_RECOVERIES, CommandOutcome, CommandType
from common.model.complement_states import (
    ComplementState,
    DateState,
    OnFailure,
    Reprocess,
    RunOrder,
)
from common.model.quality import QualityLevel, QualityState
from common.model.retry_policy import MAX_MEMORY_FACTOR
from common.model.schedules import FireOutcome, MisfirePolicy
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
    ReleaseState,
    TaskDependType,
    TaskState,
    TimeoutStrategy,
)

metadata: Final = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)

COMMAND_TYPES: Final = tuple(range(14))
EXECUTION_STATES: Final = tuple(range(18))
# Attempts that the master itself carries out: they run without a worker.
WORKERLESS_TASK_TYPES: Final = ("SUB_PROCESS", "DEPENDENT")


def _list(codes: Iterable[int]) -> str:
    return ", ".join(str(int(code)) for code in codes)


def _texts(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _known(column: str, codes: Iterable[int]) -> CheckConstraint:
    """The column holds one of the codes of its enum (or NULL, where the column allows that)."""
    return CheckConstraint(f"{column} IN ({_list(codes)})", name=column)


def _not_empty(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} <> ''", name=f"{column}_not_empty")


def _id() -> Column[int]:
    return Column("id", Integer, Identity(), primary_key=True)


def _code(name: str, default: int | None = None, *, nullable: bool = False) -> Column[int]:
    return Column(name, SmallInteger, server_default=_default(default), nullable=nullable)


def _own_code() -> Column[int]:
    """The number by which DolphinScheduler's clients name the row: its id, set by a trigger."""
    return Column("code", BigInteger, nullable=False)


def _code_is_no_other_id() -> CheckConstraint:
    """A code that was kept at an import is greater than any id, so that it is never one's."""
    return CheckConstraint("code = id OR code > 2147483647", name="code")


def _number(name: str, default: int | None = None, *, nullable: bool = False) -> Column[int]:
    return Column(name, Integer, server_default=_default(default), nullable=nullable)


def _default(value: int | None) -> Any:
    return None if value is None else text(str(value) if value >= 0 else f"'{value}'")


def _time(name: str, *, nullable: bool = True) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _time_now(name: str) -> Column[Any]:
    return Column(name, DateTime(timezone=True), server_default=text("now()"), nullable=False)


def _time_now_nullable(name: str) -> Column[Any]:
    return Column(name, DateTime(timezone=True), server_default=text("now()"))


def _word(name: str, default: str | None = None) -> Column[str]:
    """One of a few words, which people read and type."""
    return Column(
        name,
        String(16),
        server_default=None if default is None else text(f"'{default}'"),
        nullable=False,
    )


def _known_words(column: str, words: Iterable[str]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({_texts(words)})", name=column)


def _times() -> tuple[Column[Any], Column[Any]]:
    return _time_now("create_time"), _time_now("update_time")


# Takes any number, and NULL where no loop needs a value: a row that can't be run has to get in, so
# that a master can move it to the error table with a reason. Hence no codes are checked here.
command: Final = Table(
    "t_ds_command",
    metadata,
    _id(),
    _number("command_type", nullable=True),
    # Refers to nothing, for the same reason.
    _number("process_definition_id", nullable=True),
    Column("command_param", Text),
    _number("task_depend_type", 2, nullable=True),
    _number("failure_strategy", 1, nullable=True),
    _number("warning_type", 0, nullable=True),
    _number("warning_group_id", 0, nullable=True),
    _time("schedule_time"),
    _time_now("start_time"),
    _number("executor_id", 1, nullable=True),
    Column("dependence", String(255)),
    _time_now("update_time"),
    _number("process_instance_priority", 2, nullable=True),
    _number("worker_group_id", -1, nullable=True),
    # The instance to recover; filled by a trigger from `command_param` if it is left out.
    _number("process_instance_id", 0),
    _number("parent_task_instance_id", 0),
    _number("complement_date_id", 0),
)


def turn_of_command(table: str = "") -> str:
    """Return the turn of a command in SQL, for columns of this table or alias.

    A minute of waiting makes up for a level of priority (trap T68). No code and no time, however
    senseless, may make this fail, or the row would hold up all the others.
    """
    of = f"{table}." if table else ""
    return (
        f"(LEAST({of}update_time, TIMESTAMPTZ '9999-01-01 00:00:00+00') AT TIME ZONE 'UTC')"
        f" + LEAST(GREATEST(COALESCE({of}process_instance_priority, 2), 0), 4)"
        " * INTERVAL '1 minute'"
    )


TURN_OF_COMMAND: Final = turn_of_command()
Index(
    "t_ds_command_picking_idx",
    text(f"({TURN_OF_COMMAND})"),
    command.c.process_instance_priority,
    command.c.id,
)
# The commands that a master takes without room for another run.
_NEED_NO_ROOM: Final = (CommandType.RECOVER_TOLERANCE_FAULT_PROCESS, *INTENT_COMMANDS)
Index(
    "t_ds_command_roomless_idx",
    command.c.id,
    postgresql_where=text(
        f"command_type IN ({_list(_NEED_NO_ROOM)}) OR parent_task_instance_id <> 0"
    ),
)
# Of two recoveries of an instance that people ask for, the second is refused. What masters ask of
# themselves (types 2 and 11) is apart from that: two that see the same dead master insert one
# recovery, not two, and a person's recovery of a run that goes on does not hold up its failover.
_OWN: Final = _list(OWN_RECOVERIES)
OWN_RECOVERY: Final = f"process_instance_id <> 0 AND command_type IN ({_OWN})"
ASKED_RECOVERY: Final = f"process_instance_id <> 0 AND command_type NOT IN ({_OWN})"
Index(
    "t_ds_command_one_recovery_idx",
    command.c.process_instance_id,
    unique=True,
    postgresql_where=text(ASKED_RECOVERY),
)
Index(
    "t_ds_command_one_own_recovery_idx",
    command.c.process_instance_id,
    unique=True,
    postgresql_where=text(OWN_RECOVERY),
)

# Takes every row as it was, however wrong: hence neither defaults nor checks.
error_command: Final = Table(
    "t_ds_error_command",
    metadata,
    _id(),
    _number("command_id"),
    _number("command_type", nullable=True),
    _number("process_definition_id", nullable=True),
    Column("command_param", Text),
    _number("task_depend_type", nullable=True),
    _number("failure_strategy", nullable=True),
    _number("warning_type", nullable=True),
    _number("warning_group_id", nullable=True),
    _time("schedule_time"),
    _time("start_time"),
    _number("executor_id", nullable=True),
    Column("dependence", Text),
    _time("update_time"),
    _number("process_instance_priority", nullable=True),
    _number("worker_group_id", nullable=True),
    _number("process_instance_id", nullable=True),
    Column("message", Text),
)
Index("t_ds_error_command_command_id_idx", error_command.c.command_id)

# The commands that are gone, each with its outcome. Takes the numbers of any row, as the above.
command_ledger: Final = Table(
    "t_ds_command_ledger",
    metadata,
    _id(),
    _number("command_id"),
    _number("command_type", nullable=True),
    _number("process_definition_id", nullable=True),
    _number("process_instance_id", nullable=True),
    _code("outcome"),
    Column("reason", Text),
    _time("start_time"),
    _time_now("handled_at"),
    Column("host", String(255)),
    _known("outcome", CommandOutcome),
)
Index("t_ds_command_ledger_command_id_idx", command_ledger.c.command_id)
# The few lines of commands that were dropped or refused, which people ask for.
WITHOUT_EFFECT: Final = f"outcome <> {int(CommandOutcome.TAKEN)}"
Index(
    "t_ds_command_ledger_without_effect_idx",
    command_ledger.c.id,
    postgresql_where=text(WITHOUT_EFFECT),
)

process_definition: Final = Table(
    "t_ds_process_definition",
    metadata,
    _id(),
    Column("name", String(255), nullable=False),
    _number("version", 1),
    _code("release_state", 0),
    _number("project_id", 1),
    _number("user_id", 1),
    Column("process_definition_json", Text),
    Column("description", Text),
    Column("global_params", Text),
    _code("flag", 1),
    Column("locations", Text),
    Column("connects", Text),
    Column("receivers", Text),
    Column("receivers_cc", Text),
    *_times(),
    _number("timeout", 0),
    _number("tenant_id", -1),
    Column("modify_by", String(36), server_default=text("''")),
    _code("execution_type", 0),
    _own_code(),
    UniqueConstraint("project_id", "name"),
    UniqueConstraint("code"),
    _not_empty("name"),
    _known("release_state", ReleaseState),
    _known("flag", range(2)),
    _known("execution_type", ExecutionType),
    CheckConstraint("version >= 1", name="version"),
    _code_is_no_other_id(),
)
Index("process_definition_index", process_definition.c.project_id, process_definition.c.id)

process_instance: Final = Table(
    "t_ds_process_instance",
    metadata,
    _id(),
    # Wider than a definition's name, from which it is made with two numbers behind it.
    Column("name", String(320), nullable=False),
    _number("process_definition_id"),
    _code("state"),
    _code("recovery", 0),
    _time_now("start_time"),
    _time("end_time"),
    _number("run_times", 1),
    Column("host", String(255)),
    _code("command_type"),
    Column("command_param", Text),
    _code("task_depend_type", 2),
    _code("max_try_times", 0),
    _code("failure_strategy", 0),
    _code("warning_type", 0),
    _number("warning_group_id", 0),
    _time("schedule_time"),
    _time("command_start_time"),
    Column("global_params", Text),
    Column("process_instance_json", Text, nullable=False),
    _code("flag", 1),
    _time_now("update_time"),
    _number("is_sub_process", 0),
    _number("executor_id"),
    Column("locations", Text),
    Column("connects", Text),
    Column("history_cmd", Text),
    Column("dependence_schedule_times", Text),
    _number("process_instance_priority", 2),
    _number("worker_group_id", -1),
    _number("timeout", 0),
    _number("tenant_id", -1),
    Column("owner_incarnation", BigInteger),
    Column("owner_epoch", BigInteger, server_default=text("0"), nullable=False),
    _code("wanted_state", nullable=True),
    _time("wanted_at"),
    Column("state_reason", Text),
    _number("root_id", 0),
    _number("parent_task_instance_id", 0),
    Column("run_scope", Text),
    _time("restart_time"),
    _time("wanted_deadline"),
    _code("timeout_strategy", 0),
    _code("timeout_flag", 0),
    # The zone in which the run reads its dates; NULL is the cluster's own.
    Column("timezone_id", String(40)),
    # The execution type of its schedule; NULL leaves that to the definition.
    _code("execution_type", nullable=True),
    # The command that began it, whatever was put for it since; NULL before revision 0002.
    Column("command_id", BigInteger),
    _not_empty("name"),
    _known("state", EXECUTION_STATES),
    _known("recovery", range(2)),
    _known("command_type", COMMAND_TYPES),
    _known("task_depend_type", TaskDependType),
    _known("failure_strategy", FailureStrategy),
    _known("warning_type", range(5)),
    _known("flag", range(2)),
    _known("is_sub_process", range(2)),
    _known("process_instance_priority", Priority),
    _known("wanted_state", WANTED_PROCESS_STATES),
    _known("timeout_strategy", TimeoutStrategy),
    _known("timeout_flag", range(2)),
    _known("execution_type", ExecutionType),
    CheckConstraint("owner_epoch >= 0", name="owner_epoch"),
    CheckConstraint(
        f"state NOT IN ({_list(TERMINAL_PROCESS_CODES)}) OR end_time IS NOT NULL",
        name="ended_has_end_time",
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
    "t_ds_process_instance_moment_idx",
    process_instance.c.process_definition_id,
    func.coalesce(process_instance.c.schedule_time, process_instance.c.start_time),
)
# Failover and start-up: what belongs to this master, of the few that still go on.
Index(
    "t_ds_process_instance_live_idx",
    process_instance.c.host,
    postgresql_where=text(f"state IN ({_list(LIVE_PROCESS_CODES)})"),
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
    _id(),
    Column("name", String(255), nullable=False),
    Column("task_type", String(64), nullable=False),
    _number("process_definition_id"),
    Column(
        "process_instance_id",
        Integer,
        ForeignKey("t_ds_process_instance.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("task_json", Text, nullable=False),
    _code("state"),
    _time("submit_time"),
    _time("start_time"),
    _time("end_time"),
    Column("host", String(255)),
    Column("execute_path", Text),
    Column("log_path", Text),
    _code("alert_flag", 0),
    _number("retry_times", 0),
    _number("pid", nullable=True),
    Column("app_link", Text),
    Column("ui_link", Text),
    Column("history_link", Text),
    Column("progress", Text),
    Column("usage", Text),
    _code("flag", 1),
    _number("retry_interval", 0),
    _number("max_retry_times", 0),
    _number("task_instance_priority", 2),
    _number("worker_group_id", -1),
    _number("executor_id", nullable=True),
    _number("attempt", 1),
    Column("worker_incarnation", BigInteger),
    _code("wanted_state", nullable=True),
    Column("settled", Boolean, server_default=text("false"), nullable=False),
    _time("retry_at"),
    _number("exit_code", nullable=True),
    Column("reason", Text),
    Column("failure_reason", String(32)),
    Column("memory_factor", Double, server_default=text("1"), nullable=False),
    Column("pid_start_time", Double),
    Column("input_pool", Text),
    Column("var_pool", Text),
    Column("branch", Text),
    Column("evidence", Text),
    _time("due_at"),
    _number("timeout_seconds", nullable=True),
    _code("timeout_strategy", nullable=True),
    _time("lost_at"),
    # Also the index by process instance that the contract has.
    UniqueConstraint("process_instance_id", "name", "attempt"),
    _not_empty("name"),
    _not_empty("task_type"),
    _known("state", EXECUTION_STATES),
    _known("alert_flag", range(2)),
    _known("flag", range(2)),
    _known("task_instance_priority", Priority),
    _known("wanted_state", WANTED_TASK_STATES),
    _known("timeout_strategy", TimeoutStrategy),
    CheckConstraint("attempt >= 1", name="attempt"),
    # Neither does NaN lie there, which PostgreSQL takes for the largest number.
    CheckConstraint(f"memory_factor BETWEEN 1 AND {MAX_MEMORY_FACTOR:g}", name="memory_factor"),
    CheckConstraint(
        f"state <> {TaskState.RUNNING:d} OR (host IS NOT NULL AND worker_incarnation IS NOT NULL)"
        f" OR task_type IN ({_texts(WORKERLESS_TASK_TYPES)})",
        name="running_has_worker",
    ),
    CheckConstraint(
        f"state NOT IN ({_list(FINISHED_TASK_CODES)}) OR end_time IS NOT NULL",
        name="finished_has_end_time",
    ),
    CheckConstraint(
        f"flag = 1 OR state IN ({_list(FINISHED_TASK_CODES)})",
        name="superseded_is_finished",
    ),
    CheckConstraint(
        f"NOT settled OR state IN ({_list(FINISHED_TASK_CODES)})",
        name="settled_is_finished",
    ),
)
Index(
    "task_instance_index",
    task_instance.c.process_definition_id,
    task_instance.c.process_instance_id,
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
    postgresql_where=text(f"state IN ({_list(LIVE_TASK_CODES)})"),
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
    postgresql_where=text(f"state IN ({_list(HELD_TASK_STATES)})"),
)
# The attempts that masters themselves carry out.
Index(
    "t_ds_task_instance_workerless_idx",
    task_instance.c.process_instance_id,
    postgresql_where=text(
        f"state = {TaskState.RUNNING:d} AND task_type IN ({_texts(WORKERLESS_TASK_TYPES)})"
    ),
)
# The attempts that may time out.
Index(
    "t_ds_task_instance_timeout_idx",
    task_instance.c.id,
    postgresql_where=text(f"timeout_seconds IS NOT NULL AND state = {TaskState.RUNNING:d}"),
)

# A *pool*: how many slots its tasks share, whatever they run. How many are taken is not kept here,
# where it could go wrong, but follows from the attempts.
task_group: Final = Table(
    "t_ds_task_group",
    metadata,
    _id(),
    Column("name", String(255), nullable=False),
    Column("description", String(255)),
    _number("group_size"),
    _number("use_size", 0),
    _number("user_id", 1),
    Column("project_code", BigInteger, server_default=text("0"), nullable=False),
    _code("status", 1),
    *_times(),
    UniqueConstraint("name"),
    _not_empty("name"),
    _known("status", range(2)),
    CheckConstraint("group_size BETWEEN 1 AND 1000000", name="group_size"),
)

# An attempt's request for slots of a pool. `group_id` is 0 if no pool has that name.
task_group_queue: Final = Table(
    "t_ds_task_group_queue",
    metadata,
    _id(),
    Column(
        "task_id",
        Integer,
        ForeignKey("t_ds_task_instance.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("task_name", String(255)),
    _number("group_id"),
    Column("group_name", String(255)),
    _number("process_id", nullable=True),
    _number("priority", 0),
    _code("status", -1),
    _code("force_start", 0),
    _code("in_queue", 0),
    _number("weight", 1),
    *_times(),
    UniqueConstraint("task_id", "group_id"),
    _known("status", (-1, 1, 2)),
    _known("force_start", range(2)),
    _known("in_queue", range(2)),
    CheckConstraint("weight >= 1", name="weight"),
)
Index(
    "t_ds_task_group_queue_waiting_idx",
    task_group_queue.c.task_id,
    postgresql_where=text("status = -1"),
)
Index(
    "t_ds_task_group_queue_taken_idx",
    task_group_queue.c.group_id,
    postgresql_where=text("status = 1"),
)

relation_process_instance: Final = Table(
    "t_ds_relation_process_instance",
    metadata,
    _id(),
    _number("parent_process_instance_id"),
    _number("parent_task_instance_id"),
    _number("process_instance_id", 0),
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

# `counted_from` is set while the next fire has to be worked out, by a trigger whenever what decides
# it is changed; `fault` says why the row can't fire.
schedule: Final = Table(
    "t_ds_schedules",
    metadata,
    _id(),
    _number("process_definition_id"),
    _time_now("start_time"),
    Column(
        "end_time",
        DateTime(timezone=True),
        server_default=text("'9999-01-01 00:00:00+00'"),
        nullable=False,
    ),
    Column("crontab", String(256), nullable=False),
    _code("failure_strategy", 1),
    _number("user_id", 1),
    _code("release_state", 0),
    _code("warning_type", 0),
    _number("warning_group_id", 0),
    _number("process_instance_priority", 2),
    _number("worker_group_id", -1),
    *_times(),
    Column("timezone_id", String(40)),
    _word("missing_time", "shift"),
    _word("repeated_time", "first"),
    _word("misfire_policy", "fire_once"),
    _number("misfire_limit", 10),
    # In seconds; 0 is none.
    _number("deadline", 0),
    _code("execution_type", nullable=True),
    Column("start_params", Text),
    _time_now_nullable("counted_from"),
    _time("next_fire_time"),
    Column("fault", Text),
    _not_empty("crontab"),
    _known("failure_strategy", FailureStrategy),
    _known("release_state", ReleaseState),
    _known("warning_type", range(5)),
    _known("process_instance_priority", Priority),
    _known("execution_type", ExecutionType),
    _known_words("missing_time", ("shift", "skip")),
    _known_words("repeated_time", ("first", "second", "both")),
    _known_words("misfire_policy", MisfirePolicy),
    CheckConstraint("misfire_limit BETWEEN 1 AND 1000", name="misfire_limit"),
    CheckConstraint("deadline >= 0", name="deadline"),
    CheckConstraint("end_time > start_time", name="window"),
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
    _number("schedule_id"),
    _time("fire_time", nullable=False),
    _word("outcome"),
    _number("process_definition_id"),
    _number("command_id", 0),
    _number("process_instance_id", 0),
    Column("reason", Text),
    _time_now("create_time"),
    UniqueConstraint("schedule_id", "fire_time"),
    _known_words("outcome", FireOutcome),
)
Index(
    "t_ds_schedule_fire_definition_idx",
    schedule_fire.c.process_definition_id,
    schedule_fire.c.fire_time,
)
Index(
    "t_ds_schedule_fire_command_idx",
    schedule_fire.c.command_id,
    postgresql_where=text("command_id <> 0"),
)

# A complement: dates of one definition that run as one object. `after_id` is the one that has to
# succeed first, `command_id` the row that asked for it.
complement: Final = Table(
    "t_ds_complement",
    metadata,
    _id(),
    _number("process_definition_id"),
    _code("state", 1),
    _number("parallelism", 1),
    _word("run_order", "ascending"),
    _word("on_failure", "stop"),
    _word("reprocess", "all"),
    Column("timezone_id", String(40), nullable=False),
    _number("after_id", 0),
    _number("command_id", 0),
    _code("task_depend_type", 2),
    _code("failure_strategy", 1),
    _code("warning_type", 0),
    _number("warning_group_id", 0),
    _number("executor_id", 1),
    _number("process_instance_priority", 2),
    _number("worker_group_id", -1),
    Column("start_node_names", Text),
    Column("start_params", Text),
    *_times(),
    _time("end_time"),
    Column("state_reason", Text),
    _known("state", ComplementState),
    _known("task_depend_type", TaskDependType),
    _known("failure_strategy", FailureStrategy),
    _known("warning_type", range(5)),
    _known("process_instance_priority", Priority),
    _known_words("run_order", RunOrder),
    _known_words("on_failure", OnFailure),
    _known_words("reprocess", Reprocess),
    CheckConstraint("parallelism BETWEEN 1 AND 1000", name="parallelism"),
)
Index(
    "t_ds_complement_moving_idx",
    complement.c.id,
    postgresql_where=text(
        f"state IN ({_list(state for state in ComplementState if not state.is_ended)})"
    ),
)
Index("t_ds_complement_after_idx", complement.c.after_id, postgresql_where=text("after_id <> 0"))
Index(
    "t_ds_complement_command_idx",
    complement.c.command_id,
    postgresql_where=text("command_id <> 0"),
)

complement_date: Final = Table(
    "t_ds_complement_date",
    metadata,
    _id(),
    Column(
        "complement_id",
        Integer,
        ForeignKey("t_ds_complement.id", ondelete="CASCADE"),
        nullable=False,
    ),
    _number("position"),
    _time("schedule_time", nullable=False),
    _word("state", "pending"),
    _number("command_id", 0),
    _number("process_instance_id", 0),
    Column("reason", Text),
    _time_now("update_time"),
    UniqueConstraint("complement_id", "schedule_time"),
    _known_words("state", DateState),
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

worker_group: Final = Table(
    "t_ds_worker_group",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("name", String(256), nullable=False),
    Column("ip_list", String(256)),
    *_times(),
    _not_empty("name"),
)

alert: Final = Table(
    "t_ds_alert",
    metadata,
    _id(),
    Column("title", String(64)),
    _code("show_type", 0),
    Column("content", Text),
    _code("alert_type", 0),
    _code("alert_status", 0),
    Column("log", Text),
    _number("alertgroup_id", nullable=True),
    Column("receivers", Text),
    Column("receivers_cc", Text),
    *_times(),
    _known("show_type", range(4)),
    _known("alert_type", range(2)),
    _known("alert_status", range(3)),
)
Index("t_ds_alert_waiting_idx", alert.c.id, postgresql_where=text("alert_status = 0"))

alertgroup: Final = Table(
    "t_ds_alertgroup",
    metadata,
    _id(),
    Column("group_name", String(255)),
    _code("group_type", 0),
    Column("description", String(255)),
    *_times(),
    _known("group_type", range(2)),
)

relation_user_alertgroup: Final = Table(
    "t_ds_relation_user_alertgroup",
    metadata,
    _id(),
    _number("alertgroup_id"),
    _number("user_id"),
    *_times(),
)

datasource: Final = Table(
    "t_ds_datasource",
    metadata,
    _id(),
    Column("name", String(64), nullable=False),
    Column("note", String(256)),
    _code("type"),
    _number("user_id", 1),
    Column("connection_params", Text, nullable=False),
    *_times(),
    _not_empty("name"),
    _known("type", range(8)),
)

tenant: Final = Table(
    "t_ds_tenant",
    metadata,
    _id(),
    Column("tenant_code", String(64), nullable=False),
    Column("tenant_name", String(64)),
    Column("description", String(256)),
    _number("queue_id", 1),
    *_times(),
    _not_empty("tenant_code"),
)

# The findings of the rules of DATA_QUALITY tasks; once for each attempt.
quality_result: Final = Table(
    "t_ds_quality_result",
    metadata,
    _id(),
    Column(
        "task_instance_id",
        Integer,
        ForeignKey("t_ds_task_instance.id", ondelete="CASCADE"),
        nullable=False,
    ),
    _number("process_instance_id"),
    _number("process_definition_id"),
    Column("task_name", String(255), nullable=False),
    _time("moment", nullable=False),
    Column("rule", String(200), nullable=False),
    Column("type", String(40), nullable=False),
    Column("target", String(200), nullable=False),
    _word("level"),
    _word("state"),
    Column("value", Double),
    Column("expected", String(200), nullable=False),
    Column("rows", BigInteger),
    Column("failed", BigInteger),
    Column("detail", Text, nullable=False),
    _time_now("create_time"),
    UniqueConstraint("task_instance_id", "rule"),
    _known_words("level", QualityLevel),
    _known_words("state", QualityState),
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
    _id(),
    Column(
        "task_instance_id",
        Integer,
        ForeignKey("t_ds_task_instance.id", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("size", BigInteger, nullable=False),
    Column("tail", LargeBinary, nullable=False),
    _time_now("create_time"),
    UniqueConstraint("task_instance_id"),
)

# One row: what this database is called in places that others use too, as the tags of Spark
# applications. Drawn once, so that it outlives moves and new names.
cluster: Final = Table(
    "t_ds_cluster",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False, server_default="1"),
    Column(
        "token",
        String(12),
        nullable=False,
        server_default=text("substr(md5(gen_random_uuid()::text), 1, 12)"),
    ),
    CheckConstraint("id = 1", name="t_ds_cluster_one"),
)

queue: Final = Table(
    "t_ds_queue",
    metadata,
    _id(),
    Column("queue_name", String(64)),
    Column("queue", String(64)),
    *_times(),
)

user: Final = Table(
    "t_ds_user",
    metadata,
    _id(),
    Column("user_name", String(64), nullable=False),
    Column("user_password", String(255)),
    _code("user_type", 1),
    Column("email", String(64)),
    Column("phone", String(11)),
    _number("tenant_id", 0),
    *_times(),
    Column("queue", String(64)),
    _code("state", 1),
    UniqueConstraint("user_name", name="user_name_unique"),
    _not_empty("user_name"),
    _known("user_type", range(2)),
    _known("state", range(2)),
)

project: Final = Table(
    "t_ds_project",
    metadata,
    _id(),
    Column("name", String(100), nullable=False),
    Column("description", String(200)),
    _number("user_id", 1),
    _code("flag", 1),
    *_times(),
    _own_code(),
    UniqueConstraint("code"),
    _not_empty("name"),
    _known("flag", range(2)),
    _code_is_no_other_id(),
)
Index("t_ds_project_user_id_index", project.c.user_id)

relation_project_user: Final = Table(
    "t_ds_relation_project_user",
    metadata,
    _id(),
    _number("user_id"),
    _number("project_id", nullable=True),
    _number("perm", 1),
    *_times(),
)
Index("t_ds_relation_project_user_user_id_index", relation_project_user.c.user_id)

resource: Final = Table(
    "t_ds_resources",
    metadata,
    _id(),
    Column("alias", String(64)),
    Column("file_name", String(64)),
    Column("description", String(256)),
    _number("user_id", 1),
    _code("type", 0),
    Column("size", BigInteger),
    *_times(),
    _number("pid", -1),
    Column("full_name", String(255)),
    _code("is_directory", 0),
    _known("type", range(2)),
    _known("is_directory", range(2)),
)

udf: Final = Table(
    "t_ds_udfs",
    metadata,
    _id(),
    _number("user_id"),
    Column("func_name", String(100), nullable=False),
    Column("class_name", String(255), nullable=False),
    _code("type"),
    Column("arg_types", String(255)),
    Column("database", String(255)),
    Column("description", String(255)),
    _number("resource_id"),
    Column("resource_name", String(255), nullable=False),
    *_times(),
    _known("type", range(2)),
)

relation_resources_user: Final = Table(
    "t_ds_relation_resources_user",
    metadata,
    _id(),
    _number("user_id"),
    _number("resources_id", nullable=True),
    _number("perm", 1),
    *_times(),
)

relation_udfs_user: Final = Table(
    "t_ds_relation_udfs_user",
    metadata,
    _id(),
    _number("user_id"),
    _number("udf_id", nullable=True),
    _number("perm", 1),
    *_times(),
)

relation_datasource_user: Final = Table(
    "t_ds_relation_datasource_user",
    metadata,
    _id(),
    _number("user_id"),
    _number("datasource_id", nullable=True),
    _number("perm", 1),
    *_times(),
)


# Kept for compatibility: no daemon reads or writes it, servers are listed from ZooKeeper.
master_server: Final = Table(
    "t_ds_master_server",
    metadata,
    _id(),
    Column("host", String(45)),
    _number("port", nullable=True),
    Column("zk_directory", String(64)),
    Column("res_info", String(256)),
    _time("create_time"),
    _time("last_heartbeat_time"),
)

worker_server: Final = Table(
    "t_ds_worker_server",
    metadata,
    _id(),
    Column("host", String(255)),
    _number("port", nullable=True),
    Column("zk_directory", String(64)),
    Column("res_info", Text),
    _time("create_time"),
    _time("last_heartbeat_time"),
    Column("incarnation", BigInteger),
)

session: Final = Table(
    "t_ds_session",
    metadata,
    Column("id", String(64), primary_key=True),
    _number("user_id", nullable=True),
    Column("ip", String(45)),
    _time("last_login_time"),
    _time("expire_time"),
)

access_token: Final = Table(
    "t_ds_access_token",
    metadata,
    _id(),
    _number("user_id", nullable=True),
    Column("token", String(64)),
    _time("expire_time"),
    *_times(),
    Column("name", String(100)),
    _number("scopes", 15),
    Column("projects", ARRAY(Integer)),
    _time("last_used"),
    CheckConstraint("scopes BETWEEN 0 AND 15", name="scopes"),
)
Index("t_ds_access_token_token_idx", access_token.c.token)

# Written in the transaction of the change that it records; a trigger refuses later changes of it.
audit_log: Final = Table(
    "t_ds_audit_log",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _time_now("at"),
    _number("user_id", nullable=True),
    Column("user_name", String(64), nullable=False),
    _number("token_id", nullable=True),
    Column("address", String(45)),
    Column("action", String(64), nullable=False),
    Column("object_type", String(32), nullable=False),
    _number("object_id", nullable=True),
    Column("object_name", String(255)),
    _number("project_id", nullable=True),
    _word("outcome"),
    Column("request", String(64)),
    Column("detail", Text),
    _known_words("outcome", ("done", "refused")),
)
Index("t_ds_audit_log_at_idx", audit_log.c.at)

# The answers to requests that may be repeated; a repetition within a day gets the first answer.
idempotency_key: Final = Table(
    "t_ds_idempotency_key",
    metadata,
    Column("user_id", Integer, primary_key=True, autoincrement=False),
    Column("idempotency_key", String(255), primary_key=True),
    Column("request_sha256", String(64), nullable=False),
    _number("command_id"),
    _time_now("create_time"),
)
Index("t_ds_idempotency_key_create_time_idx", idempotency_key.c.create_time)

# Failed log-ins in a row, by account and by address: the next is admitted after `blocked_until`.
login_failure: Final = Table(
    "t_ds_login_failure",
    metadata,
    Column("subject", String(128), primary_key=True),
    _number("failures", 0),
    _time("blocked_until"),
    _time_now("update_time"),
)

version: Final = Table(
    "t_ds_version",
    metadata,
    _id(),
    Column("version", String(200), nullable=False),
    Column("oldest_code", String(200)),
    UniqueConstraint("version"),
)
