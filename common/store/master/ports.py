"""The ports through which a master's loops reach the tables: a narrow protocol for each loop.

`common.store.master` implements them on PostgreSQL, the simulator in memory; one conformance suite
runs on both. Every method is one transaction and atomic. Every change names the owner and the state
it expects; rows that do not match are left out of the answer and never an error, save for a lost
run. All times are aware. Any method may raise `ServiceUnreachableError`: its outcome is then
unknown, and the caller must read the tables before it acts on what it believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from common.model.cluster import KillEntry, Node, QueueEntry
from common.model.commands import Command
from common.model.complements import ComplementDecider
from common.model.decisions import Decision
from common.model.instances import Ownership, ProcessRow, TaskReport, TaskRow
from common.model.plans import Handled, Plan, Snapshot
from common.model.schedules import FirePlanner
from common.model.states import ProcessState, TaskState
from common.model.upstream import Answer, Question

Planner = Callable[[Command, Snapshot], Plan]


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
        live_masters: frozenset[Node],
        planner: Planner,
        now: datetime,
    ) -> tuple[Handled, ...]:
        """Take up to `limit` commands off the table and carry out what each amounts to.

        Dates of complements are begun only as far as there is `spare` room, which no other run
        takes, and take none of `room`: a live run never waits for them.

        Order: priority, then `update_time`, then id, where a minute of waiting makes up for a level
        of priority, so that nothing starves (trap T68). At most `room` of them need room, which
        those of sub processes, take-overs and PAUSE and STOP do not: a parent that waits for a
        child which waits for room would wait for ever (trap T36d). Rows that another master holds
        are passed over. A row that can't be read, planned or carried out goes to
        `t_ds_error_command` alone, and its neighbours are handled all the same; if it is a sub
        process's, the attempt that wants it fails.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A run as the tables have it. `tasks` holds every attempt, oldest first."""

    ownership: Ownership
    process: ProcessRow
    tasks: tuple[TaskRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRun:
    """A run whose rows hold what makes no run; `live` are its attempts under way, by their names.

    Somebody has spoilt them, or another version wrote them. It can only be ended, with `reason`.
    """

    ownership: Ownership
    reason: str
    live: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A state that is wanted of a live run, and since when."""

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

    `lost`: runs that belong to somebody else by now; nothing was written for them. `offers` and
    `kills` are to be put into the registry now that the rows stand; `withdrawn` are attempts that
    were killed before a worker claimed them, whose queue entries may go.
    """

    lost: frozenset[Ownership]
    offers: tuple[QueueEntry, ...]
    kills: tuple[KillEntry, ...]
    withdrawn: tuple[QueueEntry, ...]
    holds: bool = False
    """True if held attempts or instances may be released now, or new ones are held."""
    intents: bool = False
    """True if intents for sub processes have to be propagated."""
    dependents: bool = False
    """True if attempts have begun that wait for other process instances."""


class RunStore(Protocol):
    """Process instances and their tasks, as the master that owns them sees them."""

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun | UnreadableRun, ...]:
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

    def wanted(self, node: Node) -> dict[Ownership, Intent]:
        """This node's live runs of which a state is wanted that they don't have yet."""
        ...

    def propagate_intents(self, node: Node) -> int:
        """Ask the children of this node's runs for what is wanted of their SUB_PROCESS attempts.

        What is wanted stands in the attempt's row; here it becomes the intent of the child, if that
        has none like it and is not being stopped already. Children that nobody waits for any more
        are to stop too. Said again it changes nothing. How many children were asked.
        """
        ...

    def unclaimed(self, node: Node, *, submitted_before: datetime) -> tuple[QueueEntry, ...]:
        """Submitted attempts of this node's runs that no worker has claimed yet.

        It is what the queue must hold.
        """
        ...


