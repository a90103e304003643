"""The run: a process instance as one master holds it in memory.

Pure. Only `ProcessRun.apply` changes it, so a list of decisions is the whole difference between two
states of it. It keeps counts of missing, live and promised attempts, so that a step costs what the
neighbours of one task cost, whatever the size of the DAG.

An edge of the DAG is *open* until its upper task is settled; then it is *taken* or not (`edges`). A
task may start when none of its edges is open and one is taken; if none is taken, or a branching
task refuses it, it is skipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import assert_never

from common.dag import Dag
from common.model.control_types import MASTER_TASK_TYPES
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
from common.model.definitions import TaskNode
from common.model.instances import Ownership
from common.model.states import FailureStrategy, Priority, ProcessState, TaskState
from master.engine.context import RunContext
from master.engine.edges import choosers_above, common_edge, edge_between, looks_at_ends
from master.engine.events import Event, TaskSucceeded
from master.engine.task_run import (
    DERIVED_PHASES,
    Edge,
    ImpossibleError,
    TaskPhase,
    TaskRun,
    phase_of_finished,
)
from master.engine.variables import NOTHING, Variables, merged, put_out

STORY_LENGTH = 200

# Looked up once: a class looks a member up anew each time that it is asked for one.
_READY_PAUSE, _READY_STOP = ProcessState.READY_PAUSE, ProcessState.READY_STOP
_IDLE, _LIVE, _RETRYING = TaskPhase.IDLE, TaskPhase.LIVE, TaskPhase.RETRYING
_SUCCEEDED = TaskPhase.SUCCEEDED


class ProcessRun:
    """A process instance with its tasks. Read its attributes; change it by `apply` alone.

    `ready` are the names that may start or be skipped and that wait for `flow`; `live`, `retries`
    and the others keep names in the order of their arrival (dictionaries, since the order of a set
    is not the same in two processes).

    If a command selected some of the nodes alone, `dag` is of these and `whole` of all: the others
    are in `rest`, as their rows left them, and nothing begins among them. They count for the end of
    the run, for the input of the chosen ones, and for the CONDITIONS tasks that evaluate ends.
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
        # Tasks that are ready and may not begin: the run is pausing, or at its limit of tasks.
        self.deferred: dict[str, None] = {}
        # The live or promised tasks of workers, which `task_limit` limits if it is not 0.
        self.occupants: dict[str, None] = {}
        self.live: dict[str, None] = {}
        # Those of `live` without a requested kill; and those without a kill or pause.
        self.unkilled: dict[str, None] = {}
        self.unpaused: dict[str, None] = {}
        self.retries: dict[str, datetime] = {}
        self.failed: dict[str, None] = {}
        self.paused: dict[str, None] = {}
        self.unfinished = len(dag.names)
        # True once any task has put something out; until then there is nothing to merge.
        self._puts_out = any(task.variables for task in self.rest.values())
        self._due: list[tuple[datetime, str]] = []
        self._deferred: list[tuple[Priority, int, str]] = []
        self._story: deque[Event | Decision] = deque(maxlen=STORY_LENGTH)

    @property
    def is_halting(self) -> bool:
        """True if no further attempt may start: it is being stopped, or failed under END."""
        return self.state is _READY_STOP or (
            bool(self.failed) and self.failure_strategy is FailureStrategy.END
        )

    @property
    def is_pausing(self) -> bool:
        """True if attempts that have begun may end, and no other may begin for now."""
        return self.state is _READY_PAUSE

    @property
    def is_over(self) -> bool:
        """True if the run has ended."""
        return self.state.is_terminal

    def next_retry(self) -> tuple[datetime, str] | None:
        """Return the promised retry that is due first; None if there is none."""
        while self._due:
            at, name = self._due[0]
            if self.retries.get(name) == at:
                return at, name
            heappop(self._due)  # Submitted or given up since.
        return None

    def due(self, now: datetime) -> list[str]:
        """Take the names whose promised retry is due off the queue of timers."""
        names: dict[str, None] = {}
        while (first := self.next_retry()) is not None and first[0] <= now:
            heappop(self._due)
            names[first[1]] = None
        return list(names)

    def promise(self, name: str, at: datetime) -> None:
        """Note the due time of a retry; for `apply`, and for `load`, which rebuilds its effect."""
        self.retries[name] = at
        heappush(self._due, (at, name))
        self._occupy(name)

    def unpromise(self, name: str) -> None:
        """Drop a promised retry: it is given up, or submitted."""
        del self.retries[name]
        self.occupants.pop(name, None)

    def is_limited(self, name: str) -> bool:
        """True if the task counts against the limit; control tasks never do (T67)."""
        return self.task_limit > 0 and self.tasks[name].node.task_type not in MASTER_TASK_TYPES

    def defer(self, name: str) -> None:
        """Keep a ready task from beginning until `take_deferred` takes it."""
        self.deferred[name] = None
        heappush(self._deferred, (self.tasks[name].node.priority, self.place[name], name))

    def take_deferred(self) -> list[str]:
        """Take the deferred tasks that there is room for, in the order of their beginning."""
        room = self.task_limit - len(self.occupants) if self.task_limit else len(self.deferred)
        names: list[str] = []
        while self._deferred and len(names) < room:
            _, _, name = heappop(self._deferred)
            if name in self.deferred:
                del self.deferred[name]
                names.append(name)
        return names

    def tolerates(self, name: str) -> bool:
        """True if a CONDITIONS task evaluates this task's end: then its failure fails nothing."""
        return any(looks_at_ends(self.task(below).node) for below in self.whole.downstream[name])

    def outside(self, name: str) -> int:
        """Count the edges from tasks outside the scope to a chosen one. They count as taken."""
        return len(self.whole.upstream[name]) - len(self.dag.upstream[name])

    def task(self, name: str) -> TaskRun:
        """Return a selected task, inside the scope or not."""
        return self.tasks[name] if name in self.tasks else self.rest[name]

    def edge(self, name: str, below: str) -> Edge:
        """Return the state of the edge from a task to its successor.

        A branching task that was chosen without the branch it takes refuses no node to which others
        lead from outside the scope: whoever chose that node meant it to run.
        """
        edge = edge_between(self.whole, self.task, name, below)
        if edge is Edge.REFUSED and self.outside(below):
            branch = self.task(name).branch
            if branch and not any(target in self.tasks for target in branch):
                return Edge.LEFT
        return edge

    def edges(self, name: str) -> list[Edge]:
        """Return the states of the edges that lead to a task within the scope."""
        tasks = self.tasks
        return [
            common_edge(tasks[above].phase) or self.edge(above, name)
            for above in self.dag.upstream[name]
        ]

    def skip(self, name: str) -> None:
        """Mark a task skipped; for `apply`, and for `load`."""
        task = self.tasks[name]
        task.phase = TaskPhase.SKIPPED
        task.choosers = choosers_above(self.task, name, self.dag.upstream[name])

    def blocks(self, name: str) -> bool:
        """True if the failure of a task that CONDITIONS evaluate keeps another from starting."""
        return any(
            self.edge(name, below) is Edge.BLOCKED
            and self.tasks[below].phase is not TaskPhase.SKIPPED
            for below in self.dag.downstream[name]
        )

    def left_over(self) -> tuple[str, ...]:
        """Return the tasks outside the scope that are not done, as the chosen ones are now.

        Those passed and skipped are computed here, since a branch that is chosen anew may lead to
        other tasks than before.
        """
        if not self.rest:
            return ()
        now: dict[str, TaskRun] = {}
        for name in self.whole.names:
            now[name] = task = replace(self.task(name))
            above = self.whole.upstream[name]
            if name in self.rest and task.phase in DERIVED_PHASES:
                task.phase = TaskPhase.IDLE
                task.count([edge_between(self.whole, now.__getitem__, one, name) for one in above])
                if task.is_free and task.is_left_out:
                    task.phase = TaskPhase.SKIPPED
                elif task.is_free and task.node.forbidden:
                    task.phase = TaskPhase.PASSED
            if task.phase is TaskPhase.SKIPPED:
                task.choosers = choosers_above(now.__getitem__, name, above)
        return tuple(name for name in self.rest if not now[name].phase.is_done)

    def input_variables(self, name: str) -> Variables:
        """Return a task's input: the output of all its upstream."""
        if not self._puts_out:
            return NOTHING
        return merged(self.task(above).variables for above in self.whole.upstream[name])

    def known(self, name: str) -> Variables:
        """Return a done task's contribution downstream: its input and its own output."""
        task = self.tasks[name]
        own = put_out(task.var_pool, at=task.ended_at, place=self.place[name])
        return merged((self.input_variables(name), own))

    def know(self, name: str) -> None:
        """Compute the variables of a task that is done; for `apply`, and for `load`."""
        if not self._puts_out and not self.tasks[name].var_pool:
            return
        known = self.tasks[name].variables = self.known(name)
        self._puts_out = self._puts_out or bool(known)

    def apply(self, decision: Decision) -> None:
        """Change the run as the decision says. `ImpossibleError` if its state forbids that."""
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
        """Add an event or a decision to the story."""
        self._story.append(happened)

    def story(self) -> tuple[str, ...]:
        """Return the last events and decisions, oldest first, for the log."""
        return tuple(map(in_short, self._story))

    def impossible(self, what: str) -> ImpossibleError:
        """Build the error that names the run and the contradiction."""
        return ImpossibleError(
            f"process instance {self.ownership.process_instance_id}"
            f" (epoch {self.ownership.epoch}, {self.state.name}): {what}"
        )

    def _move(self, state: ProcessState, *before: ProcessState) -> None:
        if self.state not in before:
            raise self.impossible(f"a process in this state does not become {state.name}")
        self.state = state

    def _may_begin(self, name: str, attempt: int) -> TaskRun:
        task = self.tasks[name]
        may_begin = task.is_free and not task.is_left_out and not self.is_over
        if not may_begin or attempt != task.attempt + 1:
            raise self.impossible(f"{name!r} can't be submitted")
        return task

    def _submit(self, decision: SubmitTask) -> None:
        task = self._may_begin(decision.name, decision.attempt)
        if task.phase is _RETRYING:
            self.unpromise(decision.name)
        elif task.phase is not _IDLE:
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
        task = self._current(decision, _LIVE)
        self._leave_live(name)
        phase = phase_of_finished(decision.state, kill_requested=task.kill_requested)
        if phase is _SUCCEEDED:
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
        """Mark an attempt live; for `apply`, and for `load`."""
        task = self.tasks[name]
        task.phase = _LIVE
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
        if (
            task.phase is not TaskPhase.IDLE
            or not task.is_free
            or task.is_left_out != (phase is TaskPhase.SKIPPED)
            or not (task.is_left_out or task.node.forbidden)
        ):
            raise self.impossible(f"{name!r} can't be {phase.value}")
        if phase is TaskPhase.SKIPPED:
            self.skip(name)
        self._done(name, phase)

    def _fail(self, name: str) -> None:
        """Mark a task failed for good, or tolerated if a CONDITIONS task evaluates its end."""
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
        common = common_edge(phase)
        for below in self.dag.downstream[name]:
            lower = self.tasks[below]
            lower.settle(common or self.edge(name, below))
            # After a recovery it may have been done long before.
            if lower.is_free and lower.phase is _IDLE:
                self.ready.append(below)

    def propagate_variables(self, name: str) -> None:
        """Compute the variables of a task that is done, and pass them to tasks done before.

        In the order of the DAG, so that a task with several paths to it is computed once.
        """
        self.know(name)
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


def in_short(happened: Event | Decision) -> str:
    """Render a line of the story, without scripts and output: they may be long or secret."""
    match happened:
        case SubmitTask() | DecideTask() | FinishTask() | TaskSucceeded():
            return f"{type(happened).__name__}(name={happened.name!r}, attempt={happened.attempt})"
        case FinishProcess():
            return f"FinishProcess(state={happened.state!r}, reason={happened.reason!r})"
        case _:
            return str(happened)
