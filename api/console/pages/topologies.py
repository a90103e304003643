"""A topology: its graph, the figures of its components, its errors, and the orders to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from fastapi import Response
from fastapi.responses import RedirectResponse

from api.console.graph import BOX, Graph, Task, graph_of
from api.console.rendering import rendered
from api.console.table import Serve, Visit, order, page, unknown
from api.marking import marked
from api.policy import Policy
from common.dag import build_dag
from common.model.rights import Action
from common.model.states import TaskState
from common.model.topologies import WINDOWS, RunState, Status
from common.store.people.rights import Thing
from common.store.people.topologies import TopologyView
from operations.documents.topologies import error_rows, status_row, version_row
from operations.errors import UsageError
from operations.rights import may
from operations.topologies import (
    WAIT_SECONDS,
    activate_topology,
    deactivate_topology,
    kill_topology,
    rebalance_topology,
    topology_given,
    topology_history,
)
from operations.topology_views import is_live

_VIEW: Final = Policy(takes=Action.VIEW, thing="topology")
_OPERATE: Final = Policy(takes=Action.OPERATE, thing="topology")
_AUTHOR: Final = Policy(takes=Action.AUTHOR, thing="topology")
_WINDOW_NAMES: Final = {
    "600": marked("10 minutes"),
    "10800": marked("3 hours"),
    "86400": marked("1 day"),
    ":all-time": marked("all time"),
}
_FIRST: Final = "600"
_MOST_VERSIONS: Final = 20
_NUMBERS: Final = ("executors", "tasks")
assert _WINDOW_NAMES.keys() == WINDOWS.keys()


def show(visit: Visit) -> Response:
    """Show a topology; `window` is the time over which figures are counted."""
    session = visit.session
    window = visit.query.get("window", _FIRST)
    if window not in _WINDOW_NAMES:
        raise unknown(visit, "window", window, _WINDOW_NAMES)
    view = topology_given(session, visit.name)
    status = status_row(view, window)
    components: list[dict[str, Any]] = status["components"]  # type: ignore[assignment]  # Of rows.
    drawn = graph_of(
        build_dag({part.id: [each.component for each in part.inputs] for part in view.graph.parts}),
        _tasks(view, components),
    )
    uptime = status["uptime_seconds"]
    return rendered(
        "topology.html",
        zone=session.zone,
        visit=visit,
        topology=status,
        uptime=timedelta(seconds=uptime) if isinstance(uptime, float) else None,
        lag=sum(view.report.lag.values()) if view.report is not None else None,
        place=f"/topologies/{quote(view.name)}",
        graph=drawn if isinstance(drawn, Graph) else None,
        ranks=None if isinstance(drawn, Graph) else drawn,
        box=BOX,
        window=window,
        windows=_WINDOW_NAMES,
        components=components,
        errors=error_rows(view),
        versions=[version_row(each) for each in topology_history(session, view.name)][
            :_MOST_VERSIONS
        ],
        verbs=_verbs(visit, view),
        wait=view.wanted.wait_seconds,
    )


def _tasks(view: TopologyView, components: list[dict[str, Any]]) -> dict[str, Task]:
    runs = view.report is not None and view.report.state is RunState.RUNNING and is_live(view)
    state = int(TaskState.RUNNING) if runs else None
    return {
        each["component"]: Task(state=state, second=f"{each['kind']} · {each['tasks']}")
        for each in components
    }


def _verbs(visit: Visit, view: TopologyView) -> frozenset[str]:
    """Return the orders that may be given by the visitor, and now."""
    if view.wanted.killed:
        return frozenset()
    found = set()
    if may(visit.session, Action.OPERATE, Thing.PROJECT, view.project_id):
        is_active = view.wanted.active and is_live(view)
        found |= {"deactivate" if is_active else "activate", "rebalance"}
    if may(visit.session, Action.AUTHOR, Thing.PROJECT, view.project_id):
        found.add("kill")
    return frozenset(found)


def _ordered(give: Callable[[Visit], object]) -> Serve:
    def serve(visit: Visit) -> Response:
        give(visit)
        return RedirectResponse(f"/topologies/{quote(visit.name)}", status_code=303)

    return serve


def _rebalance(visit: Visit) -> None:
    """Change what differs from what runs, so that a form that is sent as it is changes nothing."""
    view = topology_given(visit.session, visit.name)
    rows: list[dict[str, Any]] = status_row(view, _FIRST)["components"]  # type: ignore[assignment]  # Of rows.
    changed: dict[str, dict[str, int]] = {}
    for what in _NUMBERS:
        given = {row["component"]: visit.form.get(f"{what}.{row['component']}") for row in rows}
        changed[what] = {
            row["component"]: number
            for row in rows
            if (number := _number(visit, what, given[row["component"]])) not in (None, row[what])
        }
    rebalance_topology(
        visit.session,
        visit.name,
        wait_seconds=_number(visit, "wait", visit.form.get("wait")) or 0,
        cores=_number(visit, "cores", visit.form.get("cores")),
        executors=changed["executors"],
        tasks=changed["tasks"],
    )


def _number(visit: Visit, field: str, text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise UsageError(field, visit.said("%(text)s is no number", text=f"{text!r:.50}"))
    return int(text)


def _kill(visit: Visit) -> None:
    wait = _number(visit, "wait", visit.form.get("wait"))
    kill_topology(visit.session, visit.name, wait_seconds=WAIT_SECONDS if wait is None else wait)


_ORDERS: Final[Mapping[str, tuple[Policy, Callable[[Visit], object]]]] = {
    "activate": (_OPERATE, lambda visit: activate_topology(visit.session, visit.name)),
    "deactivate": (_OPERATE, lambda visit: deactivate_topology(visit.session, visit.name)),
    "rebalance": (_OPERATE, _rebalance),
    "kill": (_AUTHOR, _kill),
}
STATUSES: Final = (
    *(marked("ACTIVE"), marked("INACTIVE"), marked("REBALANCING"), marked("KILLED")),
)
assert set(STATUSES) == {each.value for each in Status}
PAGES: Final = (
    page("/topologies/{name}", _VIEW, show),
    *(
        order(f"/topologies/{{name}}/{verb}", policy, _ordered(give))
        for verb, (policy, give) in _ORDERS.items()
    ),
)
