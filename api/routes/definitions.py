"""Definitions: listed, shown, and released."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query

from api import cursors
from api.answers import DefinitionDetail, DefinitionPage, Released
from api.asking import Asked
from api.cursors import After, Limit
from api.route import Id, Route, get, post
from common.model.states import ReleaseState
from operations.definitions import definition_detail, definition_page, release
from operations.documents.definitions import definition_row, node_row, released_row
from operations.documents.schedules import schedule_row
from operations.session import Session


def list_definitions(
    session: Asked,
    name: Annotated[str | None, Query(max_length=255)] = None,
    project_id: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Limit = 50,
    after: After = None,
) -> dict[str, Any]:
    """List the definitions that you may see, by id."""
    found = definition_page(
        session,
        name=name,
        project_id=project_id,
        after=cursors.read("definitions", after) or 0,
        limit=limit,
    )
    rows = [definition_row(each) for each in found]
    return {
        "items": rows,
        "next": cursors.next_of("definitions", [each.id for each in found], limit),
    }


def show_definition(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show a definition with its tasks, its schedules, and its mistakes if it can't run."""
    found = definition_detail(session, id)
    return {
        **definition_row(found.row),
        "execution_type": found.execution_type.name,
        "tasks": [node_row(each) for each in found.nodes],
        "schedules": [schedule_row(each, zone=found.zone) for each in found.schedules],
        "mistakes": list(found.mistakes),
    }


def online(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Release a definition, so that it can run."""
    return _released(session, id, ReleaseState.ONLINE)


def offline(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Let no new run of a definition begin, and set its schedules OFFLINE; what runs goes on."""
    return _released(session, id, ReleaseState.OFFLINE)


def _released(session: Session, number: int, wanted: ReleaseState) -> dict[str, Any]:
    (found,) = release(session, [number], wanted)
    return released_row(found)


ROUTES: Final[tuple[Route, ...]] = (
    get("/definitions", list_definitions, DefinitionPage),
    get("/definitions/{id}", show_definition, DefinitionDetail),
    post("/definitions/{id}/online", online, Released),
    post("/definitions/{id}/offline", offline, Released),
)
