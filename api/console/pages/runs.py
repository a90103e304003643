"""The list of runs, the newest first."""

from __future__ import annotations

from typing import Final

from fastapi import Response

from api import cursors
from api.console.looks import RUNS, of_run
from api.console.rendering import rendered
from api.console.table import Visit, page
from api.policy import LIST
from common.clock import SystemClock
from common.model.states import ProcessState
from operations.documents.instances import instance_row
from operations.instances import list_instances

_LIMIT: Final = 50
_clock = SystemClock()


def show(visit: Visit) -> Response:
    """Show a page of runs; `state` and `definition` choose among them."""
    state = visit.query.get("state", "")
    definition = visit.query.get("definition", "")
    found = list_instances(
        visit.session,
        definition=definition or None,
        states=[state] if state else (),
        limit=_LIMIT,
        before=cursors.read("instances", visit.query.get("after")),
    )
    now = _clock.now()
    return rendered(
        "runs.html",
        zone=visit.session.zone,
        visit=visit,
        rows=[
            (instance_row(each, now=now), of_run(each.state, each.wanted_state)) for each in found
        ],
        state=state,
        definition=definition,
        states=[(ProcessState(each).name, look.word) for each, look in RUNS.items()],
        next=cursors.next_of("instances", [each.id for each in found], _LIMIT),
    )


PAGES: Final = (page("/runs", LIST, show),)
