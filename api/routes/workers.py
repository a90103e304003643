"""Workers: listed to everybody, taken out of service by administrators."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from api.asking import Asked
from api.cluster_answers import WorkerList, WorkerMode, WorkerModeChange
from api.route import Route, get, post
from common.model.workers import WorkerMode as Mode
from operations import workers as operations
from operations.documents.workers import mode_row, worker_row

PATIENCE: Final = timedelta(seconds=3)
"""ZooKeeper counts as away if it does not answer for so long."""


def list_workers(session: Asked) -> dict[str, Any]:
    """List the living workers, and those that were taken out of service."""
    found = operations.list_workers(session, patience=PATIENCE)
    return {"items": [worker_row(each) for each in found]}


def disable_worker(given: WorkerModeChange, session: Asked) -> dict[str, Any]:
    """Have a worker, or all of a host, take no more tasks until it is enabled."""
    return _set(given, session, Mode.DISABLED)


def make_worker_lazy(given: WorkerModeChange, session: Asked) -> dict[str, Any]:
    """Have a worker, or all of a host, take no more tasks, since it is going to be removed."""
    return _set(given, session, Mode.LAZY)


def enable_worker(given: WorkerModeChange, session: Asked) -> dict[str, Any]:
    """Have a worker, or all of a host, take tasks again."""
    return _set(given, session, Mode.ENABLED)


def _set(given: WorkerModeChange, session: Asked, mode: Mode) -> dict[str, Any]:
    return mode_row(operations.set_mode(session, given.worker, mode, reason=given.reason))


ROUTES: Final[tuple[Route, ...]] = (
    get("/workers", list_workers, WorkerList),
    post("/workers/disable", disable_worker, WorkerMode),
    post("/workers/lazy", make_worker_lazy, WorkerMode),
    post("/workers/enable", enable_worker, WorkerMode),
)
