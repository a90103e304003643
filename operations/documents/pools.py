"""Pools as documents: the fields of `orcaflow pool … -o json`."""

from __future__ import annotations

from common.store.people.pools import PoolUse, PoolView


def pool_row(pool: PoolView) -> dict[str, object]:
    """A pool with the number of its slots that are taken, and of the attempts that wait."""
    return {
        "id": pool.id,
        "name": pool.name,
        "size": pool.size,
        "used": pool.used,
        "free": max(0, pool.size - pool.used),
        "waiting": pool.waiting,
        "description": pool.description,
    }


def pool_use_row(use: PoolUse) -> dict[str, object]:
    """An attempt that holds slots of a pool, or waits for them."""
    return {
        "task_instance_id": use.task_instance_id,
        "task": use.task_name,
        "process_instance_id": use.process_instance_id,
        "slots": use.slots,
        "priority": use.priority,
        "since": use.since,
    }
