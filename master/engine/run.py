"""The run: a process instance as one master holds it in memory.

Pure. `ProcessRun.apply` is the only thing that changes it, so the list of decisions that moves it
is the whole difference between two states of it. It keeps counts of what is missing, live and
promised, so that a step costs what the neighbours of one task cost, whatever the size of the DAG.

An edge of the DAG is *open* until its upper task is settled; then it is *taken* or *not taken*. A
task may start when none of its edges is open and one is taken; if none is taken, it is skipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import assert_never

from common.dag import Dag
from common.errors import SchedulerError
from common.model.control import Conditions
from common.model.decisions import (
    AbandonTask,
    DecideTask,
    Decision,
    FinishProcess,
    FinishTask,
    GiveUpRetry,
    KillTask,
    PassForbidden,
    PauseProcess,
    PauseTask,
    RetryTask,
    SkipTask,
    StopProcess,
    SubmitTask,
)
from common.model.definitions import MASTER_TASK_TYPES, TaskNode
from common.model.failures import FailureReason
from common.model.instances import Ownership
from common.model.states import FailureStrategy, Priority, ProcessState, TaskState
from master.engine.context import RunContext
from master.engine.events import Event, TaskSucceeded
from master.engine.variables import NOTHING, Variables, merged, put_out

STORY_LENGTH = 200


class TaskPhase(Enum):
    """Where a task of a run stands; an attempt's own state is only a report away from it."""

    IDLE = "idle"
    LIVE = "live"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    BRANCHED = "branched"
    PASSED = "passed"
    SKIPPED = "skipped"
    TOLERATED = "tolerated"
    FAILED = "failed"
    KILLED = "killed"
    PAUSED = "paused"

    @property
    def is_done(self) -> bool:
        """Whether nothing more has to come of it for the process to succeed."""
        return self in _DONE


_DONE = (
    TaskPhase.SUCCEEDED,
    TaskPhase.BRANCHED,
    TaskPhase.PASSED,
    TaskPhase.SKIPPED,
    TaskPhase.TOLERATED,
)
_DERIVED = (TaskPhase.IDLE, TaskPhase.PASSED, TaskPhase.SKIPPED)
"""The phases of a task without an attempt that counts: what they are follows from its upstream."""


class ImpossibleError(SchedulerError):
    """The run is in a state that no history leads to. Drop it from memory and tell its story."""


@dataclass(slots=True, kw_only=True)
class TaskRun:
    """One task of a run.

    `attempt` is 0 while there has been none; `missing` counts the open edges from upstream and
    `taken` those that were taken; `retry_counts` tells whether the promised attempt is a retry of
    the author's, or one that makes up for a lost worker and is not charged. `branch` is what a
    branching task has chosen, `var_pool` what its attempt put out at `ended_at`, and `variables`
    what is known once it is done: that, and all that its upstream has put out. `memory_factor` is
    the latest attempt's; while another one is promised, `failure` is why that one failed.
    """

    node: TaskNode
    missing: int
    taken: int = 0
    phase: TaskPhase = TaskPhase.IDLE
    attempt: int = 0
    retry_times: int = 0
    retry_at: datetime | None = None
    retry_counts: bool = True
    kill_requested: bool = False
    pause_requested: bool = False
    branch: tuple[str, ...] | None = None
    var_pool: str | None = None
    ended_at: datetime | None = None
    failure: FailureReason | None = None
    memory_factor: float = 1.0
    variables: Variables = field(default_factory=lambda: NOTHING)


