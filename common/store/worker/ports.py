"""The port through which a worker reaches the tables, and the values that pass through it.

`common.store.worker.tasks` implements it on PostgreSQL, the simulator in memory; one conformance
suite runs on both. Every method is one transaction and atomic. Every change names the owner and the
state it expects; rows that do not match are left out of the answer and never an error. All times
are aware. Any method may raise `ServiceUnreachableError`: its outcome is then unknown, and the
caller must read the tables before it acts on what it believed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from common.errors import SchedulerError
from common.model.cluster import Node
from common.model.failures import UNEXPLAINED, FailureReason
from common.model.grants import GrantedObject
from common.model.offers import Offer
from common.model.origins import Origin
from common.model.quality import QualityResult
from common.model.spark import SparkFacts
from common.model.states import TaskState
from common.model.workers import WorkerMode

Wanted: TypeAlias = tuple[int, int]
"""A project and the number of an object that one of its tasks names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """A row of `t_ds_datasource`. `connection_params` holds a password: it is never logged."""

    id: int
    name: str
    type: int
    connection_params: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A row of `t_ds_environment`. `config` may hold secrets: it is never logged."""

    code: int
    name: str
    config: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
    """An attempt that this worker alone may start, with everything that its process needs.

    `input_pool`: a JSON list of the properties that upstream tasks put out. `start_params`: a JSON
    object of the values given with the command. `timeout`: set if the attempt fails after it,
    counted from its start. `datasource` and `datasources` are filled for task types that need them.
    """

    id: int
    process_instance_id: int
    process_definition_id: int
    process_name: str
    name: str
    attempt: int
    task_type: str
    task_json: str
    global_params: str | None
    moment: datetime | None
    """The moment from which the run counts its dates (`common.business_dates`)."""
    complement: bool
    tenant_code: str | None
    queue: str | None
    executor_id: int
    execute_path: str
    log_path: str
    start_time: datetime
    submit_time: datetime | None = None
    input_pool: str | None = None
    start_params: str | None = None
    timeout: timedelta | None = None
    datasource: DataSource | None = None
    datasources: tuple[DataSource, ...] = ()
    """All data sources that it names; `datasource` is the first."""
    former_quality: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Values that its comparing rules measured in former runs, newest first. Filled likewise."""
    timezone_id: str | None = None
    """The zone in which the run reads its dates; None is the cluster's own."""
    memory_factor: float = 1.0
    """The factor of its memory, greater than 1 after an attempt that had too little."""
    lost_attempts: tuple[int, ...] = ()
    """The attempts that it replaces, newest first: those right before it whose workers were lost.
    Their applications may still run."""
    ended_attempts: tuple[int, ...] = ()
    """The other attempts before it, newest first; no process of them should be left."""
    environment_code: int | None = None
    """The environment of the run, for a node that names none itself."""
    environment: Environment | None = None
    """The environment that it names; filled as data sources are."""
    project_id: int = 0
    """The project of its definition; 0 if the definition was deleted."""
    lenders: frozenset[int] = frozenset()
    """Owners of resources that it names, with a role in its project. Filled as data sources are."""
    lacks: tuple[GrantedObject, ...] = ()
    """The tenant and the worker group of the attempt that its project may not use."""
    names_tenant: bool = False
    """True if the run names a tenant; else it has the tenant of its creator."""
    origin: Origin = field(default_factory=Origin)
    """The names and codes of its definition and its project."""


