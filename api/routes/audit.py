"""The audit, listed."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from fastapi import Query

from api import cursors
from api.asking import Asked
from api.cursors import LARGEST_BIG_ID, After, Limit
from api.people_answers import AuditPage
from api.route import Route, get
from operations.audits import list_audit
from operations.documents.audits import audit_row

_Word: TypeAlias = Annotated[str | None, Query(max_length=255)]
_Id: TypeAlias = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


def list_lines(
    session: Asked,
    *,
    user: _Word = None,
    action: Annotated[
        str | None,
        Query(max_length=64, description="A word, or one with its verb, as `definition.delete`."),
    ] = None,
    object_type: _Word = None,
    object_id: _Id = None,
    project_id: _Id = None,
    outcome: Annotated[
        str | None, Query(max_length=64, description="What was `done`, or `refused`.")
    ] = None,
    before: Annotated[
        int | None,
        Query(ge=1, le=LARGEST_BIG_ID, description="Only older lines than the one with this id."),
    ] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List what people have changed and ordered, and what was refused, the newest first."""
    found = list_audit(
        session,
        user=user,
        action=action,
        object_type=object_type,
        object_id=object_id,
        project_id=project_id,
        outcome=outcome,
        before=cursors.read("audit", after, largest=LARGEST_BIG_ID) or before,
        limit=limit,
    )
    return {
        "items": [audit_row(each) for each in found],
        "next": cursors.next_of("audit", [each.id for each in found], limit),
    }


ROUTES: Final[tuple[Route, ...]] = (get("/audit", list_lines, AuditPage),)
