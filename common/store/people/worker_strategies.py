"""The strategies by which workers are chosen: the newest holds, and all are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, text

from common.store.tables import worker_strategy
from common.store.transaction import storable

_LOCK = "orcaflow worker strategies"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyView:
    """A version of the strategy; version 0 is the default, which nobody has given."""

    version: int
    document: Mapping[str, Any]
    user_name: str | None = None
    note: str | None = None
    since: datetime | None = None


def strategies(db: Connection, *, limit: int) -> list[StrategyView]:
    """Return the newest strategies, the present one first."""
    rows = db.execute(
        select(worker_strategy).order_by(worker_strategy.c.version.desc()).limit(limit)
    )
    return [
        StrategyView(
            version=row.version,
            document=row.document,
            user_name=row.user_name,
            note=row.note,
            since=row.create_time,
        )
        for row in rows
    ]


def lock_strategies(db: Connection) -> None:
    """Serialize changes of the strategy, which read before they write."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _LOCK})


def add_strategy(
    db: Connection, document: Mapping[str, Any], *, user_name: str, note: str | None
) -> int:
    """Insert the strategy that holds from now on; return its version."""
    made: int = db.execute(
        insert(worker_strategy)
        .values(
            document=dict(document),
            user_name=storable(user_name, 64),
            note=None if note is None else storable(note, 255),
        )
        .returning(worker_strategy.c.version)
    ).scalar_one()
    return made
