"""Process instances and task instances as values: their rows, and the right to change them.

Pure. Adds the word *ownership*.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from common.model.failures import FailureReason
from common.model.states import (
    FailureStrategy,
    Priority,
    ProcessState,
    TaskState,
)

if TYPE_CHECKING:
    from common.model.origins import Origin


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Ownership:
    """The owner of a run. Every save is fenced by it.

    Each take-over raises `epoch`, so a former owner's saves change no row.
    """

    process_instance_id: int
    host: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """One attempt, as its owner needs it.

    `settled`: the run has processed its end. `valid`: it has not been superseded, neither by a
    later attempt nor by a recovery that starts its task afresh. `var_pool`: its output. `branch`:
    the nodes that a branching task took. `failure`: the failure reason.
    """

    id: int
    name: str
    attempt: int
    state: TaskState
    retry_times: int
    valid: bool
    settled: bool
    end_time: datetime | None
    retry_at: datetime | None
    kill_requested: bool
    pause_requested: bool = False
    var_pool: str | None = None
    branch: tuple[str, ...] | None = None
    failure: FailureReason | None = None
    memory_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process instance, as its owner needs it.

    `run_scope`: the nodes that may run, if a command asked for these alone. `wanted_deadline`: the
    time by which a stop has to be over. `parent_task_instance_id` is 0 unless it is a sub process.
    `moment`: its dates are counted from it (`common.business_dates`).
    """

    id: int
    name: str
    state: ProcessState
    wanted_state: ProcessState | None
    failure_strategy: FailureStrategy
    priority: Priority
    worker_group_id: int
    task_depend_type: int
    command_param: str
    process_definition_id: int
    process_instance_json: str
    executor_id: int
    start_time: datetime | None
    global_params: str | None = None
    moment: datetime | None = None
    complement: bool = False
    run_scope: tuple[str, ...] | None = None
    wanted_deadline: datetime | None = None
    parent_task_instance_id: int = 0
    timezone_id: str | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The end of an attempt as its row has it; it waits until the owner settles it.

    `has_output` without `var_pool`: the row has an output that this report does not carry; then
    only the row itself may be acted on.
    """

    process_instance_id: int
    task_instance_id: int
    name: str
    attempt: int
    state: TaskState
    end_time: datetime
    reason: str | None = None
    var_pool: str | None = None
    has_output: bool = False
    failure: FailureReason | None = None
