"""The first page: what needs a person now, the runs that are live, those that ended last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import Response

from api.console.looks import Look, of_run
from api.console.rendering import rendered
from api.console.table import Visit, page
from api.marking import marked
from api.policy import LIST
from common.clock import SystemClock
from common.model.concerns import Concern, ConcernKind
from common.model.states import LIVE_PROCESS_STATES
from common.store.people.views import ProcessInstanceView
from operations.documents.instances import instance_row
from operations.instances import list_instances
from operations.overview import overview
from operations.proposals import waiting_for_me

_MOST: Final = 100
_SHOWN: Final = 12
_clock = SystemClock()
_FAILED, _PAUSED, _LATE = "failure", "paused", "late"
_LOOKS: Final[Mapping[ConcernKind, tuple[Look, str | None]]] = {
    ConcernKind.NO_MASTER: (
        Look(marked("commands wait for a master"), _LATE, _LATE),
        "/cluster",
    ),
    ConcernKind.MISSING_WORKER: (
        Look(marked("worker does not report"), _FAILED, _FAILED),
        "/cluster",
    ),
    ConcernKind.FAILED_RUN: (Look(marked("last run failed"), _FAILED, _FAILED), "/runs/{id}"),
    ConcernKind.FAILED_DATES: (
        Look(marked("dates of a complement failed"), _FAILED, _FAILED),
        "/complements/{id}",
    ),
    ConcernKind.PAUSED_RUN: (Look(marked("run is paused"), _PAUSED, _PAUSED), "/runs/{id}"),
    ConcernKind.UNHEALTHY_SUPERVISOR: (
        Look(marked("supervisor is unhealthy"), _FAILED, _FAILED),
        "/streams/{name}",
    ),
    ConcernKind.TROUBLED_TOPOLOGY: (
        Look(marked("topology has trouble"), _FAILED, _FAILED),
        "/topologies/{name}",
    ),
    ConcernKind.REFUSED_COMMAND: (Look(marked("command was refused"), _FAILED, _FAILED), None),
    ConcernKind.MISSED_FIRES: (Look(marked("fires were missed"), _LATE, _LATE), "/schedules/{id}"),
    ConcernKind.FAULTY_SCHEDULE: (
        Look(marked("schedule can't fire"), _FAILED, _FAILED),
        "/schedules/{id}",
    ),
}
"""The look of each kind, and the page about its object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A concern with its look and the page about it."""

    concern: Concern
    look: Look
    link: str | None
    subject: str


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
        # A function, since a browser that has the other parts does not need it.
        needing=lambda: [shown(each) for each in overview(session, limit=_MOST)],
        live=rows(live),
        most=_MOST,
        proposals=waiting_for_me(session, limit=_SHOWN),
        ended=rows([each for each in newest if each.end_time is not None][:_SHOWN]),
    )


def shown(concern: Concern) -> Shown:
    """Give a concern its look and its page."""
    look, link = _LOOKS[concern.kind]
    return Shown(
        concern=concern,
        look=look,
        link=None if link is None else link.format(id=concern.id, name=concern.name),
        subject=concern.name or ("" if concern.id is None else str(concern.id)),
    )


PAGES: Final = (page("/", LIST, show),)
