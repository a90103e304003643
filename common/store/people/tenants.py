"""Tenants (`t_ds_tenant`) and their queues: listed, made and deleted by people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, text

from common.model.grants import GrantKind
from common.model.rights import Principal
from common.store.people.grants import is_shown
from common.store.tables import queue, tenant

_TENANT_LOCK = "orcaflow tenants"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """A tenant: the account of an operating system, with the YARN queue of its tasks."""

    id: int
    code: str
    name: str | None
    description: str | None
    queue_id: int
    queue: str | None
    create_time: datetime


def tenants(
    db: Connection,
    *,
    seen_by: Principal | None = None,
    code: str | None = None,
    tenant_id: int | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[TenantView]:
    """List tenants by id, those behind an id, those with this code, or the one with this id."""
    statement = (
        select(
            tenant.c.id,
            tenant.c.tenant_code,
            tenant.c.tenant_name,
            tenant.c.description,
            tenant.c.queue_id,
            queue.c.queue,
            tenant.c.create_time,
        )
        .outerjoin_from(tenant, queue, queue.c.id == tenant.c.queue_id)
        .where(tenant.c.id > after)
        .where(is_shown(GrantKind.TENANT, seen_by))
        .order_by(tenant.c.id)
        .limit(limit)
    )
    if tenant_id is not None:
        statement = statement.where(tenant.c.id == tenant_id)
    if code is not None:
        statement = statement.where(tenant.c.tenant_code == code)
    return [
        TenantView(
            id=row.id,
            code=row.tenant_code,
            name=row.tenant_name,
            description=row.description,
            queue_id=row.queue_id,
            queue=row.queue,
            create_time=row.create_time,
        )
        for row in db.execute(statement)
    ]


def lock_tenants(db: Connection) -> None:
    """Serialize changes of tenants: no key keeps a code from standing twice."""
    db.execute(text("SELECT pg_advisory_xact_lock(hashtext(:lock))"), {"lock": _TENANT_LOCK})


def create_tenant(db: Connection, code: str, *, queue_id: int, description: str | None) -> int:
    """Insert a tenant; return its id. The caller has looked, under the lock, that there is none."""
    made: int = db.execute(
        insert(tenant)
        .values(tenant_code=code, tenant_name=code, queue_id=queue_id, description=description)
        .returning(tenant.c.id)
    ).scalar_one()
    return made


def queue_named(db: Connection, name: str) -> int:
    """Return the id of the YARN queue, under the lock; one that is not known yet is made."""
    known: int | None = db.scalar(
        select(queue.c.id).where(queue.c.queue == name).order_by(queue.c.id).limit(1)
    )
    if known is not None:
        return known
    made: int = db.execute(
        insert(queue).values(queue_name=name, queue=name).returning(queue.c.id)
    ).scalar_one()
    return made


def delete_tenant(db: Connection, tenant_id: int) -> bool:
    """Delete a tenant; False if it is gone already."""
    return db.execute(delete(tenant).where(tenant.c.id == tenant_id)).rowcount == 1
