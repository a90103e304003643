"""The port of the keeper: supervisors in the tables, as the master with their leases sees them.

A *lease* is the right to look after a supervisor until a time by the database's clock. Each
take-over raises the *epoch*; a write that names an older one is refused. So two masters that both
believe to be the owner may ask the stream twice, and no more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from common.errors import SchedulerError
from common.model.cluster import Node
from common.model.streams.partitions import Partition
from common.model.streams.requests import Request
from common.model.streams.spec import Offsets
from common.model.streams.tasks import Assignment, Orders, TaskReport


class LeaseLostError(SchedulerError):
    """Another master looks after the supervisor. Forget it; nothing was written."""


class OutdatedStepError(SchedulerError):
    """A step was made for something that is stored no more. Nothing was written; look again."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lease:
    """A supervisor that this master looks after, by its epoch."""

    supervisor: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """A digest of all that a run looks at in the tables: another one calls for a run."""

    project_id: int
    version: int
    last_request: int
    tasks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTaskRow:
    """A task with its orders, its last report, and the state of its attempt.

    `succeeded`: None until it has ended; `attempt`: the id of its task instance, None before that.
    `assigned_at`: since when a worker runs the attempt.
    """

    assignment: Assignment
    orders: Orders
    ending_since: datetime | None
    killed: bool
    attempt: int | None
    assigned: bool
    assigned_at: datetime | None
    report: TaskReport
    succeeded: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRequest:
    """A request that can't be read; it is removed and told to people."""

    id: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorRows:
    """A supervisor as the tables have it.

    `version` is the newest one, perhaps a tombstone; `spec_version` and `document` are the newest
    with a specification. `stored` has the stream and the offset of each partition.
    """

    version: int
    is_tombstone: bool
    spec_version: int
    document: Mapping[str, Any]
    suspended: bool
    stored: Mapping[Partition, tuple[str, int]]
    tasks: tuple[StreamTaskRow, ...]
    requests: tuple[Request | BadRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveOrders:
    """Replace the orders of a task."""

    task: str
    orders: Orders


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTask:
    """Have a task end; `kill` also ends the run that it is, or withdraws its command."""

    task: str
    reason: str
    kill: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsets:
    """Store offsets of partitions that have none; those that have one keep it."""

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOffsets:
    """Store offsets of these partitions, whatever was stored."""

    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class DropOffsets:
    """Forget the offsets of these partitions, or of all.

    `OutdatedStepError` if what is stored is not `expected` any more.
    """

    partitions: tuple[Partition, ...] | None
    expected: Offsets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSpec:
    """Insert another version of the specification, unless somebody else has."""

    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TellPeople:
    """Write an alert."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAssignment:
    """Put the command that starts a task, and its row; one of a standby has no work."""

    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveAssignment:
    """Give a standby its work; one that has some already is a conflict."""

    assignment: Assignment


Change: TypeAlias = (
    StartAssignment
    | GiveAssignment
    | GiveOrders
    | EndTask
    | AddOffsets
    | PutOffsets
    | DropOffsets
    | PutSpec
    | TellPeople
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a supervisor for people; `status` is JSON, its shape the keeper's.

    A `status` of None leaves the stored one.
    """

    state: str
    detailed_state: str
    healthy: bool
    recent_errors: tuple[Mapping[str, Any], ...]
    status: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorStep:
    """The consequences of a notice, or a part of them: written whole or not at all, in order.

    `version`: that of the loaded rows. `requests` have been carried out; `closed` tasks have ended
    and belong to no group. `ends`: no master keeps the supervisor from now on. `goes_on`: another
    part follows.
    """

    version: int
    stream: str
    changes: tuple[Change, ...] = ()
    requests: tuple[int, ...] = ()
    closed: tuple[str, ...] = ()
    standing: Standing | None = None
    ends: bool = False
    goes_on: bool = False


class SupervisorStore(Protocol):
    """Supervisors and their tasks in the tables."""

    def claim(self, node: Node, *, lease: timedelta, limit: int) -> tuple[Lease, ...]:
        """Take over up to `limit` supervisors whose lease is over."""
        ...

    def renew(
        self, node: Node, leases: Collection[Lease], *, lease: timedelta
    ) -> Mapping[Lease, Pulse]:
        """Prolong leases, and return their pulses; a lost one is left out, over or not."""
        ...

    def release(self, node: Node, leases: Collection[Lease]) -> None:
        """End leases at once, so that another master need not wait."""
        ...

    def load(self, lease: Lease) -> SupervisorRows | None:
        """Return what a run looks at, all of one moment; None if the supervisor is gone."""
        ...

    def apply(self, node: Node, lease: Lease, step: SupervisorStep, *, now: datetime) -> None:
        """Write a step in one transaction. `LeaseLostError` if the lease is over or another's."""
        ...
