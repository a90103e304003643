"""The first page: runs that need somebody now, those that go on, those that ended last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import Response

from api.console.looks import of_run
from api.console.rendering import rendered
from api.console.table import Visit, page
from api.policy import LIST
from common.clock import SystemClock
from common.model.states import LIVE_PROCESS_STATES, ProcessState
from common.store.people.views import ProcessInstanceView
from operations.documents.instances import instance_row
from operations.instances import list_instances
from operations.proposals import waiting_for_me

_MOST: Final = 100
_SHOWN: Final = 12
_clock = SystemClock()


def show(visit: Visit) -> Response:
    """Show the overview."""
    session, now = visit.session, _clock.now()
    live = list_instances(session, states=[each.name for each in LIVE_PROCESS_STATES], limit=_MOST)
    newest = list_instances(session, limit=_MOST)

    def rows(found: Sequence[ProcessInstanceView]) -> list[tuple[dict[str, object], object]]:
        return [
            (instance_row(each, now=now), of_run(each.state, each.wanted_state)) for each in found
        ]

    return rendered(
        "overview.html",
        zone=session.zone,
        visit=visit,
        needing=rows(needing(newest)[:_SHOWN]),
        live=rows(live),
        most=_MOST,
        proposals=waiting_for_me(session, limit=_SHOWN),
        ended=rows([each for each in newest if each.end_time is not None][:_SHOWN]),
    )


def needing(newest: Sequence[ProcessInstanceView]) -> list[ProcessInstanceView]:
    """Return the failed runs without a later run of their definition, the newest first."""
    seen: set[int] = set()
    found = []
    for each in newest:
        if each.parent_task_instance_id:
            continue  # The run at the top tells it.
        if each.process_definition_id not in seen and each.state == ProcessState.FAILURE:
            found.append(each)
        seen.add(each.process_definition_id)
    return found


PAGES: Final = (page("/", LIST, show),)
