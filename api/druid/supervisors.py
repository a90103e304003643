"""Supervisors by Druid's paths: submitted, looked at and steered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from api.druid.table import Call, RefusedError, Row, moment, moment_in, refused
from common.errors import NotFoundError
from common.model.rights import Action
from common.model.streams.partitions import read_partition, topic_of
from common.model.streams.reading import read_spec
from common.model.streams.spec import IoConfig, SupervisorSpec
from common.model.streams.tasks import offsets_of
from common.store.people.supervisors import StreamTaskView, SupervisorView, VersionView
from common.strict_json import strict_json
from operations import streams as operations
from operations.documents.streams import state_of
from operations.errors import UsageError
from operations.stream_definitions import TaskPlace

_STREAM_ERROR: Final = "org.apache.druid.indexing.seekablestream.common.StreamException"
_OTHER_ERROR: Final = "java.lang.IllegalStateException"
_COUNTS: Final = (
    *("processed", "processedBytes", "unparseable", "thrownAway", "processedWithError"),
)
_OF_PAYLOAD: Final = ("latestOffsets", "minimumLag", "aggregateLag")
_OF_TASK: Final = ("startingOffsets", "currentOffsets", "lag")


def submit(call: Call) -> dict[str, Any]:
    """Make a supervisor, or change it; `project`, `worker_group` and `profile` are ours.

    `ignored` in the answer lists the keys without effect, if there are any.
    """
    try:
        text = call.body.decode()
    except UnicodeDecodeError:
        raise UsageError("spec", "the specification is no UTF-8") from None
    done = operations.submit_stream(
        call.session,
        text,
        project=call.query.get("project"),
        place=TaskPlace(
            worker_group=call.query.get("worker_group"), profile=call.query.get("profile")
        ),
    )
    return {"id": done.id, **({"ignored": list(done.ignored)} if done.ignored else {})}


def list_all(call: Call) -> list[Any]:
    """List the ids of supervisors, or with `full` or `state` what they are."""
    found = _known(call)
    is_full, is_system = "full" in call.query, "system" in call.query
    if not is_full and not is_system and call.query.get("state", "").lower() != "true":
        return [each.id for each in found]
    return [_listed(each, is_full=is_full, is_system=is_system) for each in found]


def show(call: Call) -> dict[str, Any]:
    """Show a specification; what may be a secret in it is masked."""
    return _spec(_given(call).view)


def show_status(call: Call) -> dict[str, Any]:
    """Show the report of the last run."""
    view = _given(call).view
    return {"id": view.id, "generationTime": moment(view.update_time), "payload": _payload(view)}


def show_health(call: Call) -> dict[str, Any]:
    """Tell if a supervisor is healthy; 503 if it is not."""
    healthy = _given(call).view.healthy
    if not healthy:
        raise RefusedError(503, {"healthy": False})
    return {"healthy": True}


def show_stats(call: Call) -> dict[str, Any]:
    """Show the counts of records by group and task; moving averages are not kept."""
    groups: dict[str, dict[str, Any]] = {}
    for task in _given(call).tasks:
        counts = _report(task).get("counts") or {}
        groups.setdefault(str(task.group_id), {})[task.name] = {
            "movingAverages": {"buildSegments": {}},
            "totals": {"buildSegments": {name: counts.get(name, 0) for name in _COUNTS}},
        }
    return groups


def show_parse_errors(call: Call) -> list[dict[str, Any]]:
    """Show the records that were kept because they could not be read."""
    found = []
    for task in _given(call).tasks:
        at = 0 if task.status_time is None else int(task.status_time.timestamp() * 1000)
        errors = (_report(task).get("errors") or {}).get("parse") or ()
        for each in errors:
            error = each if isinstance(each, Mapping) else {"value": str(each)}
            place = f"partition {error.get('partition')}, offset {error.get('offset')}"
            found.append(
                {
                    "input": error.get("value"),
                    "errorType": "PARSE",
                    "details": [place],
                    "timeOfExceptionMillis": at,
                }
            )
    return found


def show_history(call: Call) -> list[dict[str, Any]]:
    """List the versions of a specification, the newest first; those of a terminated one too."""
    try:
        return [_version(each) for each in operations.stream_history(call.session, call.id)]
    except NotFoundError:
        raise refused(404, f"No history for [{call.id}].") from None


def show_histories(call: Call) -> dict[str, Any]:
    """List the versions of all supervisors."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in operations.stream_histories(call.session):
        found.setdefault(each.id, []).append(_version(each))
    return found


