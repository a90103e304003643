"""The documents between a supervisor and a stream task: assignment, orders, report.

Pure. They stand as JSON in the task's row (`t_ds_stream_task`), where the supervisor's keeper and
the task's worker read them. Only the keeper writes orders, only the worker that runs the task
writes reports. A task that does not know an order's number yet has not obeyed it.

    assignment   the work, which never changes     `Assignment`
    orders       what to do now, by their number   `Orders`
    status       how far it has come               `TaskReport`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from common.model.streams.partitions import Partition, read_partition
from common.model.streams.spec import Offsets

TASK_TYPE: Final = "STREAM"
"""The type of the task instances that are stream tasks."""
TASK_NAME: Final = "read"
"""The name of the only task of a supervisor's process definition."""
TASK_PARAMETER: Final = "stream_task"
"""The global parameter of a run that names its stream task."""
RECORD_COUNTS: Final = ("processed", "processedWithError", "unparseable", "thrownAway")
"""The counts of records that a task reports; the names are Druid's."""
_MOST_OFFSET: Final = 2**63 - 1


class TaskStatus(StrEnum):
    """A task's own report of what it does; `state` in the JSON of `t_ds_stream_task.status`."""

    NOT_STARTED = "NOT_STARTED"
    STARTING = "STARTING"
    STANDBY = "STANDBY"
    """Prepared, and without work yet."""
    READING = "READING"
    PAUSED = "PAUSED"
    PUBLISHING = "PUBLISHING"


class OrderKind(StrEnum):
    """An order to a task; `command` in the JSON of `t_ds_stream_task.orders`."""

    RESUME = "resume"
    """Read on."""
    PAUSE = "pause"
    """Stop reading, and report the offsets at which you did."""
    END = "end"
    """End the sequence at these offsets, then finish or read on in the next one."""
    STOP = "stop"
    """End without publishing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The work of one task: it begins at the first of `checkpoints`.

    `checkpoints` are starts of sequences by their number; a sequence ends where the next one
    starts, and is published as `<base_sequence>_<number>`. `ends` are known from the start for a
    bounded range alone. `version` is that of the supervisor's specification.

    A *standby* has no checkpoints: it prepares itself, and is assigned its work later, once. Until
    then its `base_sequence` only keeps it away from its replicas.
    """

    name: str
    supervisor: str
    version: int
    group_id: int
    base_sequence: str
    starts: Offsets
    checkpoints: Mapping[int, Offsets]
    min_time: datetime | None = None
    max_time: datetime | None = None
    ends: Offsets | None = None

    @property
    def is_standby(self) -> bool:
        return not self.checkpoints

    def document(self) -> dict[str, Any]:
        """Return the part that has no column of its own."""
        return {
            "starts": offsets_document(self.starts),
            "checkpoints": {
                str(number): offsets_document(offsets)
                for number, offsets in sorted(self.checkpoints.items())
            },
            "minTime": None if self.min_time is None else self.min_time.isoformat(),
            "maxTime": None if self.max_time is None else self.max_time.isoformat(),
            "ends": None if self.ends is None else offsets_document(self.ends),
        }

    @classmethod
    def of(
        cls,
        document: Mapping[str, Any],
        *,
        name: str,
        supervisor: str,
        version: int,
        group_id: int,
        base_sequence: str,
    ) -> Assignment:
        """Read what `document` has written."""
        return cls(
            name=name,
            supervisor=supervisor,
            version=version,
            group_id=group_id,
            base_sequence=base_sequence,
            starts=offsets_of(document["starts"]),
            checkpoints={
                int(number): offsets_of(each) for number, each in document["checkpoints"].items()
            },
            min_time=_moment(document.get("minTime")),
            max_time=_moment(document.get("maxTime")),
            ends=None if document.get("ends") is None else offsets_of(document["ends"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The last order to a task. `version` grows with each; a report names the last one obeyed.

    For `END`: the offsets, the number of the sequence that they end, and whether the task is to
    finish there.
    """

    version: int = 0
    command: OrderKind = OrderKind.RESUME
    end: Offsets | None = None
    sequence: int | None = None
    finish: bool = False

    def document(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "command": self.command.value,
            "end": None if self.end is None else offsets_document(self.end),
            "sequence": self.sequence,
            "finish": self.finish,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Orders:
        """Read what `document` has written."""
        end = document.get("end")
        return cls(
            version=int(document.get("version", 0)),
            command=OrderKind(document.get("command", OrderKind.RESUME)),
            end=None if end is None else offsets_of(end),
            sequence=document.get("sequence"),
            finish=bool(document.get("finish")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """A part of a task's range; without an end it is being read."""

    id: int
    start: Offsets
    end: Offsets | None = None
    published: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """A task's report. `obeyed` is the version of the last orders that it has carried out.

    `began`: when it began to read, by its worker's clock. `full`: the start of its present
    sequence, if it wants that one closed, since its segments are full or the time for it is over;
    it pauses meanwhile. `counts` are of records, by Druid's names;
    `errors` are for people: `trouble` of the stream, and `parse`, a list of what was not readable.
    """

    state: TaskStatus = TaskStatus.NOT_STARTED
    began: datetime | None = None
    obeyed: int = 0
    current: Offsets = field(default_factory=dict)
    sequences: tuple[Sequence, ...] = ()
    full: Offsets | None = None
    lag: Offsets = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "began": None if self.began is None else self.began.isoformat(),
            "obeyed": self.obeyed,
            "current": offsets_document(self.current),
            "sequences": [
                {
                    "id": each.id,
                    "start": offsets_document(each.start),
                    "end": None if each.end is None else offsets_document(each.end),
                    "published": each.published,
                }
                for each in self.sequences
            ],
            "full": None if self.full is None else offsets_document(self.full),
            "lag": offsets_document(self.lag),
            "counts": dict(self.counts),
            "errors": dict(self.errors),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TaskReport:
        """Read a report; a process of a tenant wrote it, so anything wrong is a `ValueError`."""
        try:
            full = document.get("full")
            return cls(
                state=TaskStatus(document["state"]),
                began=_moment_with_zone(document.get("began")),
                obeyed=int(document.get("obeyed", 0)),
                current=offsets_of(document.get("current") or {}),
                sequences=tuple(
                    Sequence(
                        id=int(each["id"]),
                        start=offsets_of(each["start"]),
                        end=None if each.get("end") is None else offsets_of(each["end"]),
                        published=bool(each.get("published")),
                    )
                    for each in document.get("sequences") or ()
                ),
                full=None if full is None else offsets_of(full),
                lag=offsets_of(document.get("lag") or {}),
                counts={
                    str(name): int(count) for name, count in (document.get("counts") or {}).items()
                },
                errors=dict(document.get("errors") or {}),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"the report of a stream task can't be read: {error!r}") from error


def offsets_document(offsets: Offsets) -> dict[str, int]:
    """Return offsets as JSON has them: partitions are texts, in their order."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def offsets_of(document: Mapping[str, Any]) -> dict[Partition, int]:
    """Read offsets; anything but partitions and offsets that Kafka knows is a `ValueError`."""
    offsets = {read_partition(partition): int(offset) for partition, offset in document.items()}
    for offset in offsets.values():
        if not 0 <= offset <= _MOST_OFFSET:
            raise ValueError("offsets are not negative, and no greater than Kafka's")
    return offsets


def _moment_with_zone(text: str | None) -> datetime | None:
    moment = _moment(text)
    if moment is not None and moment.tzinfo is None:
        raise ValueError(f"the time {text} has no zone")
    return moment


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
