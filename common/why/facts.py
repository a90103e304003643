"""The facts that causes follow from: rows of one moment, and the daemons alive then. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from common.model.cluster import Node
from common.model.failures import FailureReason
from common.model.offers import Offer
from common.model.slot_share import NO_SHARES, SharePercents
from common.model.states import FailureStrategy, TaskDependType
from common.model.task_type import TaskTypeSpec
from common.model.workers import WorkerMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A valid attempt at a task."""

    id: int
    name: str
    task_type: str
    attempt: int
    state: int
    submit_time: datetime | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    host: str | None = None
    worker_incarnation: int | None = None
    wanted_state: int | None = None
    reason: str | None = None
    failure: FailureReason | None = None
    retry_times: int = 0
    retry_at: datetime | None = None
    due_at: datetime | None = None
    settled: bool = False
    branch: str | None = None
    evidence: str | None = None
    waits_at_manager: str = ""
    """The cause for which its Spark application waits, in its manager's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAttempt:
    """An ended attempt of a lost worker daemon, until its processes are found gone."""

    id: int
    name: str
    attempt: int
    host: str | None
    lost_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommand:
    """A row of `t_ds_command`. `release_state` is None if the definition does not exist."""

    id: int
    command_type: int
    process_definition_id: int | None
    definition_name: str | None
    release_state: int | None
    start_time: datetime
    ahead: int = 0
    process_instance_id: int = 0
    parent_task_instance_id: int = 0
    project_id: int = 0
    project_name: str | None = None
    """The project that its run is charged to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Another run of the same definition that goes before this one."""

    id: int
    state: int
    start_time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A process instance with the valid attempts at its tasks."""

    id: int
    name: str
    definition_name: str | None
    state: int
    start_time: datetime | None
    process_instance_json: str = ""
    command_param: str = ""
    task_depend_type: int = int(TaskDependType.TASK_POST)
    failure_strategy: int = int(FailureStrategy.CONTINUE)
    end_time: datetime | None = None
    wanted_state: int | None = None
    wanted_at: datetime | None = None
    wanted_deadline: datetime | None = None
    state_reason: str | None = None
    host: str | None = None
    owner_incarnation: int | None = None
    run_scope: str | None = None
    attempts: tuple[Attempt, ...] = ()
    before: tuple[Other, ...] = ()
    lost: tuple[LostAttempt, ...] = ()
    schedule_time: datetime | None = None
    business_time: datetime | None = None
    """Its moment where that differs from its schedule time (`common.business_dates`)."""
    timezone_id: str | None = None
    version: int | None = None
    latest_version: int | None = None
    """The latest version of its definition; None if the definition was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An attempt that has slots of a pool."""

    task_instance_id: int
    task_name: str
    process_instance_id: int
    slots: int
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWait:
    """The slots that an attempt needs of one pool. `size` is None if there is no such pool.

    `hidden` slots are held by attempts that the asker may not see; `holders` are the others.
    """

    name: str
    slots: int
    size: int | None
    holders: tuple[Holder, ...] = ()
    hidden: int = 0
    ahead: int = 0

    @property
    def used(self) -> int:
        return sum(holder.slots for holder in self.holders) + self.hidden

    @property
    def has_room(self) -> bool:
        return self.size is not None and self.used + self.slots <= self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """An attempt whose `lock` is in the way of another."""

    task_instance_id: int
    task_name: str
    process_instance_id: int
    lock: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """A lock that an attempt waits for, and the holders of those in its way.

    `problem`: the reason why it can never be had. `hidden` holders may not be seen by the asker.
    """

    dataset: str
    interval: str
    type: str
    problem: str | None = None
    holders: tuple[LockHolder, ...] = ()
    hidden: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """The place of a submitted attempt in the queue; `group_id` is 0 for any worker."""

    ahead: int
    group_id: int = 0
    group_name: str | None = None
    addresses: tuple[str, ...] = ()
    project_id: int = 0
    project_name: str | None = None
    """The project that the attempt is charged to."""
    capacity: int = 1
    """The slots that the attempt counts for in the choice of a worker."""
    surplus: Mapping[str, int] = field(default_factory=dict)
    """The slots that attempts of the project count for beyond one each, by worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The living daemons. `running` counts attempts by worker, `owned` live runs by master.

    `running_of` and `owned_of` count the same by daemon and project.

    `unfit` tells why a worker takes nothing, by its address; only of those that said so. `modes`
    are those that were given to workers and hosts. `offers` has what workers told of themselves;
    one of a former version tells nothing.
    """

    masters: frozenset[Node]
    workers: frozenset[Node]
    running: Mapping[str, int] = field(default_factory=dict)
    owned: Mapping[str, int] = field(default_factory=dict)
    running_of: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    owned_of: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, WorkerMode] = field(default_factory=dict)
    offers: Mapping[Node, Offer] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplementOfRun:
    """The complement of a run. `pending` are the moments of awaited dates that are pending."""

    id: int
    order: str
    parallelism: int
    definition_id: int
    definition_name: str | None
    pending: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts of one moment. `alive` is None if ZooKeeper was unreachable.

    `children` and `child_commands` are by the id of the SUB_PROCESS attempt that wants the child.
    `foreign` are attempts whose children the asker may not see: no fact of those is here. `seen`
    are the process instances of other runs that may be named; None allows all of them. `shares`:
    the limits in force for one project.
    """

    now: datetime
    alive: Alive | None
    runs: Mapping[int, Run] = field(default_factory=dict)
    recoveries: Mapping[int, PendingCommand] = field(default_factory=dict)
    children: Mapping[int, int] = field(default_factory=dict)
    child_commands: Mapping[int, PendingCommand] = field(default_factory=dict)
    foreign: frozenset[int] = frozenset()
    seen: frozenset[int] | None = None
    pools: Mapping[int, tuple[PoolWait, ...]] = field(default_factory=dict)
    locks: Mapping[int, tuple[LockWait, ...]] = field(default_factory=dict)
    queue: Mapping[int, QueuePlace] = field(default_factory=dict)
    task_types: Mapping[str, TaskTypeSpec] = field(default_factory=dict)
    exec_threads: int = 100
    shares: SharePercents = NO_SHARES
    complements: tuple[ComplementOfRun, ...] = ()