class ReportRefusedError(SchedulerError):
    """The tables don't take a report, now or ever. Report each end alone, and in a plainer form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """A worker's report of an ended attempt.

    `var_pool`: the properties that the attempt puts out for tasks downstream, as a JSON list.
    `facts`: its last facts of its Spark application; fields left empty keep their former value in
    the row. `failure`: the failure reason, where the worker knows it.
    """

    task_instance_id: int
    state: TaskState
    end_time: datetime
    exit_code: int | None = None
    pid: int | None = None
    reason: str | None = None
    var_pool: str | None = None
    facts: SparkFacts | None = None
    failure: FailureReason | None = None
    quality: tuple[QualityResult, ...] = ()
    """The findings of its rules on data."""

    @property
    def reported_failure(self) -> FailureReason | None:
        """The failure as the worker found it, or else as the attempt reported it.

        None if nothing failed; a kill, which may have been asked for, has one only if it was found.
        """
        if self.state is TaskState.FAILURE:
            reported = None if self.facts is None else self.facts.failure
            return self.failure or reported or UNEXPLAINED[TaskState.FAILURE]
        return self.failure if self.state is TaskState.KILL else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPaths:
    """The working directory and the log file of an attempt, on the worker's host."""

    execute_path: str
    log_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFolders:
    """The folders on the worker's host that hold the directories and the logs of all attempts.

    Only numbers become parts of a path below them. A store that builds paths in a statement of its
    own must build the same as `paths`.
    """

    work: str
    logs: str

    def paths(
        self, process_definition_id: int, process_instance_id: int, task_instance_id: int
    ) -> AttemptPaths:
        """The working directory and the log file of an attempt."""
        place = f"{process_definition_id:d}/{process_instance_id:d}/{task_instance_id:d}"
        return AttemptPaths(
            execute_path=f"{self.work}/{place}", log_path=f"{self.logs}/{place}.log"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An attempt that runs at a worker's address. `lost`: a master has missed its worker."""

    kill_wanted: bool
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The end of an attempt's log, and the size of the whole."""

    task_instance_id: int
    size: int
    tail: bytes


class TaskStore(Protocol):
    """Task instances, as the worker that runs them sees them."""

    def claim(
        self,
        node: Node,
        task_instance_ids: Collection[int],
        *,
        folders: AttemptFolders,
        now: datetime,
        hinted: bool = False,
        is_reserved: bool = False,
    ) -> tuple[ClaimedTask, ...]:
        """SUBMITTED → RUNNING for the attempts that may still start, in the order of the ids given.

        An attempt that is left out has ended, was withdrawn, or was claimed by another worker; or
        it is not everybody's, if it was only `hinted` at: whoever reads the tables may do that.
        A reserved worker claims no attempt without a group.
        """
        ...

    def started(self, node: Node, pids: dict[int, tuple[int, float]]) -> None:
        """Record the process (pid, start time) of running attempts, by task instance id."""
        ...

    def report(self, node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        """RUNNING → final for the attempts that this incarnation still holds; return their ids.

        Idempotent: an attempt that is reported again is left out. `ReportRefusedError`: nothing
        was written, since the tables can't take one of the ends as it is.
        """
        ...

    def datasources(self, wanted: Collection[Wanted]) -> dict[Wanted, DataSource]:
        """Return the data sources with these ids that exist and are granted to their projects."""
        ...

    def environments(self, wanted: Collection[Wanted]) -> dict[Wanted, Environment]:
        """Return the environments with these codes that exist and are granted to their projects."""
        ...

    def lenders(self, wanted: Collection[Wanted]) -> frozenset[Wanted]:
        """Return the pairs of a project and a user in which the user has a role."""
        ...

    def former_quality(
        self, task_instance_ids: Collection[int]
    ) -> dict[int, dict[str, tuple[float, ...]]]:
        """Return the values that comparing rules measured before these attempts, newest first.

        By task instance id and rule; of runs of the same definition that stand for an earlier time,
        without values that broke their rule.
        """
        ...

    def projects(self, task_instance_ids: Collection[int]) -> dict[int, int]:
        """Return the project that each attempt's run, or the root of its tree, belongs to.

        The project is 0 if the attempt or the definition does not exist.
        """
        ...

    def several_projects(self, group_ids: Collection[int] | None = None) -> bool:
        """Return True if several projects have definitions; with groups, if several use these."""
        ...

    def running(self, node: Node) -> dict[int, bool]:
        """Return the attempts that this incarnation holds; True for those to be killed."""
        ...

    def adopt(self, node: Node, task_instance_ids: Collection[int]) -> frozenset[int]:
        """Adopt running attempts of a former incarnation at this address; return their ids.

        They are not marked as lost any more.
        """
        ...

    def take_over(self, node: Node) -> frozenset[int]:
        """Adopt all running attempts of former incarnations at this address; return their ids."""
        ...

    def hand_back(self, nodes: Collection[Node], claims: Mapping[int, datetime]) -> frozenset[int]:
        """RUNNING → SUBMITTED for attempts that were claimed and never started; return their ids.

        `claims`: the time of each claim, by task instance id. `nodes`: the incarnations at one
        address that may hold them. A later claim of the same attempt is left alone, so a repeated
        call does no harm. Left out too: an attempt that ended, has another holder, is wanted
        killed, or has a process.
        """
        ...

    def kept(self, address: str, task_instance_ids: Collection[int]) -> dict[int, Kept]:
        """Return those of these attempts that run at this address, under any incarnation.

        One that is left out has ended or was given to others.
        """
        ...

    def lost(self, host: str) -> dict[int, str]:
        """Return the directories of ended attempts that may still have processes on this host.

        By id; of all workers whose addresses begin with this host name, at most a thousand.
        """
        ...

    def found_gone(self, host: str, task_instance_ids: Collection[int]) -> None:
        """No process of these ended attempts is left on this host: they are not lost any more."""
        ...

    def record_facts(self, node: Node, facts: Mapping[int, SparkFacts]) -> None:
        """Record the facts of running attempts on their Spark applications, by task instance id.

        Only for attempts that this incarnation holds; others are skipped. Fields that the facts
        leave empty keep their value. A failure reason is not recorded here: it belongs to the end
        of an attempt.
        """
        ...

    def over(self, task_instance_ids: Collection[int]) -> dict[int, bool | None]:
        """Return for each id whether the attempt has ended for good.

        True: an application that still runs for it is an orphan. False: it may have an application.
        None: there is no such attempt; the id may be another database's.

        An attempt whose worker was lost has not ended for good while its substitute is promised or
        has not ended for good itself, since the substitute may adopt its application; a paused run
        keeps its promised substitutes. It has once a later attempt ended otherwise, no substitute
        is promised, or its run has ended.
        """
        ...

    def existing(self, process_instance_ids: Collection[int]) -> frozenset[int]:
        """Return those of these process instances that have a row."""
        ...

    def succeeded(self, task_instance_ids: Collection[int]) -> frozenset[int]:
        """Return those of these attempts that have succeeded."""
        ...

    def mode(self, address: str) -> WorkerMode:
        """Return the mode that administrators have given the worker at this address."""
        ...

    def record_offer(self, node: Node, offer: Offer) -> None:
        """Record the offer of this incarnation, in place of those of former ones at its address.

        Idempotent. An incarnation that comes late leaves the offer of its successor alone.
        """
        ...

    def log_places(self, task_instance_ids: Collection[int]) -> dict[int, int]:
        """Return the process instances of these attempts, by id; without a row, none."""
        ...

    def keep_tails(self, tails: Sequence[LogTail]) -> int:
        """Keep the ends of logs of attempts that have a row and no end yet; return their number."""
        ...
