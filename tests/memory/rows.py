"""The tables in memory: their columns, and the storage and order of their rows.

A column that no loop reads is left out. Rows are frozen, so no caller shares state with a table,
and visited in order of id. Transactions are in `tests.memory.database`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeAlias, TypeVar

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.complement_states import ComplementState
from common.model.instances import Ownership
from common.model.states import LIVE_PROCESS_STATES, ProcessState, TaskState
from tests.memory.lock_rows import LockHolderRecord, LockRecord, LockRequestRecord
from tests.memory.stream_rows import StreamRecord

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR = datetime(9999, 1, 1, tzinfo=UTC)
SUB_PROCESS, DEPENDENT = "SUB_PROCESS", "DEPENDENT"
WORKERLESS_TASK_TYPES = (SUB_PROCESS, DEPENDENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """A row of `t_ds_command`."""

    id: int = 0
    command_type: int
    process_definition_id: int | None = None
    command_param: str | None = None
    task_depend_type: int = 2
    failure_strategy: int = 1
    warning_type: int = 0
    warning_group_id: int = 0
    schedule_time: datetime | None = None
    start_time: datetime = EPOCH
    executor_id: int = 1
    dependence: str | None = None
    update_time: datetime = EPOCH
    process_instance_priority: int | None = 2
    worker_group_id: int = -1
    process_instance_id: int = 0
    parent_task_instance_id: int = 0
    complement_date_id: int = 0
    project_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCommandRecord:
    """A row of `t_ds_error_command`."""

    id: int = 0
    command_id: int
    command_type: int
    process_definition_id: int | None
    command_param: str | None
    task_depend_type: int
    failure_strategy: int
    warning_type: int
    warning_group_id: int
    schedule_time: datetime | None
    start_time: datetime
    executor_id: int
    dependence: str | None
    update_time: datetime
    process_instance_priority: int | None
    worker_group_id: int
    process_instance_id: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """A row of `t_ds_command_ledger`."""

    id: int = 0
    command_id: int
    command_type: int | None
    process_definition_id: int | None
    process_instance_id: int | None
    outcome: int
    reason: str | None
    start_time: datetime | None
    handled_at: datetime
    host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionRecord:
    """A row of `t_ds_process_definition`."""

    id: int = 0
    name: str
    version: int = 1
    release_state: int = 0
    project_id: int = 1
    user_id: int = 1
    process_definition_json: str | None = None
    global_params: str | None = None
    flag: int = 1
    locations: str | None = None
    connects: str | None = None
    receivers: str | None = None
    receivers_cc: str | None = None
    timeout: int = 0
    tenant_id: int = -1
    execution_type: int = 0
    complement_date_rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A row of `t_ds_process_instance`."""

    id: int = 0
    name: str
    process_definition_id: int
    state: int
    recovery: int = 0
    start_time: datetime = EPOCH
    end_time: datetime | None = None
    run_times: int = 1
    host: str | None = None
    command_type: int
    command_param: str | None = None
    task_depend_type: int = 2
    max_try_times: int = 0
    failure_strategy: int = 0
    warning_type: int = 0
    warning_group_id: int = 0
    schedule_time: datetime | None = None
    command_start_time: datetime | None = None
    global_params: str | None = None
    process_instance_json: str
    flag: int = 1
    update_time: datetime = EPOCH
    is_sub_process: int = 0
    executor_id: int
    locations: str | None = None
    connects: str | None = None
    history_cmd: str | None = None
    process_instance_priority: int = 2
    worker_group_id: int = -1
    timeout: int = 0
    tenant_id: int = -1
    owner_incarnation: int | None = None
    owner_epoch: int = 0
    wanted_state: int | None = None
    wanted_at: datetime | None = None
    state_reason: str | None = None
    root_id: int = 0
    parent_task_instance_id: int = 0
    run_scope: str | None = None
    restart_time: datetime | None = None
    wanted_deadline: datetime | None = None
    timeout_strategy: int = 0
    timeout_flag: int = 0
    timezone_id: str | None = None
    execution_type: int | None = None
    command_id: int | None = None
    definition_version: int | None = None
    business_time: datetime | None = None
    duration_from: datetime | None = None

    @property
    def moment(self) -> datetime:
        """The moment from which its dates are counted."""
        return self.business_time or self.schedule_time or self.start_time

    @property
    def is_live(self) -> bool:
        """True if it has not ended."""
        return self.state in LIVE_PROCESS_STATES

    @property
    def is_waiting(self) -> bool:
        """True if it waits for other runs of its definition to end, and so has no owner."""
        return self.state == ProcessState.SERIAL_WAIT

    @property
    def owner(self) -> Node | None:
        """The incarnation that owns it."""
        if self.host is None or self.owner_incarnation is None:
            return None
        return Node(address=self.host, incarnation=self.owner_incarnation)

    @property
    def ownership(self) -> Ownership:
        """The owner that may write it."""
        assert self.host is not None
        return Ownership(process_instance_id=self.id, host=self.host, epoch=self.owner_epoch)

    @property
    def history(self) -> tuple[str, ...]:
        """The names of the commands that it has received, in order."""
        return tuple(self.history_cmd.split(",")) if self.history_cmd else ()

    @property
    def is_of_complement(self) -> bool:
        """True if a complement began it, so that its tasks yield to others."""
        return self.history[:1] == (CommandType.COMPLEMENT_DATA.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A row of `t_ds_task_instance`."""

    id: int = 0
    name: str
    task_type: str
    process_definition_id: int
    process_instance_id: int
    task_json: str
    state: int = 0
    submit_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    host: str | None = None
    execute_path: str | None = None
    log_path: str | None = None
    alert_flag: int = 0
    retry_times: int = 0
    pid: int | None = None
    app_link: str | None = None
    ui_link: str | None = None
    history_link: str | None = None
    progress: str | None = None
    usage: str | None = None
    flag: int = 1
    retry_interval: int = 0
    max_retry_times: int = 0
    task_instance_priority: int = 2
    worker_group_id: int = -1
    executor_id: int | None = None
    attempt: int = 1
    worker_incarnation: int | None = None
    wanted_state: int | None = None
    settled: bool = False
    retry_at: datetime | None = None
    exit_code: int | None = None
    reason: str | None = None
    failure_reason: str | None = None
    memory_factor: float = 1.0
    pid_start_time: float | None = None
    input_pool: str | None = None
    var_pool: str | None = None
    branch: str | None = None
    evidence: str | None = None
    due_at: datetime | None = None
    timeout_seconds: int | None = None
    timeout_strategy: int | None = None
    lost_at: datetime | None = None

    @property
    def is_finished(self) -> bool:
        """True if the attempt is over."""
        return TaskState(self.state).is_finished

    @property
    def is_workerless(self) -> bool:
        """True if masters carry it out themselves."""
        return self.task_type in WORKERLESS_TASK_TYPES

    def runs_as(self, task_type: str) -> bool:
        """True if it is a running attempt of this type."""
        return self.task_type == task_type and self.state == TaskState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """A row of `t_ds_task_group`."""

    id: int = 0
    name: str
    group_size: int
    use_size: int = 0
    status: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolQueueRecord:
    """A row of `t_ds_task_group_queue`: one attempt's demand on one pool."""

    id: int = 0
    task_id: int
    task_name: str | None = None
    group_id: int
    group_name: str | None = None
    process_id: int | None = None
    priority: int = 0
    status: int = -1
    force_start: int = 0
    in_queue: int = 0
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationRecord:
    """A row of `t_ds_relation_process_instance`."""

    id: int = 0
    parent_process_instance_id: int
    parent_task_instance_id: int
    process_instance_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """A row of `t_ds_schedules`."""

    id: int = 0
    process_definition_id: int
    start_time: datetime = EPOCH
    end_time: datetime = FAR
    crontab: str
    failure_strategy: int = 1
    user_id: int = 1
    release_state: int = 0
    warning_type: int = 0
    warning_group_id: int = 0
    process_instance_priority: int = 2
    worker_group_id: int = -1
    timezone_id: str | None = None
    missing_time: str = "shift"
    repeated_time: str = "first"
    misfire_policy: str = "fire_once"
    misfire_limit: int = 10
    deadline: int = 0
    execution_type: int | None = None
    start_params: str | None = None
    counted_from: datetime | None = EPOCH
    next_fire_time: datetime | None = None
    fault: str | None = None
    environment_code: int = -1

    @property
    def fires(self) -> bool:
        """True if its fires are planned."""
        return self.release_state == 1 and self.fault is None


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRecord:
    """A row of `t_ds_schedule_fire`: the outcome of one fire."""

    id: int = 0
    schedule_id: int
    fire_time: datetime
    outcome: str
    process_definition_id: int
    command_id: int = 0
    process_instance_id: int = 0
    reason: str | None = None
    create_time: datetime = EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementRecord:
    """A row of `t_ds_complement`."""

    id: int = 0
    process_definition_id: int
    state: int = 1
    parallelism: int = 1
    run_order: str = "ascending"
    on_failure: str = "stop"
    reprocess: str = "all"
    timezone_id: str
    after_id: int = 0
    command_id: int = 0
    task_depend_type: int = 2
    failure_strategy: int = 1
    warning_type: int = 0
    warning_group_id: int = 0
    executor_id: int = 1
    process_instance_priority: int = 2
    worker_group_id: int = -1
    start_node_names: str | None = None
    start_params: str | None = None
    create_time: datetime = EPOCH
    update_time: datetime = EPOCH
    end_time: datetime | None = None
    state_reason: str | None = None
    environment_code: int = -1
    date_rule: str = "business_date"

    @property
    def is_ended(self) -> bool:
        """True if only a person can make it continue."""
        return ComplementState(self.state).is_ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementDateRecord:
    """A row of `t_ds_complement_date`."""

    id: int = 0
    complement_id: int
    position: int
    schedule_time: datetime
    state: str = "pending"
    command_id: int = 0
    process_instance_id: int = 0
    reason: str | None = None
    update_time: datetime = EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """A row of `t_ds_alert`."""

    id: int = 0
    title: str
    show_type: int = 0
    content: str
    alert_type: int = 0
    alert_status: int = 0
    log: str | None = None
    alertgroup_id: int | None
    receivers: str | None = None
    receivers_cc: str | None = None
    create_time: datetime = EPOCH
    update_time: datetime = EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSourceRecord:
    """A row of `t_ds_datasource`."""

    id: int = 0
    name: str
    type: int
    connection_params: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRecord:
    """A row of `t_ds_environment`."""

    id: int = 0
    code: int
    name: str
    config: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRecord:
    """A row of `t_ds_quality_result`."""

    id: int = 0
    task_instance_id: int
    process_instance_id: int
    process_definition_id: int
    task_name: str
    moment: datetime
    rule: str
    type: str
    target: str = ""
    level: str
    state: str
    value: float | None = None
    expected: str = ""
    rows: int | None = None
    failed: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTailRecord:
    """A row of `t_ds_task_log_tail`; its id is that of the attempt."""

    id: int = 0
    task_instance_id: int
    size: int
    tail: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerServerRecord:
    """A row of `t_ds_worker_server`."""

    id: int = 0
    host: str
    port: int
    res_info: str | None = None
    incarnation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroupRecord:
    """A row of `t_ds_worker_group`."""

    id: int = 0
    name: str
    ip_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRecord:
    """A row of `t_ds_tenant`."""

    id: int = 0
    tenant_code: str
    queue_id: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A row of `t_ds_queue`."""

    id: int = 0
    queue_name: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """A row of `t_ds_user`."""

    id: int = 0
    user_name: str
    tenant_id: int = 0
    queue: str | None = None


Record: TypeAlias = (
    CommandRecord
    | ErrorCommandRecord
    | LedgerRecord
    | DefinitionRecord
    | ProcessRecord
    | TaskRecord
    | PoolRecord
    | PoolQueueRecord
    | LockRecord
    | LockHolderRecord
    | LockRequestRecord
    | RelationRecord
    | ScheduleRecord
    | FireRecord
    | ComplementRecord
    | ComplementDateRecord
    | AlertRecord
    | DataSourceRecord
    | QualityRecord
    | LogTailRecord
    | WorkerServerRecord
    | WorkerGroupRecord
    | TenantRecord
    | QueueRecord
    | UserRecord
    | StreamRecord
)
R = TypeVar("R", bound=Record)


class Rows(Generic[R]):
    """A table: rows by id, always visited in order of id."""

    def __init__(self, name: str, record_type: type[R]) -> None:
        self.name = name
        self.record_type = record_type
        self._rows: dict[int, R] = {}
        self._last_id = 0

    def __iter__(self) -> Iterator[R]:
        # A list, so that a loop may change the rows that it visits.
        return iter(list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, row_id: int | None) -> R | None:
        """The row of that id, or None."""
        return None if row_id is None else self._rows.get(row_id)

    def the(self, row_id: int) -> R:
        """The row of that id, which must exist."""
        return self._rows[row_id]

    def next_id(self) -> int:
        """A new id. As with a real sequence, an id is never drawn again after a rollback."""
        self._last_id += 1
        return self._last_id

    def put(self, row_id: int, row: R | None) -> None:
        """Write or, with None, remove a row; only a transaction calls this."""
        if row is None:
            del self._rows[row_id]
            return
        is_old_again = row_id not in self._rows and row_id < next(reversed(self._rows), 0)
        self._rows[row_id] = row
        self._last_id = max(self._last_id, row_id)
        if is_old_again:
            self._rows = dict(sorted(self._rows.items()))
