"""The operations on locks that an api-server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from common.model.intervals import read_interval
from common.model.lock_needs import LockNeed
from common.model.locks import Lock, LockGranularity, LockType
from common.store.people.locks import WaitingLock
from common.store.streams.locks import HeldLock, LockHolder
from operations.locks import LockView
from orcaflow.remote.client import Client


def list_locks(client: Client, *, dataset: str | None = None) -> LockView:
    """Return the locks of tasks that one may see."""
    rows = client.get("/locks", {"dataset": dataset})["items"]
    return LockView(
        held=tuple(_held(row) for row in rows if row["state"] != "waiting"),
        waiting=tuple(_waiting(row) for row in rows if row["state"] == "waiting"),
    )


def _held(row: Mapping[str, Any]) -> HeldLock:
    lock = Lock(
        id=0,
        dataset=row["dataset"],
        group_id=row["group"],
        interval=read_interval(row["interval"]),
        version=row["version"],
        type=LockType(row["type"]),
        priority=row["priority"],
        granularity=LockGranularity(row["granularity"]),
        partition_num=row["partition_num"],
        revoked=row["state"] == "revoked",
    )
    return HeldLock(lock=lock, since=_since(row), holders=tuple(map(_holder, row["tasks"])))


def _waiting(row: Mapping[str, Any]) -> WaitingLock:
    (holder,) = row["tasks"]
    need = LockNeed(
        dataset=row["dataset"],
        interval=row["interval"],
        type=LockType(row["type"]),
        priority=row["priority"],
    )
    return WaitingLock(need=need, since=_since(row), holder=_holder(holder))


def _holder(row: Mapping[str, Any]) -> LockHolder:
    return LockHolder(
        task_instance_id=row["task_instance_id"],
        task_name=row["task"],
        process_instance_id=row["process_instance_id"],
    )


def _since(row: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(row["since"])


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {"locks.list_locks": list_locks}
