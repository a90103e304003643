"""The matrix of grants: shared objects of a kind by projects, for administrators."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from fastapi import Response
from fastapi.responses import RedirectResponse

from api import cursors
from api.console.rendering import rendered
from api.console.table import Serve, Visit, order, page, unknown
from api.marking import marked
from api.policy import BASE, POLICIES
from common.model.grants import KINDS, GrantKind
from operations import grants
from operations.documents.grants import grants_row
from operations.errors import UsageError
from operations.projects import project_page

_OBJECTS: Final = 50
_PROJECTS: Final = 12
_TITLES: Final = {
    GrantKind.TENANT: marked("Tenants"),
    GrantKind.DATASOURCE: marked("Data sources"),
    GrantKind.ENVIRONMENT: marked("Environments"),
    GrantKind.POOL: marked("Pools"),
    GrantKind.WORKER_GROUP: marked("Worker groups"),
}
_PLACE: Final = ("kind", "after", "projects")
"""The query parameters that forms repeat to return to the same part of the matrix."""


def show(visit: Visit) -> Response:
    """Show a part of a kind's matrix, with a button in each cell."""
    query, kind = visit.query, _kind(visit, visit.query.get("kind", GrantKind.TENANT.word))
    found = grants.list_grants(
        visit.session,
        kind,
        after=cursors.read("grants", query.get("after")) or 0,
        limit=_OBJECTS,
    )
    projects = project_page(
        visit.session,
        after=cursors.read("projects", query.get("projects")) or 0,
        limit=_PROJECTS,
    )
    rows = [(grants_row(each), {one.id for one in each.projects}) for each in found]
    place = {name: query[name] for name in _PLACE if name in query}
    return rendered(
        "grants.html",
        zone=visit.session.zone,
        visit=visit,
        kinds=[(each.word, title) for each, title in _TITLES.items()],
        kind=kind.word,
        rows=rows,
        projects=projects,
        place=place,
        next=cursors.next_of("grants", [each.object.id for each in found], _OBJECTS),
        next_projects=cursors.next_of("projects", [each.id for each in projects], _PROJECTS),
    )


def _changing(*, gives: bool) -> Serve:
    """Build the handler of a cell's button; it redirects to the same part of the matrix."""

    def serve(visit: Visit) -> Response:
        form = visit.form
        kind = _kind(visit, form.get("kind", ""))
        change = grants.grant if gives else grants.revoke
        change(visit.session, kind, _number(visit, "object"), _number(visit, "project"))
        place = {name: form[name] for name in _PLACE if form.get(name)}
        return RedirectResponse(f"/grants?{urlencode(place)}", status_code=303)

    return serve


def _kind(visit: Visit, word: str) -> GrantKind:
    found = KINDS.get(word)
    if found is None:
        raise unknown(visit, "kind", word, KINDS)
    return found


def _number(visit: Visit, field: str) -> int:
    text = visit.form.get(field, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise UsageError(field, visit.said("%(text)s is no number", text=f"{text!r:.50}"))
    return int(text)


PAGES: Final = (
    page("/grants", POLICIES[f"GET {BASE}/grants"], show),
    order("/grants/grant", POLICIES[f"POST {BASE}/grants"], _changing(gives=True)),
    order("/grants/revoke", POLICIES[f"POST {BASE}/grants/revoke"], _changing(gives=False)),
)
