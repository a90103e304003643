"""Exports of DolphinScheduler 2.x and 3.x: what they become, and what keeps them OFFLINE."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from common.model.states import ExecutionType, FailureStrategy, Priority, WarningType
from operations.definition_files import (
    DefinitionDocument,
    InvalidFilesError,
    read_definition_files,
)
from operations.exported_schedule import ExportedSchedule
from operations.findings import Severity
from operations.references import Kind
from tests.unit.definition_documents import a_task
from tests.unit.later_definitions import (
    DEFINITION,
    PROJECT,
    a_later_export,
    a_later_schedule,
    a_later_task,
    a_relation,
    task_code,
)

OTHER = DEFINITION + 1


def read(
    folder: Path, *content: object, given: dict[tuple[Kind, int], str] | None = None
) -> list[DefinitionDocument]:
    paths = []
    for index, each in enumerate(content):
        path = folder / f"{index}.json"
        path.write_text(json.dumps(each))
        paths.append(path)
    return read_definition_files(paths, resources=folder / "resources", given=given)


def mistakes(folder: Path, content: object) -> list[tuple[object, object]]:
    with pytest.raises(InvalidFilesError) as caught:
        read(folder, content)
    return [(row["key"], row["problem"]) for row in (each.row() for each in caught.value.found)]


def node(document: DefinitionDocument, name: str) -> dict[str, Any]:
    (found,) = [each for each in document.document["tasks"] if each["name"] == name]
    return dict(found)


def unmapped(document: DefinitionDocument) -> set[tuple[str | None, str, bool]]:
    return {
        (each.node, each.key, each.keeps_offline)
        for each in document.findings
        if each.severity is Severity.UNMAPPED
    }


@pytest.mark.parametrize("line", [2, 3])
def test_a_definition_of_either_line_is_read_with_its_order(tmp_path: Path, line: int) -> None:
    export = a_later_export(
        a_later_task(1, "extract"),
        a_later_task(2, "load", "PYTHON"),
        edges=((1, 2),),
        line=line,
    )
    (found,) = read(tmp_path, [export])
    assert (found.name, found.description, found.timeout_minutes) == ("nightly", "each night", 30)
    assert found.execution_type is ExecutionType.SERIAL_WAIT
    assert json.loads(found.global_params or "")[0]["prop"] == "day"
    assert json.loads(found.locations or "")[0]["x"] == 1
    assert node(found, "load")["preTasks"] == ["extract"]
    assert node(found, "extract")["preTasks"] == []
    assert (found.document["code"], node(found, "load")["code"]) == (DEFINITION, task_code(2))
    assert found.findings == ()


def test_the_settings_of_a_task_are_kept(tmp_path: Path) -> None:
    export = a_later_export(
        a_later_task(
            1,
            "a",
            flag="NO",
            taskPriority="HIGHEST",
            workerGroup="etl",
            failRetryTimes="3",
            failRetryInterval=5,
            timeoutFlag="OPEN",
            timeoutNotifyStrategy="WARNFAILED",
            timeout=20,
            delayTime="4",
            description="pulls",
            params={"rawScript": "echo ${day}", "localParams": [{"prop": "n", "value": "1"}]},
        )
    )
    (found,) = read(tmp_path, export)
    kept = node(found, "a")
    assert kept == {
        "name": "a",
        "type": "SHELL",
        "code": task_code(1),
        "preTasks": [],
        "maxRetryTimes": 3,
        "retryInterval": 5,
        "taskInstancePriority": "HIGHEST",
        "description": "pulls",
        "runFlag": "FORBIDDEN",
        "timeout": {"strategy": "WARNFAILED", "interval": 20, "enable": True},
        "workerGroup": "etl",
        "delayTime": 4,
        "params": {"rawScript": "echo ${day}", "localParams": [{"prop": "n", "value": "1"}]},
    }


def test_a_task_without_any_relation_keeps_the_definition_offline(tmp_path: Path) -> None:
    tasks = [a_later_task(number, name) for number, name in enumerate("abc", start=1)]
    export = a_later_export(*tasks) | {"processTaskRelationList": [a_relation(1, 2)]}
    (found,) = read(tmp_path, export)
    assert unmapped(found) == {("c", "preTasks", True)}
    alone = a_later_export(tasks[0]) | {"processTaskRelationList": []}
    assert read(tmp_path, alone)[0].findings == ()


def test_parameters_of_a_task_may_be_text(tmp_path: Path) -> None:
    task = a_later_task(1, "a", taskParams=json.dumps({"rawScript": "true"}))
    (found,) = read(tmp_path, a_later_export(task))
    assert node(found, "a")["params"] == {"rawScript": "true"}


def test_conditions_and_switch_name_tasks_instead_of_codes(tmp_path: Path) -> None:
    conditions = {
        "dependence": {
            "relation": "AND",
            "dependTaskList": [
                {
                    "relation": "OR",
                    "dependItemList": [{"depTaskCode": task_code(1), "status": "SUCCESS"}],
                }
            ],
        },
        "conditionResult": {"successNode": [task_code(3)], "failedNode": [task_code(4)]},
    }
    switch = {
        "switchResult": {
            "dependTaskList": [{"condition": "${day} == 'x'", "nextNode": task_code(5)}],
            "nextNode": [task_code(6)],
        }
    }
    export = a_later_export(
        a_later_task(1, "check"),
        a_later_task(2, "decide", "CONDITIONS", params=conditions),
        a_later_task(3, "choose", "SWITCH", params=switch),
        a_later_task(4, "mail"),
        a_later_task(5, "many"),
        a_later_task(6, "few"),
        edges=((1, 2), (2, 3), (2, 4), (3, 5), (3, 6)),
    )
    (found,) = read(tmp_path, export)
    (warning,) = found.findings
    assert (warning.node, warning.key) == ("decide", "conditionResult.failedNode")
    assert "ends as SUCCESS" in warning.problem
    assert not warning.keeps_offline
    decide, choose = node(found, "decide"), node(found, "choose")
    (group,) = decide["dependence"]["dependTaskList"]
    assert group["dependItemList"] == [{"depTasks": "check", "status": "SUCCESS"}]
    assert decide["conditionResult"] == {"successNode": ["choose"], "failedNode": ["mail"]}
    assert choose["switchResult"] == {
        "dependTaskList": [{"condition": "${day} == 'x'", "nextNode": ["many"]}],
        "nextNode": ["few"],
    }


def a_dependence(**item: Any) -> dict[str, Any]:
    full = {"projectCode": PROJECT, "definitionCode": OTHER, "depTaskCode": 0} | item
    items = [full | {"cycle": "day", "dateValue": "last1Days", "state": None}]
    groups = [{"relation": "AND", "dependItemList": items}]
    return {"dependence": {"relation": "AND", "dependTaskList": groups, "checkInterval": 10}}


@pytest.mark.parametrize("key", ["processDefinitionCode", "workflowDefinitionCode"])
def test_codes_lead_to_the_definitions_and_tasks_of_the_same_files(
    tmp_path: Path, key: str
) -> None:
    kind = "SUB_PROCESS" if key.startswith("process") else "SUB_WORKFLOW"
    first = a_later_export(
        a_later_task(1, "child", kind, params={key: OTHER}),
        a_later_task(2, "wait", "DEPENDENT", params=a_dependence(depTaskCode=task_code(9))),
        a_later_task(3, "all", "DEPENDENT", params=a_dependence(depTaskCode=-1)),
    )
    second = a_later_export(a_later_task(9, "load"), name="other", code=OTHER)
    found, _ = read(tmp_path, first, [second])
    assert found.findings == ()
    assert (node(found, "child")["type"], node(found, "child")["params"]) == (
        "SUB_PROCESS",
        {"processDefinitionName": "other"},
    )
    items = [
        node(found, name)["dependence"]["dependTaskList"][0]["dependItemList"][0]
        for name in ("wait", "all")
    ]
    common = {"cycle": "day", "dateValue": "last1Days", "definitionName": "other"}
    assert items == [common | {"depTasks": "load"}, common | {"depTasks": "ALL"}]


def test_a_person_gives_the_name_of_a_code(tmp_path: Path) -> None:
    task = a_later_task(1, "child", "SUB_PROCESS", params={"processDefinitionCode": OTHER})
    (found,) = read(tmp_path, a_later_export(task), given={(Kind.DEFINITION, OTHER): "load"})
    assert node(found, "child")["params"] == {"processDefinitionName": "load"}


def test_the_parameters_of_each_type_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / "jobs.jar").write_text("")
    sql = {
        "type": "MYSQL",
        "datasource": 3,
        "sql": "select 1",
        "sqlType": 0,
        "sendEmail": False,
        "displayRows": 10,
        "groupId": None,
        "udfs": "",
        "connParams": "",
        "preStatements": [],
        "varPool": [],
    }
    http = {
        "url": "http://h/x",
        "httpMethod": "POST",
        "httpBody": '{"a":"1"}',
        "httpParams": [],
        "httpCheckCondition": "STATUS_CODE_DEFAULT",
        "condition": "",
        "connectTimeout": 1000,
    }
    spark = {
        "programType": "SCALA",
        "mainClass": "a.B",
        "mainJar": {"resourceName": "file:/storage/default/resources/jobs.jar"},
        "deployMode": "local",
        "rawScript": "",
        "others": "",
        "yarnQueue": "etl",
        "appName": "job",
        "driverCores": 1,
        "sqlExecutionType": "SCRIPT",
        "sparkVersion": "S",
    }
    statements = {"programType": "SQL", "rawScript": "select 1", "driverCores": 2}
    call = {"type": "POSTGRESQL", "datasource": 3, "method": "{call refresh(?)}"}
    export = a_later_export(
        a_later_task(1, "q", "SQL", params=sql),
        a_later_task(2, "h", "HTTP", params=http),
        a_later_task(3, "s", "SPARK", params=spark),
        a_later_task(4, "ss", "SPARK", params=statements),
        a_later_task(5, "p", "PROCEDURE", params=call),
    )
    (found,) = read(tmp_path, export, given={(Kind.DATASOURCE, 3): "dw"})
    assert node(found, "q")["params"] == {
        "sql": "select 1",
        "sqlType": 0,
        "displayRows": 10,
        "datasourceName": "dw",
    }
    assert node(found, "h")["params"]["httpBody"] == '{"a":"1"}'
    assert node(found, "s")["params"] == {
        "programType": "SCALA",
        "mainClass": "a.B",
        "mainJar": {"res": str(tmp_path / "jobs.jar")},
        "digests": {str(tmp_path / "jobs.jar"): hashlib.sha256(b"").hexdigest()},
        "deployMode": "local",
        "queue": "etl",
        "name": "job",
        "driverCores": 1,
    }
    became = node(found, "ss")
    assert (became["type"], became["params"]) == ("SPARK_SQL", {"rawScript": "select 1"})
    assert unmapped(found) == {("ss", "params", False)}


@pytest.mark.parametrize(
    "params",
    [
        {"rawScript": "echo '${my call.response}'"},
        {"rawScript": "", "localParams": [{"prop": "my call.response", "direct": "IN"}]},
    ],
)
def test_the_response_of_an_http_task_is_an_output_if_a_task_reads_it(
    tmp_path: Path, params: dict[str, Any]
) -> None:
    calls = [
        a_later_task(number, name, "HTTP", params={"url": "http://h/x"})
        for number, name in enumerate(("my call", "other"))
    ]
    reader = a_later_task(2, "reader", params=params)
    (found,) = read(tmp_path, a_later_export(*calls, reader, edges=((0, 2), (1, 2))))
    declared = {"prop": "my call.response", "direct": "OUT", "type": "VARCHAR", "value": ""}
    assert node(found, "my call")["params"]["localParams"] == [declared]
    assert "localParams" not in node(found, "other")["params"]


def test_a_type_that_is_not_run_keeps_the_definition_offline_and_its_task(tmp_path: Path) -> None:
    flink = {"mainClass": "a.B", "parallelism": 2}
    export = a_later_export(
        a_later_task(1, "stream", "FLINK", params=flink),
        a_later_task(2, "quality", "DATA_QUALITY", params={"ruleId": 1}),
        a_later_task(3, "after", taskExecuteType="STREAM"),
        edges=((1, 3),),
    )
    (found,) = read(tmp_path, export)
    assert {each[:2] for each in unmapped(found) if each[2]} >= {
        ("stream", "type"),
        ("quality", "params.ruleId"),
        ("after", "taskExecuteType"),
    }
    assert node(found, "stream")["params"]["parallelism"] == 2
    assert found.task_count == 3


def test_what_a_task_refers_to_and_nobody_has_keeps_the_definition_offline(tmp_path: Path) -> None:
    query = {"datasource": 3, "sql": "select 1", "type": "MYSQL"}
    script = {"rawScript": "true", "resourceList": [{"id": 6}, {"resourceName": "/lib/a.sh"}]}
    conditions = {"dependence": {}, "conditionResult": {"successNode": [12], "failedNode": []}}
    export = a_later_export(
        a_later_task(1, "q", "SQL", params=query),
        a_later_task(2, "r", params=script),
        a_later_task(3, "c", "CONDITIONS", params=conditions),
        a_later_task(4, "u", "HTTP", params={"url": "ftp://h"}),
        a_later_task(5, "timed", timeoutFlag="OPEN", timeoutNotifyStrategy="SOON", timeout=1),
    )
    (found,) = read(tmp_path, export)
    offline = {each[:2] for each in unmapped(found) if each[2]}
    assert offline >= {
        ("q", "params.datasource"),
        ("r", "params.resourceList[0].id"),
        ("r", "params.resourceList[1].res"),
        ("c", "conditionResult.successNode"),
        ("u", "params.url"),
        ("timed", "timeout.strategy"),
    }
    # Here that id is somebody else's (trap T90).
    assert "datasource" not in node(found, "q")["params"]


def test_what_is_lost_and_not_needed_is_listed_and_keeps_nothing_offline(tmp_path: Path) -> None:
    query = {"sql": "select 1", "datasource": 3, "sendEmail": True}
    export = a_later_export(
        a_later_task(
            1,
            "a",
            taskGroupId=2,
            cpuQuota=50,
            memoryMax=512,
            isCache="YES",
        ),
        a_later_task(2, "q", "SQL", params=query),
        a_later_task(
            3,
            "w",
            "DEPENDENT",
            delayTime=5,
            params={
                "dependence": a_dependence(parameterPassing=True)["dependence"]
                | {"failurePolicy": "DEPENDENT_FAILURE_WAITING", "failureWaitingTime": 3},
                "waitStartTimeout": {"enable": True, "interval": 1},
            },
        ),
        warningGroupId=3,
        tenantId=8,
    )
    (found,) = read(tmp_path, export, given={(Kind.DATASOURCE, 3): "dw"})
    assert unmapped(found) == {
        ("a", "taskGroupId", False),
        ("a", "cpuQuota", False),
        ("a", "memoryMax", False),
        ("a", "isCache", False),
        ("q", "params.sendEmail", False),
        ("w", "delayTime", False),
        ("w", "dependence.failurePolicy", False),
        ("w", "dependence.parameterPassing", False),
        ("w", "waitStartTimeout", False),
        (None, "warningGroupId", False),
        (None, "tenantId", False),
    }


def test_a_schedule_is_read_with_its_zone_and_its_alert_group(tmp_path: Path) -> None:
    (found,) = read(tmp_path, a_later_export(a_later_task(1, "a"), schedule=a_later_schedule()))
    assert found.schedule == ExportedSchedule(
        crontab="0 0 3 * * ? *",
        start="2024-01-01 00:00:00",
        end="2124-01-01 00:00:00",
        failure_strategy=FailureStrategy.END,
        priority=Priority.HIGH,
        warning_type=WarningType.FAILURE,
        worker_group="etl",
        warning_group_id=4,
        zone="Asia/Shanghai",
    )


@pytest.mark.parametrize(
    ("changes", "zone", "start"),
    [
        ({"timezoneId": "GMT+8"}, "Etc/GMT-8", "2024-01-01 00:00:00"),
        ({"startTime": 1_704_067_200_000}, "Asia/Shanghai", "2024-01-01 00:00:00Z"),
        (
            {"startTime": "2024-01-01T00:00:00.000+0800"},
            "Asia/Shanghai",
            "2024-01-01T00:00:00+08:00",
        ),
    ],
)
def test_zones_and_times_are_taken_in_every_form_that_was_written(
    tmp_path: Path, changes: dict[str, Any], zone: str, start: str
) -> None:
    export = a_later_export(a_later_task(1, "a"), schedule=a_later_schedule(**changes))
    (found,) = read(tmp_path, export)
    assert found.schedule is not None
    assert (found.schedule.zone, found.schedule.start) == (zone, start)


@pytest.mark.parametrize(
    ("schedule", "key"),
    [
        (a_later_schedule(crontab="daily"), "schedule.crontab"),
        (a_later_schedule(crontab=["x"]), "schedule.crontab"),
        (a_later_schedule(startTime=10**30), "schedule.crontab"),
        (a_later_schedule(timezoneId="Mars/Base"), "schedule.timezoneId"),
        (a_later_schedule(warningType="MAYBE"), "schedule.warningType"),
        (7, "schedule"),
    ],
)
def test_a_schedule_that_can_not_be_read_stays_behind(
    tmp_path: Path, schedule: Any, key: str
) -> None:
    (found,) = read(tmp_path, a_later_export(a_later_task(1, "a"), schedule=schedule))
    assert (None, key, False) in unmapped(found)


def test_the_alert_group_of_a_1_x_schedule_is_kept(tmp_path: Path) -> None:
    export = {
        "processDefinitionName": "old",
        "processDefinitionJson": {"tasks": [a_task("a")]},
        "scheduleCrontab": "0 0 3 * * ?",
        "scheduleWarningGroupId": 4,
        "scheduleWarningGroupName": "on call",
    }
    (found,) = read(tmp_path, export)
    assert found.schedule is not None
    assert found.schedule.warning_group_id == 4
    assert unmapped(found) == set()


def changed(**changes: Any) -> dict[str, Any]:
    return a_later_export(a_later_task(1, "a")) | changes


@pytest.mark.parametrize(
    ("export", "key", "problem"),
    [
        (changed(processDefinition=[]), "processDefinition", "must be an object"),
        (changed(taskDefinitionList=[]), "taskDefinitionList", "must be a list of one task"),
        (changed(taskDefinitionList={}), "taskDefinitionList", "must be a list of one task"),
        (changed(taskDefinitionList=[1]), "taskDefinitionList[0]", "must be an object"),
        (changed(processTaskRelationList=7), "processTaskRelationList", "must be a list"),
        (
            changed(processTaskRelationList=[a_relation(1, 2)]),
            "processTaskRelationList[0].postTaskCode",
            f"there is no task {task_code(2)}",
        ),
        (
            changed(processTaskRelationList=[{"preTaskCode": {}, "postTaskCode": task_code(1)}]),
            "processTaskRelationList[0].preTaskCode",
            "must be a task code, not an object",
        ),
        (
            changed(processTaskRelationList=[a_relation(1, 1)]),
            "tasks",
            "",
        ),
        (
            changed(taskDefinitionList=[a_later_task(1, "a", code=2**63)]),
            "taskDefinitionList[0].code",
            "must be a task code",
        ),
        (
            changed(taskDefinitionList=[a_later_task(1, "a"), a_later_task(1, "b")]),
            "taskDefinitionList[1].code",
            "is used twice",
        ),
        (
            a_later_export(a_later_task(1, "a") | {"name": None}),
            "taskDefinitionList[0].name",
            "must be the name of a task, and is missing",
        ),
        (
            a_later_export(a_later_task(1, "a", taskType=3)),
            "taskDefinitionList[0].taskType",
            "must be the type of a task, not 3",
        ),
        (
            a_later_export(a_later_task(1, "a", taskParams="{")),
            "taskDefinitionList[0].taskParams",
            "not JSON",
        ),
        (
            a_later_export(a_later_task(1, "a", taskParams="[" * 200)),
            "taskDefinitionList[0].taskParams",
            "levels deep",
        ),
        (
            a_later_export(a_later_task(1, "a", failRetryTimes=1.5)),
            "taskDefinitionList[0].failRetryTimes",
            "must be a whole number, not 1.5",
        ),
        (
            a_later_export(a_later_task(1, "a", flag="MAYBE")),
            "taskDefinitionList[0].flag",
            "must be YES or NO",
        ),
        (
            a_later_export(a_later_task(1, "a"), globalParams="{}"),
            "processDefinition.globalParams",
            "must be a list",
        ),
        (
            a_later_export(a_later_task(1, "a"), executionType="SOMETIMES"),
            "executionType",
            "must be one of",
        ),
        (a_later_export(a_later_task(1, "a"), name=" "), "name", "is empty"),
        (a_later_export(a_later_task(1, "a"), name={}), "name", "must be text"),
        (
            a_later_export(a_later_task(1, "a"), timeout="soon"),
            "processDefinition.timeout",
            "must be a whole number, not 'soon'",
        ),
    ],
)
def test_a_wrong_shape_is_a_mistake_with_its_place(
    tmp_path: Path, export: dict[str, Any], key: str, problem: str
) -> None:
    found = mistakes(tmp_path, export)
    assert [str(text) for where, text in found if where == key and problem in str(text)]
    assert len({where for where, _ in found} - {"name"}) <= 1


def test_a_file_with_one_wrong_definition_is_not_read_at_all(tmp_path: Path) -> None:
    good, bad = a_later_export(a_later_task(1, "a")), changed(taskDefinitionList=[])
    assert len(mistakes(tmp_path, [good, bad])) == 1


def test_schedules_of_a_file_of_our_own_are_read_strictly(tmp_path: Path) -> None:
    def own(**schedule: Any) -> dict[str, Any]:
        one = {"crontab": "0 0 3 * * ?"} | schedule
        return {"name": "n", "processDefinitionJson": {"tasks": [a_task("a")]}, "schedules": [one]}

    (found,) = read(tmp_path, own(misfirePolicy="skip", deadline=60, executionType="PARALLEL"))
    assert found.schedule is not None
    assert found.schedule.settings == {
        "misfire_policy": "skip",
        "deadline": 60,
        "execution_type": 0,
    }
    for wrong in (
        {"crontab": "never"},
        {"misfirePolicy": "later"},
        {"deadline": -1},
        {"misfireLimit": "many"},
        {"startParams": ["x"]},
        {"endtime": "2030-01-01"},
    ):
        assert mistakes(tmp_path, own(**wrong))
