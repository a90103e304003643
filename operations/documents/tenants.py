"""Tenants as documents: the fields of `orcaflow tenant … -o json`."""

from __future__ import annotations

from common.store.people.tenants import TenantView


def tenant_row(view: TenantView) -> dict[str, object]:
    """A tenant; `code` is the name of its account, `queue` that of YARN."""
    return {
        "id": view.id,
        "code": view.code,
        "queue": view.queue,
        "queue_id": view.queue_id,
        "description": view.description,
        "create_time": view.create_time,
    }
