"""The list of definitions, and one of them with its graph and its last runs."""

from __future__ import annotations

from typing import Final

from fastapi import Response

from api import cursors
from api.console.graph import BOX, Graph, Task, graph_of
from api.console.looks import of_run
from api.console.rendering import rendered
from api.console.table import Visit, page
from api.policy import LIST, Policy
from common.clock import SystemClock
from common.dag import build_dag
from common.model.rights import Action
from operations.definitions import definition_detail, definition_page
from operations.documents.instances import instance_row
from operations.instances import list_instances

_LIMIT: Final = 50
_RUNS: Final = 25
_clock = SystemClock()


def show_all(visit: Visit) -> Response:
    """Show a page of definitions; `name` is part of their names."""
    name = visit.query.get("name", "")
    found = definition_page(
        visit.session,
        name=name or None,
        after=cursors.read("definitions", visit.query.get("after")) or 0,
        limit=_LIMIT,
    )
    return rendered(
        "definitions.html",
        zone=visit.session.zone,
        visit=visit,
        rows=found,
        name=name,
        next=cursors.next_of("definitions", [each.id for each in found], _LIMIT),
    )


def show(visit: Visit) -> Response:
    """Show a definition."""
    detail = definition_detail(visit.session, visit.id)
    found = list_instances(visit.session, definition_id=visit.id, limit=_RUNS)
    now = _clock.now()
    graph = None
    if not detail.mistakes:
        dag = build_dag({each.name: each.upstream for each in detail.nodes})
        tasks = {each.name: Task(state=None, second=each.task_type) for each in detail.nodes}
        graph = graph_of(dag, tasks)
    return rendered(
        "definition.html",
        zone=visit.session.zone,
        visit=visit,
        definition=detail.row,
        execution_type=detail.execution_type.name,
        mistakes=detail.mistakes,
        nodes=detail.nodes,
        schedules=detail.schedules,
        graph=graph if isinstance(graph, Graph) else None,
        ranks=None if isinstance(graph, Graph) else graph,
        box=BOX,
        runs=[
            (instance_row(each, now=now), of_run(each.state, each.wanted_state)) for each in found
        ],
    )


PAGES: Final = (
    page("/definitions", LIST, show_all),
    page("/definitions/{id}", Policy(takes=Action.VIEW, thing="definition"), show),
)