def suspend(call: Call) -> dict[str, Any]:
    """Suspend a supervisor."""
    return _suspended(call, suspended=True)


def resume(call: Call) -> dict[str, Any]:
    """Resume a supervisor."""
    return _suspended(call, suspended=False)


def reset(call: Call) -> dict[str, Any]:
    """Forget the offsets of all partitions."""
    _given(call)
    operations.reset_stream(call.session, call.id, partitions=None)
    return {"id": call.id}


def reset_offsets(call: Call) -> dict[str, Any]:
    """Have partitions read from these offsets on."""
    view = _given(call).view
    partitions = _object(_object(_document(call), "the body").get("partitions"), "partitions")
    stream = partitions.get("stream") or partitions.get("topic")
    io = _io(view)
    given = partitions.get("partitionOffsetMap") or partitions.get("partitionSequenceNumberMap")
    try:
        offsets = offsets_of(_object(given, "partitions.partitionOffsetMap"))
        if io.has_pattern and isinstance(stream, str) and stream != io.topic:
            # One topic of the pattern, with the numbers of its partitions.
            offsets = {
                read_partition(f"{stream}:{each}") if isinstance(each, int) else each: offset
                for each, offset in offsets.items()
            }
            if all(topic_of(each, io.topic) == stream for each in offsets):
                stream = None
    except (TypeError, ValueError):
        raise refused(
            400,
            "partitionOffsetMap: partitions (0, or topic:0 with a pattern) and offsets are numbers",
        ) from None
    if stream not in (None, io.topic):
        raise refused(400, f"the stream of [{call.id}] is [{io.topic}], not [{stream!s:.200}]")
    operations.reset_stream_to(call.session, call.id, offsets=offsets)
    return {"id": call.id}


def hand_over(call: Call) -> None:
    """Have task groups publish what they have read."""
    groups = _object(_document(call), "the body").get("taskGroupIds")
    if not isinstance(groups, list) or not groups:
        raise refused(400, "List of task groups to handoff can't be empty")
    if not all(type(each) is int and 0 <= each < 2**31 for each in groups):
        raise refused(400, "taskGroupIds: the numbers of task groups")
    try:
        operations.hand_over_stream(call.session, call.id, groups=groups)
    except NotFoundError:
        raise refused(404, f"Supervisor was not found [{call.id}]") from None


def terminate(call: Call) -> dict[str, Any]:
    """End a supervisor once its tasks have published; it is not listed from now on."""
    _given(call)
    operations.terminate_stream(call.session, call.id)
    return {"id": call.id}


def suspend_all(call: Call) -> dict[str, Any]:
    """Suspend all supervisors that the caller sees."""
    operations.suspend_streams(call.session, suspended=True)
    return {"status": "success"}


def resume_all(call: Call) -> dict[str, Any]:
    """Resume all supervisors that the caller sees."""
    operations.suspend_streams(call.session, suspended=False)
    return {"status": "success"}


def terminate_all(call: Call) -> dict[str, Any]:
    """End all supervisors that the caller sees."""
    operations.terminate_streams(call.session)
    return {"status": "success"}


def _known(call: Call) -> list[SupervisorView]:
    """The supervisors that were not terminated."""
    found = operations.list_streams(call.session)
    return [each for each in found if each.document is not None]


def _given(call: Call) -> operations.StreamDetail:
    try:
        found = operations.stream_given(call.session, call.id)
    except NotFoundError:
        raise _missing(call) from None
    if found.view.document is None:
        raise _missing(call)
    return found


def _missing(call: Call) -> RefusedError:
    return refused(404, f"[{call.id}] does not exist")


def _suspended(call: Call, *, suspended: bool) -> dict[str, Any]:
    if _given(call).view.suspended is suspended:
        # Whoever may not do it is told that in its place.
        operations.check_operator(call.session, call.id)
        word = "suspended" if suspended else "running"
        raise refused(400, f"[{call.id}] is already {word}")
    operations.suspend_stream(call.session, call.id, suspended=suspended)
    return _spec(_given(call).view)


def _spec(view: SupervisorView) -> dict[str, Any]:
    return {**(operations.shown_document(view.document) or {}), "suspended": view.suspended}


def _version(version: VersionView) -> dict[str, Any]:
    spec = operations.shown_document(version.document)
    if spec is None:
        spec = {"type": "NoopSupervisorSpec", "id": version.id, "dataSources": [version.id]}
    else:
        spec["suspended"] = version.suspended
    return {"spec": spec, "version": moment(version.create_time)}