class ProcessRun:
    """A process instance with its tasks. Read its attributes; change it by `apply` alone.

    `ready` holds the names that may start or be skipped and that wait for `flow`; `live`, `retries`
    and the others hold names in the order in which they became so (dictionaries, since the order
    of a set is not the same in two processes).

    If a command asked for some of the selected nodes alone, `dag` is of these and `whole` of all:
    the others are in `rest`, as their rows left them, and nothing begins among them. They count for
    how the run ends, for what the chosen ones are given, and for who looks at their ends.
    """

    def __init__(
        self,
        *,
        ownership: Ownership,
        dag: Dag,
        nodes: Mapping[str, TaskNode],
        state: ProcessState,
        failure_strategy: FailureStrategy,
        worker_group_id: int = -1,
        context: RunContext | None = None,
        whole: Dag | None = None,
        rest: Mapping[str, TaskRun] | None = None,
        deadline: datetime | None = None,
        failing: bool = False,
        task_limit: int = 0,
    ) -> None:
        self.ownership = ownership
        self.dag = dag
        self.state = state
        self.failure_strategy = failure_strategy
        self.worker_group_id = worker_group_id
        self.context = context or RunContext()
        self.whole = whole or dag
        self.rest: Mapping[str, TaskRun] = rest or {}
        self.deadline = deadline
        self.failing = failing
        self.task_limit = task_limit
        self.tasks: dict[str, TaskRun] = {
            name: TaskRun(
                node=nodes[name], missing=len(dag.upstream[name]), taken=self.outside(name)
            )
            for name in dag.names
        }
        self.place: dict[str, int] = {name: index for index, name in enumerate(dag.names)}
        self.ready: deque[str] = deque(dag.heads)
        # Those that are ready and may not begin, since the run is pausing or has its fill of tasks.
        self.held: dict[str, None] = {}
        # The tasks of workers that are live or promised: what `task_limit` limits, if it is not 0.
        self.occupants: dict[str, None] = {}
        self.live: dict[str, None] = {}
        # Those of `live` of which no kill, or neither a kill nor a pause, has been asked.
        self.unkilled: dict[str, None] = {}
        self.unpaused: dict[str, None] = {}
        self.retries: dict[str, datetime] = {}
        self.failed: dict[str, None] = {}
        self.paused: dict[str, None] = {}
        self.unfinished = len(dag.names)
        self._due: list[tuple[datetime, str]] = []
        self._held: list[tuple[Priority, int, str]] = []
        self._story: deque[Event | Decision] = deque(maxlen=STORY_LENGTH)

    @property
    def is_halting(self) -> bool:
        """Whether no further attempt may start: it is being stopped, or failed under END."""
        return self.state is ProcessState.READY_STOP or (
            bool(self.failed) and self.failure_strategy is FailureStrategy.END
        )

    @property
    def is_pausing(self) -> bool:
        """Whether attempts that have begun may end, and no other may begin for now."""
        return self.state is ProcessState.READY_PAUSE

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.state.is_terminal

    def next_retry(self) -> tuple[datetime, str] | None:
        """The promised retry that is due first; None if there is none."""
        while self._due:
            at, name = self._due[0]
            if self.retries.get(name) == at:
                return at, name
            heappop(self._due)  # Submitted or given up since.
        return None

    def due(self, now: datetime) -> list[str]:
        """Take the names whose promised retry is due off the list of promises to look at."""
        names: dict[str, None] = {}
        while (first := self.next_retry()) is not None and first[0] <= now:
            heappop(self._due)
            names[first[1]] = None
        return list(names)

    def promise(self, name: str, at: datetime) -> None:
        """Note when a retry is due; for `apply`, and for `load`, which repeats what it did."""
        self.retries[name] = at
        heappush(self._due, (at, name))
        self._occupy(name)

    def unpromise(self, name: str) -> None:
        """Take a promise back, or keep it by submitting."""
        del self.retries[name]
        self.occupants.pop(name, None)

    def is_limited(self, name: str) -> bool:
        """Whether the task counts against the limit: control tasks take nobody's place (T67)."""
        return self.task_limit > 0 and self.tasks[name].node.task_type not in MASTER_TASK_TYPES

    def hold(self, name: str) -> None:
        """Keep a task that is ready from beginning, until `let_go` takes it."""
        self.held[name] = None
        heappush(self._held, (self.tasks[name].node.priority, self.place[name], name))

    def let_go(self) -> list[str]:
        """Take the held tasks that there is room for, the first to begin first."""
        room = self.task_limit - len(self.occupants) if self.task_limit else len(self.held)
        names: list[str] = []
        while self._held and len(names) < room:
            _, _, name = heappop(self._held)
            if name in self.held:
                del self.held[name]
                names.append(name)
        return names

    def tolerates(self, name: str) -> bool:
        """Whether a CONDITIONS task looks at this task's end, so that its failure fails nothing."""
        return any(self._looks_at_ends(below) for below in self.whole.downstream[name])

    def outside(self, name: str) -> int:
        """How many edges lead to a chosen task from others. They count as taken: it was chosen."""
        return len(self.whole.upstream[name]) - len(self.dag.upstream[name])

    def task(self, name: str) -> TaskRun:
        """A selected task, chosen or not."""
        return self.tasks[name] if name in self.tasks else self.rest[name]

    def edge(self, name: str, below: str) -> bool | None:
        """Whether the edge was taken; None while it is open."""
        return self._edge(name, below, self.tasks[name].phase)

    def left_over(self) -> tuple[str, ...]:
        """The tasks that were not chosen and that are not done, as the chosen ones stand now.

        What is passed and skipped among them is worked out here, since a branch that was chosen
        anew may lead to others than before.
        """
        if not self.rest:
            return ()
        phases: dict[str, TaskPhase] = {}
        for name in self.whole.names:
            phases[name] = phase = self.task(name).phase
            if name not in self.rest or phase not in _DERIVED:
                continue
            edges = [self._edge(above, name, phases[above]) for above in self.whole.upstream[name]]
            if None in edges:
                phases[name] = TaskPhase.IDLE
            elif edges and True not in edges:
                phases[name] = TaskPhase.SKIPPED
            else:
                forbidden = self.rest[name].node.forbidden
                phases[name] = TaskPhase.PASSED if forbidden else TaskPhase.IDLE
        return tuple(name for name in self.rest if not phases[name].is_done)

    def _edge(self, name: str, below: str, phase: TaskPhase) -> bool | None:
        match phase:
            case TaskPhase.SUCCEEDED | TaskPhase.PASSED:
                return True
            case TaskPhase.BRANCHED:
                return below in (self.task(name).branch or ())
            case TaskPhase.SKIPPED:
                return False
            case TaskPhase.TOLERATED:
                return True if self._looks_at_ends(below) else None
            case _:
                return None

    def input_variables(self, name: str) -> Variables:
        """What a task is given: all that is upstream of it has put out."""
        return merged(self.task(above).variables for above in self.whole.upstream[name])

    def known(self, name: str) -> Variables:
        """What a task that is done passes on: what it was given, and what it put out itself."""
        task = self.tasks[name]
        own = put_out(task.var_pool, at=task.ended_at, place=self.place[name])
        return merged((self.input_variables(name), own))

    def apply(self, decision: Decision) -> None:
        """Change the run as the decision says. Raises `ImpossibleError` if it can't be."""
        self.note(decision)
        match decision:
            case SubmitTask():
                self._submit(decision)
            case DecideTask():
                self._decide(decision)
            case FinishTask():
                self._finish(decision)
            case RetryTask():
                task = self._current(decision, TaskPhase.LIVE)
                task.phase = TaskPhase.RETRYING
                task.retry_at = decision.at
                task.retry_counts = decision.state is not TaskState.NEED_FAULT_TOLERANCE
                task.failure = decision.failure
                self._leave_live(decision.name)
                self.promise(decision.name, decision.at)
            case GiveUpRetry():
                task = self._current(decision, TaskPhase.RETRYING)
                task.retry_at = None
                task.failure = None
                self.unpromise(decision.name)
                self._fail(decision.name)
            case KillTask():
                self._ask_to_end(self._current(decision, TaskPhase.LIVE))
                self.unkilled.pop(decision.name, None)
                self.unpaused.pop(decision.name, None)
            case PauseTask():
                self._current(decision, TaskPhase.LIVE).pause_requested = True
                self.unpaused.pop(decision.name, None)
            case AbandonTask():
                task = self._current(decision, TaskPhase.LIVE)
                self._ask_to_end(task)
                task.phase = TaskPhase.KILLED
                self._leave_live(decision.name)
            case PassForbidden():
                self._leave_out(decision.name, TaskPhase.PASSED)
            case SkipTask():
                self._leave_out(decision.name, TaskPhase.SKIPPED)
            case PauseProcess():
                self._move(ProcessState.READY_PAUSE, ProcessState.RUNNING)
            case StopProcess():
                self._move(ProcessState.READY_STOP, ProcessState.RUNNING, ProcessState.READY_PAUSE)
                self.deadline = decision.deadline
                self.failing = decision.failing
            case FinishProcess():
                if self.live or self.is_over:
                    raise self.impossible("a process with live tasks can't be finished")
                if self.retries and decision.state is not ProcessState.PAUSE:
                    raise self.impossible("a process that promised retries can't be finished")
                self.state = decision.state
            case _:
                assert_never(decision)

    def note(self, happened: Event | Decision) -> None:
        """Add a line to the story."""
        self._story.append(happened)

    def story(self) -> tuple[str, ...]:
        """The last events and decisions, oldest first, for a person who wonders how it came."""
        return tuple(map(in_short, self._story))

    def impossible(self, what: str) -> ImpossibleError:
        """An error that says what can't be, of which run."""
        return ImpossibleError(
            f"process instance {self.ownership.process_instance_id}"
            f" (epoch {self.ownership.epoch}, {self.state.name}): {what}"
        )

    def check(self) -> None:
        """Raise `ImpossibleError` unless every invariant holds."""
        unfinished = 0
        for name, task in self.tasks.items():
            self._check_task(name, task)
            unfinished += not task.phase.is_done
        self._require(self.unfinished == unfinished, "unfinished tasks are miscounted")
        if self.is_over:
            self._require(not self.live, "it is over, yet tasks are live")
            self._require(
                not self.retries or self.state is ProcessState.PAUSE,
                "it is over, yet a retry is promised",
            )
            self._require(
                (self.state is ProcessState.SUCCESS)
                == (self.unfinished == 0 and not self.left_over()),
                "its state does not agree with its tasks",
            )
        elif self.is_halting:
            self._require(not self.retries, "it is halting, yet a retry is promised")
            self._require(
                all(self.tasks[name].kill_requested for name in self.live),
                "it is halting, yet nobody asked to kill a live task",
            )
        elif self.is_pausing:
            self._require(
                all(_is_asked(self.tasks[name]) for name in self.live),
                "it is pausing, yet nobody asked a live task to pause",
            )

    def _check_task(self, name: str, task: TaskRun) -> None:
        edges = [self.edge(above, name) for above in self.dag.upstream[name]]
        phase = task.phase
        self._require(
            (task.missing, task.taken)
            == (edges.count(None), edges.count(True) + self.outside(name)),
            f"{name!r} miscounts its upstream",
        )
        if phase in (TaskPhase.LIVE, TaskPhase.RETRYING, TaskPhase.PASSED):
            self._require(
                task.missing == 0 and (task.taken > 0 or not edges),
                f"{name!r} is {phase.value} though its upstream is not done",
            )
        if phase is TaskPhase.SKIPPED:
            self._require(
                bool(edges) and edges.count(False) == len(edges),
                f"{name!r} is skipped though a path leads to it",
            )
        self._require(
            task.attempt > 0 or phase in (TaskPhase.IDLE, TaskPhase.PASSED, TaskPhase.SKIPPED),
            f"{name!r} is {phase.value} without an attempt",
        )
        self._require((phase is TaskPhase.LIVE) == (name in self.live), f"{name!r}: live or not?")
        self._require(
            (phase is TaskPhase.RETRYING) == (name in self.retries), f"{name!r}: retrying or not?"
        )
        self._require(
            (phase in (TaskPhase.LIVE, TaskPhase.RETRYING) and self.is_limited(name))
            == (name in self.occupants),
            f"{name!r}: does it count against the limit?",
        )
        self._require((phase is TaskPhase.FAILED) == (name in self.failed), f"{name!r}: failed?")
        self._require((phase is TaskPhase.PAUSED) == (name in self.paused), f"{name!r}: paused?")
        self._require(
            phase is not TaskPhase.PASSED or task.node.forbidden,
            f"{name!r} was passed but is not forbidden",
        )
        self._require(
            phase not in (TaskPhase.FAILED, TaskPhase.TOLERATED)
            or (phase is TaskPhase.TOLERATED) == self.tolerates(name),
            f"the failure of {name!r} is misjudged",
        )
        self._require(task.retry_times <= task.node.max_retry_times, f"{name!r} retried too often")
        self._require(
            task.failure is None or (phase is TaskPhase.RETRYING and task.retry_counts),
            f"{name!r} is {phase.value} and remembers a failure",
        )

    def _require(self, truth: bool, what: str) -> None:
        if not truth:
            raise self.impossible(what)

    def _looks_at_ends(self, name: str) -> bool:
        node = self.task(name).node
        return isinstance(node.control, Conditions) and not node.forbidden

    def _move(self, state: ProcessState, *before: ProcessState) -> None:
        if self.state not in before:
            raise self.impossible(f"a process in this state does not become {state.name}")
        self.state = state

    def _may_begin(self, name: str, attempt: int) -> TaskRun:
        task = self.tasks[name]
        if task.missing or attempt != task.attempt + 1 or self.is_over:
            raise self.impossible(f"{name!r} can't be submitted")
        return task

    def _submit(self, decision: SubmitTask) -> None:
        task = self._may_begin(decision.name, decision.attempt)
        if task.phase is TaskPhase.RETRYING:
            self.unpromise(decision.name)
        elif task.phase is not TaskPhase.IDLE:
            raise self.impossible(f"{decision.name!r} is {task.phase.value}, not to be submitted")
        task.attempt = decision.attempt
        task.retry_times = decision.retry_times
        task.memory_factor = decision.memory_factor
        task.retry_at = None
        task.failure = None
        task.kill_requested = False
        task.pause_requested = False
        self.enter_live(decision.name)

    def _decide(self, decision: DecideTask) -> None:
        task = self._may_begin(decision.name, decision.attempt)
        if task.phase is not TaskPhase.IDLE:
            raise self.impossible(f"{decision.name!r} is {task.phase.value}, not to be decided")
        task.attempt = decision.attempt
        task.retry_times = 0
        task.memory_factor = 1.0
        task.kill_requested = False
        task.pause_requested = False
        task.branch = decision.branch
        if decision.branch is None:
            self._fail(decision.name)
        else:
            self._done(decision.name, TaskPhase.BRANCHED)

    def _finish(self, decision: FinishTask) -> None:
        name = decision.name
        task = self._current(decision, TaskPhase.LIVE)
        self._leave_live(name)
        phase = phase_of_finished(decision.state, kill_requested=task.kill_requested)
        if phase is TaskPhase.SUCCEEDED:
            task.var_pool = decision.var_pool
            task.ended_at = decision.at
            self._done(name, phase)
        elif phase is TaskPhase.FAILED:
            self._fail(name)
        else:
            task.phase = phase
            if phase is TaskPhase.PAUSED:
                self.paused[name] = None

    def enter_live(self, name: str) -> None:
        """Note that an attempt is under way; for `apply`, and for `load`."""
        task = self.tasks[name]
        task.phase = TaskPhase.LIVE
        self.live[name] = None
        self._occupy(name)
        if not task.kill_requested:
            self.unkilled[name] = None
            if not task.pause_requested:
                self.unpaused[name] = None

    def _ask_to_end(self, task: TaskRun) -> None:
        task.kill_requested = True
        # A row has one intent, and this is the stronger one.
        task.pause_requested = False

    def _occupy(self, name: str) -> None:
        if self.is_limited(name):
            self.occupants[name] = None

    def _leave_live(self, name: str) -> None:
        del self.live[name]
        self.occupants.pop(name, None)
        self.unkilled.pop(name, None)
        self.unpaused.pop(name, None)

    def _leave_out(self, name: str, phase: TaskPhase) -> None:
        task = self.tasks[name]
        skipped = bool(self.dag.upstream[name]) and not task.taken
        if (
            task.phase is not TaskPhase.IDLE
            or task.missing
            or skipped != (phase is TaskPhase.SKIPPED)
            or not (skipped or task.node.forbidden)
        ):
            raise self.impossible(f"{name!r} can't be {phase.value}")
        self._done(name, phase)

    def _fail(self, name: str) -> None:
        """It has failed for good; a CONDITIONS task below it makes of that what its author says."""
        if self.tolerates(name):
            self._done(name, TaskPhase.TOLERATED)
        else:
            self.tasks[name].phase = TaskPhase.FAILED
            self.failed[name] = None

    def _done(self, name: str, phase: TaskPhase) -> None:
        task = self.tasks[name]
        task.phase = phase
        self.unfinished -= 1
        self.propagate_variables(name)
        for below in self.dag.downstream[name]:
            taken = self.edge(name, below)
            if taken is None:
                continue
            lower = self.tasks[below]
            lower.missing -= 1
            lower.taken += taken
            # After a recovery it may have been done long before.
            if lower.missing == 0 and lower.phase is TaskPhase.IDLE:
                self.ready.append(below)

    def propagate_variables(self, name: str) -> None:
        """Work out what is known once this task is done, and hand it to what was done before.

        In the order of the DAG, so that a task which several ways lead to is worked out once.
        """
        self.tasks[name].variables = self.known(name)
        places = self._places_of_done(name) if self.tasks[name].variables else []
        heapify(places)
        last = -1
        while places:
            place = heappop(places)
            if place == last:
                continue
            last = place
            current = self.dag.names[place]
            known = self.known(current)
            if known != self.tasks[current].variables:
                self.tasks[current].variables = known
                for below in self._places_of_done(current):
                    heappush(places, below)

    def _places_of_done(self, name: str) -> list[int]:
        below = self.dag.downstream[name]
        return [self.place[other] for other in below if self.tasks[other].phase.is_done]

    def _current(
        self,
        decision: FinishTask | RetryTask | GiveUpRetry | KillTask | PauseTask | AbandonTask,
        phase: TaskPhase,
    ) -> TaskRun:
        task = self.tasks[decision.name]
        if task.phase is not phase or task.attempt != decision.attempt:
            raise self.impossible(
                f"{in_short(decision)} meets {task.phase.value} at attempt {task.attempt}"
            )
        return task


