"""A client that sends a masked answer back keeps the stored secrets."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select

from api.app import build
from api.druid.serving import BASE as DRUID
from api.policy import BASE
from common.config import ApiConfig, Config
from common.masking import secrets_in_json
from common.model.command_param import CommandParam, start_values
from common.store import tables as t
from common.store.connect import engine
from operations.session import Session
from tests.integration.api_worlds import a_schedule, headers_of
from tests.integration.cli_rows import a_definition
from tests.integration.dolphinscheduler_stage import Stage, a_stage, later_tasks
from tests.unit.stream_specs import SMALL

SECRET, OTHER = "hunter2-p@ss", "hunter3"
PASSWORD = {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": SECRET}
HEADER = {"prop": "Authorization", "value": "Bearer hunter2", "httpParametersType": "HEADERS"}
MASK = "******"


@pytest.fixture(scope="module")
def whole() -> FastAPI:
    config = Config(api=ApiConfig(requests_per_second=0))
    return build(config, engine("postgresql+psycopg2://nobody@127.0.0.1:1/none"), version="1")


@pytest.fixture
def stage(whole: FastAPI, db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr("api.dolphinscheduler.runs.LONGEST_SECONDS", 0.0)
    made = a_stage(whole, db, tmp_path)
    made.a_user("ada", role="admin")
    made.headers.update(made.a_token("ada"))
    return made


def with_secrets() -> dict[str, str]:
    """Return the parameters of a definition with secrets in a task and among its globals."""
    given = later_tasks()
    tasks = json.loads(given["taskDefinitionJson"])
    tasks[0]["taskParams"] |= {
        "localParams": [PASSWORD],
        "rawScript": "curl https://me:hunter2@host/x",
    }
    tasks[1] |= {"taskType": "HTTP"}
    tasks[1]["taskParams"] = {"url": "https://host/x", "httpParams": [HEADER]}
    return given | {
        "taskDefinitionJson": json.dumps(tasks),
        "globalParams": json.dumps([{**PASSWORD, "prop": "api_token", "value": OTHER}]),
    }


def stored(db: Engine) -> str:
    with db.connect() as connection:
        found = connection.scalars(select(t.process_definition.c.process_definition_json)).one()
    return found or ""


def resent(shown: dict[str, Any], **changes: Any) -> dict[str, str]:
    """Return the request by which DolphinScheduler's page saves the shown definition."""
    definition = shown["processDefinition"]
    return {
        "name": definition["name"],
        "globalParams": definition["globalParams"],
        "locations": "[]",
        "taskDefinitionJson": json.dumps(shown["taskDefinitionList"]),
        "taskRelationJson": json.dumps(shown["processTaskRelationList"]),
        **changes,
    }


def test_a_definition_that_dolphinscheduler_s_page_sends_back_keeps_its_secrets_x51(
    stage: Stage,
) -> None:
    made = stage.done("POST", "projects/1/process-definition", name="nightly", **with_secrets())
    place = f"projects/1/process-definition/{made['code']}"
    before = json.loads(stored(stage.db))
    shown = stage.done("GET", place)
    assert "hunter" not in json.dumps(shown)
    assert shown["taskDefinitionList"][0]["taskParams"]["localParams"][0]["value"] == MASK
    stage.done("PUT", place, **resent(shown, description="new"))
    after = json.loads(stored(stage.db))
    assert {key: after[key] for key in before} == before
    # A renamed task keeps its secrets too, and a new value replaces the stored value.
    tasks = copy.deepcopy(shown["taskDefinitionList"])
    tasks[0]["name"] = "renamed"
    tasks[1]["taskParams"]["httpParams"][0]["value"] = "Bearer hunter9"
    stage.done("PUT", place, **resent(shown, taskDefinitionJson=json.dumps(tasks)))
    now = stored(stage.db)
    assert (SECRET in now, "Bearer hunter9" in now, "Bearer hunter2" in now) == (True, True, False)
    assert "https://me:hunter2@host/x" in now


def test_a_mask_without_a_stored_secret_in_its_place_is_refused_x51(stage: Stage) -> None:
    given = with_secrets()
    masked = {**given, "taskDefinitionJson": given["taskDefinitionJson"].replace(SECRET, MASK)}
    refused = stage.call("POST", "projects/1/process-definition", name="new", **masked)
    assert (refused["success"], "masked" in refused["msg"]) == (False, True)
    with stage.db.connect() as connection:
        assert connection.scalars(select(t.process_definition.c.id)).all() == []


def test_an_export_of_dolphinscheduler_s_api_carries_references_and_comes_back_x51(
    stage: Stage,
) -> None:
    made = stage.done("POST", "projects/1/process-definition", name="nightly", **with_secrets())
    before = json.loads(stored(stage.db))
    answer = stage.client.post(
        "/dolphinscheduler/projects/1/process-definition/batch-export",
        data={"codes": made["code"]},
        headers=stage.headers,
    )
    assert "hunter" not in answer.text
    assert "$ENV{ORCAFLOW_SECRET_DB_PASSWORD}" in answer.text
    stage.client.post(
        "/dolphinscheduler/projects/1/process-definition/import",
        files={"file": answer.content},
        headers=stage.headers,
    )
    assert json.loads(stored(stage.db))["tasks"] == before["tasks"]


