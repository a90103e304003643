"""DolphinScheduler's API: rights, log-ins, and calls that are wrong."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import Response
from sqlalchemy import Engine, insert, select

from api.app import build
from api.dolphinscheduler import environments
from api.dolphinscheduler.dialects import PROCESS
from api.dolphinscheduler.serving import ROWS, Served, served
from api.policy import Who
from common.config import ApiConfig, Config
from common.model.grants import GrantKind
from common.model.rights import ROLES
from common.model.states import TaskState
from common.store import tables as t
from common.store.connect import engine
from common.store.people.rights import Thing
from operations.shares import share
from operations.users import grant
from tests.integration.api_worlds import a_world
from tests.integration.cli_rows import a_definition, an_attempt
from tests.integration.dolphinscheduler_stage import (
    BASE,
    ENVIRONMENT,
    PASSWORD,
    Stage,
    a_stage,
    classic_file,
    classic_json,
    later_tasks,
    parameters_of,
)
from tests.integration.granting import grant_to
from tests.integration.rights_mistakes import BY_DOLPHINSCHEDULER, Plants


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """The application, which takes longer to build than most tests: each gives it its database."""
    config = Config(api=ApiConfig(requests_per_second=0))
    return build(config, engine("postgresql+psycopg2://nobody@127.0.0.1:1/none"), version="1")


@pytest.fixture
def stage(app: FastAPI, db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    # No master runs here, so a request must not wait until a master takes its run.
    monkeypatch.setattr("api.dolphinscheduler.runs.LONGEST_SECONDS", 0.0)
    return a_stage(app, db, tmp_path)


def some_worlds(db: Engine, foreign: int, suffix: str) -> dict[bool, dict[Thing, int]]:
    """Make one in the project of the roles, and one in a foreign project."""
    ours, theirs = (
        a_world(db, project, f"{name}{suffix}")
        for project, name in ((1, "ours"), (foreign, "theirs"))
    )
    return {
        own: {kind: world.objects[kind.value] for kind in Thing if kind.value in world.objects}
        for own, world in ((True, ours), (False, theirs))
    }


FORBIDDEN = 30001


def expected(each: Served, role: str, *, own: bool) -> str:
    """Work out the answer by the table alone: done, 401, missing or forbidden."""
    takes = each.row.takes
    if role == "anyone":
        return "401"
    if takes is Who.ADMINISTRATOR:
        # No role in a project makes one.
        return "forbidden"
    if each.row.serve is environments.show and role == "nobody":
        return "missing"
    if isinstance(takes, Who) or each.row.thing is None:
        return "done"
    if role == "nobody" or not own:
        return "missing"
    return "done" if ROLES[role] & takes else "forbidden"


def is_so(answer: Response, wanted: str) -> bool:
    if wanted == "401":
        return (answer.status_code, answer.content) == (401, b"")
    document = answer.json() if "json" in answer.headers["content-type"] else {}
    # An export is the content of a file, and no envelope.
    code = document.get("code", 0) if isinstance(document, dict) else 0
    match wanted:
        case "missing":
            # A trigger of nobody's has no number of its own there.
            return code in (10018, 50001, 50003, 10008, 10022, 10152, 10000, 1200009)
        case "forbidden":
            return bool(code == FORBIDDEN)
        case _:
            # Refused for its state or its name, since another role has done it already.
            return code not in (10018, 50001, 50003, 10022, 10152) and "theirs" not in answer.text


def test_every_route_answers_every_role_as_its_table_says(stage: Stage, plants: Plants) -> None:
    with stage.db.begin() as connection:
        foreign = connection.scalar(
            insert(t.project).values(name="foreign").returning(t.project.c.id)
        )
        connection.execute(insert(t.environment).values(name="e", code=ENVIRONMENT))
        grant_to(connection, GrantKind.ENVIRONMENT, ENVIRONMENT, 1)
    worlds = some_worlds(stage.db, foreign or 0, "")
    headers: dict[str, dict[str, str]] = {"anyone": {}}
    for role in ("nobody", *ROLES):
        stage.a_user(f"the-{role}", role=role if role in ROLES else "none")
        headers[role] = stage.a_token(f"the-{role}")
    headers["administrator"] = stage.a_token("admin")
    wrong = []
    planted: set[tuple[object, bool]] = set()
    # What 2.0 says with another word than 3.3 is served by the same line of the table.
    called = [
        each
        for each in served()
        if each.row.takes is not Who.ANYONE and each.dialect is not PROCESS
    ]
    for number, each in enumerate(called):
        before = called[number - 1]
        if any(one.row.serve.__name__.startswith("delete") for one in (before, each)):
            worlds = some_worlds(stage.db, foreign or 0, f" {number}")
        takes = each.row.takes
        able = [role for role in ROLES if isinstance(takes, Who) or ROLES[role] & takes]
        # The least role that may do it, and the greatest that may not.
        near = [role for role in ROLES if role not in able][-1:] + able[:1]
        callers = [("anyone", True), ("nobody", True), ("admin", False)]
        if "{project}" in each.path and each.row.thing not in (None, Thing.PROJECT):
            # An object of one project in the path of another, by somebody who sees both.
            callers[2] = ("administrator", False)
        for role, own in (*callers, *((role, True) for role in near)):
            world = worlds[own]
            at = worlds[own or role == "administrator"][Thing.PROJECT]
            name = ("foreign" if at == foreign else "default") if each.dialect.is_classic else None
            given = parameters_of(each, world)
            path = each.path.format(
                project=name or at,
                code=world[Thing.DEFINITION],
                version=1,
                id=world.get(each.row.thing or Thing.PROJECT, 0),
            )
            if path == "projects/import-definition":
                given["projectName"] = name
            ask = partial(
                stage.client.request,
                each.method,
                f"{BASE}/{path}",
                params=given,
                files={"file": classic_file()} if "import" in path else None,
                headers=headers[role],
            )
            plants.refused = None
            answer = ask()
            wanted = expected(each, role, own=own)
            if not is_so(answer, wanted):
                wrong.append((each.method, path, role, own, wanted, answer.text[:200]))
            once = (each.row.serve, each.dialect.is_classic)
            if wanted == "forbidden" and once not in planted:
                planted.add(once)
                plants.plant(path, lambda ask=ask: is_so(ask(), "forbidden"))
    assert wrong == []
    assert plants.unexplained == []
    assert plants.undecided().isdisjoint(BY_DOLPHINSCHEDULER)
    assert {each.row.serve for each in served()} == {row.serve for row in ROWS}


# Calls that are wrong


WRONG_CALLS: list[tuple[str, str, dict[str, Any], int]] = [
    ("GET", "projects", {"pageNo": 1, "pageSize": 10**9}, 0),
    ("GET", "projects", {"pageNo": 2, "pageSize": 10**9}, 10001),
    ("GET", "projects", {"pageNo": 10**18, "pageSize": 10**18}, 10001),
    ("GET", "projects", {"pageNo": 0, "pageSize": 10}, 10001),
    ("GET", "projects", {"pageNo": "x", "pageSize": 10}, 10001),
    ("GET", "projects", {"pageNo": 1, "pageSize": 10, "searchVal": "\0"}, 0),
    ("GET", "projects", {"pageNo": 1, "pageSize": 10, "searchVal": "%"}, 0),
    # The wrong dialect: a name where a code stands, and a code where a name does.
    ("GET", "projects/default/process-definition", {"pageNo": 1, "pageSize": 10}, 10018),
    ("GET", "projects/1/process/list", {}, 10018),
    ("GET", "projects/default/process-instances/1", {}, 10018),
    # Codes of nobody.
    ("GET", "projects/99999999999999/process-definition/1", {}, 10018),
    ("GET", "projects/1/process-definition/99999999999999", {}, 50003),
    ("GET", "projects/1/process-definition/99999999999999999999999", {}, 10001),
    ("GET", "projects/1/process-definition/-1", {}, 50003),
    ("GET", "projects/1/process-instances/2147483648", {}, 50001),
    ("GET", "projects/1/process-instances/trigger", {"triggerCode": 2**62}, 10000),
    ("GET", "log/detail", {"taskInstanceId": 2**40}, 10008),
    ("GET", "log/detail", {}, 10001),
    ("POST", "projects/1/executors/execute", {"processInstanceId": 1}, 10001),
    ("POST", "projects/1/schedules", {"processDefinitionCode": 1, "schedule": "["}, 50003),
    ("POST", "projects/1/process-definition", {"name": "x"}, 10001),
    ("POST", "projects/1/process-definition", {"name": "x", "taskDefinitionJson": "{"}, 50017),
    (
        "POST",
        "projects/1/process-definition",
        {"name": "x", "taskDefinitionJson": "[" * 100_000},
        50017,
    ),
    ("POST", "projects/1/process-definition", {"name": "a\0b", **later_tasks()}, 50017),
    ("POST", "resources/create", {}, 10000),
    ("GET", "nothing/at/all", {}, 10000),
    ("DELETE", "projects/list", {}, 10000),
    ("GET", "projects/1/task-definition/gen-task-codes", {"genNum": 10**9}, 10001),
]


def test_a_wrong_call_has_a_status_and_a_sentence(stage: Stage) -> None:
    headers = stage.a_token("admin")
    wrong = []
    for method, path, parameters, code in WRONG_CALLS:
        document = stage.call(method, path, headers=headers, **parameters)
        assert "Traceback" not in document["msg"]
        assert len(document["msg"]) < 3000
        if document["code"] != code:
            wrong.append((method, path, str(parameters)[:100], code, document))
    assert wrong == []


def test_a_body_of_get_is_nobodys_and_a_body_that_cant_be_read_is_refused(stage: Stage) -> None:
    headers = stage.a_token("admin")
    answer = stage.client.request(
        "GET", f"{BASE}/projects?pageNo=1&pageSize=1", content=b"\xff" * 1000, headers=headers
    )
    assert answer.json()["data"]["total"] == 1
    for media_type, body in (
        ("application/json", b"[1]"),
        ("application/json", b"{"),
        ("application/x-www-form-urlencoded", b"&".join(b"a=1" for _ in range(2000))),
        ("multipart/form-data; boundary=x", b"nothing"),
        ("multipart/form-data", b"--x"),
    ):
        answer = stage.client.post(
            f"{BASE}/projects", content=body, headers={**headers, "Content-Type": media_type}
        )
        assert (answer.status_code, answer.json()["code"]) in ((200, 10001), (200, 50017)), body


def test_a_user_is_blocked_after_five_wrong_passwords(stage: Stage) -> None:
    stage.a_user("ada", password=PASSWORD)
    for name in ("ada", "nobody-at-all"):
        wrong = stage.call("POST", "login", userName=name, userPassword="x")
        assert (wrong["code"], wrong["msg"]) == (10013, "user name or password error")
    for _ in range(4):
        stage.call("POST", "login", userName="ada", userPassword="x")
    blocked = stage.call("POST", "login", userName="ada", userPassword=PASSWORD)
    assert blocked["code"] == 10043
    assert "try again in" in blocked["msg"]
    assert stage.client.cookies.get("sessionId") is None


def test_a_cookie_works_for_no_page_of_another_origin(stage: Stage) -> None:
    stage.a_user("ada", password=PASSWORD)
    stage.done("POST", "login", userName="ada", userPassword=PASSWORD)
    mine = {"Origin": "http://127.0.0.1:12345", "Sec-Fetch-Site": "same-origin"}
    assert stage.client.get(f"{BASE}/projects/list", headers=mine).status_code == 200
    for theirs in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:8080"},
        {"Origin": "null"},
    ):
        assert stage.client.get(f"{BASE}/projects/list", headers=theirs).status_code == 401


def test_an_author_runs_no_definition_of_a_project_that_is_not_open_to_them(stage: Stage) -> None:
    with stage.db.begin() as connection:
        foreign = connection.scalar(
            insert(t.project).values(name="foreign").returning(t.project.c.id)
        )
    theirs = a_definition(
        stage.db, name="theirs", project_id=foreign, process_definition_json=classic_json()
    )
    stage.a_user("ada")
    child = {
        "tasks": [
            {
                "name": "child",
                "type": "SUB_PROCESS",
                "params": {"processDefinitionId": theirs},
                "preTasks": [],
            }
        ]
    }
    refused = stage.call(
        "POST",
        "projects/default/process/save",
        headers=stage.a_token("ada"),
        name="spy",
        processDefinitionJson=json.dumps(child),
    )
    invalid = 50017
    assert (refused["code"], "there is no process definition" in refused["msg"]) == (invalid, True)
    # A role in the foreign project is not enough. The project has to share the definition.
    grant(stage.owner, "ada", project="foreign", role="operator")
    ada = stage.a_token("ada")
    place = "projects/default/process/save"
    given = {"name": "spy", "processDefinitionJson": json.dumps(child)}
    assert stage.call("POST", place, headers=ada, **given)["code"] == invalid
    with stage.db.connect() as connection:
        names = connection.scalars(select(t.process_definition.c.name)).all()
    assert names == ["theirs"]
    item = {"definitionId": theirs, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    waits = {"relation": "AND", "dependTaskList": [{"relation": "AND", "dependItemList": [item]}]}
    task = {"name": "wait", "type": "DEPENDENT", "params": {}, "dependence": waits}
    waiting = {"name": "waits", "processDefinitionJson": json.dumps({"tasks": [task]})}
    assert stage.call("POST", place, headers=ada, **waiting)["code"] == invalid
    share(stage.owner, theirs, "default")
    for each in (given, waiting):
        assert stage.call("POST", place, headers=ada, **each)["code"] == 0


def test_a_foreign_definition_is_answered_as_a_missing_one_by_id_and_by_code(stage: Stage) -> None:
    with stage.db.begin() as connection:
        foreign = connection.scalar(
            insert(t.project).values(name="foreign").returning(t.project.c.id)
        )
    code = 2**40
    theirs = a_definition(stage.db, name="theirs", project_id=foreign, code=code)
    stage.a_user("ada")
    ada = stage.a_token("ada")
    cron = (
        '{"crontab": "0 0 0 * * ? *", "startTime": "2026-01-01 00:00:00",'
        ' "endTime": "2027-01-01 00:00:00", "timezoneId": "UTC"}'
    )
    doors = (
        ("GET", "projects/default/process/export", "processDefinitionIds", theirs),
        (
            "POST",
            "projects/default/executors/start-process-instance",
            "processDefinitionId",
            theirs,
        ),
        ("POST", "projects/default/schedule/create", "processDefinitionId", theirs),
        ("GET", "projects/default/schedule/list-paging", "processDefinitionId", theirs),
        ("POST", "projects/1/process-definition/batch-export", "codes", code),
        ("POST", "projects/1/executors/start-process-instance", "processDefinitionCode", code),
        (
            "POST",
            "projects/1/executors/batch-start-process-instance",
            "processDefinitionCodes",
            code,
        ),
        ("POST", "projects/1/schedules", "processDefinitionCode", code),
        ("GET", "projects/1/schedules", "processDefinitionCode", code),
    )
    for method, path, name, number in doors:
        told = [
            stage.call(
                method,
                path,
                headers=ada,
                **{name: each, "schedule": cron, "pageNo": 1, "pageSize": 9},
            )["msg"].replace(str(each), "N")
            for each in (number, number + 990)
        ]
        assert ("N" in told[0], told[0]) == (True, told[1]), path


def test_the_code_of_a_foreign_sub_process_is_shown_to_nobody(stage: Stage) -> None:
    with stage.db.begin() as connection:
        foreign = connection.scalar(
            insert(t.project).values(name="foreign").returning(t.project.c.id)
        )
    theirs = a_definition(stage.db, name="theirs", project_id=foreign, code=2**40)
    child = {"name": "c", "type": "SUB_PROCESS", "params": {"processDefinitionId": theirs}}
    ours = a_definition(stage.db, process_definition_json=json.dumps({"tasks": [child]}))
    stage.a_user("ada", role="admin")
    for user, code in (("ada", theirs), ("admin", 2**40)):
        found = stage.call(
            "GET", f"projects/1/process-definition/{ours}", headers=stage.a_token(user)
        )
        (task,) = found["data"]["taskDefinitionList"]
        assert task["taskParams"]["processDefinitionCode"] == code


def test_a_sub_process_of_a_foreign_project_is_shown_to_nobody(stage: Stage) -> None:
    with stage.db.begin() as connection:
        foreign = connection.scalar(
            insert(t.project).values(name="foreign").returning(t.project.c.id)
        )
    ours, theirs = a_world(stage.db, 1, "ours"), a_world(stage.db, foreign or 0, "theirs")
    task = an_attempt(
        stage.db,
        ours.objects["instance"],
        TaskState.RUNNING,
        task_type="SUB_PROCESS",
        name="child",
        process_definition_id=ours.objects["definition"],
    )
    child = {
        "parent_process_instance_id": ours.objects["instance"],
        "parent_task_instance_id": task,
        "process_instance_id": theirs.objects["instance"],
    }
    with stage.db.begin() as connection:
        connection.execute(insert(t.relation_process_instance).values(**child))
    stage.a_user("ada", role="admin")
    path = "projects/default/instance/select-sub-process"
    missing = stage.call("GET", path, headers=stage.a_token("ada"), taskId=task)
    assert (missing["code"], missing["data"]) == (50001, None)
    found = stage.call("GET", path, headers=stage.a_token("admin"), taskId=task)
    assert found["data"] == {"subProcessInstanceId": theirs.objects["instance"]}
