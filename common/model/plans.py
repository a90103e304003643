"""Plans: the decisions on commands.

Pure. `master.commands` makes them from a command and a snapshot of the tables; the store carries
them out in the transaction that deletes the command. They are here because both use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, assert_never

from common.model.cluster import Node
from common.model.commands import CommandOutcome, CommandType
from common.model.complements import NewComplement
from common.model.date_rules import DateRule
from common.model.grants import GrantedObject
from common.model.instances import Ownership, TaskRow
from common.model.origins import NOWHERE, Origin
from common.model.reach import Target
from common.model.schedules import Schedule
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    Priority,
    ProcessState,
    ReleaseState,
    TaskDependType,
    TimeoutStrategy,
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
    execution_type: ExecutionType = ExecutionType.PARALLEL
    project_id: int | None = None
    grants: frozenset[GrantedObject] = frozenset()
    """The environments and worker groups that its project may use."""
    lacked_tenant: int | None = None
    """Its tenant, if its project may not use that tenant."""
    date_rule: DateRule | None = None
    """The meaning of its complements' dates; None leaves that to the cluster."""
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSnapshot:
    """A process instance as it stands when a command about it is planned.

    `tasks`: every attempt, oldest first, for commands that recover; empty for the others.
    """

    id: int
    state: ProcessState
    owner: Node | None
    owner_epoch: int
    process_definition_id: int = 0
    root_id: int = 0
    """The instance at the top of the tree that this sub process belongs to; 0 if it is none."""
    command_param: str = ""
    process_instance_json: str = ""
    global_params: str | None = None
    task_depend_type: TaskDependType = TaskDependType.TASK_POST
    history: tuple[str, ...] = ()
    schedule_time: datetime | None = None
    business_time: datetime | None = None
    """Its moment where that differs from `schedule_time` (`common.business_dates`)."""
    run_scope: tuple[str, ...] | None = None
    tasks: tuple[TaskRow, ...] = ()
    timezone_id: str | None = None
    """The zone in which the run reads its dates; None is the cluster's own."""
    execution_type: ExecutionType | None = None
    """The execution type of its schedule; None leaves that to the definition."""
    start_time: datetime | None = None
    worker_group_id: int = -1
    project_id: int | None = None
    """The project of its definition; None if that was deleted, or if no restart is planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentSnapshot:
    """The parent of a sub process: the SUB_PROCESS attempt that wants it, and that one's run.

    `ancestors` are the ids of the definitions above it, the root's first and the parent's last.
    `shared` are the definitions of other projects that are shared with the parent's project.
    `project_id` is None if the parent's definition was deleted.
    """

    process_instance_id: int
    task_instance_id: int
    task_name: str
    task_json: str
    input_pool: str | None
    waits: bool
    """True if the attempt still waits for its child to begin."""
    root_id: int
    history: tuple[str, ...]
    global_params: str | None
    schedule_time: datetime | None
    ancestors: tuple[int, ...]
    business_time: datetime | None = None
    timezone_id: str | None = None
    environment_code: int | None = None
    project_id: int | None = None
    shared: frozenset[int] = frozenset()
    took_latest: bool = False
    """True if its last restart took the latest version of its definition."""
    wants_fresh_child: bool = False
    """True if what the task's child did before that restart is not valid any more."""
    origin: Origin = NOWHERE

    def reaches(self, definition: DefinitionSnapshot) -> bool:
        """Return True if the definition belongs to the parent's project or is shared with it."""
        return not self.is_foreign(definition) or definition.id in self.shared

    def reaches_run(self, run: InstanceSnapshot) -> bool:
        """Return True unless the run's definition is known and not reached."""
        is_reached = not self.is_foreign(run) or run.process_definition_id in self.shared
        return run.project_id is None or is_reached

    def is_foreign(self, child: DefinitionSnapshot | InstanceSnapshot) -> bool:
        """Return True unless the child is known to belong to the project of the parent."""
        return self.project_id not in (None, child.project_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentDefinition:
    """A usable definition that has tasks waiting for other definitions, with its online schedules.

    `shared` are the definitions of other projects that are shared with its project, and `named` are
    the definitions that it reaches by the names in its JSON.
    """

    id: int
    name: str
    process_definition_json: str
    schedules: tuple[Schedule, ...] = ()
    project_id: int | None = None
    shared: frozenset[int] = frozenset()
    named: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A planner's view of the tables; its other inputs are the command and the time.

    `asked_instance_id` is the instance that the command names; `instance` is the root of its tree
    where commands to a sub process go to the whole tree, and the named one otherwise.
    """

    definition: DefinitionSnapshot | None = None
    instance: InstanceSnapshot | None = None
    asked_instance_id: int | None = None
    parent: ParentSnapshot | None = None
    live_masters: frozenset[Node] = field(default_factory=frozenset)
    schedules: tuple[Schedule, ...] = ()
    dependents: tuple[DependentDefinition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildOf:
    """The parent of a run that is a sub process. It begins only while that attempt waits for it."""

    process_instance_id: int
    task_instance_id: int
    root_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Write a new process instance (contract §3.5), owned by the master that planned it.

    If another run of the same definition is live, `execution_type` decides: the new one waits for
    its turn, is discarded at once, or has the others stopped and then begins.
    """

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
    timeout_strategy: TimeoutStrategy = TimeoutStrategy.WARN
    locations: str | None = None
    connects: str | None = None
    execution_type: ExecutionType = ExecutionType.PARALLEL
    child_of: ChildOf | None = None
    timezone_id: str | None = None
    business_time: datetime | None = None
    """Its moment where that differs from `schedule_time` (`common.business_dates`)."""
    complement_date_id: int = 0
    """The date of a complement that it runs for; it begins only while that still wants it."""
    is_serial_by_schedule: bool = False
    """True if `execution_type` is its schedule's own and not the definition's."""
    origin: Origin = NOWHERE
    """The names and codes that its tasks may use; a later load reads them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complement:
    """Write complements, all or none; each `after` names a place in this list (contract §8.6)."""

    complements: tuple[NewComplement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Take over a live run, if nobody did since the snapshot (`epoch`); its tasks stay as they are.

    `command_type`, the cause: its owner is gone (2), its turn has come (11), there is room (10).
    """

    process_instance_id: int
    epoch: int
    command_type: CommandType = CommandType.RECOVER_TOLERANCE_FAULT_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """The version of a definition that takes the place of a run's own copy."""

    version: int
    process_instance_json: str
    timeout_minutes: int
    timeout_strategy: TimeoutStrategy
    tenant_id: int
    locations: str | None = None
    connects: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Make an ended run live again, if it is still as the snapshot had it (`epoch`).

    `reset` names the tasks whose valid attempt is superseded, so that they count as not begun;
    all others keep their results. `run_scope`: only these may run; None for the whole selection.
    `global_params` and `command_param` replace what the instance has, unless they are None.
    `afresh` also gives it a new start time, as if it had never run (REPEAT_RUNNING). `version`
    replaces its copy of the definition; without one it keeps the copy.
    """

    process_instance_id: int
    epoch: int
    command_type: CommandType
    reset: tuple[str, ...]
    run_scope: tuple[str, ...] | None = None
    global_params: str | None = None
    command_param: str | None = None
    afresh: bool = False
    child_of: ChildOf | None = None
    execution_type: ExecutionType = ExecutionType.PARALLEL
    version: NewVersion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetIntent:
    """Store an intent for a running instance; its owner drives towards it."""

    process_instance_id: int
    command_type: CommandType
    wanted_state: ProcessState


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Delete the command without effect; the ledger keeps the reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Move the command to `t_ds_error_command` with the reason."""

    reason: str


Plan: TypeAlias = Begin | Complement | Resume | Restart | SetIntent | Drop | Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """A command that is gone from the table, and the run that is now this master's, if any.

    `plan` may differ from what the planner returned: a `Begin` that PostgreSQL refused, or a
    `SetIntent` that met a finished instance, ends as a `Reject` or a `Drop`.
    """

    command_id: int
    plan: Plan
    ownership: Ownership | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """A line of the ledger: the outcome of a command that is gone, and the instance concerned."""

    command_id: int
    outcome: CommandOutcome
    reason: str | None = None
    process_instance_id: int | None = None


def line_of(
    handled: Handled, *, named: int | None, made: int | None = None, discarded: str | None = None
) -> LedgerLine:
    """Return the line for a handled command.

    `named` is the instance that the command names and `made` the one that it has begun, which is
    over at once if it was `discarded` for that reason.
    """
    outcome, reason, run = CommandOutcome.TAKEN, discarded, made
    match handled.plan:
        case Drop():
            outcome, reason, run = CommandOutcome.DROPPED, handled.plan.reason, named
        case Reject():
            outcome, reason, run = CommandOutcome.REFUSED, handled.plan.reason, named
        case Begin() if discarded is not None:
            outcome = CommandOutcome.DROPPED
        case Restart() | Resume() | SetIntent():
            run = handled.plan.process_instance_id
        case Begin() | Complement():
            pass
        case _:
            assert_never(handled.plan)
    return LedgerLine(
        command_id=handled.command_id, outcome=outcome, reason=reason, process_instance_id=run
    )