def _listed(view: SupervisorView, *, is_full: bool, is_system: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": view.id,
        "state": state_of(view),
        "detailedState": view.detailed_state,
        "healthy": view.healthy,
        "suspended": view.suspended,
    }
    if is_full:
        row["spec"] = _spec(view)
    if is_system:
        row |= {"specString": json.dumps(_spec(view)), "type": "kafka", "source": _io(view).topic}
    return row


def _io(view: SupervisorView) -> IoConfig:
    """Return what the specification has of the stream and of its tasks."""
    spec = read_spec(view.document or {}).spec
    assert isinstance(spec, SupervisorSpec)
    return spec.io


def _payload(view: SupervisorView) -> dict[str, Any]:
    status = view.status
    io = _io(view)
    seconds = int(io.task_duration.total_seconds())
    return {
        "dataSource": view.id,
        "stream": io.topic,
        "partitions": status.get("partitions", 0),
        "replicas": status.get("replicas", io.replicas),
        "durationSeconds": status.get("durationSeconds", seconds),
        "activeTasks": _tasks(status.get("activeTasks", ())),
        "publishingTasks": _tasks(status.get("publishingTasks", ())),
        **{name: status[name] for name in _OF_PAYLOAD if status.get(name) is not None},
        "offsetsLastUpdated": moment_in(status.get("offsetsLastUpdated")),
        "suspended": view.suspended,
        "healthy": view.healthy,
        "state": state_of(view),
        "detailedState": view.detailed_state,
        "recentErrors": [
            {
                "timestamp": moment_in(each.get("timestamp")),
                "exceptionClass": _STREAM_ERROR if each.get("streamException") else _OTHER_ERROR,
                "message": each.get("message"),
                "streamException": bool(each.get("streamException")),
            }
            for each in view.recent_errors
        ],
    }


def _tasks(tasks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "id": each["id"],
            **{name: each[name] for name in _OF_TASK if each.get(name) is not None},
            "startTime": moment_in(each.get("startTime")),
            "remainingSeconds": each.get("remainingSeconds"),
            "type": each.get("type"),
        }
        for each in tasks
    ]


def _report(task: StreamTaskView) -> Mapping[str, Any]:
    return task.status or {}


def _document(call: Call) -> Any:
    return strict_json(call.body)


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise refused(400, f"{name}: must be an object")
    return value


_STREAM: Final = "stream"
_ID: Final = "supervisor/{id}"


def _get(path: str, serve: Any) -> Row:
    return Row(method="GET", path=path, serve=serve, takes=Action.VIEW, thing=_STREAM)


def _post(path: str, serve: Any, takes: Action = Action.OPERATE) -> Row:
    return Row(method="POST", path=path, serve=serve, takes=takes, thing=_STREAM)


ROWS: Final[tuple[Row, ...]] = (
    Row(method="POST", path="supervisor", serve=submit, takes=Action.AUTHOR),
    Row(method="GET", path="supervisor", serve=list_all, takes=Action.VIEW),
    Row(method="GET", path="supervisor/history", serve=show_histories, takes=Action.VIEW),
    Row(method="POST", path="supervisor/suspendAll", serve=suspend_all, takes=Action.OPERATE),
    Row(method="POST", path="supervisor/resumeAll", serve=resume_all, takes=Action.OPERATE),
    Row(method="POST", path="supervisor/terminateAll", serve=terminate_all, takes=Action.AUTHOR),
    Row(method="POST", path="supervisor/shutdownAll", serve=terminate_all, takes=Action.AUTHOR),
    _get(_ID, show),
    _get(f"{_ID}/status", show_status),
    _get(f"{_ID}/health", show_health),
    _get(f"{_ID}/stats", show_stats),
    _get(f"{_ID}/parseErrors", show_parse_errors),
    _get(f"{_ID}/history", show_history),
    _post(f"{_ID}/suspend", suspend),
    _post(f"{_ID}/resume", resume),
    _post(f"{_ID}/reset", reset),
    _post(f"{_ID}/resetOffsets", reset_offsets),
    _post(f"{_ID}/taskGroups/handoff", hand_over),
    _post(f"{_ID}/terminate", terminate, Action.AUTHOR),
    _post(f"{_ID}/shutdown", terminate, Action.AUTHOR),
)
