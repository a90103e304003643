"""A task's end of its worker's socket for datasets: what segments hold rows, and new ones.

    from orcaflow.task import allocate, publish

    place = allocate("flights")                       # a folder of this attempt's own
    frame.write.parquet(f"{place.path}/part")         # by whatever program, files *.parquet
    publish(place, [Files("2026-11-20/P1D", ["part/….parquet"], rows=10)], key="flights")

The worker alone writes to the database, so a task needs no right there. A publication appears
whole or not at all, in one transaction, only while the attempt runs and holds its locks. Three
kinds: `key=` adds, and what an attempt of the same task of the same run has added before under the
key is not added again; `replaces=` replaces an interval; `sequence=` with `stream_range=` is what a
stream's task publishes, together with the offsets of the stream. Any may be called as often as
wanted while the attempt runs, and from any thread. If the worker or the database is away, they
wait for it. Standard library only, as `orcaflow.task`.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = [
    "Allocation",
    "DatasetConflictError",
    "DatasetError",
    "Files",
    "LockLostError",
    "Outcome",
    "Range",
    "Segments",
    "StoredSegment",
    "WorkerAwayError",
    "allocate",
    "ask_lock",
    "publish",
    "segments",
    "was_published",
]

_SOCKET: Final = "ORCAFLOW_DATASETS"
_TOKEN: Final = "ORCAFLOW_DATASETS_TOKEN"  # noqa: S105  # Its name.
_TASK: Final = "ORCAFLOW_TASK_INSTANCE_ID"
_PATIENCE_SECONDS: Final = 600.0
_LONGEST_REST_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 300.0
_MOST_BYTES: Final = 256 * 1024 * 1024


class DatasetError(RuntimeError):
    """A request that the worker has refused; the text names the mistake and the cure."""


class WorkerAwayError(DatasetError):
    """The worker, or what it needs for its answer, can't be reached; ask again later."""


class AttemptEndedError(DatasetError):
    """The worker does not run this attempt any more: whatever it goes on to do is lost."""


class LockLostError(DatasetError):
    """A lock was revoked by somebody more important: nothing was published. Try again later."""


class DatasetConflictError(DatasetError):
    """Nothing was published, and never will be: the work is stale, or was never allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A folder of this attempt's own for new files of a dataset."""

    dataset: str
    path: Path
    write: str


@dataclass(frozen=True, slots=True)
class Files:
    """Parquet files with rows of one chunk, by their names in the allocated folder.

    `interval` is the chunk, as `2026-11-20/P1D`. They become one segment.
    """

    interval: str
    names: Sequence[str]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A part of a stream, by partition: from `starts` up to but not including `ends`.

    Partitions are numbers, or texts `topic:number` for a stream of several topics.
    """

    stream: str
    starts: Mapping[int | str, int]
    ends: Mapping[int | str, int]
    max_event_times: Mapping[int | str, str] = field(default_factory=dict)
    """ISO 8601; with their zone, or in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Rows that have appeared. `again`: they had before, by an earlier attempt or replica."""

    segments: tuple[str, ...] = ()
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """A segment: its chunk from `start` to `end`, in ISO 8601 and UTC, and its files."""

    start: str
    end: str
    version: str
    number: int
    files: tuple[str, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """The segments with rows of an interval, whose ends are None if all were asked for."""

    start: str | None
    end: str | None
    segments: tuple[StoredSegment, ...]


def segments(
    dataset: str, interval: str | None = None, *, patience_seconds: float = _PATIENCE_SECONDS
) -> Segments:
    """Return the segments that have rows of an interval, or all of the dataset's."""
    found = asked(
        {"ask": "segments", "dataset": dataset, "interval": interval},
        patience_seconds=patience_seconds,
    )
    start, end = found["interval"] or (None, None)
    return Segments(
        start=start,
        end=end,
        segments=tuple(
            StoredSegment(
                start=each["interval"][0],
                end=each["interval"][1],
                version=each["version"],
                number=each["number"],
                files=tuple(each["files"]),
                rows=each["rows"],
                bytes=each["bytes"],
            )
            for each in found["segments"]
        ),
    )


def allocate(dataset: str) -> Allocation:
    """Get a new, empty folder for files of a dataset that the attempt has a lock to write."""
    found = asked({"ask": "folder", "dataset": dataset})
    return Allocation(dataset=dataset, path=Path(found["path"]), write=found["write"])


