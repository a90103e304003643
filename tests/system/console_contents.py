"""The contents of the cluster whose pages are looked at, and the places of all pages."""

from __future__ import annotations

import json

from common.model.states import ProcessState
from common.model.topologies import Wanted
from tests.integration.api_worlds import A_REPORT, a_graph
from tests.system.cluster import PrivateCluster, a_task
from tests.unit.stream_specs import SMALL


def add_examples(cluster: PrivateCluster) -> None:
    """Something for each page: definitions, a pool, a schedule, a complement, a topology."""
    examples = [f"examples/control/{each}.json" for each in ("region", "nightly", "morning")]
    imported = cluster.orcaflow("definition", "import", *examples)
    assert imported.returncode == 0, imported.stderr
    cluster.told("pool", "create", "database", "--size", "2", "--project", "default")
    cluster.told("datasource", "create", "own", "--project", "default")
    cluster.told("schedule", "create", "nightly", "--cron", "0 0 3 * * ? *", "--online")
    days = ("--from", "2013-01-01", "--to", "2013-02-03")
    cluster.told("complement", "region", *days)
    add_words(cluster)
    add_flow(cluster)


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


def a_failed_run(cluster: PrivateCluster) -> int:
    """A run that failed, and succeeds when it is done again."""
    mark = cluster.home / "mended"
    definition = cluster.define(
        "figures",
        [
            a_task("land", "echo landed"),
            a_task("clean", f"test -e {mark} || {{ echo no such column: amout; exit 3; }}", "land"),
            a_task("report", "true", "clean"),
        ],
    )
    # It has succeeded once, by a former version.
    former = json.dumps({"tasks": [a_task("land", "true"), a_task("gone", "true", "land")]})
    cluster.rows(
        "INSERT INTO t_ds_process_definition_log (process_definition_id, version, document, note)"
        " SELECT id, 1, %s, 'the first' FROM t_ds_process_definition WHERE id = %s",
        json.dumps({"name": "figures", "processDefinitionJson": json.loads(former)}),
        definition,
    )
    cluster.rows("UPDATE t_ds_process_definition SET version = 2 WHERE id = %s", definition)
    cluster.rows(
        "INSERT INTO t_ds_process_instance (name, process_definition_id, state, command_type,"
        " executor_id, process_instance_json, start_time, end_time)"
        " VALUES ('figures-1-1357027200000', %s, 7, 0, 1, %s, now(), now())",
        definition,
        former,
    )
    run = cluster.begin(definition)
    assert cluster.await_end(run) == ProcessState.FAILURE
    mark.touch()
    return run


def a_month_of_runs(cluster: PrivateCluster) -> int:
    """The run of today of a definition that has run for three weeks and more; it goes on."""
    edges = {
        "land": (),
        "clean_flights": ("land",),
        "clean_weather": ("land",),
        "join": ("clean_flights", "clean_weather"),
        "by_carrier": ("join",),
        "by_hour": ("join",),
        "worst_routes": ("join",),
        "chart": ("by_carrier", "by_hour"),
        "check": ("chart", "worst_routes"),
    }
    # The end of its log, which pictures show, has left the paths of this machine behind.
    long = "seq -f '%g of 336 parts' 36; sleep 600"
    tasks = [
        a_task(name, long if name == "join" else "echo rows=831", *before)
        for name, before in edges.items()
    ]
    definition = cluster.define("flights", tasks)
    cluster.rows(
        "INSERT INTO t_ds_process_instance (name, process_definition_id, state, command_type,"
        " executor_id, process_instance_json, schedule_time, start_time, end_time)"
        " SELECT 'flights-' || day, %s, CASE WHEN day IN (9, 17) THEN 6 ELSE 7 END, 6, 1, %s,"
        "  at, at + interval '2 s', at + interval '1 s' * (40 + day * 7 %% 11 + day / 17 * 20)"
        " FROM generate_series(1, 24) AS day,"
        "  LATERAL (SELECT date_trunc('day', now()) - interval '1 day' * (25 - day)) AS of(at)",
        definition,
        json.dumps({"tasks": tasks}),
    )
    cluster.rows(
        "INSERT INTO t_ds_task_instance (name, task_type, process_definition_id,"
        " process_instance_id, task_json, state, flag, submit_time, start_time, end_time)"
        " SELECT node.name, 'SHELL', %s, run.id, '{}', CASE WHEN run.state = 6 AND place = 4 THEN 6"
        "  ELSE 7 END, 1, run.start_time + interval '4 s' * place,"
        "  run.start_time + interval '4 s' * place, run.start_time + interval '4 s' * (place + 1)"
        " FROM t_ds_process_instance AS run,"
        "  unnest(%s::text[]) WITH ORDINALITY AS node(name, place)"
        " WHERE run.process_definition_id = %s AND (run.state = 7 OR place <= 4)",
        definition,
        list(edges),
        definition,
    )
    schedule = cluster.told("schedule", "create", "flights", "--cron", "0 0 2 * * ? *", "--online")
    cluster.rows(
        "INSERT INTO t_ds_schedule_fire (schedule_id, process_definition_id, fire_time, outcome,"
        " process_instance_id) SELECT %s, process_definition_id, schedule_time + interval '2 h',"
        " 'fired', id FROM t_ds_process_instance WHERE process_definition_id = %s",
        schedule["id"],
        definition,
    )
    return cluster.begin(definition)
