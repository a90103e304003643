"""Takes commands off `t_ds_command`, a batch a transaction, and carries out what each amounts to.

What a command amounts to is decided by the planner it is given; here it only becomes rows. Adds the
word *batch*: the commands that one `take` has locked. Used by the command loop of a master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from common.errors import SchedulerError
from common.model.cluster import Node
from common.model.commands import BadCommandError, Command, CommandRow, read_command
from common.model.plans import Begin, Plan, Reject, Snapshot
from common.model.states import ProcessState
from common.store.protocol import Planner

log = logging.getLogger(__name__)

MESSAGE_LIMIT: Final = 4000
PARAM_LIMIT_BYTES: Final = 1_000_000


def storable(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """The text as PostgreSQL can keep it: no NUL, no half characters, not longer than `limit`."""
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    clean = clean.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def unstorable(values: Mapping[str, Any]) -> str | None:
    """Which text PostgreSQL can't keep, and why; None if it can keep them all."""
    for column, value in values.items():
        if not isinstance(value, str):
            continue
        if "\0" in value:
            return f"{column} holds a NUL character"
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return f"{column} holds half of a surrogate pair, which is not a character"
    return None


def understand(row: CommandRow, *, param_limit_bytes: int) -> Command | Reject:
    """The command that a row holds, or why it is none."""
    try:
        command = read_command(row, param_limit_bytes=param_limit_bytes)
        # Read here, so that a bad id is the row's own mistake and not the planner's.
        _ = command.process_instance_id
    except BadCommandError as error:
        return Reject(reason=storable(str(error)))
    return command


def planned(command: Command, snapshot: Callable[[], Snapshot], planner: Planner) -> Plan:
    """What the planner makes of a command; a planner that fails rejects that command alone."""
    try:
        return planner(command, snapshot())
    except SchedulerError as error:
        return Reject(reason=storable(str(error)))
    except Exception as error:
        # A mistake of ours must not hold up the commands behind this one for ever.
        log.exception("command could not be planned", extra={"command_id": command.id})
        return Reject(reason=storable(f"planning failed: {type(error).__name__}: {error}"))


def known_state(process_instance_id: int, state: int) -> ProcessState:
    """The state of the instance that a command is about."""
    try:
        return ProcessState(state)
    except ValueError as error:
        raise BadCommandError(
            f"process instance {process_instance_id} has state {state}, which is not known here"
        ) from error


def refused(cause: str) -> Reject:
    """The end of a `Begin` whose row PostgreSQL does not take."""
    return Reject(reason=storable(f"PostgreSQL refused the process instance: {cause}"))


def new_process_instance(plan: Begin, *, node: Node, now: datetime) -> dict[str, Any]:
    """The columns of a new process instance (specification §3.5), owned by `node`."""
    return {
        "name": plan.name,
        "process_definition_id": plan.process_definition_id,
        "state": int(ProcessState.RUNNING),
        "recovery": 0,
        "start_time": now,
        "run_times": 1,
        "host": node.address,
        "owner_incarnation": node.incarnation,
        "owner_epoch": 1,
        "command_type": int(plan.command_type),
        "command_param": plan.command_param,
        "task_depend_type": int(plan.task_depend_type),
        "max_try_times": 0,
        "failure_strategy": int(plan.failure_strategy),
        "warning_type": int(plan.warning_type),
        "warning_group_id": plan.warning_group_id,
        "schedule_time": plan.schedule_time,
        "command_start_time": plan.command_start_time,
        "global_params": plan.global_params,
        "process_instance_json": plan.process_instance_json,
        "flag": 1,
        "update_time": now,
        "is_sub_process": 0,
        "executor_id": plan.executor_id,
        "locations": plan.locations,
        "connects": plan.connects,
        "history_cmd": plan.command_type.name,
        "process_instance_priority": int(plan.priority),
        "worker_group_id": plan.worker_group_id,
        "timeout": plan.timeout_minutes,
        "tenant_id": plan.tenant_id,
    }
