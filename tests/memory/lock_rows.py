"""The rows of locks in memory."""

from __future__ import annotations

from dataclasses import dataclass

from common.model.intervals import Interval
from common.model.lock_needs import LockNeed
from common.model.locks import LockType


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    """A row of `t_ds_task_lock`, of granularity TIME_CHUNK."""

    id: int = 0
    dataset: str
    group_id: str
    interval: Interval
    version: str
    priority: int
    type: LockType
    revoked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolderRecord:
    """A row of `t_ds_task_lock_holder`, with an id of its own."""

    id: int = 0
    lock_id: int
    task_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequestRecord:
    """A row of `t_ds_task_lock_request`."""

    id: int = 0
    task_id: int
    need: LockNeed
