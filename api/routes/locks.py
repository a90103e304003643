"""Locks on datasets: shown to whoever may see the tasks that hold them, or wait for them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query

from api.asking import Asked
from api.cluster_answers import LockList
from api.route import Route, get
from operations.documents.locks import held_row, waiting_row
from operations.locks import list_locks


def show_locks(
    session: Asked,
    dataset: Annotated[str | None, Query(max_length=1000, description="Of it alone.")] = None,
) -> dict[str, Any]:
    """List the locks of one moment: those held, then those waited for, by dataset and time."""
    found = list_locks(session, dataset=dataset)
    held = [held_row(each) for each in found.held]
    return {"items": [*held, *(waiting_row(each) for each in found.waiting)]}


ROUTES: Final[tuple[Route, ...]] = (get("/locks", show_locks, LockList),)
