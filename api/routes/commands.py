"""Commands: listed with their outcomes, shown, and explained while they wait."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query

from api.answers import CauseList, Command, CommandList
from api.asking import Asked
from api.cursors import Limit
from api.route import Id, Route, get
from operations.commands import command_with_id
from operations.commands import list_commands as listed
from operations.documents.causes import cause_rows
from operations.documents.commands import command_row
from operations.explaining import causes_of_command


def list_commands(
    session: Asked,
    outcome: Annotated[list[str] | None, Query(max_length=4)] = None,
    definition: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Limit = 50,
) -> dict[str, Any]:
    """List the newest commands that you may see, with one of the outcomes."""
    found = listed(session, outcomes=outcome or (), definition=definition, limit=limit)
    return {"items": [command_row(each) for each in found]}


def show_command(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show a command with its outcome."""
    return command_row(command_with_id(session, id))


def explain_command(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Explain why a command still waits."""
    return {"items": cause_rows(causes_of_command(session, id))}


ROUTES: Final[tuple[Route, ...]] = (
    get("/commands", list_commands, CommandList, is_quick=True),
    get("/commands/{id}", show_command, Command, is_quick=True),
    get("/commands/{id}/why", explain_command, CauseList),
)
