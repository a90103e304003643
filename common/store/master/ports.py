"""The ports through which a master's loops reach the tables: a narrow protocol for each loop.

`common.store.master` implements them on PostgreSQL, the simulator in memory; one conformance suite
runs on both. Every method is one transaction and atomic. Every change names the owner and the state
it expects; rows that do not match are left out of the answer and never an error, save for a lost
run. All times are aware. Any method may raise `ServiceUnreachableError`: its outcome is then
unknown, and the caller must read the tables before it acts on what it believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from common.model.cluster import KillEntry, Node, QueueEntry
from common.model.commands import Command
from common.model.complements import ComplementDecider
from common.model.decisions import Decision
from common.model.failures import FailureReason
from common.model.instances import Ownership, ProcessRow, TaskReport, TaskRow
from common.model.plans import Handled, Plan, Snapshot
from common.model.schedules import FirePlanner
from common.model.slot_share import RoomShare
from common.model.states import ProcessState, TaskState
from common.model.upstream import Answer, AnyQuestion

Planner = Callable[[Command, Snapshot], Plan]
LiveMasters = Callable[[], frozenset[Node]]

PAGE: Final = 500
"""The most rows that a repeated question of a loop is answered with; the next page is asked for."""


class CommandStore(Protocol):
    """`t_ds_command`, as the command loop sees it."""

    def waiting(self) -> bool:
        """Return True if the table holds a command: a cheap look before the mutex is taken."""
        ...

    def take(
        self,
        *,
        node: Node,
        limit: int,
        room: int,
        spare: int,
        live_masters: LiveMasters,
        planner: Planner,
        now: datetime,
        first_step: FirstStep | None = None,
        share: RoomShare | None = None,
    ) -> Taken:
        """Take up to `limit` commands off the table and carry out the plan of each.

        Stops, pauses and take-overs come first, then the others round-robin by project
        (`common.store.master.lanes`). The order within a project: priority, then `update_time`,
        then id. A minute of waiting counts as much as a level of priority, so nothing starves
        (trap T68).

        At most `room` commands that need room are taken. Sub processes, take-overs, PAUSE and STOP
        need none: a parent would wait for ever for a child that waits for room (trap T36d). Dates
        of complements take none of `room` either, so that a live run never waits for them; they
        begin as far as `spare` allows, which is room that no other run takes.

        With a `share`, commands of full projects are passed over, unless they need no room. The
        take does not change `share` itself.

        Rows locked by another master are skipped. A row that can't be read, planned or carried out
        goes to `t_ds_error_command` alone, and its neighbours are handled all the same; if it is a
        sub process's, the attempt that wants it fails.

        Every command that is gone has one line in `t_ds_command_ledger` from the same transaction.

        `first_step` is asked for each new run that begins now, and its answer is written with the
        run. If PostgreSQL refuses anything of a batch, no first step of it is written; the runs of
        which none is have to be opened.

        `live_masters` is asked once rows are locked, and only if a failover is among the commands:
        who owns a run then has joined before.
        """
        ...

    def projects(self, process_instance_ids: Collection[int]) -> dict[int, int]:
        """Return the project that each run, or the root of its tree, belongs to; else 0."""
        ...

    def several_projects(self) -> bool:
        """Return True if several projects have definitions."""
        ...

    def forget(self, *, before: datetime) -> bool:
        """Delete lines of the ledger that are older, so many at once; True if more may follow."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A run as the tables have it. `tasks` holds every attempt, oldest first."""

    ownership: Ownership
    process: ProcessRow
    tasks: tuple[TaskRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRun:
    """A run whose rows are invalid; `live` names its attempts under way.

    A person has spoilt the rows, or another version wrote them. The run can only be ended, with
    `reason`.
    """

    ownership: Ownership
    reason: str
    live: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A state that is wanted of a live run, and the time of that request."""

    state: ProcessState
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The changes of one run by one event: written whole or not at all."""

    ownership: Ownership
    decisions: tuple[Decision, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The result of saving several runs' steps.

    `lost`: runs that another master owns by now; nothing was written for them. `offers` and `kills`
    go into the registry now that the rows are committed. `withdrawn`: attempts killed before a
    worker claimed them, whose queue entries may be deleted.
    """

    lost: frozenset[Ownership]
    offers: tuple[QueueEntry, ...]
    kills: tuple[KillEntry, ...]
    withdrawn: tuple[QueueEntry, ...]
    holds: bool = False
    """True if held attempts or instances may be released now, or new ones are held."""
    intents: bool = False
    """True if intents for sub processes may have to be propagated: attempts that ran until now are
    asked to end."""
    dependents: bool = False
    """True if attempts have begun that wait for other process instances."""
    hinted: bool = False
    """True if a worker has been told of those offers that any worker may take."""
    asks: bool = False
    """True if attempts were submitted for which a worker has to be chosen."""
    overtaken: frozenset[Ownership] = frozenset()
    """Runs that were to end as paused, and that were asked to stop by then: nothing was written for
    them, and they have to be loaded again."""


NOTHING_SAVED: Final = Saved(lost=frozenset(), offers=(), kills=(), withdrawn=())

FirstStep = Callable[[LoadedRun], Step | None]
"""Decides the first step of a run that has just begun; None if the run has to be opened first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The commands that are gone, and the new runs whose first step is written, with its result."""

    handled: tuple[Handled, ...]
    begun: frozenset[Ownership] = frozenset()
    saved: Saved = NOTHING_SAVED


class RunStore(Protocol):
    """Process instances and their tasks, as the master that owns them sees them."""

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun | UnreadableRun, ...]:
        """Read runs; a run that this owner does not own, or no longer, is left out."""
        ...

    def save(self, steps: Sequence[Step]) -> Saved:
        """Write the steps in one transaction; a later step of a run comes after an earlier one.

        The rows of the runs are locked first, so that no take-over comes between fence and write.
        """
        ...

    def owned(self, node: Node, *, after: int = 0, limit: int = PAGE) -> frozenset[Ownership]:
        """Return a page of this incarnation's live runs: the lowest ids above `after`."""
        ...

    def reports(
        self,
        node: Node,
        *,
        after: int = 0,
        limit: int = PAGE,
        only: Collection[int] | None = None,
    ) -> tuple[TaskReport, ...]:
        """Return a page of the ended attempts that this node's runs have not settled, by id.

        Notifications report the same at once; with this slow poll a lost one costs a second and not
        an instance. `only` asks for these attempts instead, however many.
        """
        ...

    def wanted(self, node: Node) -> dict[Ownership, Intent]:
        """Return the intents for this node's live runs that are not in the wanted state yet."""
        ...

    def propagate_intents(self, node: Node) -> int:
        """Propagate intents from SUB_PROCESS attempts of this node's runs to their children.

        The state wanted of the attempt becomes the intent of the child, unless the child has the
        same intent or is being stopped already. A child whose attempt no longer waits for it gets a
        stop. Idempotent. Returns the number of children that got an intent.
        """
        ...

    def unclaimed(
        self, node: Node, *, submitted_before: datetime, after: int = 0, limit: int = PAGE
    ) -> tuple[QueueEntry, ...]:
        """Return a page of the submitted attempts of this node's runs that nobody has claimed yet.

        The lowest ids above `after`, in the order of the queue, which must hold exactly these.
        """
        ...


class FailoverStore(Protocol):
    """Runs and attempts left behind by daemons that are gone.

    A caller reads the owners here *first* and the live daemons from the registry *after* that: an
    owner joined before it owned anything, so one that is missing then is gone for good.
    """

    def run_owners(self) -> frozenset[Node]:
        """Return every incarnation that owns a live run for which no recovery waits."""
        ...

    def task_owners(self) -> frozenset[Node]:
        """Return every incarnation that holds a running attempt."""
        ...

    def recover_runs(self, dead: Node, *, now: datetime) -> int:
        """Put a RECOVER_TOLERANCE_FAULT_PROCESS command for each of its runs; return the number."""
        ...

    def hand_over(self, leaving: Node, *, now: datetime) -> int:
        """Release the runs of a master that is about to leave; return the number.

        `recover_ownerless` then puts their recoveries, without the alert of a lost master. The
        master has stopped its loops before.
        """
        ...

    def recover_ownerless(self, *, now: datetime) -> int:
        """Put the recoveries of live runs that name no owner; return the number.

        A master handed them over when it left, or a person has spoilt their rows.
        """
        ...

    def mark_lost(self, missing: Node, *, now: datetime) -> int:
        """Mark its running attempts in live runs, so that the worker can see it; return the number.

        The worker kills what is marked, unless it takes the attempts over as a new incarnation,
        which removes the marks. Attempts that are marked already are left out.
        """
        ...

    def fail_tasks_over(self, dead: Node, *, now: datetime) -> int:
        """RUNNING → NEED_FAULT_TOLERANCE for its marked attempts in live runs; return the number.

        No sooner than `common.model.leases.GRACE` after `mark_lost` has answered.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The result of a release: attempts to queue, and the number of instances whose turn came.

    `next_due`: the time at which the next delay ends. `asks`: some that were released ask for a
    worker, and are offered once one is chosen.
    """

    offers: tuple[QueueEntry, ...]
    instances: int
    next_due: datetime | None
    asks: bool = False


class HoldStore(Protocol):
    """Held attempts and instances in the tables, whoever owns them; any master may release them."""

    def release(self, *, now: datetime) -> Released:
        """Release whatever need not be held any longer.

        - Attempts whose delay is over.
        - Attempts all of whose pools have free slots, in order of the process's priority, the
          task's priority in the pool, and the id. An attempt whose pool does not exist, or is too
          small for it, ends as FAILURE with the reason.
        - Instances of a serial definition with no other live run, by RECOVER_SERIAL_WAIT commands.
        - Waiting instances with a stop requested, which end at once.

        The rows of pools and definitions are locked, so two masters never release more than fits.
        """
        ...


class TimeoutStore(Protocol):
    """Time-outs of attempts and runs, whoever owns them; any master may act on one, once."""

    def time_out(self, *, now: datetime) -> int:
        """Act on the time-outs that are due; return their number.

        Warnings: an alert (contract §5.14) and its flag in one transaction. Failures: a SUB_PROCESS
        attempt has its child stopped, a DEPENDENT attempt ends, a process instance gets the intent
        FAILURE. Attempts on workers are ended by their worker.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """The numbers of commands put and fires recorded, and the next due time of a schedule."""

    commands: int
    fires: int
    next_due: datetime | None


class ScheduleStore(Protocol):
    """`t_ds_schedules` and the ledger of fires; any master may fire what is due."""

    def fire(self, *, planner: FirePlanner, now: datetime, limit: int) -> Fired:
        """Fire at most `limit` due schedules: write rows of the ledger and their commands.

        Only schedules that are ONLINE and have no fault; those locked by another master are
        skipped. A fire that the ledger already has stays as it is and puts no command. The same
        transaction advances the schedule to its next fire, or records its fault. An unreadable row
        gets a fault too, and the others are handled all the same. `next_due` may lie in the past:
        then more is due at once.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The number of dates begun, and True if a complement goes on that has to be looked at."""

    begun: int
    moving: bool


class ComplementStore(Protocol):
    """Complements and their dates; any master may advance them."""

    def advance(self, *, decide: ComplementDecider, now: datetime, thorough: bool) -> Progressed:
        """Settle dates whose runs have ended, and carry out the decision on each complement.

        Each complement is a transaction of its own under the lock of its row; one that is locked by
        another master is skipped. For a date that begins, its command and its row are written
        together. A date whose command is gone without a run is pending again, or failed with the
        message of the error table. Where no further date may begin (READY_PAUSE, READY_STOP),
        commands not yet taken are deleted and their dates are pending again; in READY_STOP the runs
        that have begun get the intent STOP. `thorough`: also check ended complements for failed
        dates that were recovered since; these complements go on.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingDependent:
    """A DEPENDENT attempt that has not been decided."""

    ownership: Ownership
    task_instance_id: int
    name: str
    task_json: str
    process_definition_id: int
    moment: datetime
    """The moment of its run, from which the intervals are counted (`common.business_dates`)."""
    start_time: datetime
    evidence: str | None
    timezone_id: str | None = None
    project_id: int | None = None
    """The project of the run; None if its definition was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DependentDecision:
    """The evidence found for a DEPENDENT attempt and, with a state, its end."""

    waiting: WaitingDependent
    evidence: str
    state: TaskState | None = None
    reason: str | None = None
    failure: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringRun:
    """A run that may answer questions: its definition, by id and name, and its moment."""

    process_instance_id: int
    process_definition_id: int
    definition_name: str | None
    moment: datetime


class DependentStore(Protocol):
    """The questions behind a master's decisions on the DEPENDENT attempts of its runs."""

    def undecided(self, node: Node) -> Mapping[int, int]:
        """Return the undecided attempts of this node's runs, each with its owner's epoch."""
        ...

    def waiting(
        self, node: Node, *, after: int = 0, limit: int = PAGE
    ) -> tuple[WaitingDependent, ...]:
        """Return a page of the undecided attempts of this node's runs, in order of id."""
        ...

    def runs(self, process_instance_ids: Collection[int]) -> tuple[AnsweringRun, ...]:
        """Return those of these process instances that exist, in order of id."""
        ...

    def look_up(self, questions: Sequence[AnyQuestion]) -> tuple[Answer, ...]:
        """Return for each question the newest run by id, or the reason why there is none.

        For one about a dataset: the progress of its stream, as of one moment.
        """
        ...

    def held_up(self, process_instance_ids: Collection[int]) -> tuple[WaitingDependent, ...]:
        """Return the undecided attempts, in order of id, of runs that can't advance otherwise.

        Of any owner. A run advances otherwise if it is not simply RUNNING or is to end, if another
        attempt is live, unsettled or to be retried, or if a time-out will end the run or one of its
        waits.
        """
        ...

    def decide(self, decisions: Sequence[DependentDecision], *, now: datetime) -> frozenset[int]:
        """Record evidence and end attempts; return the ids of those that still waited."""
        ...
