"""The operations on workers that an api-server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from common.model.offers import Offer
from common.model.workers import WorkerMode, WorkerStatus
from common.store.people.worker_modes import GivenMode
from common.store.people.worker_strategies import StrategyView
from operations.workers import ModeChange, WorkerView
from orcaflow.remote.client import Client
from orcaflow.remote.documents import moment_of

_WORDS: Final = {
    WorkerMode.ENABLED: "enable",
    WorkerMode.LAZY: "lazy",
    WorkerMode.DISABLED: "disable",
}


def list_workers(client: Client) -> list[WorkerView]:
    """List the workers."""
    return [_view_of(row) for row in client.get("/workers")["items"]]


def set_mode(
    client: Client, worker: str, mode: WorkerMode, *, reason: str | None = None
) -> ModeChange:
    """Give a worker, or all workers of a host, a mode."""
    row = client.post(f"/workers/{_WORDS[mode]}", {"worker": worker, "reason": reason})
    return ModeChange(
        worker=row["worker"],
        mode=WorkerMode(row["mode"]),
        reason=row["reason"],
        since=moment_of(row["since"]),
    )


def _offer_of(row: Mapping[str, Any]) -> Offer:
    """Read an offer from a list; older api-servers do not send `reserved`."""
    return Offer(
        slots=row["capacity"] or 0,
        version=row["version"] or "",
        groups=tuple(row["groups"]),
        is_reserved=bool(row.get("reserved")),
    )


def _view_of(row: Mapping[str, Any]) -> WorkerView:
    mode, since = WorkerMode(row["mode"]), moment_of(row["since"])
    return WorkerView(
        address=row["address"],
        is_alive=row["alive"],
        mode=mode,
        status=None
        if row["obeys"] is None
        else WorkerStatus(
            capacity=row["capacity"],
            used=row["used"],
            version=row["version"],
            category=row["category"],
            mode=WorkerMode(row["obeys"]),
        ),
        offer=None if row["groups"] is None else _offer_of(row),
        given=None
        if since is None
        else GivenMode(
            worker=row["address"],
            mode=mode,
            reason=row["reason"],
            user_name=row["by"],
            since=since,
        ),
    )


def strategy_history(client: Client, *, limit: int = 100) -> list[StrategyView]:
    """List the newest strategies."""
    rows = client.get("/workers/strategy/history", {"limit": limit})["items"]
    return [_strategy_of(row) for row in rows]


def set_strategy(client: Client, document: Any, *, note: str | None = None) -> StrategyView:
    """Have workers be chosen by another strategy."""
    return _strategy_of(client.post("/workers/strategy", {"document": document, "note": note}))


def _strategy_of(row: Mapping[str, Any]) -> StrategyView:
    return StrategyView(
        version=row["version"],
        document=row["document"],
        user_name=row["by"],
        note=row["note"],
        since=moment_of(row["since"]),
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "worker_strategies.set_strategy": set_strategy,
    "worker_strategies.strategy_history": strategy_history,
    "workers.list_workers": list_workers,
    "workers.set_mode": set_mode,
}
