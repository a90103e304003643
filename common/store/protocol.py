"""What the loops ask of the tables: narrow protocols, one for each side that asks.

`common.store` fulfils them on PostgreSQL and the simulator in memory; one conformance suite runs on
both. Every method is one transaction and atomic. Every change names the owner and the state it
expects; what did not match is left out of the answer and never an error, save for a lost run. All
times are aware. Any method may raise `ServiceUnreachableError`: then nothing is known of its
outcome, and the caller must look at the tables before it acts on what it believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from common.model.cluster import KillEntry, Node, QueueEntry
from common.model.commands import Command
from common.model.decisions import Decision
from common.model.instances import Ownership, ProcessRow, TaskRow
from common.model.plans import Handled, Plan, Snapshot
from common.model.states import ProcessState, TaskState

Planner = Callable[[Command, Snapshot], Plan]


class CommandStore(Protocol):
    """`t_ds_command`, as the command loop sees it."""

    def waiting(self) -> bool:
        """Whether any command stands in the table: a cheap look before the mutex is taken."""
        ...

    def take(
        self,
        *,
        node: Node,
        limit: int,
        live_masters: frozenset[Node],
        planner: Planner,
        now: datetime,
    ) -> tuple[Handled, ...]:
        """Take up to `limit` commands off the table and carry out what each amounts to.

        Order: priority, then `update_time`, then id. Rows that another master holds are passed
        over. A row that can't be read, planned or carried out goes to `t_ds_error_command` alone;
        its neighbours are handled all the same.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A run as the tables have it. `tasks` holds every attempt, oldest first."""

    ownership: Ownership
    process: ProcessRow
    tasks: tuple[TaskRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """How an attempt ended, as its row says; it waits until the owner settles it."""

    process_instance_id: int
    task_instance_id: int
    name: str
    attempt: int
    state: TaskState
    end_time: datetime
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one event made of one run: written whole or not at all."""

    ownership: Ownership
    decisions: tuple[Decision, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a save of several runs' steps came to.

    `lost`: runs that belong to somebody else by now; nothing was written for them. `offers` and
    `kills` are to be put into the registry now that the rows stand; `withdrawn` are attempts that
    were killed before a worker claimed them, whose queue entries may go.
    """

    lost: frozenset[Ownership]
    offers: tuple[QueueEntry, ...]
    kills: tuple[KillEntry, ...]
    withdrawn: tuple[QueueEntry, ...]


class RunStore(Protocol):
    """Process instances and their tasks, as the master that owns them sees them."""

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun, ...]:
        """Read runs; one that is not, or no longer, this owner's is missing from the answer."""
        ...

    def save(self, steps: Sequence[Step]) -> Saved:
        """Write the steps in one transaction; a later step of a run comes after an earlier one.

        The rows of the runs are locked first, so that no take-over comes between fence and write.
        """
        ...

    def owned(self, node: Node) -> frozenset[Ownership]:
        """The live runs that this incarnation owns."""
        ...

    def reports(self, node: Node) -> tuple[TaskReport, ...]:
        """Ended attempts that this node's runs have not settled, in order of id.

        Notifications tell the same at once; this slow look makes a lost one cost a second and not
        an instance.
        """
        ...

    def wanted(self, node: Node) -> dict[Ownership, ProcessState]:
        """This node's live runs of which a state is wanted that they don't have yet."""
        ...

    def unclaimed(self, node: Node, *, submitted_before: datetime) -> tuple[QueueEntry, ...]:
        """Submitted attempts of this node's runs that no worker has claimed yet.

        It is what the queue must hold.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
    """An attempt that this worker, and no other, may start; with all that its process needs."""

    id: int
    process_instance_id: int
    process_definition_id: int
    process_name: str
    name: str
    attempt: int
    task_type: str
    task_json: str
    global_params: str | None
    schedule_time: datetime | None
    complement: bool
    tenant_code: str | None
    queue: str | None
    executor_id: int
    execute_path: str
    log_path: str
    start_time: datetime
    submit_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """What a worker has to say of an attempt that is over."""

    task_instance_id: int
    state: TaskState
    end_time: datetime
    exit_code: int | None = None
    pid: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPaths:
    """Where an attempt works and writes its log, on the worker's host."""

    execute_path: str
    log_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFolders:
    """The folders on the worker's host that hold the directories and the logs of all attempts.

    Only numbers become parts of a path below them. A store that writes paths by a statement of its
    own must write what `paths` gives.
    """

    work: str
    logs: str

    def paths(
        self, process_definition_id: int, process_instance_id: int, task_instance_id: int
    ) -> AttemptPaths:
        """Where an attempt works and writes its log."""
        place = f"{process_definition_id:d}/{process_instance_id:d}/{task_instance_id:d}"
        return AttemptPaths(
            execute_path=f"{self.work}/{place}", log_path=f"{self.logs}/{place}.log"
        )


class TaskStore(Protocol):
    """Task instances, as the worker that runs them sees them."""

    def claim(
        self,
        node: Node,
        task_instance_ids: Collection[int],
        *,
        folders: AttemptFolders,
        now: datetime,
    ) -> tuple[ClaimedTask, ...]:
        """SUBMITTED → RUNNING for those that still may start, in the order of the ids given.

        An attempt that is missing from the answer was finished, withdrawn or claimed by somebody
        else.
        """
        ...

    def started(self, node: Node, pids: dict[int, tuple[int, float]]) -> None:
        """Note the process (pid, start time) of running attempts, by task instance id."""
        ...

    def report(self, node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        """RUNNING → final for attempts that this incarnation still holds; their ids.

        Reporting an attempt twice is harmless: the second time it is not in the answer.
        """
        ...

    def running(self, node: Node) -> dict[int, bool]:
        """The attempts that this incarnation holds, and whether a kill of each is wanted."""
        ...

    def adopt(self, node: Node, task_instance_ids: Collection[int]) -> frozenset[int]:
        """Make a former incarnation's running attempts at this address this one's; their ids."""
        ...


class FailoverStore(Protocol):
    """What is left behind by daemons that are gone.

    A caller reads the owners here *first* and who is alive from the registry *after* that: an owner
    joined before it owned anything, so one that is missing then is gone for good.
    """

    def run_owners(self) -> frozenset[Node]:
        """Every incarnation that owns a live run for which no recovery waits."""
        ...

    def task_owners(self) -> frozenset[Node]:
        """Every incarnation that holds a running attempt."""
        ...

    def recover_runs(self, dead: Node, *, now: datetime) -> int:
        """Put one RECOVER_TOLERANCE_FAULT_PROCESS command for each of its runs; how many."""
        ...

    def fail_tasks_over(self, dead: Node, *, now: datetime) -> int:
        """RUNNING → NEED_FAULT_TOLERANCE for each of its attempts in live runs; how many."""
        ...
