"""The overview: what needs a person, in the projects that the user may see."""

from __future__ import annotations

from typing import Any, Final

from api.asking import Asked
from api.cluster_answers import Overview
from api.cursors import Limit
from api.route import Route, get
from operations.documents.overview import concern_row
from operations.overview import overview


def show_overview(session: Asked, limit: Limit = 50) -> dict[str, Any]:
    """List what needs a person, at most `limit` of each kind; `well` is true if nothing does."""
    found = [concern_row(each) for each in overview(session, limit=limit)]
    return {"well": not found, "items": found}


ROUTES: Final[tuple[Route, ...]] = (get("/overview", show_overview, Overview),)
