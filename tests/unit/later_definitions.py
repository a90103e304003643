"""Exports as DolphinScheduler 2.x and 3.x write them: tasks and relations by codes."""

from __future__ import annotations

from typing import Any

PROJECT = 9_100_000_000_001
DEFINITION = 9_200_000_000_001
FIRST_TASK = 9_300_000_000_001


def a_later_task(number: int, name: str, kind: str = "SHELL", **changes: Any) -> dict[str, Any]:
    """A task with the code `FIRST_TASK` + `number`; `params` are its own parameters."""
    own = changes.pop("params", {"rawScript": "true"} if kind in ("SHELL", "PYTHON") else {})
    return {
        "id": 100 + number,
        "code": FIRST_TASK + number,
        "name": name,
        "version": 2,
        "description": "",
        "projectCode": PROJECT,
        "userId": 1,
        "taskType": kind,
        "taskParams": {"localParams": [], "resourceList": [], **own},
        "taskParamList": [],
        "taskParamMap": None,
        "flag": "YES",
        "taskPriority": "MEDIUM",
        "userName": None,
        "projectName": None,
        "workerGroup": "default",
        "environmentCode": -1,
        "failRetryTimes": 0,
        "failRetryInterval": 1,
        "timeoutFlag": "CLOSE",
        "timeoutNotifyStrategy": None,
        "timeout": 0,
        "delayTime": 0,
        "resourceIds": "",
        "taskGroupId": 0,
        "taskGroupPriority": 0,
        "cpuQuota": -1,
        "memoryMax": -1,
        "taskExecuteType": "BATCH",
        "operator": 1,
    } | changes


def task_code(number: int) -> int:
    return FIRST_TASK + number


def a_relation(before: int | None, after: int) -> dict[str, Any]:
    """An edge between two tasks by their numbers; None is the beginning."""
    return {
        "id": 1,
        "name": "",
        "preTaskCode": 0 if before is None else task_code(before),
        "preTaskVersion": 0 if before is None else 2,
        "postTaskCode": task_code(after),
        "postTaskVersion": 2,
        "conditionType": "NONE",
        "conditionParams": {},
    }


def a_later_schedule(**changes: Any) -> dict[str, Any]:
    return {
        "id": 5,
        "processDefinitionCode": DEFINITION,
        "startTime": "2024-01-01 00:00:00",
        "endTime": "2124-01-01 00:00:00",
        "timezoneId": "Asia/Shanghai",
        "crontab": "0 0 3 * * ? *",
        "failureStrategy": "END",
        "warningType": "FAILURE",
        "warningGroupId": 4,
        "processInstancePriority": "HIGH",
        "workerGroup": "etl",
        "tenantCode": "default",
        "environmentCode": -1,
        "releaseState": "ONLINE",
    } | changes


def a_later_export(
    *tasks: dict[str, Any],
    edges: tuple[tuple[int | None, int], ...] = (),
    name: str = "nightly",
    code: int = DEFINITION,
    schedule: dict[str, Any] | None = None,
    line: int = 2,
    **changes: Any,
) -> dict[str, Any]:
    """An object of an export; tasks without an edge to them come first. `line` 3 is from 3.3 on."""
    kind = "process" if line == 2 else "workflow"
    after = {edge[1] for edge in edges}
    first = [task["code"] - FIRST_TASK for task in tasks]
    relations = [*((None, number) for number in first if number not in after), *edges]
    return {
        f"{kind}Definition": {
            "id": 7,
            "code": code,
            "name": name,
            "version": 3,
            "releaseState": "ONLINE",
            "projectCode": PROJECT,
            "description": "each night",
            "globalParams": '[{"prop":"day","direct":"IN","type":"VARCHAR","value":"x"}]',
            "globalParamList": [{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "x"}],
            "globalParamMap": {"day": "x"},
            "flag": "YES",
            "locations": f'[{{"taskCode":{FIRST_TASK},"x":1,"y":2}}]',
            "scheduleReleaseState": None,
            "timeout": 30,
            "tenantId": -1,
            "tenantCode": None,
            "warningGroupId": 0,
            "executionType": "SERIAL_WAIT",
        }
        | changes,
        f"{kind}TaskRelationList": [a_relation(*edge) for edge in relations],
        "taskDefinitionList": list(tasks),
        "schedule": schedule,
    }
