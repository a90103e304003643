"""Worker groups, listed, made and deleted by people and imports; tenants by their codes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, text

from common.model.grants import GrantKind
from common.model.rights import Principal
from common.store.people.grants import is_shown
from common.store.tables import tenant, worker_group

# The same as that of workers which make the groups that they serve.
_GROUP_LOCK = "orcaflow worker groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroupView:
    """A worker group; any worker of one of the hosts in `addresses` serves it."""

    id: int
    name: str
    addresses: tuple[str, ...]
    create_time: datetime


def list_worker_groups(
    db: Connection,
    *,
    seen_by: Principal | None = None,
    name: str | None = None,
    group_id: int | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[WorkerGroupView]:
    """List groups by id, those behind an id, those of this name, or the one with this id."""
    statement = (
        select(
            worker_group.c.id,
            worker_group.c.name,
            worker_group.c.ip_list,
            worker_group.c.create_time,
        )
        .where(worker_group.c.id > after)
        .where(is_shown(GrantKind.WORKER_GROUP, seen_by))
        .order_by(worker_group.c.id)
        .limit(limit)
    )
    if group_id is not None:
        statement = statement.where(worker_group.c.id == group_id)
    if name is not None:
        statement = statement.where(worker_group.c.name == name)
    return [
        WorkerGroupView(
            id=row.id,
            name=row.name,
            addresses=tuple(
                each.strip() for each in (row.ip_list or "").split(",") if each.strip()
            ),
            create_time=row.create_time,
        )
        for row in db.execute(statement)
    ]


def lock_worker_groups(db: Connection) -> None:
    """Serialize changes of groups: no key keeps a name from standing twice."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _GROUP_LOCK})


def create_worker_group(db: Connection, name: str, *, addresses: Collection[str]) -> int:
    """Insert a group; return its id. The caller has looked, under the lock, that there is none."""
    made: int = db.execute(
        insert(worker_group)
        .values(name=name, ip_list=",".join(addresses) or None)
        .returning(worker_group.c.id)
    ).scalar_one()
    return made


def delete_worker_group(db: Connection, group_id: int) -> bool:
    """Delete a group; False if it is gone already."""
    return db.execute(delete(worker_group).where(worker_group.c.id == group_id)).rowcount == 1


def worker_group_id(db: Connection, name: str) -> int | None:
    """Return the id of the group with this name; the oldest, should there be several."""
    found: int | None = db.scalar(
        select(worker_group.c.id)
        .where(worker_group.c.name == name)
        .order_by(worker_group.c.id)
        .limit(1)
    )
    return found


def worker_group_names(db: Connection, *, seen_by: Principal | None = None) -> list[str]:
    """Return the names of all worker groups, or only of visible ones, in order of id."""
    shown = is_shown(GrantKind.WORKER_GROUP, seen_by)
    return list(db.scalars(select(worker_group.c.name).where(shown).order_by(worker_group.c.id)))


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
    lock_worker_groups(db)
    known = worker_group_id(db, name)
    if known is not None:
        return known
    return create_worker_group(db, name, addresses=())


def tenant_ids(db: Connection, codes: Collection[str]) -> dict[str, int]:
    """Return the ids of these tenants; the oldest, should a code stand twice."""
    rows = db.execute(
        select(tenant.c.tenant_code, tenant.c.id)
        .where(tenant.c.tenant_code.in_(codes))
        .order_by(tenant.c.id.desc())
    )
    return {row.tenant_code: row.id for row in rows}
