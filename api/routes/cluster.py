"""The living daemons, and the user of the token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from api.answers import Me, ServerList
from api.asking import Asked
from api.route import Route, get
from common.model.rights import role_of
from operations.documents.servers import member_row
from operations.documents.users import user_row
from operations.members import members_with_health
from operations.session import zone_of
from operations.users import own_detail

PATIENCE = timedelta(seconds=3)
"""ZooKeeper counts as away if it does not answer for so long."""


def show_me(session: Asked) -> dict[str, Any]:
    """Show the user of the token, with the roles in projects and the limits of the token."""
    principal = session.principal
    return {
        **user_row(own_detail(session)),
        "token_role": role_of(principal.scope),
        "token_projects": None if principal.projects is None else list(principal.projects),
    }


def list_servers(session: Asked) -> dict[str, Any]:
    """List the living masters and workers."""
    zone = zone_of(session.config)
    found = members_with_health(session.config, zone=zone, patience=PATIENCE)
    return {"items": [member_row(each) for each in found]}


ROUTES: Final[tuple[Route, ...]] = (
    get("/me", show_me, Me),
    get("/servers", list_servers, ServerList),
)
