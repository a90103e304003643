"""The rows of supervisors, their tasks, and the datasets that they feed, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from common.model.cluster import Node
from common.model.streams.tasks import Assignment, Orders, TaskReport
from common.store.master.supervisor_ports import Standing

_NEW = Standing(
    state="PENDING", detailed_state="PENDING", healthy=True, recent_errors=(), status={}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRecord:
    """A row of `t_ds_supervisor`; without a document it is a tombstone."""

    id: int = 0
    name: str
    version: int
    document: Mapping[str, Any] | None
    suspended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRecord:
    """A row of `t_ds_supervisor_runtime`; `writer` and `writer_epoch` are for checkers."""

    id: int = 0
    name: str
    version: int
    definition_id: int
    project_id: int = 1
    active: bool = True
    owner: Node | None = None
    owner_epoch: int = 0
    lease_until: datetime | None = None
    standing: Standing = _NEW
    writer: Node | None = None
    writer_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequestRecord:
    """A row of `t_ds_supervisor_command`."""

    id: int = 0
    supervisor: str
    kind: str
    body: Any = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTaskRecord:
    """A row of `t_ds_stream_task`."""

    id: int = 0
    assignment: Assignment
    command_id: int
    orders: Orders = field(default_factory=Orders)
    ending_since: datetime | None = None
    killed: bool = False
    closed: bool = False
    task_instance_id: int = 0
    report: TaskReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """A row of `t_ds_dataset_offsets` or, by topic, of `t_ds_dataset_topic_offsets`.

    A trigger sets `since`, its `update_time`.
    """

    id: int = 0
    dataset: str
    stream: str
    partition: Any
    position: Any
    latest_event: datetime | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord:
    """A row of `t_ds_segment`; its file is named by a path. `beside`: the lock that replaces."""

    id: int = 0
    dataset: str
    chunk: int
    sequence: str
    path: str
    task_id: int
    used: bool = True
    beside: int = 0


StreamRecord: TypeAlias = (
    SpecRecord
    | RuntimeRecord
    | StreamRequestRecord
    | StreamTaskRecord
    | OffsetRecord
    | SegmentRecord
)
