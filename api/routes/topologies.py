"""Topologies: Orcaflow's own pages, and the paths and shapes of Storm's UI REST API."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import Path, Query, Response

from api import cursors
from api.asking import Asked
from api.cursors import AfterName, Limit
from api.route import Route, get, post
from api.topology_answers import (
    NewTopology,
    Rebalance,
    StormComponent,
    StormSummaries,
    StormTopology,
    SubmittedTopologyAnswer,
    TopologyInFull,
    TopologyItemPage,
    TopologyOperation,
    TopologyVersionList,
)
from common.errors import NotFoundError
from common.model.topologies import DocumentError
from common.model.topology_code import read_code
from common.model.topology_graphs import TopologyGraph
from operations import topologies as operations
from operations.documents.storm_topologies import (
    component_page,
    page_row,
    summary_row,
    visualization,
)
from operations.documents.topologies import line_row, submitted_row, version_row, view_row
from operations.errors import UsageError
from operations.topologies import OrderedTopology
from operations.topology_submission import Submission
from operations.topology_submission import submit_topology as submit

Document = TypeVar("Document")
Name = Annotated[str, Path(max_length=255, description="The name of a topology.")]
Component = Annotated[str, Path(max_length=255, description="The id of a component.")]
WaitTime = Annotated[
    int, Path(ge=0, le=86_400, description="Seconds with the spouts off before it is done.")
]
Window = Annotated[
    Literal["600", "10800", "86400", ":all-time"],
    Query(description="The window of the figures, by Storm's names."),
]


def list_topologies(session: Asked, limit: Limit = 50, after: AfterName = None) -> dict[str, Any]:
    """List the topologies that you may see, by name; killed ones too."""
    after = cursors.read_name("topologies", after)
    found = operations.list_topologies(session, after=after, limit=limit)
    return {
        "items": [line_row(each) for each in found],
        "next": cursors.next_name("topologies", [each.name for each in found], limit),
    }


def show_in_full(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show a topology with its orders, its last report, its graph, its run and its attempt."""
    return view_row(operations.topology_given(session, id))


def list_topology_versions(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """List the versions of a topology, the newest first."""
    return {"items": [version_row(each) for each in operations.topology_history(session, id)]}


def submit_topology(given: NewTopology, session: Asked, response: Response) -> dict[str, Any]:
    """Make a topology (201), or give it another version; the same again changes nothing.

    The code is checked for names and sizes, and imported by no server.
    """
    submission = Submission(
        code=_read("code", read_code, given.code),
        graph=_read("graph", TopologyGraph.of, given.graph),
    )
    done = submit(
        session,
        submission,
        project=given.project_id,
        worker_group=given.worker_group,
        cores=given.cores,
        memory=given.memory,
        active=given.active,
    )
    response.status_code = 201 if done.outcome == "created" else 200
    return submitted_row(done)


def summarize(session: Asked) -> dict[str, Any]:
    """List the topologies that you may see, as Storm does."""
    return {"topologies": [summary_row(each) for each in operations.topologies_in_full(session)]}


def show_topology(id: Name, session: Asked, window: Window = ":all-time") -> dict[str, Any]:  # noqa: A002
    """Show a topology and its components, as Storm does."""
    return page_row(operations.topology_given(session, id), window)


def show_component(
    id: Name,  # noqa: A002
    component: Component,
    session: Asked,
    window: Window = ":all-time",
) -> dict[str, Any]:
    """Show a component of a topology, as Storm does."""
    view = operations.topology_given(session, id)
    part = view.graph.part(component)
    if part is None:
        known = [each.id for each in view.graph.parts]
        near = difflib.get_close_matches(component, known, n=1)
        perhaps = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise NotFoundError(f"there is no component {component!r:.120}; {perhaps}")
    return component_page(view, part, window)


def visualize(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Show the graph of a topology by its components, as Storm does."""
    return visualization(operations.topology_given(session, id))


def activate(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Have the spouts emit, and a run begin if none is live; a 409 if it is so already."""
    return _done("activate", operations.activate_topology(session, id))


def deactivate(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Have the spouts emit nothing; a 409 if it is so already."""
    return _done("deactivate", operations.deactivate_topology(session, id))


def rebalance(
    id: Name,  # noqa: A002
    wait_time: WaitTime,
    given: Rebalance,
    session: Asked,
) -> dict[str, Any]:
    """Have it run with other numbers of cores, executors and tasks."""
    options = given.rebalanceOptions
    done = operations.rebalance_topology(
        session,
        id,
        wait_seconds=wait_time,
        cores=options.numWorkers,
        executors=options.executors,
        tasks=options.tasks,
    )
    return _done("rebalance", done)


def kill(
    id: Name,  # noqa: A002
    wait_time: WaitTime,
    session: Asked,
    now: Annotated[bool, Query(description="Stop its run at once.")] = False,
) -> dict[str, Any]:
    """End a topology for good, once its spouts were off for a while."""
    done = operations.kill_topology(session, id, wait_seconds=wait_time, now=now)
    return _done("kill", done)


def _read(field: str, read: Callable[[object], Document], given: object) -> Document:
    try:
        return read(given)
    except DocumentError as error:
        raise UsageError(field, str(error)) from error


def _done(order: str, done: OrderedTopology) -> dict[str, Any]:
    return {
        "topologyOperation": order,
        "topologyId": done.name,
        "status": "success",
        "number": done.number,
        "command_id": done.command_id,
    }


ROUTES: Final[tuple[Route, ...]] = (
    get("/topologies", list_topologies, TopologyItemPage),
    get("/topologies/{id}", show_in_full, TopologyInFull),
    get("/topologies/{id}/history", list_topology_versions, TopologyVersionList),
    # Before the pages of topologies, none of which may have this name.
    get("/topology/summary", summarize, StormSummaries),
    post(
        "/topology/submit", submit_topology, SubmittedTopologyAnswer, status=201, other_status=200
    ),
    get("/topology/{id}", show_topology, StormTopology),
    get("/topology/{id}/component/{component}", show_component, StormComponent),
    get("/topology/{id}/visualization", visualize, dict[str, dict[str, Any]]),
    post("/topology/{id}/activate", activate, TopologyOperation),
    post("/topology/{id}/deactivate", deactivate, TopologyOperation),
    post("/topology/{id}/rebalance/{wait_time}", rebalance, TopologyOperation),
    post("/topology/{id}/kill/{wait_time}", kill, TopologyOperation),
)
