"""The list of definitions, and one of them with its graph and its last runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse

from api import cursors
from api.console.graph import BOX, Graph, Task, graph_of
from api.console.grid import BAR, CELL, Cell, Grid, Run, grid_of
from api.console.looks import of_run
from api.console.rendering import rendered
from api.console.table import Serve, Visit, order, page, unknown
from api.policy import AUTHOR, LIST, Policy
from common.clock import SystemClock
from common.dag import build_dag
from common.model.rights import Action
from common.model.states import ReleaseState
from common.store.people.rights import Thing
from common.store.people.views import ProcessInstanceView
from operations.definitions import (
    DefinitionDetail,
    definition_detail,
    definition_page,
    release,
)
from operations.documents.instances import instance_row
from operations.errors import UsageError
from operations.instances import cells_of, list_instances
from operations.projects import projects_of_author
from operations.rights import may
from operations.shares import share, shares, unshare

_LIMIT: Final = 50
_MOST_PROJECTS: Final = 500
_RUNS: Final = 25
_VIEWS: Final = ("grid", "graph", "runs", "schedules")
_MOST_LIVE: Final = 200
"""The tasks of a grid that is loaded again whenever something changes."""
_AUTHOR: Final = Policy(takes=Action.AUTHOR, thing="definition")
_ADMIN: Final = Policy(takes=Action.ADMIN, thing="definition")
_clock = SystemClock()


def show_all(visit: Visit) -> Response:
    """Show a page of definitions; `name` is part of their names, `project` an id."""
    name = visit.query.get("name", "")
    project = visit.query.get("project", "")
    if project and not (project.isascii() and project.isdigit() and len(project) < 10):
        raise UsageError(
            "project", visit.said("%(text)s is no number of a project", text=f"{project!r:.50}")
        )
    found = definition_page(
        visit.session,
        search=name or None,
        project_id=int(project) if project else None,
        after=cursors.read("definitions", visit.query.get("after")) or 0,
        limit=_LIMIT,
    )
    return rendered(
        "definitions.html",
        zone=visit.session.zone,
        visit=visit,
        rows=found,
        name=name,
        project=project,
        next=cursors.next_of("definitions", [each.id for each in found], _LIMIT),
    )


def show_projects(visit: Visit) -> Response:
    """Show the projects in which one may make a definition."""
    return rendered(
        "definition_choose.html",
        zone=visit.session.zone,
        visit=visit,
        projects=projects_of_author(visit.session, limit=_MOST_PROJECTS),
    )


def show(visit: Visit) -> Response:
    """Show a definition; `view` is one of its sides, `only=failed` the tasks that ever failed."""
    view = visit.query.get("view", "grid")
    if view not in _VIEWS:
        raise unknown(visit, "view", view, _VIEWS)
    detail = definition_detail(visit.session, visit.id, with_tag=False)
    before = cursors.read("instances", visit.query.get("after"))
    found = list_instances(visit.session, definition_id=visit.id, limit=_RUNS, before=before)
    now = _clock.now()
    dag = None
    if not detail.mistakes:
        dag = build_dag({each.name: each.upstream for each in detail.nodes})
    graph = None
    if view == "graph" and dag is not None:
        tasks = {each.name: Task(state=None, second=each.task_type) for each in detail.nodes}
        graph = graph_of(dag, tasks)
    names = dag.names if dag is not None else ()
    only = visit.query.get("only", "")
    grid = _grid(visit, names, found) if view == "grid" else None
    rows = () if grid is None else grid.rows
    return rendered(
        "definition.html",
        zone=visit.session.zone,
        visit=visit,
        view=view,
        verbs=_verbs(visit, detail),
        definition=detail.row,
        execution_type=detail.execution_type.name,
        mistakes=detail.mistakes,
        nodes=detail.nodes,
        schedules=detail.schedules,
        shares=shares(visit.session, visit.id),
        graph=graph if isinstance(graph, Graph) else None,
        ranks=None if isinstance(graph, Graph) else graph,
        box=BOX,
        grid=grid,
        cell=CELL,
        bar=BAR,
        only=only,
        shown=[each for each in rows if each.failures or only != "failed"],
        is_live=grid is not None and len(grid.rows) <= _MOST_LIVE,
        runs=[
            (instance_row(each, now=now), of_run(each.state, each.wanted_state)) for each in found
        ],
        next=cursors.next_of("instances", [each.id for each in found], _RUNS),
    )


def _verbs(visit: Visit, detail: DefinitionDetail) -> list[str]:
    is_online = detail.row.release_state is ReleaseState.ONLINE
    found = []
    if may(visit.session, Action.AUTHOR, Thing.DEFINITION, visit.id):
        found += ["offline" if is_online else "online", "edit", "schedule"]
    if is_online and may(visit.session, Action.OPERATE, Thing.DEFINITION, visit.id):
        found.append("run")
    if may(visit.session, Action.ADMIN, Thing.DEFINITION, visit.id):
        found.append("share")
    return found


def _share(visit: Visit) -> Response:
    """Share the definition with a project, by its name or id."""
    share(visit.session, visit.id, _project(visit))
    return RedirectResponse(f"/definitions/{visit.id}", status_code=303)


def _unshare(visit: Visit) -> Response:
    """End the share with a project, by its name or id."""
    unshare(visit.session, visit.id, _project(visit))
    return RedirectResponse(f"/definitions/{visit.id}", status_code=303)


def _project(visit: Visit) -> str | int:
    given = visit.form.get("project", "").strip()
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else given


def _released(wanted: ReleaseState) -> Serve:
    def serve(visit: Visit) -> Response:
        release(visit.session, [visit.id], wanted)
        return RedirectResponse(f"/definitions/{visit.id}", status_code=303)

    return serve


def _grid(visit: Visit, names: Sequence[str], found: Sequence[ProcessInstanceView]) -> Grid:
    runs = [
        Run(
            id=each.id,
            state=each.state,
            wanted_state=each.wanted_state,
            start_time=each.start_time,
            span=None if each.end_time is None else each.duration(each.end_time),
        )
        for each in found
    ]
    cells = cells_of(visit.session, visit.id, runs=[each.id for each in found])
    return grid_of(
        names,
        runs,
        {
            each.name: {
                run: Cell(state, seconds)
                for run, state, seconds in zip(each.runs, each.states, each.seconds, strict=True)
            }
            for each in cells
        },
    )


PAGES: Final = (
    page("/definitions", LIST, show_all),
    page("/definitions/new", AUTHOR, show_projects),
    page("/definitions/{id}", Policy(takes=Action.VIEW, thing="definition"), show),
    order("/definitions/{id}/online", _AUTHOR, _released(ReleaseState.ONLINE)),
    order("/definitions/{id}/share", _ADMIN, _share),
    order("/definitions/{id}/unshare", _ADMIN, _unshare),
    order("/definitions/{id}/offline", _AUTHOR, _released(ReleaseState.OFFLINE)),
)
