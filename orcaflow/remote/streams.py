"""The operations on supervisors of streams, datasets and locks that an api-server answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from common.model.intervals import read_interval
from common.model.lock_needs import LockNeed
from common.model.locks import Lock, LockGranularity, LockType
from common.model.segments import Segment, SegmentId
from common.model.states import TaskState
from common.model.streams.partitions import Partition, shown_partition
from common.model.streams.reading import Rules, read_spec
from common.model.streams.spec import Offsets
from common.model.streams.tasks import offsets_document
from common.store.people.datasets import DatasetSummary
from common.store.people.locks import WaitingLock
from common.store.people.supervisors import StreamTaskView, SupervisorView, VersionView
from common.store.streams.locks import HeldLock, LockHolder
from common.store.streams.offsets import PartitionOffset
from operations.datasets import DatasetView, FirstRows
from operations.locks import LockView
from operations.stream_definitions import AS_IT_IS, TaskPlace
from operations.streams import StreamDetail, Submitted, is_masked
from orcaflow.remote.client import Client, path_of
from orcaflow.remote.documents import moment_of
from orcaflow.remote.people import project_id

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
"""For what nobody shows."""


def list_locks(client: Client, *, dataset: str | None = None) -> LockView:
    """Return the locks of tasks that one may see."""
    rows = client.get("/locks", {"dataset": dataset})["items"]
    return LockView(
        held=tuple(_held(row) for row in rows if row["state"] != "waiting"),
        waiting=tuple(_waiting(row) for row in rows if row["state"] == "waiting"),
    )


def _held(row: Mapping[str, Any]) -> HeldLock:
    lock = Lock(
        id=0,
        dataset=row["dataset"],
        group_id=row["group"],
        interval=read_interval(row["interval"]),
        version=row["version"],
        type=LockType(row["type"]),
        priority=row["priority"],
        granularity=LockGranularity(row["granularity"]),
        partition_num=row["partition_num"],
        revoked=row["state"] == "revoked",
    )
    return HeldLock(lock=lock, since=_since(row), holders=tuple(map(_holder, row["tasks"])))


def _waiting(row: Mapping[str, Any]) -> WaitingLock:
    (holder,) = row["tasks"]
    need = LockNeed(
        dataset=row["dataset"],
        interval=row["interval"],
        type=LockType(row["type"]),
        priority=row["priority"],
    )
    return WaitingLock(need=need, since=_since(row), holder=_holder(holder))


def _holder(row: Mapping[str, Any]) -> LockHolder:
    return LockHolder(
        task_instance_id=row["task_instance_id"],
        task_name=row["task"],
        process_instance_id=row["process_instance_id"],
    )


def _since(row: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(row["since"])


def submit_stream(
    client: Client, text: str, *, project: str | int | None = None, place: TaskPlace = AS_IT_IS
) -> Submitted:
    """Make a supervisor, or give one another specification."""
    read_spec(text, rules=Rules(is_open=is_masked))  # Report mistakes as at the database.
    query: dict[str, Any] = {"worker_group": place.worker_group, "profile": place.profile}
    if project is not None:
        query["project_id"] = project_id(client, project)
    row = client.post("/streams", json.loads(text), query)
    return Submitted(
        id=row["id"],
        version=row["version"],
        outcome=row["outcome"],
        ignored=tuple(row["ignored"]),
    )


def list_streams(client: Client) -> list[SupervisorView]:
    """List the supervisors that one may see."""
    return [_stream(row, _status(row)) for row in client.pages("/streams")]


def stream_given(client: Client, stream: str) -> StreamDetail:
    """Return a supervisor with its open tasks."""
    row = client.get(path_of("streams", stream))
    tasks = tuple(_stream_task(each) for each in row["tasks"])
    return StreamDetail(view=_stream(row, row["payload"]), tasks=tasks)


def stream_history(client: Client, stream: str) -> list[VersionView]:
    """Return the versions of a supervisor's specification, with masks for its secrets."""
    return [
        VersionView(
            id=stream,
            version=row["version"],
            document=row["spec"],
            suspended=row["suspended"],
            create_time=datetime.fromisoformat(row["created"]),
        )
        for row in client.get(f"{path_of('streams', stream)}/history")["items"]
    ]


def suspend_stream(client: Client, stream: str, *, suspended: bool) -> int:
    """Suspend a supervisor, or resume it."""
    word = "suspend" if suspended else "resume"
    version: int = client.post(f"{path_of('streams', stream)}/{word}")["version"]
    return version


def terminate_stream(client: Client, stream: str) -> int:
    """Have a supervisor end."""
    version: int = client.post(f"{path_of('streams', stream)}/terminate")["version"]
    return version


def reset_stream(
    client: Client,
    stream: str,
    *,
    partitions: Collection[Partition] | None,
    topics: Collection[str] = (),
) -> int:
    """Forget the offsets of these partitions and topics, or of all."""
    chosen = [*map(shown_partition, partitions or ()), *(f"{each}:*" for each in topics)]
    body: dict[str, Any] = {"partitions": chosen} if chosen else {"all": True}
    return _requested(client, stream, "reset", body)


def reset_stream_to(client: Client, stream: str, *, offsets: Offsets) -> int:
    """Have partitions read from these offsets on."""
    return _requested(client, stream, "reset", {"offsets": offsets_document(offsets)})


