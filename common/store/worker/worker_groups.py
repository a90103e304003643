"""Worker groups: names for people and workers, ids in the tables (contract §1.8)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine, insert, select, text

from common.store.tables import worker_group

_LOCK = "orcaflow worker groups"


def ensure_worker_groups(engine: Engine, groups: Sequence[str]) -> frozenset[int]:
    """Return the ids of these groups, given by name or by id; create groups that do not exist.

    A new group has no address. So a worker may be started with a group before it exists, and two
    workers that start together create it once.
    """
    ids = frozenset(int(group) for group in groups if _is_id(group))
    names = [group for group in groups if not _is_id(group)]
    if not names:
        return ids
    with engine.begin() as db:
        db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _LOCK})
        known = {
            row.name: row.id
            for row in db.execute(
                select(worker_group.c.id, worker_group.c.name).where(worker_group.c.name.in_(names))
            )
        }
        for name in names:
            if name not in known:
                known[name] = db.execute(
                    insert(worker_group).values(name=name).returning(worker_group.c.id)
                ).scalar_one()
    return ids | frozenset(known.values())


def _is_id(group: str) -> bool:
    return group.isascii() and group.isdecimal()
