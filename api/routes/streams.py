"""Supervisors of streams: submitted by authors, steered by operators, seen by viewers."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path, Query, Response

from api import cursors
from api.answers import Text
from api.asking import Asked, Content
from api.cursors import AfterName, Limit
from api.repeating import IdempotencyKey, once_of
from api.route import Route, get, post
from api.stream_answers import (
    NewVersion,
    PartitionLagList,
    StreamCountsList,
    StreamDetail,
    StreamHandOver,
    StreamPage,
    StreamRequest,
    StreamReset,
    StreamVersionList,
    SubmittedStream,
)
from common.model.streams.partitions import read_chosen, read_partition
from operations import streams as operations
from operations.documents.streams import (
    counts_row,
    lag_rows,
    stream_row,
    stream_task_row,
    submitted_row,
    version_row,
)
from operations.errors import UsageError
from operations.stream_definitions import TaskPlace

Name = Annotated[str, Path(max_length=255, description="The supervisor's id: its dataset's name.")]
_SPEC: Final = {"type": "object", "description": "A specification, Druid's JSON for Kafka."}


def list_streams(session: Asked, limit: Limit = 50, after: AfterName = None) -> dict[str, Any]:
    """List the supervisors that you may see, by id; terminated ones too."""
    found = operations.list_streams(session, after=cursors.read_name("streams", after), limit=limit)
    return {
        "items": [stream_row(each) for each in found],
        "next": cursors.next_name("streams", [each.id for each in found], limit),
    }


def submit_stream(
    content: Content,
    session: Asked,
    response: Response,
    *,
    project_id: Annotated[
        int | None, Query(ge=1, le=2**31 - 1, description="The project of a new one.")
    ] = None,
    worker_group: Annotated[
        Text | None, Query(description="The worker group that runs its tasks.")
    ] = None,
    profile: Annotated[
        Text | None, Query(description="The Spark profile whose servers its tasks share.")
    ] = None,
) -> dict[str, Any]:
    """Make a supervisor (201), or give it another specification; the same again changes nothing."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise UsageError("spec", "is no UTF-8") from None
    place = TaskPlace(worker_group=worker_group, profile=profile)
    done = operations.submit_stream(session, text, project=project_id, place=place)
    response.status_code = 201 if done.outcome == "created" else 200
    return submitted_row(done)


def show_stream(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002  # The path's name.
    """Show a supervisor with its errors and its tasks."""
    found = operations.stream_given(session, id)
    return {
        **stream_row(found.view),
        "errors": list(found.view.recent_errors),
        "payload": dict(found.view.status),
        "tasks": [stream_task_row(each) for each in found.tasks],
    }


def show_lag(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Show the records of each partition that no task has read at the last run."""
    return {"items": lag_rows(operations.stream_given(session, id).view)}


def show_stats(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Show what the tasks have counted: records that were processed, thrown away, unparseable."""
    return {"items": [counts_row(each) for each in operations.stream_given(session, id).tasks]}


def list_stream_versions(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """List the versions of a specification, the newest first; secrets are masked."""
    return {"items": [version_row(each) for each in operations.stream_history(session, id)]}


def suspend_stream(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Have the tasks publish, and start none; a 409 if it is suspended."""
    return {"id": id, "version": operations.suspend_stream(session, id, suspended=True)}


def resume_stream(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Read on where a suspended supervisor has stopped; a 409 if it is not suspended."""
    return {"id": id, "version": operations.suspend_stream(session, id, suspended=False)}


def terminate_stream(id: Name, session: Asked) -> dict[str, Any]:  # noqa: A002
    """End a supervisor once its tasks have published; its dataset and offsets stay."""
    return {"id": id, "version": operations.terminate_stream(session, id)}


def reset_stream(
    id: Name,  # noqa: A002
    given: StreamReset,
    session: Asked,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Have partitions read from other offsets: records may be lost, or published twice."""
    once = once_of(idempotency_key, f"stream.reset {id}", given)
    if sum((bool(given.offsets), bool(given.partitions), given.all)) != 1:
        raise UsageError("body", "has offsets, partitions or all, one of them")
    try:
        offsets = {read_partition(each): offset for each, offset in (given.offsets or {}).items()}
        partitions, topics = read_chosen(given.partitions or ())
    except ValueError as error:
        raise UsageError("body", f"{error}; write 0, topic:0 or topic:*") from None
    if offsets:
        made = operations.reset_stream_to(session, id, offsets=offsets, once=once)
    else:
        made = operations.reset_stream(
            session,
            id,
            partitions=partitions if given.partitions else None,
            topics=topics,
            once=once,
        )
    return {"id": id, "request": made}


def hand_over_stream(
    id: Name,  # noqa: A002
    given: StreamHandOver,
    session: Asked,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Have task groups publish what they have read now, and the next ones read on."""
    once = once_of(idempotency_key, f"stream.handoff {id}", given)
    made = operations.hand_over_stream(session, id, groups=given.groups, once=once)
    return {"id": id, "request": made}


ROUTES: Final[tuple[Route, ...]] = (
    get("/streams", list_streams, StreamPage),
    post("/streams", submit_stream, SubmittedStream, status=201, other_status=200, body=_SPEC),
    get("/streams/{id}", show_stream, StreamDetail),
    get("/streams/{id}/lag", show_lag, PartitionLagList),
    get("/streams/{id}/stats", show_stats, StreamCountsList),
    get("/streams/{id}/history", list_stream_versions, StreamVersionList),
    post("/streams/{id}/suspend", suspend_stream, NewVersion),
    post("/streams/{id}/resume", resume_stream, NewVersion),
    post("/streams/{id}/reset", reset_stream, StreamRequest, status=202),
    post("/streams/{id}/handoff", hand_over_stream, StreamRequest, status=202),
    post("/streams/{id}/terminate", terminate_stream, NewVersion),
)
