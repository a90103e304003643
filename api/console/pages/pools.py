"""A pool: its holders, those that wait, and the orders to make, resize and remove one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from api.console.rendering import rendered
from api.console.table import Visit, order, page
from api.policy import AUTHOR, Policy, Who
from common.errors import NotAllowedError, NotFoundError
from common.model.rights import Action
from common.store.people.pools import PoolUse
from operations import pools
from operations.documents.pools import pool_row, pool_use_row
from operations.errors import ChangedMeanwhileError, ForbiddenError, UsageError
from operations.limits import (
    MAX_POOL_DESCRIPTION_LENGTH,
    MAX_POOL_NAME_LENGTH,
    MAX_POOL_SIZE,
)
from operations.projects import projects_of_author

_VIEW: Final = Policy(takes=Action.VIEW, thing="pool")
_OWN: Final = Policy(takes=Who.ADMINISTRATOR, thing="pool", own=True)
_LONGEST_PROJECT: Final = 1000
"""The longest name of a project; old rows may have longer names than new ones."""
_LIMITS: Final = {
    "name": MAX_POOL_NAME_LENGTH,
    "description": MAX_POOL_DESCRIPTION_LENGTH,
    "size": MAX_POOL_SIZE,
    "project": _LONGEST_PROJECT,
}
_PROJECTS: Final = 50
"""The number of projects that the form suggests; users can type any other one."""


def show(visit: Visit) -> Response:
    """Show a pool with those of its holders and waiters that the visitor may see."""
    return _show(visit)


def show_new(visit: Visit) -> Response:
    """Show the form of a new pool."""
    pools.check_maker(visit.session)
    return _new(visit)


def make(visit: Visit) -> Response:
    """Make a pool, once for each form that was shown."""
    form = visit.form
    try:
        made = pools.create_pool(
            visit.session,
            form.get("name", ""),
            size=_size(visit),
            description=form.get("description") or None,
            projects=[form["project"]] if form.get("project") else (),
            once=visit.once("pool"),
        )
    except ForbiddenError:
        raise
    except UsageError as error:
        pools.check_maker(visit.session)
        return _new(visit, mistakes={error.field or "": error.message}, status=422)
    except NotFoundError as error:
        return _new(visit, mistakes={"project": str(error)}, status=422)
    except NotAllowedError as error:
        return _new(visit, mistakes={"name": str(error)}, status=409)
    return RedirectResponse(f"/pools/{made}", status_code=303)


def resize(visit: Visit) -> Response:
    """Give a pool another size, if it is still as it was shown."""
    try:
        pools.resize_pool(visit.session, visit.id, size=_size(visit), expected=_tag(visit))
    except UsageError as error:
        return _show(visit, mistake=error.message, status=422)
    except ChangedMeanwhileError:
        return _show(visit, is_late=True, status=409)
    return RedirectResponse(f"/pools/{visit.id}", status_code=303)


def remove(visit: Visit) -> Response:
    """Remove a pool that nobody uses, if it is still as it was shown."""
    try:
        pools.remove_pool(visit.session, visit.id, expected=_tag(visit))
    except ChangedMeanwhileError:
        return _show(visit, is_late=True, status=409)
    return RedirectResponse("/pools", status_code=303)


def _show(
    visit: Visit, *, mistake: str | None = None, is_late: bool = False, status: int = 200
) -> Response:
    session = visit.session
    pool = pools.pool_given(session, visit.id)
    holders, waiters = (
        [(pool_use_row(each), each.ahead) for each in _users(pool.users, holds=holds)]
        for holds in (True, False)
    )
    return rendered(
        "pool.html",
        zone=session.zone,
        visit=visit,
        status=status,
        pool=pool_row(pool),
        holders=holders,
        waiters=waiters,
        hidden=max(0, pool.waiting - len(waiters)),
        may_change=pools.may_change(session, pool),
        size=visit.form.get("size", str(pool.size)),
        # As a condition names it.
        tag=f'"{pools.pool_tag(pool)}"',
        mistake=mistake,
        is_late=is_late,
    )


def _users(users: tuple[PoolUse, ...], *, holds: bool) -> list[PoolUse]:
    return [each for each in users if each.holds is holds]


def _new(visit: Visit, *, mistakes: Mapping[str, str] | None = None, status: int = 200) -> Response:
    return rendered(
        "pool_new.html",
        zone=visit.session.zone,
        visit=visit,
        status=status,
        given=visit.form,
        mistakes=mistakes or {},
        limits=_LIMITS,
        projects=[each.name for each in projects_of_author(visit.session, limit=_PROJECTS)],
        once=visit.form.get("once") or secrets.token_hex(16),
    )


def _size(visit: Visit) -> int:
    text = visit.form.get("size", "").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise UsageError("size", visit.said("%(text)s is no number", text=f"{text!r:.50}"))
    return int(text)


def _tag(visit: Visit) -> str:
    tag = visit.form.get("tag")
    if not tag:
        raise UsageError("tag", visit.said("is missing: load the page again"))
    return tag


PAGES: Final = (
    page("/pools/new", AUTHOR, show_new),
    order("/pools/new", AUTHOR, make),
    page("/pools/{id}", _VIEW, show),
    order("/pools/{id}/resize", _OWN, resize),
    order("/pools/{id}/remove", _OWN, remove),
)
