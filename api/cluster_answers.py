"""The shapes of answers and requests about tenants, worker groups, pools, alerts, locks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from api.answers import Answer, Document, Shape
from api.grant_answers import Projects
from api.people_answers import Word

Mode = Literal["enabled", "lazy", "disabled"]


class Tenant(Answer):
    """A tenant: the account that tasks run as, with their YARN queue."""

    id: int
    code: str
    queue: str | None
    queue_id: int
    description: str | None
    create_time: datetime


class TenantPage(Answer):
    """A page of tenants."""

    items: list[Tenant]
    next: str | None


class NewTenant(Shape):
    """A tenant to make. Its account is not made."""

    code: Word
    queue: Word | None = None
    description: Word | None = None
    projects: Projects = Field(default_factory=list)


class MadeTenant(Tenant):
    """A tenant that was made; `has_account` is about the computer of the api-server."""

    has_account: bool


class DeletedTenant(Answer):
    """A tenant that is gone; so many ended runs named it."""

    id: int
    deleted: bool
    instances: int


class GroupMember(Answer):
    """A living worker that serves a group."""

    address: str
    known_by: str


class WorkerGroup(Answer):
    """A worker group; `members` is null if ZooKeeper does not tell who is alive."""

    id: int
    name: str
    addresses: list[str]
    workers: int | None
    create_time: datetime
    members: list[GroupMember] | None


class WorkerGroupPage(Answer):
    """A page of worker groups."""

    items: list[WorkerGroup]
    next: str | None


class NewWorkerGroup(Shape):
    """A worker group to make; all workers of the hosts in `addresses` serve it."""

    name: Word
    addresses: Annotated[list[Word], Field(max_length=1000)] = Field(default_factory=list)
    projects: Projects = Field(default_factory=list)


class MadeWorkerGroup(Answer):
    """A worker group that was made."""

    id: int
    name: str
    addresses: list[str]
    create_time: datetime


class DeletedWorkerGroup(Answer):
    """A worker group that is gone; so many ended runs named it."""

    id: int
    deleted: bool
    instances: int


class Worker(Answer):
    """A worker with its room; `mode` is as it was given, `obeys` as the worker itself tells."""

    address: str
    alive: bool
    mode: Mode
    obeys: Mode | None
    capacity: int | None
    used: int | None
    category: str | None
    version: str | None
    groups: list[str] | None
    reserved: bool | None
    reason: str | None
    by: str | None
    since: datetime | None


class WorkerList(Answer):
    """The living workers, and those that were given a mode."""

    items: list[Worker]


class WorkerModeChange(Shape):
    """A worker, `host:port`, or a host for all its workers, and why its mode changes."""

    worker: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    reason: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None


class WorkerMode(Answer):
    """The mode that a worker, or a host, has by now; it has no time if it is the usual one."""

    worker: str
    mode: Mode
    reason: str | None
    since: datetime | None


class WorkerStrategy(Answer):
    """A version of the strategy by which workers are chosen; version 0 is the default."""

    version: int
    document: Document
    note: str | None
    by: str | None
    since: datetime | None


class WorkerStrategyList(Answer):
    """The strategies, the present one first."""

    items: list[WorkerStrategy]


class NewWorkerStrategy(Shape):
    """A strategy as in Druid's dynamic configuration of workers."""

    document: dict[str, Any]
    note: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None


class Pool(Answer):
    """A pool, with the number of its slots that are taken, and of the attempts that wait."""

    id: int
    name: str
    size: int
    used: int
    free: int
    waiting: int
    description: str | None


class PoolPage(Answer):
    """A page of pools, by id."""

    items: list[Pool]
    next: str | None


class PoolUse(Answer):
    """An attempt that holds slots of a pool, or waits for them."""

    task_instance_id: int
    task: str
    process_instance_id: int
    slots: int
    priority: int
    since: datetime | None


class PoolDetail(Pool):
    """A pool with its holders and waiters, as far as you may see them; the next one comes first."""

    holders: list[PoolUse]
    waiters: list[PoolUse]


class NewPool(Shape):
    """A pool to make."""

    name: Word
    size: int
    description: Word | None = None
    projects: Projects = Field(default_factory=list)


class PoolChange(Shape):
    """Another size of a pool."""

    size: int


class RemovedPool(Pool):
    """A pool that is gone."""

    removed: bool


class Alert(Answer):
    """An alert; codes by their names in DolphinScheduler."""

    id: int
    title: str | None
    status: str | None
    show_type: str | None
    alert_type: str | None
    alertgroup_id: int | None
    alertgroup: str | None
    receivers: str | None
    receivers_cc: str | None
    create_time: datetime
    update_time: datetime
    content: str | None
    log: str | None


class AlertPage(Answer):
    """A page of alerts."""

    items: list[Alert]
    next: str | None


class AlertGroup(Answer):
    """A group that alerts are for."""

    id: int
    name: str | None
    description: str | None
    create_time: datetime


class AlertGroupPage(Answer):
    """A page of groups that alerts are for."""

    items: list[AlertGroup]
    next: str | None


class Concern(Answer):
    """Something that needs a person: `id` is that of a run, complement, command or schedule.

    `name` names a worker, a supervisor or a topology.
    """

    kind: str
    id: int | None
    name: str | None
    process_definition_id: int | None
    definition: str | None
    project: str | None
    since: datetime | None
    count: int
    reason: str | None


class Overview(Answer):
    """Objects that need a person; `well` is true if there are no items."""

    well: bool
    items: list[Concern]


class LockUser(Answer):
    """An attempt that holds a lock, or waits for it."""

    task_instance_id: int
    task: str
    process_instance_id: int


class Lock(Answer):
    """A lock that tasks hold, or one waits for; what is granted with a lock is null until then."""

    dataset: str
    interval: str
    type: str
    state: Literal["held", "revoked", "waiting"]
    priority: int
    granularity: str | None
    partition_num: int | None
    group: str | None
    version: str | None
    since: datetime
    tasks: list[LockUser]


class LockList(Answer):
    """The locks of tasks that one may see."""

    items: list[Lock]
