"""The living daemons, and the user who asks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from fastapi import Request

from api import cookies
from api.answers import Me, ServerList
from api.asking import Asked
from api.route import Route, get
from common.model.rights import role_of
from operations.documents.servers import member_row
from operations.documents.users import user_row
from operations.log_ins import csrf_token
from operations.members import members_with_health
from operations.users import own_detail

PATIENCE = timedelta(seconds=3)
"""ZooKeeper counts as away if it does not answer for so long."""


def show_me(session: Asked, request: Request) -> dict[str, Any]:
    """Show the user who asks, with the roles in projects and the limits of the token."""
    principal = session.principal
    return {
        **user_row(own_detail(session)),
        "token_role": role_of(principal.scope),
        "token_projects": None if principal.projects is None else list(principal.projects),
        "csrf_token": None
        if principal.session_hash is None
        else csrf_token(cookies.session_text(request) or ""),
        "time_zone": session.zone.key,
    }


def list_servers(session: Asked) -> dict[str, Any]:
    """List the living masters and workers."""
    found = members_with_health(session, patience=PATIENCE)
    return {"items": [member_row(each) for each in found]}


ROUTES: Final[tuple[Route, ...]] = (
    get("/me", show_me, Me),
    get("/servers", list_servers, ServerList),
)
