"""Plans: what a command amounts to.

Pure. `master.commands` makes them from a command and a snapshot of the tables; the store carries
them out in the transaction that deletes the command. They stand here because both speak them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.instances import Ownership
from common.model.states import (
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    TaskDependType,
    WarningType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionSnapshot:
    """A process definition as it stands when a command is planned."""

    id: int
    name: str
    version: int
    release_state: ReleaseState
    usable: bool
    process_definition_json: str
    global_params: str | None
    timeout_minutes: int
    tenant_id: int
    locations: str | None = None
    connects: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSnapshot:
    """A process instance as it stands when a command about it is planned."""

    id: int
    state: ProcessState
    owner: Node | None
    owner_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a planner may look at besides the command and the time."""

    definition: DefinitionSnapshot | None = None
    instance: InstanceSnapshot | None = None
    live_masters: frozenset[Node] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Write a new process instance (specification §3.5), owned by the master that planned it."""

    name: str
    process_definition_id: int
    command_type: CommandType
    command_param: str
    process_instance_json: str
    global_params: str
    task_depend_type: TaskDependType
    failure_strategy: FailureStrategy
    warning_type: WarningType
    warning_group_id: int
    schedule_time: datetime | None
    command_start_time: datetime
    executor_id: int
    priority: Priority
    worker_group_id: int
    timeout_minutes: int
    tenant_id: int
    locations: str | None = None
    connects: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Take over a run whose owner is gone, if nobody did since the snapshot (`epoch`)."""

    process_instance_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Store what is wanted of a running instance; its owner drives towards it."""

    process_instance_id: int
    command_type: CommandType
    wanted_state: ProcessState


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Delete the command: what it asks for has come about already."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Move the command to `t_ds_error_command` with the reason."""

    reason: str


Plan: TypeAlias = Begin | Resume | Signal | Drop | Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """A command that is gone from the table, and the run that is now this master's, if any.

    `plan` may differ from what the planner returned: a `Begin` that PostgreSQL refused, or a
    `Signal` that met a finished instance, ends as a `Reject` or a `Drop`.
    """

    command_id: int
    plan: Plan
    ownership: Ownership | None = None
