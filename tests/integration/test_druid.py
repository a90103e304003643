"""Druid's API of supervisors: a script that knows it alone, rights, and calls that are wrong."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, delete, func, insert, select, update

from api.druid.serving import BASE, ROWS
from api.druid.table import Row
from api.matrix import CALLERS, Outcome, outcome, policy_of
from api.policy import LIST
from common.model.commands import CommandType
from common.model.rights import ROLES
from common.model.states import ProcessState, TaskState
from common.model.streams.tasks import TaskStatus
from common.model.unclaimed import unclaimed_reason
from common.model.worker_strategy import DEFAULT_DOCUMENT
from common.store import tables as t
from master.supervisors.view import StreamSnapshot
from operations.session import Session
from tests.integration.api_worlds import World, headers_of, worlds
from tests.integration.rights_mistakes import BY_DRUID, Plants, lists_of_everybody
from tests.integration.store_races.stream_stage import Stage
from tests.unit.druid_documents import as_shown
from tests.unit.stream_specs import SECRET, SMALL

SPEC = copy.deepcopy(SMALL)
SPEC["spec"]["ioConfig"] |= {"useEarliestOffset": True, "startDelay": "PT0S"}
SPEC["spec"]["ioConfig"]["consumerProperties"] |= {"sasl.password": SECRET}
_PAYLOAD = {
    *("dataSource", "stream", "partitions", "replicas", "durationSeconds", "activeTasks"),
    *("publishingTasks", "latestOffsets", "minimumLag", "aggregateLag", "offsetsLastUpdated"),
    *("suspended", "healthy", "state", "detailedState", "recentErrors"),
}
_TASK = {
    *("id", "groupId", "type", "createdTime", "queueInsertionTime", "statusCode", "status"),
    *("runnerStatusCode", "duration", "location", "dataSource", "errorMsg"),
}


def basic(headers: dict[str, str], user: str) -> dict[str, str]:
    """The token of these headers, as the password of a user."""
    pair = f"{user}:{headers['Authorization'].removeprefix('Bearer ')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ada(client: TestClient, owner: Session) -> Ask:
    """Asks as an author, by her name and a token in the place of the password."""
    headers = basic(headers_of(owner, "ada", "author"), "ada")

    def ask(method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        place = f"{BASE}/{path}"
        answer = client.request(method, place, json=body, params=query, headers=headers)
        if not answer.headers.get("content-type", "").startswith("application/json"):
            return answer.status_code, answer.text if path.endswith("/log") else None
        return answer.status_code, answer.json()

    return ask


def test_a_script_that_knows_druid_alone_keeps_a_supervisor(ada: Ask, db: Engine) -> None:
    stage = Stage(db)
    loop = stage.master()
    assert ada("POST", "supervisor", SPEC) == (200, {"id": "flights"})
    assert ada("POST", "supervisor/", SPEC) == (200, {"id": "flights"})
    assert "flights" in ada("GET", "supervisor")[1]
    of_none = ada("GET", "supervisor/flights/status")[1]["payload"]
    assert (of_none["state"], of_none["stream"], of_none["activeTasks"]) == (
        "PENDING",
        "events",
        [],
    )
    ends = StreamSnapshot(earliest={0: 0, 1: 0}, latest={0: 100, 1: 100})
    stage.streams.answers["flights"] = ends
    stage.passes(loop, times=2)

    (waiting,) = [each for each in ada("GET", "waitingTasks")[1] if each["dataSource"] == "flights"]
    assert (set(waiting), waiting["status"], waiting["type"]) == (_TASK, "RUNNING", "index_kafka")
    stage.name = "flights"
    (task,) = stage.tasks
    attempt = stage.run(task)
    stage.report(attempt, TaskStatus.READING, {0: 40, 1: 50})
    stage.passes(loop, times=2)
    code, report = ada("GET", "supervisor/flights/status")
    payload = report["payload"]
    assert (code, report["id"], set(payload)) == (200, "flights", _PAYLOAD)
    assert (payload["state"], payload["aggregateLag"], payload["healthy"]) == ("RUNNING", 110, True)
    assert payload["latestOffsets"] == {"0": 100, "1": 100}
    (active,) = payload["activeTasks"]
    assert (active["id"], active["type"]) == (task.name, "ACTIVE")
    assert active["currentOffsets"] == {"0": 40, "1": 50}
    assert active["startTime"].endswith("Z")
    assert ada("GET", "supervisor/flights/health") == (200, {"healthy": True})
    (running,) = ada("GET", "runningTasks")[1]
    assert (running["id"], running["runnerStatusCode"]) == (task.name, "RUNNING")
    assert running["location"] == {"host": "10.0.0.3", "port": 1234, "tlsPort": -1}
    assert ada("GET", f"task/{task.name}/status")[1]["status"] == running
    assert ada("GET", f"task/{task.name}")[1]["payload"]["dataSource"] == "flights"
    assert ada("GET", "tasks", state="running", datasource="flights") == (200, [running])
    assert ada("GET", "tasks", type="index_parallel") == (200, [])

    code, spec = ada("POST", "supervisor/flights/suspend")
    assert (code, spec["suspended"]) == (200, True)
    refused = (400, {"error": "[flights] is already suspended"})
    assert ada("POST", "supervisor/flights/suspend") == refused
    stage.passes(loop, times=2)
    assert ada("GET", "supervisor/flights/status")[1]["payload"]["suspended"] is True
    # What was shown may be sent again: the secret stays what it is.
    assert spec["spec"]["ioConfig"]["consumerProperties"]["sasl.password"] == "******"
    assert ada("POST", "supervisor", {**spec, "suspended": False}) == (200, {"id": "flights"})
    refused = (400, {"error": "[flights] is already running"})
    assert ada("POST", "supervisor/flights/resume") == refused
    assert ada("POST", "supervisor/flights/reset") == (200, {"id": "flights"})
    offsets = {"type": "end", "stream": "events", "partitionOffsetMap": {"0": 7, "1": 9}}
    body = {"type": "kafka", "partitions": offsets}
    assert ada("POST", "supervisor/flights/resetOffsets", body) == (200, {"id": "flights"})
    groups = {"taskGroupIds": [0]}
    assert ada("POST", "supervisor/flights/taskGroups/handoff", groups) == (200, None)
    with db.connect() as connection:
        put = connection.execute(select(t.supervisor_command.c.kind, t.supervisor_command.c.body))
        assert [tuple(row) for row in put.all()] == [
            ("RESET", {}),
            ("RESET_OFFSETS", {"offsets": {"0": 7, "1": 9}}),
            ("HAND_OVER", {"groups": [0]}),
        ]
    stage.passes(loop, times=2)
    assert stage.stored == {0: 7, 1: 9}

    assert ada("POST", f"task/{task.name}/shutdown") == (200, {"task": task.name})
    assert ada("POST", "supervisor/flights/terminate") == (200, {"id": "flights"})
    missing = (404, {"error": "[flights] does not exist"})
    for path in ("", "/status", "/health", "/stats", "/parseErrors"):
        assert ada("GET", f"supervisor/flights{path}") == missing
    assert ada("POST", "supervisor/flights/terminate") == missing
    history = ada("GET", "supervisor/flights/history")[1]
    assert history[0]["spec"] == {
        "type": "NoopSupervisorSpec",
        "id": "flights",
        "dataSources": ["flights"],
    }
    assert [each["spec"].get("suspended") for each in history] == [None, False, True, False]
    assert ada("GET", "supervisor/history")[1]["flights"] == history
    assert SECRET not in str(history)


def test_a_supervisor_with_a_pattern_names_topics_as_druid_does(ada: Ask, db: Engine) -> None:
    spec = copy.deepcopy(SPEC)
    del spec["spec"]["ioConfig"]["topic"]
    spec["spec"]["ioConfig"]["topicPattern"] = "clicks-.*"
    assert ada("POST", "supervisor", spec) == (200, {"id": "flights"})
    shown = ada("GET", "supervisor/flights")[1]
    assert shown["spec"]["ioConfig"]["topicPattern"] == "clicks-.*"
    assert ada("POST", "supervisor", shown)[0] == 200
    assert ada("GET", "supervisor/flights/status")[1]["payload"]["stream"] == "clicks-.*"
    assert ada("GET", "supervisor", system="")[1][0]["source"] == "clicks-.*"

    def reset(stream: str, **offsets: int) -> Any:
        named = {key.replace("__", ":").replace("_", "-"): at for key, at in offsets.items()}
        body = {"partitions": {"type": "end", "stream": stream, "partitionOffsetMap": named}}
        return ada("POST", "supervisor/flights/resetOffsets", body)

    assert reset("clicks-.*", clicks_eu__0=7)[0] == 200
    body = {"partitions": {"stream": "clicks-us", "partitionOffsetMap": {"1": 9}}}
    assert ada("POST", "supervisor/flights/resetOffsets", body)[0] == 200
    assert reset("other", clicks_eu__0=7)[0] == 400
    body["partitions"]["stream"] = "clicks-.*"
    assert ada("POST", "supervisor/flights/resetOffsets", body)[0] == 400
    with db.connect() as connection:
        row = t.supervisor_command.c
        put = connection.scalars(select(row.body).order_by(row.id)).all()
    assert put == [{"offsets": {"clicks-eu:0": 7}}, {"offsets": {"clicks-us:1": 9}}]


def test_a_specification_that_druid_shows_is_submitted_as_it_is(ada: Ask) -> None:
    status, answer = ada("POST", "supervisor", as_shown())
    assert (status, answer["id"]) == (200, "clicks")
    assert "spec.tuningConfig.skipSequenceNumberAvailabilityCheck" in answer["ignored"]
    shown = ada("GET", "supervisor/clicks")[1]
    assert ada("POST", "supervisor", shown) == (200, answer)
    assert len(ada("GET", "supervisor/clicks/history")[1]) == 1


def test_a_task_that_no_worker_claims_has_the_text_of_druid(ada: Ask, db: Engine) -> None:
    run = worlds(db)[0].objects["instance"]
    command = select(t.stream_task.c.command_id).where(t.stream_task.c.name == "read_ours")
    of_run = t.task_instance.c.process_instance_id == run
    for reason, wanted in (
        (
            unclaimed_reason(["10.0.0.7:1234"], timedelta(minutes=5)),
            "The worker that this task is assigned did not start it in timeout[PT5M]. no worker",
        ),
        ("the disk is full", "the disk is full"),
    ):
        with db.begin() as connection:
            connection.execute(
                update(t.process_instance)
                .where(t.process_instance.c.id == run)
                .values(command_id=command.scalar_subquery())
            )
            failed = {"state": int(TaskState.FAILURE), "reason": reason, "end_time": func.now()}
            connection.execute(update(t.task_instance).where(of_run).values(**failed))
        status = ada("GET", "task/read_ours/status")[1]["status"]
        assert (status["status"], status["errorMsg"][: len(wanted)]) == ("FAILED", wanted)


def test_lists_counts_and_orders_to_all_are_those_of_druid(ada: Ask, db: Engine) -> None:
    worlds(db)
    parse = {"partition": 0, "offset": 9, "flawed": False, "value": "{"}
    report = {"counts": {"processed": 4, "unparseable": 1}, "errors": {"parse": [parse]}}
    error = {"timestamp": "2026-01-01T00:00:00+00:00", "message": "x", "streamException": True}
    with db.begin() as connection:
        connection.execute(update(t.stream_task).values(status=report, status_time=None))
        connection.execute(
            update(t.supervisor_runtime).values(healthy=False, recent_errors=[error])
        )
    assert ada("GET", "supervisor") == (200, ["ours"])
    (row,) = ada("GET", "supervisor", state="true")[1]
    assert set(row) == {"id", "state", "detailedState", "healthy", "suspended"}
    (full,) = ada("GET", "supervisor", full="")[1]
    assert (full["spec"]["type"], "hunter2" in str(full)) == ("kafka", False)
    (system,) = ada("GET", "supervisor", system="")[1]
    assert (system["type"], system["source"]) == ("kafka", "events")
    assert ada("GET", "supervisor/ours/health") == (503, {"healthy": False})
    counts = ada("GET", "supervisor/ours/stats")[1]["0"]["read_ours"]["totals"]["buildSegments"]
    assert (counts["processed"], counts["unparseable"], counts["thrownAway"]) == (4, 1, 0)
    (found,) = ada("GET", "supervisor/ours/parseErrors")[1]
    assert (found["input"], found["details"]) == ("{", ["partition 0, offset 9"])
    (told,) = ada("GET", "supervisor/ours/status")[1]["payload"]["recentErrors"]
    assert (told["timestamp"], told["streamException"]) == ("2026-01-01T00:00:00.000Z", True)
    done = (200, {"status": "success"})
    assert ada("POST", "supervisor/suspendAll") == done
    assert ada("GET", "supervisor/ours")[1]["suspended"] is True
    assert ada("POST", "supervisor/resumeAll") == done
    assert ada("POST", "supervisor/terminateAll") == done
    assert ada("GET", "supervisor") == (200, [])
    with db.connect() as connection:
        versions = select(t.supervisor.c.version).where(t.supervisor.c.id == "theirs")
        assert connection.scalars(versions).all() == [1]


def test_a_log_is_read_from_an_offset_and_a_shutdown_stops_the_run(ada: Ask, db: Engine) -> None:
    run = worlds(db)[0].objects["instance"]
    of_run = t.task_instance.c.process_instance_id == run
    with db.begin() as connection:
        attempt = connection.scalar(select(func.max(t.task_instance.c.id)).where(of_run))
        command = select(t.stream_task.c.command_id).where(t.stream_task.c.name == "read_ours")
        connection.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == run)
            .values(
                command_id=command.scalar_subquery(),
                state=int(ProcessState.RUNNING),
                end_time=None,
                host="127.0.0.1:5678",
                owner_incarnation=1,
            )
        )
        connection.execute(
            update(t.task_instance)
            .where(t.task_instance.c.id == attempt)
            .values(host="127.0.0.1:1", log_path=f"/logs/1/{run}/{attempt}.log")
        )
        connection.execute(
            insert(t.task_log_tail).values(task_instance_id=attempt, size=9, tail=b"read this")
        )
    for offset, text in ((0, "read this"), (5, "this"), (-4, "this"), (9, "")):
        assert ada("GET", "task/read_ours/log", offset=offset) == (200, text)
    assert ada("POST", "task/read_ours/shutdown") == (200, {"task": "read_ours"})
    with db.connect() as connection:
        newest = connection.execute(
            select(t.command.c.command_type, t.command.c.command_param)
            .order_by(t.command.c.id.desc())
            .limit(1)
        ).one()
    assert newest.command_type == CommandType.STOP
    assert str(run) in newest.command_param


def test_the_choice_of_workers_is_the_dynamic_configuration(
    client: TestClient, owner: Session, db: Engine
) -> None:
    admin = headers_of(owner, "admin", "")
    place = f"{BASE}/worker"
    assert client.get(place, headers=admin).json() == dict(DEFAULT_DOCUMENT)
    assert client.get(f"{place}/history", headers=admin).json() == []
    strategy = {"selectStrategy": {"type": "fillCapacity"}}
    sent = {"type": "default", **strategy, "autoScaler": None}
    noted = {**admin, "X-Druid-Comment": "fill up"}
    answer = client.post(place, json=sent, headers=noted)
    assert (answer.status_code, answer.content) == (200, b"")
    assert client.get(place, headers=admin).json() == strategy
    for query in ("", "?count=1", "?interval=2000-01-01_2100-01-01"):
        (entry,) = client.get(f"{place}/history{query}", headers=admin).json()
        assert (entry["key"], json.loads(entry["payload"])) == ("worker.config", strategy)
        assert entry["auditInfo"] == {"author": "admin", "comment": "fill up", "ip": ""}
    assert client.get(f"{place}/history?interval=2000-01-01_2001-01-01", headers=admin).json() == []
    wrong = client.post(place, json={"selectStrategy": {"type": "javascript"}}, headers=admin)
    assert (wrong.status_code, "selectStrategy.type" in wrong.json()["error"]) == (400, True)


def test_an_order_waits_for_a_master_that_is_alive(
    ada: Ask, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds(db)
    monkeypatch.setattr("api.druid.serving.has_master", lambda _: False)
    code, refused = ada("POST", "supervisor/ours/suspend")
    assert (code, "no master is alive" in refused["error"]) == (503, True)
    assert ada("GET", "supervisor/ours")[1]["suspended"] is False


def test_every_route_answers_every_role_as_its_table_says(
    client: TestClient, owner: Session, db: Engine, plants: Plants
) -> None:
    ours, theirs = worlds(db)
    with db.begin() as connection:
        connection.execute(update(t.stream_task).values(closed=True))
    headers = {role: headers_of(owner, f"the-{role}", role) for role in ROLES}
    headers["nobody"] = headers_of(owner, "the-nobody", "none")
    headers |= {"anyone": {}, "administrator": headers_of(owner, "admin", "")}
    wrong = []
    planted: set[tuple[Row, int]] = set()
    for row in ROWS:
        for role, own in (("admin", False), *((role, True) for role in CALLERS)):
            _restore(db)
            world = ours if own else theirs
            ask = partial(_sent, client, row, world, headers[role], role, own=own)
            plants.refused = None
            status, text = ask()
            wanted = outcome(policy_of(row), role, own=own)
            is_told = "theirs" in text and role != "administrator"
            if is_told or not _is_as_told(row, wanted, status):
                wrong.append((row.method, row.path, role, own, wanted, status, text[:200]))
            if wanted.value == str(status) != "401" and (row, status) not in planted:
                planted.add((row, status))
                plants.plant(row.path, lambda ask=ask, status=status: ask()[0] == status)
    assert wrong == []
    # The statements that read these leave out what the caller does not see.
    of_tasks = (f"task/{{id}}{end}" for end in ("", "/log", "/shutdown", "/status"))
    assert set(plants.unexplained) == {"supervisor", *of_tasks}
    assert plants.undecided().isdisjoint(BY_DRUID)
    with lists_of_everybody():
        shown = {
            row.path: "theirs" in _sent(client, row, ours, headers["nobody"], "nobody", own=True)[1]
            for row in ROWS
            if policy_of(row) == LIST
        }
    seen = {path for path, is_seen in shown.items() if is_seen}
    # The tasks here have ended.
    assert seen == {"supervisor", "supervisor/history", "tasks", "completeTasks"}


def _restore(db: Engine) -> None:
    with db.begin() as connection:
        connection.execute(delete(t.supervisor).where(t.supervisor.c.version > 1))
        connection.execute(update(t.supervisor_runtime).values(version=1, active=True))


def _sent(
    client: TestClient, row: Row, world: World, headers: dict[str, str], name: str, *, own: bool
) -> tuple[int, str]:
    body: Any = None
    query = {} if own or row.path != "supervisor" else {"project": "foreign"}
    if row.path == "supervisor":
        body = copy.deepcopy(SPEC)
        body["spec"]["dataSchema"]["dataSource"] = f"of_{name}"
    elif row.path == "worker":
        body = dict(DEFAULT_DOCUMENT)
    elif row.path.endswith("resetOffsets"):
        body = {"partitions": {"partitionOffsetMap": {"0": 1}}}
    elif row.path.endswith("handoff"):
        body = {"taskGroupIds": [0]}
    number = world.objects.get(row.thing or "", "10.0.0.7:1234")
    place = f"{BASE}/{row.path.format(id=number)}"
    answer = client.request(row.method, place, json=body, params=query, headers=headers)
    # What a path names is in the answer that it is missing.
    return answer.status_code, answer.text.replace(str(number), "")


def _is_as_told(row: Row, wanted: Outcome, status: int) -> bool:
    if wanted is not Outcome.DONE:
        return str(status) == wanted.value
    # 503: ZooKeeper is away. There is no log.
    return status in (200, 400, 503) or row.path == "task/{id}/log"


def test_who_asks_is_told_by_a_token_alone(client: TestClient, owner: Session, db: Engine) -> None:
    worlds(db)
    bearer = headers_of(owner, "ada", "viewer")
    place = f"{BASE}/supervisor"
    good = (bearer, basic(bearer, "ada"))
    assert [client.get(place, headers=each).json() for each in good] == [["ours"]] * 2
    bad: tuple[dict[str, str], ...] = (
        basic(bearer, "bea"),
        basic({"Authorization": "Bearer of_wrong"}, "ada"),
        {"Authorization": "Basic !"},
        {"Authorization": "Basic"},
        {**basic(bearer, "ada"), "Origin": "https://evil.example"},
        {**basic(bearer, "ada"), "Sec-Fetch-Site": "cross-site"},
    )
    for each in bad:
        answer = client.get(place, headers=each)
        assert (answer.status_code, set(answer.json())) == (401, {"error"}), each
        # No challenge has a browser remember it.
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "supervisor/none", None, 404, "[none] does not exist"),
        ("GET", "supervisor/none/history", None, 404, "No history for [none]."),
        ("GET", "supervisor/%00", None, 404, "does not exist"),
        ("GET", "nothing", None, 404, "docs/streams.md"),
        ("PUT", "supervisor", None, 404, "docs/streams.md"),
        ("POST", "supervisor", b"", 400, "no JSON"),
        ("POST", "supervisor", b"\xff", 400, "UTF-8"),
        ("POST", "supervisor", b'{"type": "index_parallel"}', 400, "index_parallel"),
        ("POST", "supervisor", b"[" * 100_000, 400, "nested too deeply"),
        ("POST", "supervisor/ours/resetOffsets", b"[]", 400, "must be an object"),
        ("POST", "supervisor/ours/resetOffsets", b'{"partitions": {}}', 400, "must be an object"),
        (
            "POST",
            "supervisor/ours/resetOffsets",
            b'{"partitions": {"stream": "x", "partitionOffsetMap": {"0": 1}}}',
            400,
            "the stream of [ours] is [events]",
        ),
        (
            "POST",
            "supervisor/ours/resetOffsets",
            b'{"partitions": {"partitionOffsetMap": {"x": 1}}}',
            400,
            "are numbers",
        ),
        ("POST", "supervisor/ours/taskGroups/handoff", b"{}", 400, "can't be empty"),
        ("POST", "supervisor/ours/taskGroups/handoff", b'{"taskGroupIds": ["0"]}', 400, "numbers"),
        ("POST", "supervisor/none/taskGroups/handoff", b'{"taskGroupIds": [0]}', 404, "not found"),
        ("GET", "tasks?state=lost", None, 400, "Invalid task state"),
        ("GET", "completeTasks?n=x", None, 400, "is no number"),
        ("GET", "completeTasks?n=99999999999", None, 200, "[]"),
        ("GET", "tasks?createdTimeInterval=today", None, 400, "createdTimeInterval"),
        ("GET", "tasks?createdTimeInterval=2000-01-01_2001-01-01", None, 200, "[]"),
        ("GET", "tasks?datasource=%00", None, 200, "[]"),
        ("GET", "task/none/status", None, 404, '"status":null'),
        ("GET", "task/none/log", None, 404, "No log was found"),
        ("GET", "task/read_ours/log?offset=-5", None, 404, "No log was found"),
        ("POST", "task/read_ours/shutdown", None, 400, "has not begun"),
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(
    client: TestClient,
    owner: Session,
    db: Engine,
    *,
    method: str,
    path: str,
    body: bytes | None,
    status: int,
    text: str,
) -> None:
    worlds(db)
    headers = headers_of(owner, "ada", "author")
    answer = client.request(method, f"{BASE}/{path}", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert text in answer.text
    with db.connect() as connection:
        assert connection.execute(select(t.supervisor_command.c.id)).all() == []
