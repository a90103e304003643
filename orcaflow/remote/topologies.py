"""The operations on topologies that an api-server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from common.model.topologies import Report, Wanted
from common.model.topology_graphs import TopologyGraph
from common.store.people.topologies import (
    TopologyAttempt,
    TopologyRun,
    TopologyVersion,
    TopologyView,
)
from operations.topologies import WAIT_SECONDS, OrderedTopology
from operations.topology_submission import Submission, SubmittedTopology
from operations.topology_views import TopologyLine
from orcaflow.remote.client import Client, path_of
from orcaflow.remote.documents import moment_of
from orcaflow.remote.people import project_id


def submit_topology(
    client: Client,
    given: Submission,
    *,
    project: str | int | None = None,
    worker_group: str | None = None,
    cores: int | None = None,
    memory: str | None = None,
    active: bool = True,
) -> SubmittedTopology:
    """Make a topology, or give it another version."""
    body: dict[str, Any] = {
        "code": given.code.document(),
        "graph": given.graph.document(),
        "worker_group": worker_group,
        "cores": cores,
        "memory": memory,
        "active": active,
    }
    if project is not None:
        body["project_id"] = project_id(client, project)
    row = client.post("/topology/submit", body)
    return SubmittedTopology(
        name=row["name"],
        version=row["version"],
        generation=row["generation"],
        outcome=row["outcome"],
        command_id=row["command_id"],
        notes=tuple(row.get("notes", ())),
    )


def list_topologies(client: Client) -> list[TopologyLine]:
    """List the topologies that one may see."""
    return [
        TopologyLine(
            **{
                **row,
                "created": datetime.fromisoformat(row["created"]),
                "updated": datetime.fromisoformat(row["updated"]),
            }
        )
        for row in client.pages("/topologies")
    ]


def topology_given(client: Client, topology: str) -> TopologyView:
    """Return one topology, with its run, its last report and its graph."""
    row = client.get(path_of("topologies", topology))
    run, attempt = row["run"], row["attempt"]
    return TopologyView(
        name=row["name"],
        project_id=row["project_id"],
        process_definition_id=row["process_definition_id"],
        version=row["version"],
        generation=row["generation"],
        wanted=Wanted.of(row["wanted"]),
        report=None if row["report"] is None else Report.of(row["report"]),
        report_time=moment_of(row["reported"]),
        holder=row["holder"],
        graph=TopologyGraph.of(row["graph"]),
        create_time=datetime.fromisoformat(row["created"]),
        update_time=datetime.fromisoformat(row["updated"]),
        looked_at=datetime.fromisoformat(row["looked_at"]),
        starting=row["starting"],
        run=None if run is None else TopologyRun(**_with_times(run)),
        attempt=None if attempt is None else TopologyAttempt(**_with_times(attempt)),
    )


def topology_history(client: Client, topology: str) -> list[TopologyVersion]:
    """Return the versions of a topology."""
    return [
        TopologyVersion(
            name=topology,
            version=row["version"],
            graph=TopologyGraph.of(row["graph"]),
            user_id=row["user_id"],
            create_time=datetime.fromisoformat(row["created"]),
        )
        for row in client.get(f"{path_of('topologies', topology)}/history")["items"]
    ]


def activate_topology(client: Client, topology: str) -> OrderedTopology:
    """Have the spouts emit."""
    return _ordered(client, topology, "activate")


def deactivate_topology(client: Client, topology: str) -> OrderedTopology:
    """Have the spouts emit nothing."""
    return _ordered(client, topology, "deactivate")


def rebalance_topology(
    client: Client,
    topology: str,
    *,
    wait_seconds: int = WAIT_SECONDS,
    cores: int | None = None,
    executors: Mapping[str, int] | None = None,
    tasks: Mapping[str, int] | None = None,
) -> OrderedTopology:
    """Have it run with other numbers of cores, executors and tasks."""
    options = {
        "numWorkers": cores,
        "executors": dict(executors or {}),
        "tasks": dict(tasks or {}),
    }
    return _ordered(client, topology, f"rebalance/{wait_seconds}", {"rebalanceOptions": options})


def kill_topology(
    client: Client, topology: str, *, wait_seconds: int = WAIT_SECONDS, now: bool = False
) -> OrderedTopology:
    """Have it end for good."""
    return _ordered(client, topology, f"kill/{wait_seconds}{'?now=true' if now else ''}")


def _ordered(
    client: Client, topology: str, order: str, body: Mapping[str, Any] | None = None
) -> OrderedTopology:
    row = client.post(f"{path_of('topology', topology)}/{order}", body)
    return OrderedTopology(
        name=row["topologyId"], number=row["number"], command_id=row["command_id"]
    )


def _with_times(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: moment_of(value) if name.endswith(("_time", "_at")) else value
        for name, value in row.items()
    }


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "topologies.activate_topology": activate_topology,
    "topologies.deactivate_topology": deactivate_topology,
    "topologies.kill_topology": kill_topology,
    "topologies.list_topologies": list_topologies,
    "topologies.rebalance_topology": rebalance_topology,
    "topologies.topology_given": topology_given,
    "topologies.topology_history": topology_history,
    "topology_submission.submit_topology": submit_topology,
}
