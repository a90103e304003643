"""The modes of workers, as administrators give them and people see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from common.model.workers import WorkerMode
from common.store.tables import worker_mode, worker_server
from common.store.transaction import storable

_LOCK = "orcaflow worker modes"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenMode:
    """The mode that somebody has given a worker, or all at a host."""

    worker: str
    mode: WorkerMode
    reason: str | None
    user_name: str | None
    since: datetime


def given_modes(db: Connection) -> dict[str, GivenMode]:
    """Return what stands in the table, by worker or host, in order."""
    rows = db.execute(select(worker_mode).order_by(worker_mode.c.worker))
    return {
        row.worker: GivenMode(
            worker=row.worker,
            mode=WorkerMode(row.mode),
            reason=row.reason,
            user_name=row.user_name,
            since=row.update_time,
        )
        for row in rows
    }


def lock_modes(db: Connection) -> None:
    """Serialize changes of modes, which read before they write."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _LOCK})


def give_mode(
    db: Connection, worker: str, mode: WorkerMode, *, reason: str | None, user_name: str
) -> None:
    """Write the mode of a worker or host, in place of a former one."""
    values = {
        "mode": mode.value,
        "reason": None if reason is None else storable(reason, 255),
        "user_name": storable(user_name, 64),
    }
    made = insert(worker_mode).values(worker=worker, **values)
    db.execute(
        made.on_conflict_do_update(
            index_elements=[worker_mode.c.worker], set_={**values, "update_time": func.now()}
        )
    )


def forget_modes(db: Connection, workers: list[str]) -> None:
    """Remove the modes of these workers and hosts."""
    db.execute(delete(worker_mode).where(worker_mode.c.worker.in_(workers)))


def known_workers(db: Connection) -> frozenset[str]:
    """Return the addresses of the workers that have ever told of themselves."""
    rows = db.execute(select(worker_server.c.host, worker_server.c.port).distinct())
    return frozenset(f"{row.host}:{row.port}" for row in rows)
