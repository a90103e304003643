"""Workers: listed to everybody, taken out of service and chosen as administrators say."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Query

from api.asking import Asked
from api.cluster_answers import (
    NewWorkerStrategy,
    WorkerList,
    WorkerMode,
    WorkerModeChange,
    WorkerStrategy,
    WorkerStrategyList,
)
from api.route import Route, get, post
from common.model.workers import WorkerMode as Mode
from operations import workers as operations
from operations.documents.workers import mode_row, strategy_row, worker_row
from operations.worker_strategies import set_strategy, strategy_history

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


def show_strategy(session: Asked) -> dict[str, Any]:
    """Show the strategy by which workers are chosen for tasks that ask for it."""
    return strategy_row(strategy_history(session, limit=1)[0])


def change_strategy(given: NewWorkerStrategy, session: Asked) -> dict[str, Any]:
    """Have workers be chosen by another strategy; the present one again changes nothing."""
    return strategy_row(set_strategy(session, given.document, note=given.note))


def list_strategies(
    session: Asked, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> dict[str, Any]:
    """List the newest strategies, the present one first."""
    return {"items": [strategy_row(each) for each in strategy_history(session, limit=limit)]}


def _set(given: WorkerModeChange, session: Asked, mode: Mode) -> dict[str, Any]:
    return mode_row(operations.set_mode(session, given.worker, mode, reason=given.reason))


ROUTES: Final[tuple[Route, ...]] = (
    get("/workers", list_workers, WorkerList),
    get("/workers/strategy", show_strategy, WorkerStrategy),
    post("/workers/strategy", change_strategy, WorkerStrategy),
    get("/workers/strategy/history", list_strategies, WorkerStrategyList),
    post("/workers/disable", disable_worker, WorkerMode),
    post("/workers/lazy", make_worker_lazy, WorkerMode),
    post("/workers/enable", enable_worker, WorkerMode),
)