def test_a_run_that_is_started_with_masks_has_the_definition_s_secrets_x51(stage: Stage) -> None:
    made = stage.done("POST", "projects/1/process-definition", name="nightly", **with_secrets())
    stage.done(
        "POST", f"projects/1/process-definition/{made['code']}/release", releaseState="ONLINE"
    )

    def start(**params: str) -> dict[str, Any]:
        return stage.call(
            "POST",
            "projects/1/executors/start-process-instance",
            processDefinitionCode=made["code"],
            startParams=json.dumps(params),
        )

    assert start(api_token=MASK, day="1")["success"]
    with stage.db.connect() as connection:
        param = json.loads(connection.scalars(select(t.command.c.command_param)).one() or "")
    assert param["StartParams"] == {"day": "1"}
    refused = start(unknown_token=MASK)
    assert (refused["success"], "masked" in refused["msg"]) == (False, True)


def test_a_schedule_that_is_sent_back_keeps_its_secret_x51(
    client: TestClient, owner: Session, db: Engine
) -> None:
    headers = headers_of(owner, "ada", "admin")
    number = a_schedule(db, a_definition(db))
    place = f"{BASE}/schedules/{number}"
    first = {"api_token": SECRET, "day": "1"}
    for params in (first, {"api_token": MASK, "day": "2"}):
        answer = client.patch(place, json={"params": params}, headers={**headers, "If-Match": "*"})
        assert answer.status_code == 200, answer.text
        assert SECRET not in answer.text
    with db.connect() as connection:
        kept = connection.scalars(select(t.schedule.c.start_params)).one()
    assert json.loads(kept or "") == {"api_token": SECRET, "day": "2"}


def test_a_start_up_parameter_that_its_definition_marks_is_secret_in_rows_and_answers_x51(
    client: TestClient, owner: Session, db: Engine
) -> None:
    headers = headers_of(owner, "ada", "admin")
    marked = [{"prop": "place", "direct": "IN", "type": "VARCHAR", "value": "", "secret": True}]
    task = {"name": "a", "type": "SHELL", "params": {"rawScript": "true"}}
    definition = a_definition(
        db,
        process_definition_json=json.dumps({"tasks": [task], "globalParams": marked}),
        project_id=1,
    )
    number = a_schedule(db, definition)
    given = {"place": SECRET, "day": "1"}

    def answered(method: str, path: str, body: dict[str, Any], **more: str) -> str:
        answer = client.request(method, f"{BASE}{path}", json=body, headers={**headers, **more})
        assert answer.status_code < 300, answer.text
        return answer.text

    answered("PATCH", f"/schedules/{number}", {"params": given}, **{"If-Match": "*"})
    # A client that sends the mask back keeps the value.
    answered(
        "PATCH", f"/schedules/{number}", {"params": {**given, "place": MASK}}, **{"If-Match": "*"}
    )
    answered(
        "POST",
        "/complements",
        {"definition_id": definition, "dates": ["2024-01-01"], "params": given},
    )
    answered("POST", "/instances", {"definition_id": definition, "params": given})
    shown = answered("GET", f"/schedules/{number}", {}) + answered("GET", "/complements", {})
    assert (SECRET in shown, MASK in shown) == (False, True)
    with db.connect() as connection:
        command = connection.scalars(select(t.command.c.command_param)).one()
        stored = [
            connection.scalars(select(t.schedule.c.start_params)).one(),
            connection.scalars(select(t.complement.c.start_params)).one(),
            CommandParam.parse(command).start_params,
        ]
    for each in stored:
        assert start_values(each) == given
        # What the walker finds is encrypted in rows with a key, and masked in logs.
        assert secrets_in_json(each or "") == (SECRET,)


@pytest.mark.parametrize(
    "value", ["hunter2", {"type": "default", "password": "hunter2"}], ids=["text", "provider"]
)
def test_a_supervisor_shows_no_password_and_keeps_it_when_it_is_sent_back_x52(
    client: TestClient, owner: Session, db: Engine, value: object
) -> None:
    headers = headers_of(owner, "ada", "admin")
    spec = copy.deepcopy(SMALL)
    name = spec["spec"]["dataSchema"]["dataSource"]
    spec["spec"]["ioConfig"]["consumerProperties"]["sasl.password"] = value
    made = client.post(f"{BASE}/streams", json=spec, headers=headers)
    assert made.is_success, made.text
    for place in (f"{BASE}/streams", f"{BASE}/streams/{name}/history"):
        assert "hunter2" not in client.get(place, headers=headers).text
    assert "hunter2" not in client.get(f"{DRUID}/supervisor/{name}", headers=headers).text
    shown = client.get(f"{BASE}/streams/{name}/history", headers=headers).json()
    sent = shown["items"][0]["spec"]
    assert MASK in json.dumps(sent)
    sent["spec"]["ioConfig"]["taskCount"] = 2
    again = client.post(f"{BASE}/streams", json=sent, headers=headers)
    assert (again.is_success, again.json().get("outcome")) == (True, "changed"), again.text
    with db.connect() as connection:
        kept = connection.scalars(
            select(t.supervisor.c.spec).order_by(t.supervisor.c.version.desc())
        ).first()
    assert kept is not None
    assert kept["spec"]["ioConfig"]["consumerProperties"]["sasl.password"] == value
    sent["spec"]["ioConfig"]["consumerProperties"]["bootstrap.servers"] = "evil:9092"
    refused = client.post(f"{BASE}/streams", json=sent, headers=headers)
    assert (refused.status_code, "hunter2" in refused.text) == (422, False)
