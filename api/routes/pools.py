"""Pools: shown to members of projects that may use them, changed by makers and administrators."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Response

from api import cursors
from api.asking import Asked, Condition, needed
from api.cluster_answers import NewPool, Pool, PoolChange, PoolDetail, PoolPage, RemovedPool
from api.cursors import After, Limit
from api.policy import BASE
from api.repeating import IdempotencyKey, once_of
from api.route import Id, Route, delete, get, patch, post
from common.store.people.pools import PoolView
from operations import pools as operations
from operations.documents.pools import pool_row, pool_use_row


def list_pools(
    session: Asked,
    name: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the pools by id, or the one of this name, with the number of slots that are taken."""
    found = operations.list_pools(
        session, name=name, after=cursors.read("pools", after) or 0, limit=limit
    )
    return {
        "items": [pool_row(each) for each in found],
        "next": cursors.next_of("pools", [each.id for each in found], limit),
    }


def show_pool(id: Id, session: Asked, response: Response) -> dict[str, Any]:  # noqa: A002
    """Show a pool with those of its holders and waiters that you may see."""
    pool = operations.pool_given(session, id)
    return {
        **_tagged(pool, response),
        "holders": [pool_use_row(each) for each in pool.users if each.holds],
        "waiters": [pool_use_row(each) for each in pool.users if not each.holds],
    }


def create_pool(
    given: NewPool,
    session: Asked,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Make a pool, as an author of any project; a name that is taken is a 409."""
    made = operations.create_pool(
        session,
        given.name,
        size=given.size,
        description=given.description,
        projects=given.projects,
        once=once_of(idempotency_key, "pool", given),
    )
    response.headers["Location"] = f"{BASE}/pools/{made}"
    return _tagged(operations.pool_given(session, made), response)


def resize_pool(
    id: Id,  # noqa: A002  # The path's name.
    given: PoolChange,
    session: Asked,
    response: Response,
    condition: Condition = None,
) -> dict[str, Any]:
    """Give a pool that is as you have read it another size; holders of its slots go on."""
    pool = operations.resize_pool(session, id, size=given.size, expected=needed(condition))
    return _tagged(pool, response)


def remove_pool(id: Id, session: Asked, condition: Condition = None) -> dict[str, Any]:  # noqa: A002
    """Remove a pool that is as you have read it and that no attempt uses."""
    gone = operations.remove_pool(session, id, expected=needed(condition))
    return {**pool_row(gone), "removed": True}


def _tagged(pool: PoolView, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{operations.pool_tag(pool)}"'
    return pool_row(pool)


ROUTES: Final[tuple[Route, ...]] = (
    get("/pools", list_pools, PoolPage),
    post("/pools", create_pool, Pool, status=201),
    get("/pools/{id}", show_pool, PoolDetail),
    patch("/pools/{id}", resize_pool, Pool, is_conditional=True),
    delete("/pools/{id}", remove_pool, RemovedPool, is_conditional=True),
)
