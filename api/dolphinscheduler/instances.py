"""Runs: listed, shown, found by what began them, and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.definitions import dag
from api.dolphinscheduler.envelope import RefusedError, Status, moment, page, span
from api.dolphinscheduler.runs import COMPLEMENTS
from api.dolphinscheduler.table import Row
from common.model.codes import task_code
from common.model.command_param import ParamKey
from common.model.rights import Action
from common.model.states import FailureStrategy, Priority
from common.store.people.numbered_pages import RunName
from common.store.people.rights import Thing
from common.store.people.views import ProcessInstanceView, TaskInstanceView
from operations import numbered_pages
from operations.definitions import codes_of
from operations.deleting import delete_instances
from operations.documents.instances import masked_parameters
from operations.errors import UsageError
from operations.instances import child_of, family_of, find_instance, instance_detail
from operations.projects import check_in, definition_in
from operations.tasks import find_task, list_tasks

_MOST_ATTEMPTS: Final = 10_000


def list_page(call: Call) -> dict[str, Any]:
    """List runs page by page, the newest first."""
    number, size = call.page_number, call.page_size
    definition = None
    if call.dialect.is_classic:
        asked = call.number("processDefinitionId")
        if asked:
            definition = definition_in(call.session, call.project, definition_id=asked).id
    else:
        asked = call.number("processDefineCode", *call.worded("DefinitionCode"))
        if asked:
            definition = definition_in(call.session, call.project, code=asked).id
    found, total = numbered_pages.instances(
        call.session,
        call.project.id,
        number,
        size,
        definition_id=definition,
        states=_states(call),
        search=call.text("searchVal"),
        host=call.text("host"),
        executor=call.text("executorName"),
        since=call.moment("startDate"),
        until=call.moment("endDate", ends_day=True),
    )
    return page(shown(call, found), total=total, number=number, size=size)


def show(call: Call) -> dict[str, Any]:
    """Show a run with its parameters; later dialects show its definition too."""
    number = _given(call)
    detail = instance_detail(call.session, number)
    made = shown(call, [detail.instance])[0]
    params = masked_parameters(detail.command_param, detail.global_params)
    made |= {"commandParam": params["command_param"], "globalParams": params["global_params"]}
    if call.dialect.is_classic:
        return made | {"processInstanceJson": detail.process_instance_json}
    row = definition_in(
        call.session, call.project, definition_id=detail.instance.process_definition_id
    )
    return made | {"dagData": dag(call, row)}


def list_of_trigger(call: Call) -> list[dict[str, Any]]:
    """List the runs that a trigger code has begun so far: none while its command waits."""
    code = call.needed_number("triggerCode")
    if code >= COMPLEMENTS:
        ids = numbered_pages.runs_of(
            call.session, call.project.id, complement_id=code - COMPLEMENTS
        )
    else:
        ids = numbered_pages.runs_of(call.session, call.project.id, command_id=code)
    return shown(call, numbered_pages.instances_with_ids(call.session, ids))


def show_tasks(call: Call) -> dict[str, Any]:
    """List the valid attempts of a run, with the state of the whole."""
    number = _given(call)
    instance = find_instance(call.session, number)
    found = list_tasks(call.session, process_instance_id=number, limit=_MOST_ATTEMPTS)
    state = call.dialect.process_state(instance.state)
    rows = [shown_task(call, each, instance) for each in found]
    made: dict[str, Any] = {"taskList": rows}
    for word in call.dialect.words:
        made[f"{word}InstanceState"] = state
    return made


def show_variables(call: Call) -> dict[str, Any]:
    """Show the global parameters of a run, as they were worked out for it."""
    number = _given(call)
    detail = instance_detail(call.session, number)
    params = masked_parameters(detail.command_param, detail.global_params)
    try:
        found = json.loads(params["global_params"] or "[]")
    except (ValueError, RecursionError):
        found = []
    return {"globalParams": found if isinstance(found, list) else [], "localParams": {}}


def show_gantt(call: Call) -> dict[str, Any]:
    """Show when the tasks of a run began and ended."""
    number = _given(call)
    found = list_tasks(call.session, process_instance_id=number, limit=_MOST_ATTEMPTS)
    return {
        "height": len(found),
        "taskNames": [each.name for each in found],
        "taskStatus": {},
        "tasks": [
            {
                "taskName": each.name,
                "startDate": [_millis(each.start_time or each.submit_time)],
                "endDate": [_millis(each.end_time)],
                "isoStart": moment(each.start_time, call.zone),
                "isoEnd": moment(each.end_time, call.zone),
                "status": call.dialect.task_state(each.state),
                "executionDate": "",
                "duration": span(each.start_time, each.end_time),
            }
            for each in found
        ],
    }


def show_sub_process(call: Call) -> dict[str, Any]:
    """Show the run that a SUB_PROCESS attempt has begun."""
    number = call.needed_number("taskId")
    check_in(call.session, call.project, Thing.TASK, [number])
    task = find_task(call.session, number)
    if task.task_type != "SUB_PROCESS":
        raise RefusedError(Status.NO_SUB_PROCESS_TASK, task.name)
    child = child_of(call.session, number)
    if child is None:
        raise RefusedError(Status.NO_SUB_PROCESS, number)
    return {f"sub{each.capitalize()}InstanceId": child for each in call.dialect.words}


def show_parent(call: Call) -> dict[str, Any]:
    """Show the run to which a sub process belongs."""
    number = call.needed_number("subId")
    check_in(call.session, call.project, Thing.INSTANCE, [number])
    parent = family_of(call.session, find_instance(call.session, number)).parent
    if parent is None:
        raise RefusedError(Status.NOT_SUB_PROCESS, number)
    return {"parentWorkflowInstance": parent.process_instance_id}


def delete(call: Call) -> None:
    """Delete a run that has ended."""
    number = _given(call, Action.ADMIN)
    delete_instances(call.session, [number], force=False)


def delete_many(call: Call) -> None:
    """Delete runs that have ended, all of them or none."""
    numbers = call.numbers(*call.worded("InstanceIds"))
    check_in(call.session, call.project, Thing.INSTANCE, numbers, action=Action.ADMIN)
    delete_instances(call.session, numbers, force=False)


def shown(call: Call, views: Iterable[ProcessInstanceView]) -> list[dict[str, Any]]:
    """Show runs in the words of the dialect."""
    views = list(views)
    codes = codes_of(call.session, sorted({each.process_definition_id for each in views}))
    return [_shown(call, each, codes.get(each.process_definition_id)) for each in views]


def shown_task(
    call: Call, task: TaskInstanceView, instance: ProcessInstanceView | RunName | None
) -> dict[str, Any]:
    """Show an attempt in the words of the dialect."""
    made: dict[str, Any] = {
        "id": task.id,
        "name": task.name,
        "taskType": task.task_type,
        "state": call.dialect.task_state(task.state),
        "submitTime": moment(task.submit_time, call.zone),
        "startTime": moment(task.start_time, call.zone),
        "endTime": moment(task.end_time, call.zone),
        "host": task.host,
        "executePath": task.execute_path,
        "logPath": task.log_path,
        "retryTimes": task.retry_times,
        "alertFlag": "NO",
        "pid": task.pid or 0,
        "appLink": task.app_link,
        "flag": "YES" if task.valid else "NO",
        "maxRetryTimes": task.max_retry_times,
        "retryInterval": 0,
        "taskInstancePriority": "MEDIUM",
        "duration": span(task.start_time, task.end_time),
        "workerGroup": "default",
        "delayTime": 0,
        "dryRun": 0,
        "executorName": None,
    }
    for word in call.dialect.words:
        made[f"{word}InstanceId"] = task.process_instance_id
        made[f"{word}InstanceName"] = None if instance is None else instance.name
    if call.dialect.is_classic:
        return made
    number = 0 if instance is None else instance.process_definition_id
    return made | {
        "taskCode": task_code(number, task.name),
        "taskDefinitionVersion": 1,
        "projectCode": call.project.code,
        "taskExecuteType": "BATCH",
    }


def _shown(call: Call, view: ProcessInstanceView, code: int | None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": view.id,
        "name": view.name,
        "state": call.dialect.process_state(view.state),
        "recovery": "NO",
        "startTime": moment(view.start_time, call.zone),
        "endTime": moment(view.end_time, call.zone),
        "runTimes": view.run_times,
        "host": view.host,
        "commandType": call.dialect.command_type(view.command_type),
        "taskDependType": "TASK_POST",
        "maxTryTimes": 0,
        "failureStrategy": FailureStrategy(view.failure_strategy).name
        if view.failure_strategy in set(FailureStrategy)
        else None,
        "warningType": "NONE",
        "scheduleTime": moment(view.schedule_time, call.zone),
        "duration": span(view.duration_from or view.start_time, view.end_time),
        "workerGroup": "default",
        "timeout": 0,
        "dryRun": 0,
    }
    priority = Priority(view.priority).name if view.priority in set(Priority) else None
    for word in call.dialect.words:
        made[f"{word}InstancePriority"] = priority
        if not call.dialect.is_classic:
            made[f"{word}DefinitionCode"] = code
            made[f"{word}DefinitionVersion"] = 1
    is_sub = "YES" if view.parent_task_instance_id else "NO"
    if call.dialect.is_classic:
        return made | {
            "processDefinitionId": view.process_definition_id,
            "isSubProcess": is_sub,
        }
    if "process" in call.dialect.words:
        made["isSubProcess"] = is_sub
    if "workflow" in call.dialect.words:
        made["isSubWorkflow"] = is_sub
    return made | {
        "projectCode": call.project.code,
        "restartTime": moment(view.start_time, call.zone),
    }


def _states(call: Call) -> list[int]:
    given = call.text("stateType")
    if given is None:
        return []
    found = call.dialect.process_states_named(given.upper())
    if not found:
        raise UsageError("stateType", f"{given!r:.60} is no state")
    return found


def _given(call: Call, action: Action = Action.VIEW) -> int:
    if call.dialect.is_classic:
        number = call.needed_number(ParamKey.CHILD_ID)
    else:
        number = call.needed_number("id")
    check_in(call.session, call.project, Thing.INSTANCE, [number], action=action)
    return number


def _millis(at: Any) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)


_CLASSIC: Final = "projects/{project}/instance"
_LATER: Final = "projects/{project}/{word}-instances"
ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=list_page,
        takes=Action.VIEW,
        thing=Thing.PROJECT,
        classic=("GET", f"{_CLASSIC}/list-paging"),
        later=("GET", _LATER),
    ),
    Row(
        serve=show,
        takes=Action.VIEW,
        thing=Thing.INSTANCE,
        classic=("GET", f"{_CLASSIC}/select-by-id"),
        later=("GET", f"{_LATER}/{{id}}"),
    ),
    Row(
        serve=list_of_trigger,
        takes=Action.VIEW,
        thing=Thing.COMMAND,
        later=("GET", f"{_LATER}/trigger"),
    ),
    Row(
        serve=show_tasks,
        takes=Action.VIEW,
        thing=Thing.INSTANCE,
        classic=("GET", f"{_CLASSIC}/task-list-by-process-id"),
        later=("GET", f"{_LATER}/{{id}}/tasks"),
    ),
    Row(
        serve=show_variables,
        takes=Action.VIEW,
        thing=Thing.INSTANCE,
        classic=("GET", f"{_CLASSIC}/view-variables"),
        later=("GET", f"{_LATER}/{{id}}/view-variables"),
    ),
    Row(
        serve=show_gantt,
        takes=Action.VIEW,
        thing=Thing.INSTANCE,
        classic=("GET", f"{_CLASSIC}/view-gantt"),
        later=("GET", f"{_LATER}/{{id}}/view-gantt"),
    ),
    Row(
        serve=show_sub_process,
        takes=Action.VIEW,
        thing=Thing.TASK,
        classic=("GET", f"{_CLASSIC}/select-sub-process"),
        later=("GET", f"{_LATER}/query-sub-by-parent"),
    ),
    Row(
        serve=show_parent,
        takes=Action.VIEW,
        thing=Thing.INSTANCE,
        classic=("GET", f"{_CLASSIC}/select-parent-process"),
        later=("GET", f"{_LATER}/query-parent-by-sub"),
    ),
    Row(
        serve=delete,
        takes=Action.ADMIN,
        thing=Thing.INSTANCE,
        classic=("GET", f"{_CLASSIC}/delete"),
        later=("DELETE", f"{_LATER}/{{id}}"),
        refused=Status.DELETE_INSTANCE,
    ),
    Row(
        serve=delete_many,
        takes=Action.ADMIN,
        thing=Thing.INSTANCE,
        classic=("GET", f"{_CLASSIC}/batch-delete"),
        later=("POST", f"{_LATER}/batch-delete"),
        refused=Status.DELETE_INSTANCE,
    ),
)
