"""Locks on datasets as documents: the fields of `orcaflow locks list -o json`."""

from __future__ import annotations

from common.store.people.locks import WaitingLock
from common.store.streams.locks import HeldLock, LockHolder


def held_row(held: HeldLock) -> dict[str, object]:
    """A lock that live attempts hold."""
    lock = held.lock
    return {
        "dataset": lock.dataset,
        "interval": str(lock.interval),
        "type": lock.type.value,
        "state": "revoked" if lock.revoked else "held",
        "priority": lock.priority,
        "granularity": lock.granularity.value,
        "partition_num": lock.partition_num,
        "group": lock.group_id,
        "version": lock.version,
        "since": held.since,
        "tasks": [_task(holder) for holder in held.holders],
    }


def waiting_row(waiting: WaitingLock) -> dict[str, object]:
    """A lock that an attempt waits for; `interval` as its author wrote it."""
    need = waiting.need
    return {
        "dataset": need.dataset,
        "interval": need.interval,
        "type": need.type.value,
        "state": "waiting",
        "priority": need.priority,
        "granularity": None,
        "partition_num": None,
        "group": None,
        "version": None,
        "since": waiting.since,
        "tasks": [_task(waiting.holder)],
    }


def _task(holder: LockHolder) -> dict[str, object]:
    return {
        "task_instance_id": holder.task_instance_id,
        "task": holder.task_name,
        "process_instance_id": holder.process_instance_id,
    }
