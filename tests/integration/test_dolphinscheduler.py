"""DolphinScheduler's API: scripts of its dialects save, release, start, poll and schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import Engine, event, select, update

from api.app import build
from common.config import ApiConfig, Config
from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from common.store.connect import engine
from tests.granting import grant_all
from tests.integration.api_worlds import a_schedule
from tests.integration.cli_rows import a_definition, an_attempt, an_instance
from tests.integration.dolphinscheduler_stage import (
    BASE,
    CODES,
    DAILY,
    PASSWORD,
    Stage,
    a_stage,
    classic_json,
    later_tasks,
)
from tests.integration.reviewing import with_review


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """The application, which takes longer to build than most tests: each gives it its database."""
    config = Config(api=ApiConfig(requests_per_second=0))
    return build(config, engine("postgresql+psycopg2://nobody@127.0.0.1:1/none"), version="1")


@pytest.fixture
def stage(app: FastAPI, db: Engine, tmp_path: Path) -> Stage:
    return a_stage(app, db, tmp_path)


def started(stage: Stage) -> Any:
    """Read the newest command: its type and its parameters."""
    with stage.db.connect() as connection:
        return connection.execute(select(t.command).order_by(t.command.c.id.desc()).limit(1)).one()


def test_a_script_of_1_2_1_saves_releases_starts_polls_complements_and_schedules(
    stage: Stage,
) -> None:
    stage.a_user("ada", role="admin", password=PASSWORD)
    logged_in = stage.done("POST", "login", userName="ada", userPassword=PASSWORD)
    # As a browser and a session of `requests` do: the cookie was kept.
    assert stage.client.cookies["sessionId"] == logged_in["sessionId"]
    (project,) = stage.done("GET", "projects/query-project-list")
    assert (project["name"], project["id"]) == ("default", 1)

    below = "projects/default"
    assert stage.done("GET", f"{below}/process/verify-name", name="nightly") is None
    stage.done(
        "POST",
        f"{below}/process/save",
        name="nightly",
        processDefinitionJson=classic_json(),
        locations='{"a": {"x": 1}}',
        connects="[]",
        description="every night",
    )
    taken = stage.call("GET", f"{below}/process/verify-name", name="nightly")
    assert (taken["code"], taken["msg"]) == (
        10168,
        "process definition name nightly already exists",
    )
    listed = stage.done(
        "GET", f"{below}/process/list-paging", pageNo=1, pageSize=10, searchVal="ni"
    )
    (saved,) = listed["totalList"]
    assert (listed["total"], listed["totalPage"], listed["currentPage"]) == (1, 1, 1)
    assert (saved["name"], saved["releaseState"], saved["flag"]) == ("nightly", "OFFLINE", "YES")
    number = saved["id"]
    offline = stage.call("POST", f"{below}/executors/start-check", processDefinitionId=number)
    assert offline["code"] == 50004

    stage.done("POST", f"{below}/process/release", processId=number, releaseState=1)
    shown = stage.done("GET", f"{below}/process/select-by-id", processId=number)
    assert json.loads(shown["processDefinitionJson"])["tasks"][0]["name"] == "a"
    begun = stage.done(
        "POST",
        f"{below}/executors/start-process-instance",
        processDefinitionId=number,
        scheduleTime="",
        failureStrategy="END",
        startNodeList="b",
        taskDependType="TASK_ONLY",
        execType="",
        warningType="NONE",
        warningGroupId=0,
        receivers="",
        receiversCc="",
        runMode="RUN_MODE_SERIAL",
        processInstancePriority="HIGH",
        workerGroupId=-1,
        timeout=60,
    )
    assert begun is None
    command = started(stage)
    assert (command.command_type, command.failure_strategy) == (CommandType.START_PROCESS, 0)
    assert json.loads(command.command_param)["StartNodeNameList"] == "b"

    run, task = stage.carry_out()
    page = stage.done(
        "GET", f"{below}/instance/list-paging", pageNo=1, pageSize=10, processDefinitionId=number
    )
    assert [(each["id"], each["state"]) for each in page["totalList"]] == [
        (run, "RUNNING_EXEUTION")
    ]
    tasks = stage.done("GET", f"{below}/instance/task-list-by-process-id", processInstanceId=run)
    assert (tasks["processInstanceState"], tasks["taskList"][0]["state"]) == (
        "RUNNING_EXEUTION",
        "SUCCESS",
    )
    log = stage.done("GET", "log/detail", taskInstId=task, skipLineNum=1, limit=1)
    assert log == "two\r\n"
    stop = {"processInstanceId": run, "executeType": "STOP"}
    assert stage.done("POST", f"{below}/executors/execute", **stop) is None
    assert started(stage).command_type == CommandType.STOP
    stage.end(run, ProcessState.STOP)
    again = stage.call("POST", f"{below}/executors/execute", **stop)
    assert (again["code"], again["msg"]) == (
        50005,
        "the status of process instance nightly-1 is already STOP",
    )
    repeat = {"processInstanceId": run, "executeType": "REPEAT_RUNNING"}
    # A later version of the definition exists: the answer names both, and the next call takes it.
    with stage.db.begin() as connection:
        run_of = t.process_instance.c.id == run
        name = "nightly-1-1357027200000"
        connection.execute(update(t.process_instance).where(run_of).values(name=name))
        connection.execute(update(t.process_definition).values(version=4))
    named = stage.done("POST", f"{below}/executors/execute", **repeat)
    assert named == {"version": 1, "latestVersion": 4}
    with stage.db.begin() as connection:
        connection.execute(t.command.delete())
    latest = {**repeat, "definitionVersion": "latest"}
    other = {**repeat, "definitionVersion": "3"}
    assert stage.call("POST", f"{below}/executors/execute", **other)["code"] == 10001
    assert stage.done("POST", f"{below}/executors/execute", **latest) is None
    assert json.loads(started(stage).command_param)["definitionVersion"] == "latest"
    assert stage.call("POST", f"{below}/executors/execute", **repeat)["code"] == 50009

    stage.done(
        "POST",
        f"{below}/executors/start-process-instance",
        processDefinitionId=number,
        execType="COMPLEMENT_DATA",
        scheduleTime="2013-01-01 00:00:00,2013-01-03 00:00:00",
        runMode="RUN_MODE_PARALLEL",
        failureStrategy="CONTINUE",
        warningType="NONE",
        warningGroupId=0,
        processInstancePriority="MEDIUM",
    )
    with stage.db.connect() as connection:
        complement = connection.execute(select(t.complement)).one()
    assert (complement.process_definition_id, complement.parallelism) == (number, 2)

    stage.done(
        "POST",
        f"{below}/schedule/create",
        processDefinitionId=number,
        schedule=json.dumps({key: DAILY[key] for key in ("startTime", "endTime", "crontab")}),
        warningType="NONE",
        warningGroupId=0,
        failureStrategy="CONTINUE",
        workerGroupId=-1,
        processInstancePriority="MEDIUM",
    )
    rows = stage.done(
        "GET", f"{below}/schedule/list-paging", processDefinitionId=number, pageNo=1, pageSize=10
    )
    (schedule,) = rows["totalList"]
    assert (schedule["crontab"], schedule["releaseState"]) == (DAILY["crontab"], "OFFLINE")
    stage.done("POST", f"{below}/schedule/online", id=schedule["id"])
    edit = stage.call(
        "POST", f"{below}/schedule/update", id=schedule["id"], schedule=json.dumps(DAILY)
    )
    assert (edit["code"], edit["msg"]) == (10023, "online status does not allow update operations")
    stage.done("POST", f"{below}/schedule/offline", id=schedule["id"])
    stage.done("GET", f"{below}/schedule/delete", scheduleId=schedule["id"])
    assert stage.call("POST", f"{below}/schedule/online", id=schedule["id"])["code"] == 10022
    stage.done("POST", f"{below}/process/release", processId=number, releaseState=0)
    stage.done("POST", "signOut")
    assert stage.client.get(f"{BASE}/projects/query-project-list").status_code == 401


@pytest.mark.parametrize("word", ["process", "workflow"])
def test_a_script_of_3_2_2_and_one_of_3_3_save_release_start_poll_complement_and_schedule(
    stage: Stage, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.a_user("ada", role="admin", password=PASSWORD)
    session = stage.done("POST", "login", userName="ada", userPassword=PASSWORD)["sessionId"]
    stage.client.cookies.clear()
    assert stage.done("GET", "projects/list", headers={"sessionId": session})[0]["code"] == 1
    stage = replace(stage, headers=stage.a_token("ada"))
    page = stage.done("GET", "projects", pageNo=1, pageSize=10, searchVal="")
    project = page["totalList"][0]["code"]
    below = f"projects/{project}"
    definitions = f"{below}/{word}-definition"
    assert stage.done("GET", f"{below}/project-preference") is None
    assert stage.client.get(f"{BASE}/actuator/health").json() == {"status": "UP"}
    codes = stage.done("GET", f"{below}/task-definition/gen-task-codes", genNum=2)
    assert len(set(codes)) == 2

    saved = stage.done("POST", definitions, name="nightly", **later_tasks())
    code = saved["code"]
    assert (saved["name"], saved["releaseState"], saved["projectCode"]) == ("nightly", "OFFLINE", 1)
    shown = stage.done("GET", f"{definitions}/{code}")
    assert [each["code"] for each in shown["taskDefinitionList"]] == list(CODES)
    assert [
        (each["preTaskCode"], each["postTaskCode"]) for each in shown[f"{word}TaskRelationList"]
    ] == [(0, CODES[0]), CODES]
    assert shown[f"{word}Definition"]["globalParamMap"] == {"day": ""}
    # Read, changed and sent back, as a script does.
    changed = stage.done(
        "PUT",
        f"{definitions}/{code}",
        name="nightly2",
        taskDefinitionJson=json.dumps(shown["taskDefinitionList"]),
        taskRelationJson=json.dumps(shown[f"{word}TaskRelationList"]),
    )
    assert (changed["code"], changed["name"]) == (code, "nightly2")
    assert stage.done("POST", f"{definitions}/{code}/release", releaseState="ONLINE") is True
    assert stage.call("PUT", f"{definitions}/{code}", name="n", **later_tasks())["code"] == 10107

    start = f"{below}/executors/start-{word}-instance"
    common = {
        f"{word}DefinitionCode": code,
        "failureStrategy": "CONTINUE",
        "warningType": "NONE",
        f"{word}InstancePriority": "MEDIUM",
        "workerGroup": "default",
        "dryRun": 0,
    }
    monkeypatch.setattr("api.dolphinscheduler.runs.LONGEST_SECONDS", 0.0)
    asked = {
        **common,
        "startNodeList": str(CODES[1]),
        "startParams": json.dumps({"day": "2013-01-02"}),
        "scheduleTime": "",
        "version": changed["version"],
    }
    old = stage.call("POST", start, **{**asked, "version": 99})
    assert (old["code"], "only the present version" in old["msg"]) == (10000, True)
    answer = stage.call("POST", start, **asked)
    command = started(stage)
    param = json.loads(command.command_param)
    assert (param["StartParams"], param["StartNodeNameList"]) == ({"day": "2013-01-02"}, "b")
    if word == "process":
        assert (answer["code"], answer["data"]) == (0, command.id)
        runs = f"{below}/process-instances"
        assert stage.done("GET", f"{runs}/trigger", triggerCode=command.id) == []
        run, task = stage.carry_out()
        (found,) = stage.done("GET", f"{runs}/trigger", triggerCode=command.id)
        assert found["id"] == run
    else:
        # Nobody carries it out, and the answer needs the run: it says which command waits.
        assert (answer["code"], f"command {command.id} waits" in answer["msg"]) == (10000, True)
        runs = f"{below}/workflow-instances"
        run, task = stage.carry_out()
        monkeypatch.setattr(
            "api.dolphinscheduler.runs.await_instance", lambda *_: stage.carry_out()[0]
        )
        (second,) = stage.done("POST", start, **asked)
        assert second == run + 1
    shown = stage.done("GET", f"{runs}/{run}")
    assert (shown["state"], shown[f"{word}DefinitionCode"]) == ("RUNNING_EXECUTION", code)
    assert shown["dagData"][f"{word}Definition"]["code"] == code
    page = stage.done("GET", runs, pageNo=1, pageSize=5, stateType="RUNNING_EXECUTION")
    assert run in [each["id"] for each in page["totalList"]]
    tasks = stage.done("GET", f"{runs}/{run}/tasks")
    assert tasks[f"{word}InstanceState"] == "RUNNING_EXECUTION"
    assert tasks["taskList"][0][f"{word}InstanceId"] == run
    of_run = stage.done(
        "GET", f"{below}/task-instances", pageNo=1, pageSize=5, **{f"{word}InstanceId": run}
    )
    assert [each["id"] for each in of_run["totalList"]] == [task]
    log = stage.done("GET", "log/detail", taskInstanceId=task, skipLineNum=0, limit=2)
    path, _, text = log["message"].partition("\n")
    assert (path.startswith("[LOG-PATH]: "), text, log["lineNum"]) == (True, "one\r\ntwo\r\n", 2)
    log = stage.done("GET", "log/detail", taskInstanceId=task, skipLineNum=2, limit=2)
    assert log == {"lineNum": 1, "message": "three\r\n"}
    whole = stage.client.get(
        f"{BASE}/log/download-log", params={"taskInstanceId": task}, headers=stage.headers
    )
    assert whole.text == "one\ntwo\nthree\n"
    stop = {f"{word}InstanceId": run, "executeType": "STOP"}
    stage.done("POST", f"{below}/executors/execute", **stop)
    stage.end(run, ProcessState.FAILURE)
    wrong = stage.call("POST", f"{below}/executors/execute", **{**stop, "executeType": "PAUSE"})
    assert wrong["code"] == 50006
    stage.done(
        "POST",
        f"{below}/executors/execute",
        **{**stop, "executeType": "START_FAILURE_TASK_PROCESS"},
    )

    complement = stage.done(
        "POST",
        start,
        **common,
        execType="COMPLEMENT_DATA",
        runMode="RUN_MODE_SERIAL",
        executionOrder="DESC_ORDER",
        scheduleTime=json.dumps(
            {
                "complementStartDate": "2013-01-01 00:00:00",
                "complementEndDate": "2013-01-02 00:00:00",
            }
        ),
    )
    if word == "process":
        assert stage.done("GET", f"{runs}/trigger", triggerCode=complement) == []
    else:
        assert complement == []
    schedule = stage.done(
        "POST",
        f"{below}/schedules",
        **{f"{word}DefinitionCode": code},
        schedule=json.dumps(DAILY),
        warningType="NONE",
        workerGroup="default",
    )
    assert schedule[f"{word}DefinitionCode"] == code
    # A client reads back what it has sent, and who it is.
    assert (schedule["tenantCode"], schedule["userId"]) == ("default", 2)
    assert stage.done("POST", f"{below}/schedules/{schedule['id']}/online") is True
    fires = stage.done("POST", f"{below}/schedules/preview", schedule=json.dumps(DAILY))
    assert len(fires) == 5
    assert all(each.endswith(" 03:00:00") for each in fires)
    assert stage.done("POST", f"{below}/schedules/{schedule['id']}/offline") is True
    stage.done("DELETE", f"{below}/schedules/{schedule['id']}")
    assert stage.done("POST", f"{definitions}/{code}/release", releaseState="OFFLINE") is True


def test_versions_are_listed_page_by_page_switched_to_and_deleted(stage: Stage) -> None:
    stage.a_user("ada", role="admin")
    stage = replace(stage, headers=stage.a_token("ada"))
    below = "projects/1/process-definition"
    saved = stage.done("POST", below, name="nightly", description="first", **later_tasks())
    place = f"{below}/{saved['code']}"
    alone = [{"preTaskCode": 0, "postTaskCode": each} for each in CODES]
    parallel = later_tasks() | {"taskRelationJson": json.dumps(alone), "globalParams": "[]"}
    more = {"timeout": 60, "executionType": "SERIAL_WAIT", "description": "second"}
    assert stage.done("PUT", place, name="nightly", **parallel, **more)["version"] == 2

    def listed(number: int = 1, size: int = 10) -> list[tuple[Any, ...]]:
        found = stage.done("GET", f"{place}/versions", pageNo=number, pageSize=size)
        assert found["currentPage"] == number
        assert found["total"] == len(stage.versions(saved["id"]))
        keys = ("version", "description", "timeout", "executionType", "userName")
        return [tuple(each[key] for key in keys) for each in found["totalList"]]

    first = (1, "first", 0, "PARALLEL", "ada")
    second = (2, "second", 60, "SERIAL_WAIT", "ada")
    assert (listed(), listed(1, 1), listed(2, 1)) == ([second, first], [second], [first])
    (old,) = stage.done("GET", f"{place}/versions", pageNo=2, pageSize=1)["totalList"]
    assert (old["code"], old["globalParamMap"]) == (saved["code"], {"day": ""})
    assert old["operateTime"]
    # What comes back has the next number, so that no number means two things.
    assert stage.done("GET", f"{place}/versions/1") is None
    assert listed() == [(3, *first[1:]), second, first]
    edges = stage.done("GET", place)["processTaskRelationList"]
    assert [(each["preTaskCode"], each["postTaskCode"]) for each in edges] == [(0, CODES[0]), CODES]

    in_force = stage.call("DELETE", f"{place}/versions/3")
    assert (in_force["code"], in_force["msg"]) == (
        50053,
        "the version that the master table is using",
    )
    assert stage.done("DELETE", f"{place}/versions/2") is None
    assert [each[0] for each in listed()] == [3, 1]
    for method, version, code in (
        ("GET", 2, 10153), ("GET", 9, 10153), ("GET", 2**40, 10153), ("GET", -1, 10153),
        ("GET", "x", 10001), ("DELETE", 2, 10156), ("DELETE", 2**40, 10156),
    ):  # fmt: skip
        assert stage.call(method, f"{place}/versions/{version}")["code"] == code, (method, version)
    assert stage.call("GET", f"{below}/1{saved['code']}/versions/1")["code"] == 10152
    assert stage.call("DELETE", f"{below}/1{saved['code']}/versions/1")["code"] == 50003
    with stage.db.begin() as connection:
        connection.execute(t.process_definition_log.update().values(document=json.dumps({})))
    spoilt = stage.call("GET", f"{place}/versions/1")
    assert (spoilt["code"], spoilt["msg"].split(":")[0]) == (
        10151,
        "Switch process definition version error",
    )


def test_environments_are_made_listed_named_by_tasks_and_starts_and_deleted(stage: Stage) -> None:
    stage.headers.update(stage.a_token("admin"))
    made = {"name": "java", "config": "export JAVA_HOME=/opt/java\nexport A_TOKEN=t0ps3cret"}
    code = stage.done(
        "POST", "environment/create", **made, description="d", workerGroups='["default"]'
    )
    taken = stage.call("POST", "environment/create", **made)
    assert (taken["code"], taken["msg"]) == (
        120002,
        "this environment name [java] already exists",
    )
    assert stage.call("POST", "environment/verify-environment", environmentName="java")["code"]
    assert stage.done("POST", "environment/verify-environment", environmentName="j") is None
    bad = stage.call("POST", "environment/create", name="x", config="source x")
    assert (bad["code"], "line 1" in bad["msg"]) == (10001, True), bad
    listed = stage.done("GET", "environment/list-paging", pageNo=1, pageSize=10, searchVal="av")
    (row,) = listed["totalList"]
    assert (row["code"], row["workerGroups"], listed["total"]) == (code, ["default"], 1)
    assert row["config"] == "export JAVA_HOME=/opt/java\nexport A_TOKEN=******"
    assert stage.done("GET", "environment/query-environment-list") == [row]
    assert stage.done("GET", "environment/query-by-code", environmentCode=code) == row
    changed = stage.done("POST", "environment/update", code=code, name="jvm", config=row["config"])
    assert (changed["name"], changed["workerGroups"]) == ("jvm", [])
    stage.a_user("bea")
    of_author = stage.a_token("bea")
    with stage.db.begin() as connection:
        grant_all(connection)
    seen = stage.call("GET", "environment/query-environment-list", headers=of_author)["data"]
    assert [(each["name"], each["config"]) for each in seen] == [("jvm", "")]

    given = later_tasks()
    tasks = json.loads(given["taskDefinitionJson"])
    tasks[0]["environmentCode"] = code
    given["taskDefinitionJson"] = json.dumps(tasks)
    below = "projects/1/process-definition"
    saved = stage.done("POST", below, name="nightly", **given)
    shown = stage.done("GET", f"{below}/{saved['code']}")["taskDefinitionList"]
    assert [each["environmentCode"] for each in shown] == [code, *[-1] * (len(shown) - 1)]
    stage.done("POST", f"{below}/{saved['code']}/release", releaseState="ONLINE")
    start = {"processDefinitionCode": saved["code"], "failureStrategy": "CONTINUE"}
    run = "projects/1/executors/start-process-instance"
    unknown = stage.call("POST", run, **start, environmentCode=2**50)
    assert (unknown["code"], "has no environment" in unknown["msg"]) == (10001, True)
    stage.done("POST", run, **start, environmentCode=code)
    assert json.loads(started(stage).command_param) == {"environmentCode": str(code)}
    stage.done("POST", run, **start, environmentCode=-1)
    assert json.loads(started(stage).command_param) == {}
    dates = (
        '{"complementStartDate": "2013-01-01 00:00:00", "complementEndDate": "2013-01-01 00:00:00"}'
    )
    past = {**start, "execType": "COMPLEMENT_DATA", "scheduleTime": dates}
    stage.done("POST", run, **past, environmentCode=code)
    unknown = stage.call("POST", run, **past, environmentCode=2**50)
    assert "has no environment" in unknown["msg"]
    with stage.db.connect() as connection:
        assert connection.scalars(select(t.complement.c.environment_code)).all() == [code]
    timed = {"processDefinitionCode": saved["code"], "schedule": json.dumps(DAILY)}
    schedule = stage.done("POST", "projects/1/schedules", **timed, environmentCode=code)
    assert schedule["environmentCode"] == code
    place = f"projects/1/schedules/{schedule['id']}"
    for given, kept in ((code, code), (-1, -1), (code, code), (None, -1)):
        named = {} if given is None else {"environmentCode": given}
        assert stage.done("PUT", place, **timed, **named)["environmentCode"] == kept
        listed = stage.done("GET", "projects/1/schedules", pageNo=1, pageSize=10)["totalList"]
        assert [each["environmentCode"] for each in listed] == [kept]
    unknown = stage.call("PUT", place, **timed, environmentCode=2**50)
    assert (unknown["code"], "has no environment" in unknown["msg"]) == (10001, True)
    stage.done("PUT", place, **timed, environmentCode=code)
    used = stage.call("POST", "environment/delete", environmentCode=code)
    assert f"schedule {schedule['id']} names it" in used["msg"], used
    assert "complement 1 goes on with it" in used["msg"]
    assert (used["code"], "'nightly' names it" in used["msg"]) == (120006, True), used
    with stage.db.begin() as connection:
        for table in (t.command, t.schedule, t.complement, t.process_definition):
            connection.execute(table.delete())
    stage.done("POST", "environment/delete", environmentCode=code)
    gone = stage.call("GET", "environment/query-by-code", environmentCode=code)
    assert gone["code"] == 1200009


def test_a_definition_keeps_the_code_of_its_export_unless_it_is_taken(stage: Stage) -> None:
    stage.a_user("ada", role="admin")
    stage = replace(stage, headers=stage.a_token("ada"))
    code = 12_345_678_901_234
    entry = {
        "processDefinition": {"name": "kept", "code": code},
        "taskDefinitionList": json.loads(later_tasks()["taskDefinitionJson"]),
        "processTaskRelationList": json.loads(later_tasks()["taskRelationJson"]),
    }
    small = {**entry, "processDefinition": {"name": "small", "code": 3}}
    again = {**entry, "processDefinition": {"name": "again", "code": code}}
    for content in ([entry, small], [again]):
        answer = stage.client.post(
            f"{BASE}/projects/1/process-definition/import",
            files={"file": ("d.json", json.dumps(content))},
            headers=stage.headers,
        )
        assert answer.json()["code"] == 0, answer.text
    listed = stage.done("GET", "projects/1/process-definition/simple-list")
    found = {each["name"]: each for each in listed}
    assert found["kept"]["code"] == code
    # A small one might be somebody's id, and the other is taken.
    assert all(found[name]["code"] == found[name]["id"] for name in ("small", "again"))
    shown = stage.done("GET", f"projects/1/process-definition/{code}")
    assert [each["code"] for each in shown["taskDefinitionList"]] == list(CODES)


def test_a_page_takes_as_many_statements_however_many_rows_it_has(stage: Stage) -> None:
    stage.a_user("ada", role="admin")
    stage = replace(stage, headers=stage.a_token("ada"))
    statements: list[str] = []
    event.listen(stage.db, "before_cursor_execute", lambda *given: statements.append(given[2]))

    def statements_of(path: str, rows: int) -> list[str]:
        statements.clear()
        found = stage.done("GET", f"projects/1/{path}", pageNo=1, pageSize=50)
        assert (found["total"], len(found["totalList"])) == (rows, rows), path
        return [each.partition("WHERE")[0].strip() for each in statements]

    def another(number: int) -> None:
        definition = a_definition(stage.db, name=f"nightly-{number}")
        a_schedule(stage.db, definition)
        run = an_instance(stage.db, ProcessState.SUCCESS, process_definition_id=definition)
        an_attempt(stage.db, run, TaskState.SUCCESS)

    pages = ("process-definition", "process-instances", "task-instances", "schedules")
    another(1)
    statements_of(pages[0], 1)  # The first notes that the token is used.
    first = {each: statements_of(each, 1) for each in pages}
    for number in range(2, 6):
        another(number)
    for page, statements_of_one in first.items():
        assert statements_of(page, 5) == statements_of_one


@pytest.mark.parametrize(
    ("way", "given"),
    [
        ("default/process/save", {"name": "fresh", "processDefinitionJson": classic_json()}),
        ("1/process-definition", {"name": "fresh", **later_tasks()}),
    ],
)
def test_under_review_a_script_saves_nothing_and_is_told_the_cure(
    stage: Stage, way: str, given: dict[str, str]
) -> None:
    stage.a_user("ada")
    stage.headers.update(stage.a_token("ada"))
    with_review(stage.owner)
    refused = stage.call("POST", f"projects/{way}", **given)
    assert refused["code"] != 0
    assert "orcaflow definition propose" in refused["msg"]
    with stage.db.connect() as connection:
        assert connection.scalars(select(t.process_definition.c.id)).all() == []