def hand_over_stream(client: Client, stream: str, *, groups: Collection[int]) -> int:
    """Have task groups publish what they have read."""
    return _requested(client, stream, "handoff", {"groups": list(groups)})


def list_datasets(client: Client) -> tuple[DatasetSummary, ...]:
    """List the datasets that one may see."""
    return tuple(_summary(row) for row in client.pages("/datasets"))


def show_dataset(client: Client, name: str, *, interval: str | None = None) -> DatasetView:
    """Return a dataset with its segments, of which only the number of files is known here."""
    row = client.get(path_of("datasets", name), {"interval": interval})
    return DatasetView(
        summary=_summary(row["dataset"]),
        segments=tuple(_segment(each) for each in row["segments"]),
        offsets=tuple(
            PartitionOffset(
                stream=each["stream"],
                partition=each["partition"],
                offset=each["offset"],
                max_event_time=moment_of(each["max_event_time"]),
            )
            for each in row["offsets"]
        ),
    )


def dataset_files(client: Client, name: str, *, interval: str | None = None) -> tuple[Path, ...]:
    """Return the files of a dataset, as the computer of the server has them."""
    items = client.get(f"{path_of('datasets', name)}/files", {"interval": interval})["items"]
    return tuple(Path(each["file"]) for each in items)


def first_rows(
    client: Client,
    name: str,
    *,
    interval: str | None = None,
    columns: Sequence[str] = (),
    sql: str | None = None,
    limit: int = 20,
) -> FirstRows:
    """Return some rows of a dataset, or of a query on it."""
    query = {"interval": interval, "columns": list(columns), "sql": sql, "limit": limit}
    found = client.get(f"{path_of('datasets', name)}/rows", query)
    times = {at for at, column in enumerate(found["columns"]) if column in found["times"]}
    return FirstRows(
        columns=tuple(found["columns"]),
        values=tuple(
            tuple(moment_of(cell) if at in times else cell for at, cell in enumerate(row))
            for row in found["items"]
        ),
        rows=found["rows"],
    )


def _requested(client: Client, stream: str, word: str, body: Mapping[str, Any]) -> int:
    made: int = client.post(f"{path_of('streams', stream)}/{word}", body)["request"]
    return made


def _status(row: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the payload that lists show."""
    return {
        "stream": row["stream"],
        "partitions": row["partitions"],
        "aggregateLag": row["lag"],
    }


def _stream(row: Mapping[str, Any], status: Mapping[str, Any]) -> SupervisorView:
    """A supervisor; whether it has a specification is all that is known of that here."""
    return SupervisorView(
        id=row["id"],
        version=row["version"],
        project_id=row["project_id"],
        process_definition_id=row["process_definition_id"],
        document=None if row["state"] == "TERMINATED" else {},
        suspended=row["suspended"],
        active=row["active"],
        owner=row["master"],
        epoch=0,
        state=row["state"],
        detailed_state=row["detailed_state"],
        healthy=row["healthy"],
        recent_errors=row.get("errors", ()),
        status=status,
        create_time=_LONG_AGO,
        update_time=datetime.fromisoformat(row["updated"]),
        project_name=row["project"],
    )


def _stream_task(row: Mapping[str, Any]) -> StreamTaskView:
    return StreamTaskView(
        name=row["task"],
        group_id=row["group"],
        assignment={"starts": row["starts"]},
        orders={},
        status={
            "state": row["status"],
            "current": row["current"],
            "lag": row["lag"],
            "errors": row["errors"],
        },
        status_time=moment_of(row["reported"]),
        ending_reason=row["ending"],
        process_instance_id=row["process_instance_id"],
        task_instance_id=row["task_instance_id"],
        state=None if row["state"] is None else TaskState[row["state"]],
        host=row["host"],
        start_time=moment_of(row["started"]),
        create_time=_LONG_AGO,
    )


def _summary(row: Mapping[str, Any]) -> DatasetSummary:
    return DatasetSummary(
        name=row["dataset"],
        start=moment_of(row["start"]),
        end=moment_of(row["end"]),
        segments=row["segments"],
        rows=row["rows"],
        bytes=row["bytes"],
        unused_segments=row["unused_segments"],
        changed=datetime.fromisoformat(row["changed"]),
    )


def _segment(row: Mapping[str, Any]) -> Segment:
    return Segment(
        id=SegmentId(
            interval=read_interval(row["interval"]),
            version=row["version"],
            partition_num=row["number"],
        ),
        files=("",) * row["files"],
        rows=row["rows"],
        bytes=row["bytes"],
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "datasets.dataset_files": dataset_files,
    "datasets.first_rows": first_rows,
    "datasets.list_datasets": list_datasets,
    "datasets.show_dataset": show_dataset,
    "locks.list_locks": list_locks,
    "streams.hand_over_stream": hand_over_stream,
    "streams.list_streams": list_streams,
    "streams.reset_stream": reset_stream,
    "streams.reset_stream_to": reset_stream_to,
    "streams.stream_given": stream_given,
    "streams.stream_history": stream_history,
    "streams.submit_stream": submit_stream,
    "streams.suspend_stream": suspend_stream,
    "streams.terminate_stream": terminate_stream,
}