def _is_asked(task: TaskRun) -> bool:
    return task.kill_requested or task.pause_requested


def phase_of_finished(state: TaskState, *, kill_requested: bool) -> TaskPhase:
    """What a settled attempt makes of its task, when no other attempt follows it.

    KILL without a request is a failure: a process that somebody else killed did not do its work
    (traps T23, T23b).
    """
    match state:
        case TaskState.SUCCESS | TaskState.FORCED_SUCCESS:
            return TaskPhase.SUCCEEDED
        case TaskState.FAILURE:
            return TaskPhase.FAILED
        case TaskState.KILL | TaskState.NEED_FAULT_TOLERANCE:
            return TaskPhase.KILLED if kill_requested else TaskPhase.FAILED
        case TaskState.PAUSE:
            return TaskPhase.PAUSED
        case (
            TaskState.SUBMITTED
            | TaskState.RUNNING
            | TaskState.WAITING_DEPEND
            | TaskState.DELAY_EXECUTION
        ):
            raise ImpossibleError(f"{state.name} is not the end of an attempt")
        case _:
            assert_never(state)


def in_short(happened: Event | Decision) -> str:
    """A line of the story. Scripts and what tasks put out may be long, and may be secret."""
    match happened:
        case SubmitTask() | DecideTask() | FinishTask() | TaskSucceeded():
            return f"{type(happened).__name__}(name={happened.name!r}, attempt={happened.attempt})"
        case FinishProcess():
            return f"FinishProcess(state={happened.state!r}, reason={happened.reason!r})"
        case _:
            return str(happened)
