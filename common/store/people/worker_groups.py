"""Worker groups and tenants by their names, and worker groups made for an import."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, insert, select, text

from common.store.tables import tenant, worker_group

# The same as that of workers which make the groups that they serve.
_GROUP_LOCK = "orcaflow worker groups"


def worker_group_id(db: Connection, name: str) -> int | None:
    """Return the id of the group with this name; the oldest, should there be several."""
    found: int | None = db.scalar(
        select(worker_group.c.id)
        .where(worker_group.c.name == name)
        .order_by(worker_group.c.id)
        .limit(1)
    )
    return found


def worker_group_names(db: Connection) -> list[str]:
    return [row.name for row in db.execute(select(worker_group.c.name).order_by(worker_group.c.id))]


def worker_groups(db: Connection) -> dict[int, str]:
    """Return the names of all worker groups, by id."""
    return {
        row.id: row.name
        for row in db.execute(
            select(worker_group.c.id, worker_group.c.name).order_by(worker_group.c.id)
        )
    }


def make_worker_group(db: Connection, name: str) -> int:
    """Create a group without any address; workers started with its name serve it."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _GROUP_LOCK})
    known = worker_group_id(db, name)
    if known is not None:
        return known
    made: int = db.execute(
        insert(worker_group).values(name=name).returning(worker_group.c.id)
    ).scalar_one()
    return made


def tenant_ids(db: Connection, codes: Collection[str]) -> dict[str, int]:
    """Return the ids of these tenants; the oldest, should a code stand twice."""
    rows = db.execute(
        select(tenant.c.tenant_code, tenant.c.id)
        .where(tenant.c.tenant_code.in_(codes))
        .order_by(tenant.c.id.desc())
    )
    return {row.tenant_code: row.id for row in rows}
