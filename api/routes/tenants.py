"""Tenants: shown to members of projects that may use them, created by administrators."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Response

from api import cursors
from api.asking import Asked, Condition, needed
from api.cluster_answers import DeletedTenant, MadeTenant, NewTenant, Tenant, TenantPage
from api.cursors import After, Limit
from api.policy import BASE
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, delete, get, post
from common.store.people.tenants import TenantView
from operations import tenants as operations
from operations.documents.tenants import tenant_row


def list_tenants(
    session: Asked,
    code: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the tenants by id, or the one of this code."""
    found = operations.list_tenants(
        session, code=code, after=cursors.read("tenants", after) or 0, limit=limit
    )
    return {
        "items": [tenant_row(each) for each in found],
        "next": cursors.next_of("tenants", [each.id for each in found], limit),
    }


def show_tenant(id: Id, session: Asked, response: Response) -> dict[str, Any]:  # noqa: A002
    """Show a tenant."""
    return _tagged(operations.tenant_with_id(session, id), response)


def create_tenant(
    given: NewTenant,
    session: Asked,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Make a tenant, whose account has to be there on the workers' hosts; it is not made."""
    made = operations.create_tenant(
        session,
        given.code,
        queue=given.queue,
        description=given.description,
        projects=given.projects,
        once=once_of(idempotency_key, "tenant", given),
    )
    response.headers["Location"] = f"{BASE}/tenants/{made.view.id}"
    return {**_tagged(made.view, response), "has_account": made.has_account}


def delete_tenant(id: Id, session: Asked, condition: Condition = None) -> dict[str, Any]:  # noqa: A002
    """Delete a tenant that is as you have read it and that nothing needs."""
    detached = operations.delete_tenant(session, id, expected=needed(condition))
    return {"id": id, "deleted": True, "instances": detached}


def _tagged(view: TenantView, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{operations.tenant_tag(view)}"'
    return tenant_row(view)


ROUTES: Final[tuple[Route, ...]] = (
    get("/tenants", list_tenants, TenantPage),
    post("/tenants", create_tenant, MadeTenant, status=201),
    get("/tenants/{id}", show_tenant, Tenant),
    delete("/tenants/{id}", delete_tenant, DeletedTenant, is_conditional=True),
)
