"""The contents of the cluster whose pages are looked at, and the places of all pages."""

from __future__ import annotations

import json

from common.model.topologies import Wanted
from tests.integration.api_worlds import A_REPORT, a_graph
from tests.system.cluster import PrivateCluster
from tests.unit.stream_specs import SMALL


def add_words(cluster: PrivateCluster) -> None:
    """A topology as its task has last told of it."""
    cluster.rows(
        "INSERT INTO t_ds_topology (name, version, project_id, process_definition_id, wanted,"
        " report, report_time) SELECT 'words', 1, project_id, id, %s, %s, now()"
        " FROM t_ds_process_definition WHERE name = 'nightly'",
        json.dumps(Wanted(number=1).document()),
        json.dumps(A_REPORT.document()),
    )
    cluster.rows(
        "INSERT INTO t_ds_topology_version (topology, version, code, graph)"
        " VALUES ('words', 1, '{}', %s)",
        json.dumps(a_graph("words")),
    )


def add_flow(cluster: PrivateCluster) -> None:
    """A supervisor that has ended, as it was told of last, with a task that nobody runs."""
    spec = json.dumps(SMALL)
    standing = {"stream": "events", "latestOffsets": {"0": 2000, "1": 70}, "minimumLag": {"0": 500}}
    errors = [{"timestamp": "2013-01-01T00:00:00+00:00", "message": "no broker answers"}]
    cluster.rows(
        "INSERT INTO t_ds_supervisor_runtime (id, version, project_id, process_definition_id,"
        " active, status, recent_errors) SELECT 'flow', 1, project_id, id, false, %s, %s"
        " FROM t_ds_process_definition WHERE name = 'nightly'",
        json.dumps({**standing, "aggregateLag": 500}),
        json.dumps(errors),
    )
    cluster.rows("INSERT INTO t_ds_supervisor (id, version, spec) VALUES ('flow', 1, %s)", spec)
    cluster.rows(
        "INSERT INTO t_ds_stream_task (name, supervisor, version, epoch, group_id, base_sequence,"
        " assignment, command_id, closed, ending_reason)"
        " SELECT 'read_' || place, 'flow', 1, 1, 0, 's', %s, -place, place = 2, 'its time was over'"
        " FROM generate_series(1, 2) AS of(place)",
        json.dumps({"starts": {"0": 1500, "1": 0}}),
    )


def places(cluster: PrivateCluster, run: int) -> list[str]:
    ((definition,),) = cluster.rows(
        "SELECT process_definition_id FROM t_ds_process_instance WHERE id = %s", run
    )
    sides = [
        f"/runs/{run}?view={each}"
        for each in ("graph", "timeline", "list", "parameters", "history")
    ]
    return [
        "/",
        *("/definitions", "/definitions/new"),
        *(
            f"/definitions/{definition}?view={each}"
            for each in ("grid", "graph", "runs", "schedules")
        ),
        *(
            f"/definitions/{definition}/{each}"
            for each in ("run", "versions", "compare", "restore", "propose", "proposals")
        ),
        f"/definitions/{definition}/edit",
        f"/definitions/{definition}/edit?view=document",
        *("/projects/1/edit", "/projects/1/propose", "/projects/1/proposals", "/find?q=figures"),
        "/runs",
        *sides,
        f"/runs/{run}?task=clean",
        *("/tasks/1/log", "/tasks/1/script"),
        "/schedules",
        "/schedules/1",
        "/schedules/calendar",
        "/schedules/1/edit",
        "/schedules/new",
        f"/schedules/new?definition={definition}",
        "/complements",
        "/complements/1",
        "/streams",
        "/streams/flow",
        "/topologies",
        "/topologies/words",
        *("/pools", "/pools/1", "/pools/new"),
        "/cluster",
        "/alerts",
        "/audit?action=definition",
        *("/datasources", "/datasources/1", "/projects", "/projects/1", "/tokens", "/users"),
        "/users/1",
    ]