class FailoverStore(Protocol):
    """Runs and attempts left behind by daemons that are gone.

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

    def recover_ownerless(self, *, now: datetime) -> int:
        """The same for runs that go on and name no owner: rows that somebody has spoilt."""
        ...

    def fail_tasks_over(self, dead: Node, *, now: datetime) -> int:
        """RUNNING → NEED_FAULT_TOLERANCE for each of its attempts in live runs; how many."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The result of a release: attempts to queue, and the number of instances whose turn came.

    `next_due` is when the first of those is due that a delay still holds.
    """

    offers: tuple[QueueEntry, ...]
    instances: int
    next_due: datetime | None


class HoldStore(Protocol):
    """Held attempts and instances in the tables, whoever owns them; any master may release them."""

    def release(self, *, now: datetime) -> Released:
        """Let go of what need not be held any longer.

        Attempts whose delay is over; then, in order of the process's priority, the task's priority
        in the pool and the id, attempts all of whose pools have room for them; instances of a
        serial definition of which no other is live, as commands RECOVER_SERIAL_WAIT; and waiting
        instances that are to be stopped, which end at once. An attempt whose pool does not exist,
        or is smaller than what it needs, ends as FAILURE with the reason. The rows of the pools and
        definitions are locked, so that two masters never let go of more than there is room for.
        """
        ...


class TimeoutStore(Protocol):
    """Time-outs of attempts and runs, whoever owns them; any master may act on one, once."""

    def time_out(self, *, now: datetime) -> int:
        """Carry out what is due of the time-outs; how many.

        Warnings: an alert (§5.14) and its flag in one transaction. Failures: of SUB_PROCESS
        attempts, whose child is to be stopped, and of DEPENDENT ones, which end; of process
        instances, which are wanted FAILURE. Attempts on workers are ended by their worker.
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
        """Carry out what is due of at most `limit` schedules: ledger rows and their commands.

        Only schedules that are ONLINE and have no fault; those that another master works on are
        passed over. A fire that the ledger has already is left as it is and puts no command. The
        same transaction moves the schedule on to its next fire, or writes down its fault. A row
        that is spoilt beyond reading gets a fault too, and the others are handled all the same.
        `next_due` may lie in the past: then there is more to do at once.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The number of dates begun, and True if a complement goes on that has to be looked at."""

    begun: int
    moving: bool


class ComplementStore(Protocol):
    """Complements and their dates; any master may move them on."""

    def advance(self, *, decide: ComplementDecider, now: datetime, thorough: bool) -> Progressed:
        """Settle dates whose runs have ended, and carry out what `decide` makes of each complement.

        Each complement is a transaction of its own under the lock of its row; one that another
        master works on is passed over. For a date that begins, its command and its row are written
        together; a date whose command is gone without a run counts as pending again, or as failed
        with the message of the error table. Where no further date may begin (READY_PAUSE,
        READY_STOP) commands that nobody has taken yet are deleted, and their dates are pending
        again; in READY_STOP the runs that have begun are wanted STOP. `thorough`: also look at
        ended complements some of whose failed dates were recovered since, which go on.
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
    schedule_time: datetime | None
    start_time: datetime
    evidence: str | None
    timezone_id: str | None = None


class DependentStore(Protocol):
    """The questions behind a master's decisions on the DEPENDENT attempts of its runs."""

    def waiting(self, node: Node) -> tuple[WaitingDependent, ...]:
        """The undecided ones of this node's runs, in order of id."""
        ...

    def look_up(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """The newest run by id that each question asks about, or why there is none."""
        ...

    def held_up(self, process_instance_ids: Collection[int]) -> tuple[WaitingDependent, ...]:
        """The undecided ones, in order of id, of those of these runs that nothing else moves.

        Whoever owns them. A run moves by itself if it is not simply RUNNING or is to end, if
        another attempt is live, has ended without the run having heard of it, or is to be tried
        again, and if a time-out is going to end the run or one of its waits.
        """
        ...

    def decide(
        self,
        waiting: WaitingDependent,
        *,
        state: TaskState | None,
        evidence: str,
        reason: str | None,
        now: datetime,
    ) -> bool:
        """Note what was looked at and, with a state, end the attempt; whether it still waited."""
        ...
