"""The modes of workers in `t_ds_worker_mode`, as every side of the store reads them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, Engine, select

from common.model.workers import WorkerMode
from common.store.tables import worker_mode
from common.store.transaction import repeatable

_MODES: Final = select(worker_mode.c.worker, worker_mode.c.mode)


def worker_modes(db: Connection) -> dict[str, WorkerMode]:
    """Return the modes that stand in the table, by address or host."""
    return {row.worker: WorkerMode(row.mode) for row in db.execute(_MODES)}


def present_modes(engine: Engine) -> dict[str, WorkerMode]:
    """Return `worker_modes` as of now."""
    return repeatable(engine, worker_modes)
