"""A data source: its address, never its password; the definitions that use it; a try of it."""

from __future__ import annotations

from typing import Final

from fastapi import Response

from api.console.rendering import rendered
from api.console.table import Visit, order, page
from api.policy import BASE, POLICIES
from common.datasource_keys import DatasourceKeyError
from common.errors import ServiceUnreachableError
from operations.datasource_params import DatasourceError
from operations.datasources import (
    DatasourceAnswer,
    datasource_with_id,
    try_datasource,
    users_of_datasource,
)
from operations.documents.datasources import datasource_row

_PATIENCE_SECONDS: Final = 4
_OF: Final = f"{BASE}/datasources/{{id}}"


def show(visit: Visit) -> Response:
    """Show a data source."""
    return _shown(visit)


def test(visit: Visit) -> Response:
    """Connect to it from this server, and show what it answers."""
    try:
        answer = try_datasource(visit.session, visit.id, patience_seconds=_PATIENCE_SECONDS)
    except (ServiceUnreachableError, DatasourceError, DatasourceKeyError) as error:
        return _shown(visit, trouble=str(error))
    return _shown(visit, answer=answer)


def _shown(
    visit: Visit, *, answer: DatasourceAnswer | None = None, trouble: str | None = None
) -> Response:
    row = datasource_row(datasource_with_id(visit.session, visit.id))
    return rendered(
        "datasource.html",
        zone=visit.session.zone,
        visit=visit,
        datasource=row,
        users=users_of_datasource(visit.session, visit.id),
        answer=answer,
        trouble=trouble,
    )


PAGES: Final = (
    page("/datasources/{id}", POLICIES[f"GET {_OF}"], show),
    order("/datasources/{id}/test", POLICIES[f"POST {_OF}/test"], test),
)
