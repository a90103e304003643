"""Tasks of supervisors by Druid's paths: listed by what becomes of them, shown, and ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from fastapi import Response

from api.druid.table import Call, RefusedError, Row, moment, period
from api.problems import OutOfRangeError
from api.routes.logs import download_log
from common.errors import NotAllowedError, NotFoundError, SchedulerError
from common.model.rights import Action
from common.model.states import TaskState
from common.model.unclaimed import timeout_of
from operations.stream_tasks import (
    MOST,
    Stage,
    StreamTaskInfo,
    list_stream_tasks,
    stage_of,
    stop_stream_task,
    stream_task_given,
)
from operations.streams import check_operator

TYPE: Final = "index_kafka"
_STAGES: Final = [each.value for each in (Stage.PENDING, Stage.WAITING, Stage.RUNNING)]
_NEVER: Final = "1970-01-01T00:00:00.000Z"
_UNKNOWN: Final = {"host": None, "port": -1, "tlsPort": -1}
_SUCCESSES: Final = (TaskState.SUCCESS, TaskState.FORCED_SUCCESS)
_NO_LOG: Final = (
    "No log was found for this task. The task may not exist, or it may not have begun running yet."
)
_MS: Final = timedelta(milliseconds=1)


def list_tasks(call: Call) -> list[dict[str, Any]]:
    """List tasks by `state`, `datasource`, `createdTimeInterval`, `type`; `max` of ended ones."""
    state = call.query.get("state")
    if state is not None and state.lower() not in (*_STAGES, Stage.COMPLETE.value):
        known = ", ".join((*_STAGES, Stage.COMPLETE.value))
        raise RefusedError(400, f"Invalid task state[{state:.100}]. Must be one of [{known}].")
    return _listed(
        call,
        None if state is None else Stage(state.lower()),
        most=call.number("max"),
        type_=call.query.get("type"),
    )


def waiting(call: Call) -> list[dict[str, Any]]:
    """List tasks of which nothing was submitted yet, or that are held back."""
    return _listed(call, Stage.WAITING)


def pending(call: Call) -> list[dict[str, Any]]:
    """List tasks that no worker has yet."""
    return _listed(call, Stage.PENDING)


def running(call: Call) -> list[dict[str, Any]]:
    """List tasks that a worker runs."""
    return _listed(call, Stage.RUNNING, type_=call.query.get("type"))


def complete(call: Call) -> list[dict[str, Any]]:
    """List tasks that have ended, the newest first; `n` of them."""
    return _listed(call, Stage.COMPLETE, most=call.number("n"))


def show(call: Call) -> dict[str, Any]:
    """Show what a task was made for."""
    try:
        task = stream_task_given(call.session, call.id)
    except NotFoundError:
        raise RefusedError(404, {"task": call.id, "payload": None}) from None
    starts = task.assignment.get("starts") or {}
    return {
        "task": task.name,
        "payload": {
            "type": TYPE,
            "id": task.name,
            "groupId": _group(task),
            "resource": {"availabilityGroup": task.base_sequence, "requiredCapacity": 1},
            "dataSource": task.supervisor,
            "ioConfig": {
                "type": "kafka",
                "taskGroupId": task.group_id,
                "baseSequenceName": task.base_sequence,
                "startSequenceNumbers": {"type": "start", "partitionOffsetMap": starts},
                "minimumMessageTime": task.assignment.get("minTime"),
                "maximumMessageTime": task.assignment.get("maxTime"),
            },
        },
    }


def show_status(call: Call) -> dict[str, Any]:
    """Show what has become of a task."""
    try:
        task = stream_task_given(call.session, call.id)
    except NotFoundError:
        raise RefusedError(404, {"task": call.id, "status": None}) from None
    return {"task": task.name, "status": _status(task)}


def show_log(call: Call) -> Response:
    """Show the log of a task from `offset` on; a negative one counts from the end."""
    offset = call.number("offset", negative=True) or 0
    try:
        task = stream_task_given(call.session, call.id)
        if task.task_instance_id is None:
            raise NotFoundError("")
        part = f"bytes={offset}-" if offset > 0 else f"bytes={offset}" if offset else None
        found = download_log(task.task_instance_id, call.session, call.request, part)
    except OutOfRangeError:
        return Response("", media_type="text/plain")
    except SchedulerError as error:
        if isinstance(error, NotFoundError | NotAllowedError):
            return Response(_NO_LOG, status_code=404, media_type="text/plain")
        raise
    found.status_code = 200
    for name in ("content-range", "content-disposition", "accept-ranges"):
        if name in found.headers:
            del found.headers[name]
    found.headers["content-type"] = "text/plain; charset=utf-8"
    return found


def shut_down(call: Call) -> dict[str, Any]:
    """End a task without publishing; one that has ended already is as well."""
    task = stream_task_given(call.session, call.id)
    check_operator(call.session, task.supervisor)
    try:
        stop_stream_task(call.session, task.name)
    except NotAllowedError:
        if stage_of(stream_task_given(call.session, call.id)) is not Stage.COMPLETE:
            raise
    return {"task": task.name}


def _listed(
    call: Call, stage: Stage | None, *, most: int | None = None, type_: str | None = None
) -> list[dict[str, Any]]:
    if type_ not in (None, TYPE):
        return []
    wants_ended = stage in (None, Stage.COMPLETE)
    found: Iterable[StreamTaskInfo] = list_stream_tasks(
        call.session,
        supervisor=call.query.get("datasource"),
        most_complete=(MOST if most is None else most) if wants_ended else 0,
    )
    if stage is not None:
        found = [each for each in found if stage_of(each) is stage]
    during = call.interval("createdTimeInterval")
    if during is not None:
        found = [each for each in found if during.start <= each.create_time < during.end]
    return [_status(each) for each in found]


def _status(task: StreamTaskInfo) -> dict[str, Any]:
    stage = stage_of(task)
    is_over = stage is Stage.COMPLETE
    code = "RUNNING"
    if is_over:
        code = "SUCCESS" if task.state in _SUCCESSES else "FAILED"
    duration = 0 if is_over else -1
    if is_over and task.start_time is not None and task.end_time is not None:
        duration = (task.end_time - task.start_time) // _MS
    return {
        "id": task.name,
        "groupId": _group(task),
        "type": TYPE,
        "createdTime": moment(task.create_time),
        "queueInsertionTime": _NEVER,
        "statusCode": code,
        "status": code,
        "runnerStatusCode": "NONE" if is_over else stage.name,
        "duration": duration,
        "location": _location(task.host),
        "dataSource": task.supervisor,
        "errorMsg": _error(task) if code == "FAILED" else None,
    }


def _error(task: StreamTaskInfo) -> str:
    """Return the reason of a failure. Scripts look for the first sentence of an unclaimed task."""
    timeout = timeout_of(task.reason)
    if timeout is None:
        return task.ending_reason or task.reason or "the task failed"
    began = f"The worker that this task is assigned did not start it in timeout[{period(timeout)}]."
    return f"{began} {task.reason}"


def _group(task: StreamTaskInfo) -> str:
    return f"{TYPE}_{task.supervisor}"


def _location(host: str | None) -> dict[str, Any]:
    name, _, port = (host or "").rpartition(":")
    if not port.isdecimal():
        return dict(_UNKNOWN)
    return {"host": name.strip("[]"), "port": int(port), "tlsPort": -1}


_TASK: Final = "stream-task"
ROWS: Final[tuple[Row, ...]] = (
    Row(method="GET", path="tasks", serve=list_tasks, takes=Action.VIEW),
    Row(method="GET", path="waitingTasks", serve=waiting, takes=Action.VIEW),
    Row(method="GET", path="pendingTasks", serve=pending, takes=Action.VIEW),
    Row(method="GET", path="runningTasks", serve=running, takes=Action.VIEW),
    Row(method="GET", path="completeTasks", serve=complete, takes=Action.VIEW),
    Row(method="GET", path="task/{id}", serve=show, takes=Action.VIEW, thing=_TASK),
    Row(method="GET", path="task/{id}/status", serve=show_status, takes=Action.VIEW, thing=_TASK),
    Row(method="GET", path="task/{id}/log", serve=show_log, takes=Action.VIEW, thing=_TASK),
    Row(
        method="POST",
        path="task/{id}/shutdown",
        serve=shut_down,
        takes=Action.OPERATE,
        thing=_TASK,
    ),
)
