"""Workers as documents: the fields of `orcaflow worker … -o json`."""

from __future__ import annotations

from common.store.people.worker_strategies import StrategyView
from operations.workers import ModeChange, WorkerView


def worker_row(view: WorkerView) -> dict[str, object]:
    """A worker; the room of one that is not alive, or of a former version, is null."""
    status, given = view.status, view.given
    return {
        "address": view.address,
        "alive": view.is_alive,
        "mode": view.mode.value,
        "obeys": status and status.mode.value,
        "capacity": status and status.capacity,
        "used": status and status.used,
        "category": status and status.category,
        "version": status and status.version,
        "groups": None if view.offer is None else list(view.offer.groups),
        "reserved": None if view.offer is None else view.offer.is_reserved,
        "reason": given and given.reason,
        "by": given and given.user_name,
        "since": given and given.since,
    }


def mode_row(change: ModeChange) -> dict[str, object]:
    """The mode that a worker was given."""
    return {
        "worker": change.worker,
        "mode": change.mode.value,
        "reason": change.reason,
        "since": change.since,
    }


def strategy_row(view: StrategyView) -> dict[str, object]:
    """A version of the strategy by which workers are chosen."""
    return {
        "version": view.version,
        "document": dict(view.document),
        "note": view.note,
        "by": view.user_name,
        "since": view.since,
    }
