"""Commands: those that wait, those that were refused, and the outcomes of all that are gone."""

from __future__ import annotations

from enum import Enum
from typing import Final

from sqlalchemy import Column, Index, String, Table, Text, text

from common.model.commands import INTENT_COMMANDS, OWN_RECOVERIES, CommandOutcome, CommandType
from common.store.tables.columns import (
    code,
    known,
    listed,
    metadata,
    number,
    own_id,
    seen_by_reader,
    time,
    time_now,
)

# Takes any number, and NULL where no loop needs a value: a row that can't be run has to get in, so
# that a master can move it to the error table with a reason. Hence no codes are checked here.
command: Final = Table(
    "t_ds_command",
    metadata,
    own_id(),
    number("command_type", nullable=True),
    # Refers to nothing, for the same reason.
    number("process_definition_id", nullable=True),
    Column("command_param", Text),
    number("task_depend_type", 2, nullable=True),
    number("failure_strategy", 1, nullable=True),
    number("warning_type", 0, nullable=True),
    number("warning_group_id", 0, nullable=True),
    time("schedule_time"),
    time_now("start_time"),
    number("executor_id", 1, nullable=True),
    Column("dependence", String(255)),
    time_now("update_time"),
    number("process_instance_priority", 2, nullable=True),
    number("worker_group_id", -1, nullable=True),
    # The instance to recover; filled by a trigger from `command_param` if it is left out.
    number("process_instance_id", 0),
    number("parent_task_instance_id", 0),
    number("complement_date_id", 0),
    # A trigger sets it and ignores the value of the INSERT. 0: unknown.
    number("project_id", 0),
    info=seen_by_reader(
        "id command_type process_definition_id task_depend_type failure_strategy warning_type "
        "warning_group_id schedule_time start_time executor_id update_time "
        "process_instance_priority worker_group_id process_instance_id "
        "parent_task_instance_id complement_date_id project_id",
    ),
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


# Used by masters from before revision 0037.
Index(
    "t_ds_command_definition_idx",
    text("(COALESCE(process_definition_id, 0))"),
    text(f"({TURN_OF_COMMAND})"),
    command.c.process_instance_priority,
    command.c.id,
    postgresql_where=text("parent_task_instance_id = 0"),
)
# The commands that a master takes without room for another run.
_ABOUT_RUNS: Final = listed((CommandType.RECOVER_TOLERANCE_FAULT_PROCESS, *INTENT_COMMANDS))
Index(
    "t_ds_command_roomless_idx",
    command.c.id,
    postgresql_where=text(f"command_type IN ({_ABOUT_RUNS}) OR parent_task_instance_id <> 0"),
)
# The first of these, which hundreds of thousands of children may be ahead of.
Index(
    "t_ds_command_about_runs_idx",
    command.c.id,
    postgresql_where=text(f"command_type IN ({_ABOUT_RUNS})"),
)


class CommandLane(Enum):
    """A kind of commands that masters take round-robin by project.

    Stops, pauses and recoveries of lost masters are outside of the lanes.
    """

    START = "parent_task_instance_id = 0 AND {of}complement_date_id = 0"
    CHILD = "parent_task_instance_id <> 0"
    DATE = "parent_task_instance_id = 0 AND {of}complement_date_id <> 0"

    def condition(self, table: str) -> str:
        """Return the condition of this lane in SQL, for columns of this table or alias."""
        of = f"{table}."
        kind = f"COALESCE({of}command_type, -1) NOT IN ({_ABOUT_RUNS})"
        return f"{of}{self.value.format(of=of)} AND {kind}"


# No other index of the table starts with the project, so even a plan for an empty table uses these.
for _lane in CommandLane:
    Index(
        f"t_ds_command_{_lane.name.lower()}_lane_idx",
        command.c.project_id,
        text(f"({TURN_OF_COMMAND})"),
        command.c.process_instance_priority,
        command.c.id,
        postgresql_where=text(_lane.condition("t_ds_command").replace("t_ds_command.", "")),
    )
# Of two recoveries of an instance that people ask for, the second is refused. What masters ask of
# themselves (types 2 and 11) is apart from that: two that see the same dead master insert one
# recovery, not two, and a person's recovery of a run that goes on does not hold up its failover.
_OWN: Final = listed(OWN_RECOVERIES)
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
    own_id(),
    number("command_id"),
    number("command_type", nullable=True),
    number("process_definition_id", nullable=True),
    Column("command_param", Text),
    number("task_depend_type", nullable=True),
    number("failure_strategy", nullable=True),
    number("warning_type", nullable=True),
    number("warning_group_id", nullable=True),
    time("schedule_time"),
    time("start_time"),
    number("executor_id", nullable=True),
    Column("dependence", Text),
    time("update_time"),
    number("process_instance_priority", nullable=True),
    number("worker_group_id", nullable=True),
    number("process_instance_id", nullable=True),
    Column("message", Text),
    info=seen_by_reader(
        "id command_id command_type process_definition_id task_depend_type failure_strategy "
        "warning_type warning_group_id schedule_time start_time executor_id update_time "
        "process_instance_priority worker_group_id process_instance_id",
        masked="message",
    ),
)
Index("t_ds_error_command_command_id_idx", error_command.c.command_id)

# The commands that are gone, each with its outcome. Takes the numbers of any row, as the above.
command_ledger: Final = Table(
    "t_ds_command_ledger",
    metadata,
    own_id(),
    number("command_id"),
    number("command_type", nullable=True),
    number("process_definition_id", nullable=True),
    number("process_instance_id", nullable=True),
    code("outcome"),
    Column("reason", Text),
    time("start_time"),
    time_now("handled_at"),
    Column("host", String(255)),
    known("outcome", CommandOutcome),
    info=seen_by_reader(
        "id command_id command_type process_definition_id process_instance_id outcome "
        "start_time handled_at host",
        masked="reason",
    ),
)
Index("t_ds_command_ledger_command_id_idx", command_ledger.c.command_id)
# The few lines of commands that were dropped or refused, which people ask for.
WITHOUT_EFFECT: Final = f"outcome <> {int(CommandOutcome.TAKEN)}"
Index(
    "t_ds_command_ledger_without_effect_idx",
    command_ledger.c.id,
    postgresql_where=text(WITHOUT_EFFECT),
)
