"""The shapes of answers and requests about supervisors of streams and about datasets."""

from __future__ import annotations

from datetime import datetime

from api.answers import Answer, Document, Figures, Rows, Shape


class Stream(Answer):
    """A supervisor; the figures are those of its last run."""

    id: str
    version: int
    project_id: int
    project: str | None
    process_definition_id: int
    state: str
    detailed_state: str
    healthy: bool
    suspended: bool
    active: bool
    master: str | None
    stream: str | None
    partitions: int | None
    lag: int | None
    updated: datetime


class StreamPage(Answer):
    """A page of supervisors, by id."""

    items: list[Stream]
    next: str | None


class StreamTask(Answer):
    """A task of a supervisor; `status` is its own word for what it does."""

    task: str
    group: int
    status: str | None
    state: str | None
    starts: Figures | None
    current: Figures | None
    lag: Figures | None
    errors: Document | None
    host: str | None
    process_instance_id: int | None
    task_instance_id: int | None
    started: datetime | None
    reported: datetime | None
    ending: str | None


class StreamDetail(Stream):
    """A supervisor with its errors, its tasks, and the payload of its status as Druid has it."""

    errors: list[Document]
    payload: Document
    tasks: list[StreamTask]


class SubmittedStream(Answer):
    """A submission: created, changed, restarted or unchanged; `ignored` keys change nothing."""

    id: str
    version: int
    outcome: str
    ignored: list[str]


class StreamVersion(Answer):
    """A version of a specification; what may be a secret in it is masked."""

    version: int
    suspended: bool
    terminated: bool
    created: datetime
    spec: Document | None


class StreamVersionList(Answer):
    """The versions of a specification, the newest first."""

    items: list[StreamVersion]


class PartitionLag(Answer):
    """A partition of a stream, and what no task has read of it.

    It is a number. For a supervisor with a pattern of topics it is `topic:number`.
    """

    partition: int | str
    latest: int
    lag: int | None


class PartitionLagList(Answer):
    """The partitions of a stream at the last run."""

    items: list[PartitionLag]


class StreamCounts(Answer):
    """The counts of records that a task has reported."""

    task: str
    group: int
    counts: Figures


class StreamCountsList(Answer):
    """The reports of a supervisor's tasks."""

    items: list[StreamCounts]


class NewVersion(Answer):
    """A supervisor with the version that an order has made."""

    id: str
    version: int


class StreamRequest(Answer):
    """A request that waits for the supervisor's master; 0: it is done already."""

    id: str
    request: int


class StreamReset(Shape):
    """The offsets to read from; or the partitions to forget; or `all` of them.

    Partitions are numbers, or `topic:number` with a pattern of topics; `topic:*` forgets a topic.
    """

    offsets: dict[str, int] | None = None
    partitions: list[int | str] | None = None
    all: bool = False


class StreamHandOver(Shape):
    """The numbers of task groups."""

    groups: list[int]


class Dataset(Answer):
    """A dataset: its used segments, the times between which they are, and what was replaced."""

    dataset: str
    start: datetime | None
    end: datetime | None
    segments: int
    rows: int
    bytes: int
    unused_segments: int
    changed: datetime


class DatasetPage(Answer):
    """A page of datasets, by name."""

    items: list[Dataset]
    next: str | None


class Segment(Answer):
    """A segment: `files` counts them."""

    interval: str
    version: str
    number: int
    files: int
    rows: int
    bytes: int


class StreamOffset(Answer):
    """The offset up to which a dataset has a partition of its stream."""

    stream: str
    partition: int
    offset: int
    max_event_time: datetime | None


class DatasetDetail(Answer):
    """A dataset with its segments, in order of time, and the offsets of its stream."""

    dataset: Dataset
    segments: list[Segment]
    offsets: list[StreamOffset]


class DatasetFile(Answer):
    """A Parquet file, by its path on the computer of the server."""

    file: str


class DatasetFileList(Answer):
    """The files of a dataset."""

    items: list[DatasetFile]


class DatasetRows(Answer):
    """Rows by column; `times` names the columns with moments, `rows` counts all rows."""

    columns: list[str]
    times: list[str]
    items: Rows
    rows: int
