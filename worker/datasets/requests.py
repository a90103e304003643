"""Reads what tasks ask of their worker about datasets. Whatever a task sends, it is checked here.

Pure. A *write* is a folder that an attempt was given for files of one dataset, and its name. Tasks
of a stream also ask for their work and their orders, and those of topologies for theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from common.errors import SchedulerError
from common.model.intervals import Interval, IntervalError, read_instant, read_interval
from common.model.lock_needs import is_dataset_name
from common.model.locks import (
    BATCH_PRIORITY,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    STREAM_PRIORITY,
    LockType,
)
from common.model.segments import StreamRange
from common.model.streams.partitions import Partition, read_partition
from common.model.streams.tasks import TaskReport
from common.model.topologies import Report

MOST_SEGMENTS: Final = 5_000
MOST_FILES: Final = 20_000
LONGEST_KEY: Final = 200
OF_RUNS: Final = "run "
"""The beginning of the names of sequences that batch tasks write."""
_MOST_PARTITIONS: Final = 10_000
_LONGEST_FILE: Final = 500
_SHOWN: Final = 80
_MOST: Final = 2**63 - 1
_MOST_SEQUENCES: Final = 10_000
_DEEPEST: Final = 10
_WRITE: Final = re.compile(r"[0-9a-f]{16}")


class DatasetRequestError(SchedulerError):
    """A request that is refused; the text names the mistake and the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSegments:
    """The segments with rows of an interval, or all."""

    dataset: str
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLock:
    """A lock beside those of the task's definition. `of_stream`: as one of the dataset's stream."""

    dataset: str
    interval: Interval
    type: LockType
    priority: int
    of_stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFolder:
    """A folder for new files of a dataset."""

    dataset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPublished:
    """True if the attempt's task has added something under this key, in this run."""

    dataset: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSegment:
    """Files with rows of one chunk, relative to the write's folder."""

    interval: Interval
    files: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPublish:
    """Have a write's files appear. One of `key`, `replaces` and `sequence` says as what.

    `key` tells the appends of one task apart; `sequence` names the work of a stream's task.
    """

    dataset: str
    write: str
    segments: tuple[NewSegment, ...]
    key: str | None = None
    replaces: Interval | None = None
    sequence: str | None = None
    range: StreamRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWork:
    """The work of a stream's task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOrders:
    """The orders to a stream's task, which may tell how far it has come."""

    report: TaskReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTopology:
    """The work of a topology's task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWanted:
    """The orders of people to a topology, whose task may tell how far it has come."""

    report: Report | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWatch:
    """The orders of people to a topology, once they have another number than this."""

    number: int


Ask: TypeAlias = (
    AskSegments
    | AskLock
    | AskFolder
    | AskPublished
    | AskPublish
    | AskWork
    | AskOrders
    | AskTopology
    | AskWanted
    | AskWatch
)


def read_ask(document: object) -> Ask:
    """Read a request. Raises `DatasetRequestError`."""
    if not isinstance(document, dict):
        raise DatasetRequestError("a request is a JSON object")
    match document.get("ask"):
        case "work":
            return AskWork()
        case "orders":
            given = document.get("report")
            return AskOrders(report=None if given is None else _report(given))
        case "topology":
            return AskTopology()
        case "topology_report":
            given = document.get("report")
            return AskWanted(report=None if given is None else _topology_report(given))
        case "topology_watch":
            return AskWatch(number=_number(document.get("number"), "number", 0, _MOST))
    dataset = document.get("dataset")
    if not isinstance(dataset, str) or not is_dataset_name(dataset):
        raise DatasetRequestError(
            f"dataset {_shown(dataset)} is no name: letters, digits, _, - and ., 128 at most, and"
            " the first no - or ."
        )
    match document.get("ask"):
        case "segments":
            given = document.get("interval")
            interval = None if given is None else _interval(given)
            return AskSegments(dataset=dataset, interval=interval)
        case "lock":
            return _lock(document, dataset)
        case "folder":
            return AskFolder(dataset=dataset)
        case "published":
            key = _text(document, "key")
            if key is None:
                raise DatasetRequestError("a key is missing")
            return AskPublished(dataset=dataset, key=key)
        case "publish":
            return _publish(document, dataset)
        case other:
            raise DatasetRequestError(f"there is no request {_shown(other)}")


def _lock(document: Mapping[str, Any], dataset: str) -> AskLock:
    kind = document.get("type", LockType.EXCLUSIVE.value)
    if kind not in LockType.__members__:
        raise DatasetRequestError(f"type must be one of {', '.join(LockType)}, not {_shown(kind)}")
    of_stream = document.get("stream") is True
    priority = document.get("priority", STREAM_PRIORITY if of_stream else BATCH_PRIORITY)
    return AskLock(
        dataset=dataset,
        interval=_interval(document.get("interval")),
        type=LockType(kind),
        priority=_number(priority, "priority", LOWEST_PRIORITY, HIGHEST_PRIORITY),
        of_stream=of_stream,
    )


def _publish(document: Mapping[str, Any], dataset: str) -> AskPublish:
    write = document.get("write")
    if not isinstance(write, str) or not _WRITE.fullmatch(write):
        raise DatasetRequestError("write must be the name that came with the folder")
    key, sequence = _text(document, "key"), _text(document, "sequence")
    replaces = document.get("replaces")
    if sum(each is not None for each in (key, sequence, replaces)) != 1:
        raise DatasetRequestError("a publication has one of key, replaces and sequence")
    if sequence is not None and sequence.startswith(OF_RUNS):
        raise DatasetRequestError(f"a sequence must not begin with {OF_RUNS!r}")
    given = document.get("range")
    if given is not None and sequence is None:
        raise DatasetRequestError("a range belongs to a publication with a sequence")
    return AskPublish(
        dataset=dataset,
        write=write,
        segments=_segments(document.get("segments", [])),
        key=key,
        replaces=None if replaces is None else _interval(replaces),
        sequence=sequence,
        range=None if given is None else _range(given),
    )


def _segments(given: object) -> tuple[NewSegment, ...]:
    if not isinstance(given, list) or len(given) > MOST_SEGMENTS:
        raise DatasetRequestError(f"segments must be a list of {MOST_SEGMENTS:,} at most")
    found: list[NewSegment] = []
    names: set[str] = set()
    for place, each in enumerate(given):
        if not isinstance(each, dict) or not isinstance(each.get("files"), list):
            raise DatasetRequestError(f"segments[{place}] must have interval, files and rows")
        files = tuple(_file(name, f"segments[{place}].files") for name in each["files"])
        if not files:
            raise DatasetRequestError(f"segments[{place}] has no file; leave it out")
        for name in files:
            if name in names:
                raise DatasetRequestError(f"file {_shown(name)} is named twice")
            names.add(name)
        if len(names) > MOST_FILES:
            raise DatasetRequestError(f"a publication has {MOST_FILES:,} files at most")
        found.append(
            NewSegment(
                interval=_interval(each.get("interval")),
                files=files,
                rows=_number(each.get("rows"), f"segments[{place}].rows", 0, _MOST),
            )
        )
    return tuple(found)


def _file(name: object, place: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_FILE or not name.isprintable():
        raise DatasetRequestError(f"{place}: {_shown(name)} is no name of a file")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise DatasetRequestError(
            f"{place}: {_shown(name)} must be relative to the write's folder, and in it"
        )
    if not name.endswith(".parquet"):
        raise DatasetRequestError(f"{place}: {_shown(name)} must be a file .parquet")
    return name


def _range(given: object) -> StreamRange:
    if not isinstance(given, dict):
        raise DatasetRequestError("range must have stream, starts and ends")
    stream = given.get("stream")
    if not isinstance(stream, str) or not 0 < len(stream) <= 255 or not stream.isprintable():
        raise DatasetRequestError(f"range.stream: {_shown(stream)} is no name of a stream")
    times = _by_partition(given.get("max_event_times", {}), "range.max_event_times")
    return StreamRange(
        stream=stream,
        starts=_offsets(given.get("starts"), "range.starts"),
        ends=_offsets(given.get("ends"), "range.ends"),
        max_event_times={
            partition: _instant(moment) for partition, moment in times.items() if moment is not None
        },
    )


def _shallow(given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise DatasetRequestError("report must be an object")
    if not _is_shallow(given, _DEEPEST):
        raise DatasetRequestError(f"report is nested deeper than {_DEEPEST}")
    return given


def _topology_report(given: object) -> Report:
    try:
        return Report.of(_shallow(given))
    except ValueError as error:
        raise DatasetRequestError(f"report: {str(error)[:500]}") from error


def _report(given: object) -> TaskReport:
    given = _shallow(given)
    try:
        report = TaskReport.of(given)
    except ValueError as error:
        raise DatasetRequestError(f"report: {str(error)[:500]}") from error
    offsets = (report.current, report.lag, report.full or {})
    if len(report.sequences) > _MOST_SEQUENCES or any(
        len(each) > _MOST_PARTITIONS for each in offsets
    ):
        raise DatasetRequestError(
            f"report: a task has {_MOST_SEQUENCES:,} sequences and {_MOST_PARTITIONS:,} partitions"
            " at most"
        )
    return report


def _is_shallow(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        return levels > 0 and all(_is_shallow(each, levels - 1) for each in value.values())
    if isinstance(value, list):
        return levels > 0 and all(_is_shallow(each, levels - 1) for each in value)
    return True


def _by_partition(given: object, place: str) -> dict[Partition, object]:
    if not isinstance(given, dict) or len(given) > _MOST_PARTITIONS:
        raise DatasetRequestError(f"{place} must be an object by partition")
    try:
        return {read_partition(partition): value for partition, value in given.items()}
    except ValueError:
        raise DatasetRequestError(
            f"{place} must have partitions as keys: numbers, or topic:number"
        ) from None


def _offsets(given: object, place: str) -> dict[Partition, int]:
    return {
        partition: _number(offset, place, 0, _MOST)
        for partition, offset in _by_partition(given, place).items()
    }


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_KEY or not value.isprintable():
        raise DatasetRequestError(f"{name} must be a text of {LONGEST_KEY} characters at most")
    return value


def _interval(given: object) -> Interval:
    if not isinstance(given, str):
        raise DatasetRequestError(f"{_shown(given)} is no interval; write 2026-11-20/P1D")
    try:
        return read_interval(given)
    except IntervalError as error:
        raise DatasetRequestError(str(error)) from error


def _instant(given: object) -> datetime:
    try:
        return read_instant(str(given))
    except (IntervalError, OverflowError) as error:
        raise DatasetRequestError(f"range.max_event_times: {error}") from error


def _number(given: object, place: str, least: int, most: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise DatasetRequestError(f"{place} must be a whole number from {least} to {most}")
    return given


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