def publish(
    allocation: Allocation,
    files: Iterable[Files],
    *,
    key: str | None = None,
    replaces: str | None = None,
    sequence: str | None = None,
    stream_range: Range | None = None,
) -> Outcome:
    """Have files appear in the dataset, all or none. To call it again is harmless.

    Give one of `key` (adds), `replaces` (an interval) and `sequence` (a stream's work).
    Raises `LockLostError`, `DatasetConflictError`, or `DatasetError` for a mistake.
    """
    request: dict[str, object] = {
        "ask": "publish",
        "dataset": allocation.dataset,
        "write": allocation.write,
        "segments": [
            {"interval": each.interval, "files": list(each.names), "rows": each.rows}
            for each in files
        ],
        "key": key,
        "replaces": replaces,
        "sequence": sequence,
    }
    if stream_range is not None:
        request["range"] = {
            "stream": stream_range.stream,
            "starts": {str(each): offset for each, offset in stream_range.starts.items()},
            "ends": {str(each): offset for each, offset in stream_range.ends.items()},
            "max_event_times": {str(each): at for each, at in stream_range.max_event_times.items()},
        }
    found = asked(request)
    if found["outcome"] == "already published":
        return Outcome(again=not found["by_this"])
    return Outcome(segments=tuple(found["segments"]))


def was_published(dataset: str, key: str) -> bool:
    """Return True if an attempt of this task of this run has added something under the key."""
    found = asked({"ask": "published", "dataset": dataset, "key": key})
    return bool(found["published"])


def ask_lock(
    dataset: str,
    interval: str,
    *,
    kind: str = "APPEND",
    priority: int | None = None,
    stream: bool = False,
) -> str | None:
    """Ask for a lock beside those of the definition; return its version, or None if it is taken.

    It ends with the attempt. `stream`: as a task of the dataset's stream, whose tasks share their
    locks, with its priority. Others are held in the way as by any lock: don't wait long with one.
    """
    request: dict[str, object] = {
        "ask": "lock",
        "dataset": dataset,
        "interval": interval,
        "type": kind,
        "stream": stream,
    }
    if priority is not None:
        request["priority"] = priority
    found = asked(request)
    return None if found["outcome"] == "busy" else str(found["version"])


def asked(
    request: Mapping[str, object],
    *,
    patience_seconds: float = _PATIENCE_SECONDS,
    answer_seconds: float = _ANSWER_SECONDS,
) -> dict[str, Any]:
    """Ask until there is an answer; ten minutes at most, and once without patience."""
    if _SOCKET not in os.environ:
        raise DatasetError(
            "there is no worker to ask: datasets are read and written by tasks of a run"
        )
    body = json.dumps(request).encode()
    limit, rest = time.monotonic() + patience_seconds, 0.1
    while True:
        try:
            found = _answer(body, answer_seconds)
            problem = str(found.get("reason", ""))
            if found["outcome"] != "unavailable":
                break
        except OSError as error:
            # Its daemon may be restarted, and the task goes on meanwhile.
            problem = f"the worker can't be reached: {error.strerror or error}"
        if time.monotonic() >= limit:
            raise WorkerAwayError(problem)
        # A worker that is away, or whose database is, can notify nobody of its return. No library
        # for retries: whatever Python runs the task has to be able to import this.
        time.sleep(rest)
        rest = min(2 * rest, _LONGEST_REST_SECONDS)
    match found["outcome"]:
        case "refused":
            raise DatasetError(problem)
        case "lock lost":
            raise LockLostError(problem)
        case "conflict":
            raise DatasetConflictError(problem)
        case "ended":
            raise AttemptEndedError(problem)
    return found


def _answer(body: bytes, answer_seconds: float) -> dict[str, Any]:
    with _connected(os.environ[_SOCKET]) as connection:
        connection.settimeout(answer_seconds)
        head = f"{os.environ[_TASK]} {os.environ[_TOKEN]} {len(body)}\n"
        # One that is refused may not be read to its end; the answer says why.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(head.encode() + body)
        with connection.makefile("rb") as answer:
            length = int(answer.readline(20) or 0)
            if not 0 < length <= _MOST_BYTES:
                raise ConnectionResetError("the worker hung up")
            whole = answer.read(length)
    if len(whole) < length:
        raise ConnectionResetError("the worker hung up")
    found: dict[str, Any] = json.loads(whole)
    return found


def _connected(address: str) -> socket.socket:
    folder_name, _, name = address.rpartition("/")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # By its folder's descriptor: an address may have a hundred characters only.
        folder = os.open(folder_name, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{name}")
        finally:
            os.close(folder)
    except OSError:
        connection.close()
        raise
    return connection
