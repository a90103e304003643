"""Topologies by the HTTP API: in the shape of Storm's, and as hostile as anybody may send them."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, func, select, update

from api.policy import BASE
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations.session import Session
from tests.integration.api_worlds import headers_of
from tests.integration.cli_rows import an_attempt, an_instance
from tests.topology_files import GRAPH, MAIN, PARTS, REPORT

_SUBMIT = f"{BASE}/topology/submit"
_WORDS = f"{BASE}/topology/words"


def a_submission(**changes: Any) -> dict[str, Any]:
    code = {"main": "words.py:topology", "files": {"words.py": MAIN, "parts.py": PARTS}}
    return {"code": code, "graph": GRAPH.document(), **changes}


def running(db: Engine) -> None:
    """Have a worker run the topology, and report."""
    with db.begin() as connection:
        connection.execute(t.command.delete())
        definition = connection.scalar(select(t.topology.c.process_definition_id))
    run = an_instance(db, ProcessState.RUNNING, process_definition_id=definition)
    attempt = an_attempt(db, run, TaskState.RUNNING, name="run", host="w:1", flag=1)
    with db.begin() as connection:
        connection.execute(
            update(t.topology).values(
                report=REPORT.document(), report_time=func.now(), task_instance_id=attempt
            )
        )


def test_a_topology_is_shown_as_storm_shows_it(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ada = headers_of(owner, "ada", "author")
    made = client.post(_SUBMIT, json=a_submission(), headers=ada)
    assert (made.status_code, made.json()["outcome"]) == (201, "created")
    assert client.post(_SUBMIT, json=a_submission(), headers=ada).status_code == 200
    running(db)
    (summary,) = client.get(f"{BASE}/topology/summary", headers=ada).json()["topologies"]
    assert summary | {"uptime": "", "uptimeSeconds": 0} == {
        "id": "words",
        "encodedId": "words",
        "name": "words",
        "status": "ACTIVE",
        "uptime": "",
        "uptimeSeconds": 0,
        "workersTotal": 1,
        "executorsTotal": 4,
        "tasksTotal": 9,
    }
    page = client.get(_WORDS, params={"window": "600"}, headers=ada).json()
    assert [each["window"] for each in page["topologyStats"]] == [
        "600",
        "10800",
        "86400",
        ":all-time",
    ]
    assert page["topologyStats"][0] == {
        "window": "600",
        "windowPretty": "10m 0s",
        "emitted": 10,
        "transferred": 10,
        "completeLatency": "1.500",
        "acked": 9,
        "failed": 1,
    }
    (spout,) = page["spouts"]
    assert (spout["spoutId"], spout["emitted"], spout["acked"]) == ("lines", 10, 9)
    assert [each["boltId"] for each in page["bolts"]] == ["split", "count"]
    assert page["bolts"][0]["capacity"] == "0.250"
    assert page["configuration"] == ["max.spout.pending"]
    split = client.get(f"{_WORDS}/component/split", params={"window": "600"}, headers=ada).json()
    assert (split["componentType"], split["executors"], split["tasks"]) == ("bolt", 2, 3)
    assert split["inputStats"] == [
        {
            "component": "lines",
            "encodedComponent": "lines",
            "stream": "default",
            "executed": 10,
            "acked": 0,
            "failed": 0,
        }
    ]
    assert split["componentErrors"][0]["errorTask"] == 1
    missing = client.get(f"{_WORDS}/component/spilt", headers=ada)
    assert (missing.status_code, "did you mean 'split'?" in missing.text) == (404, True)
    drawn = client.get(f"{_WORDS}/visualization", headers=ada).json()
    assert drawn["count"][":inputs"] == [
        {":component": "split", ":stream": "default", ":grouping": "fields"}
    ]
    assert client.get(_WORDS, params={"window": "5"}, headers=ada).status_code == 422


def test_a_topology_is_steered_as_storm_s_is(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ada = headers_of(owner, "ada", "author")
    client.post(_SUBMIT, json=a_submission(), headers=ada)
    running(db)
    done = client.post(f"{_WORDS}/deactivate", headers=ada)
    assert (done.status_code, done.json()) == (
        200,
        {
            "topologyOperation": "deactivate",
            "topologyId": "words",
            "status": "success",
            "number": 2,
            "command_id": None,
        },
    )
    assert client.post(f"{_WORDS}/deactivate", headers=ada).status_code == 409
    assert client.post(f"{_WORDS}/activate", headers=ada).status_code == 200
    options = {"rebalanceOptions": {"numWorkers": 4, "executors": {"split": 3}}}
    assert client.post(f"{_WORDS}/rebalance/5", json=options, headers=ada).status_code == 200
    assert client.get(_WORDS, headers=ada).json()["status"] == "REBALANCING"
    wrong = {"rebalanceOptions": {"executors": {"split": 4}}}
    refused = client.post(f"{_WORDS}/rebalance/5", json=wrong, headers=ada)
    assert (refused.status_code, "4 executors are more" in refused.text) == (422, True)
    assert client.post(f"{_WORDS}/rebalance/-1", json=options, headers=ada).status_code == 422
    assert client.post(f"{_WORDS}/kill/30", headers=ada).status_code == 200
    with db.connect() as connection:
        wanted = connection.scalar(select(t.topology.c.wanted))
    assert (wanted["killed"], wanted["waitSeconds"], wanted["cores"]) == (True, 30, 4)
    assert client.get(_WORDS, headers=ada).json()["status"] == "KILLED"
    stopped = client.post(f"{_WORDS}/kill/0", params={"now": True}, headers=ada)
    assert stopped.json()["command_id"] is not None


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"code": {}}, "code"),
        ({"code": {"main": "a.yaml", "files": {"../a.yaml": ""}}}, "code"),
        ({"code": {"main": "a.yaml", "files": {"a.yaml": "\0"}}}, "body"),
        ({"graph": {}}, "graph"),
        ({"graph": {"name": "words", "parts": []}}, "graph"),
        ({"graph": {**GRAPH.document(), "name": "../../etc"}}, "graph"),
        ({"graph": {**GRAPH.document(), "name": "summary"}}, "graph"),
        ({"cores": 0}, "cores"),
        ({"cores": 65}, "cores"),
        ({"memory": "much"}, "memory"),
    ],
)
def test_what_is_no_topology_is_refused_with_the_place_of_its_mistake(
    client: TestClient, owner: Session, db: Engine, changes: dict[str, Any], place: str
) -> None:
    ada = headers_of(owner, "ada", "author")
    answer = client.post(_SUBMIT, json=a_submission(**changes), headers=ada)
    assert answer.status_code == 422, answer.text
    assert answer.json()["mistakes"][0]["place"] == place
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.topology)) == 0


def test_no_server_imports_the_code_of_an_author(
    client: TestClient, owner: Session, db: Engine
) -> None:
    ada = headers_of(owner, "ada", "author")
    code = {"main": "words.py:made", "files": {"words.py": "raise SystemExit(3)\n"}}
    assert client.post(_SUBMIT, json=a_submission(code=code), headers=ada).status_code == 201
    with db.connect() as connection:
        assert connection.scalar(select(t.topology_version.c.code)) == code
