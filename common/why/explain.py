"""Walks from a run, a task or a command to the causes that hold it back. Pure.

The walk alone is here: it descends through the tasks of a run, and from a SUB_PROCESS to its child.
The causes that need no further step are built by the modules beside this one. It explains and
decides nothing: where it and a daemon differ, the daemon is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from common.model.states import FailureStrategy, ProcessState, TaskState
from common.model.task_type import TaskTypeSpec
from common.why.attempts import (
    delay_cause,
    finished_cause,
    left_cause,
    queued_cause,
    retry_cause,
    running_cause,
)
from common.why.causes import Cause, CauseKind
from common.why.commands import command_cause
from common.why.control_tasks import child_of, dependent_cause, sub_process_cause
from common.why.facts import Attempt, Facts, PendingCommand, Run
from common.why.locks import locks_cause
from common.why.phrases import (
    MAX_LISTED,
    counted,
    process_state,
    state_name,
    task_subject,
    unreadable_cause,
)
from common.why.pools import pools_cause
from common.why.runs import (
    ended_run_cause,
    owner_causes,
    serial_wait_cause,
    waiting_thread_cause,
)
from common.why.shape import Shape, Shapes, attempts_by_name, graph_of, is_live, names_in

MAX_DEPTH: Final = 30
_NEAR: Final = 3
_FEW: Final = 3


def why_instance(facts: Facts, process_instance_id: int) -> tuple[Cause, ...]:
    """Explain what keeps the process instance from its end."""
    return Explainer(facts).of_run(facts.runs[process_instance_id], 0)


def why_task(facts: Facts, process_instance_id: int, name: str) -> tuple[Cause, ...]:
    """Explain what keeps one task of the process instance from running, or from its end."""
    return Explainer(facts).of_task(facts.runs[process_instance_id], name)


def why_command(facts: Facts, command: PendingCommand) -> tuple[Cause, ...]:
    """Explain what keeps a command from being carried out."""
    return (command_cause(facts, command),)


def task_names(run: Run, task_types: Mapping[str, TaskTypeSpec]) -> tuple[str, ...]:
    """Return the tasks of the process instance, in order; none if its JSON can't be read."""
    graph, dag = graph_of(run, task_types)
    return () if graph is None or dag is None else dag.names


class Explainer:
    """The walk from one run or task to the causes behind it."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._shapes = Shapes(facts.task_types)

    def of_run(self, run: Run, depth: int) -> tuple[Cause, ...]:
        """The causes of the run, then the processes that may run beside it."""
        left = (left_cause(run, each) for each in run.lost[:MAX_LISTED])
        return (*self._of_run(run, depth), *left)

    def _of_run(self, run: Run, depth: int) -> tuple[Cause, ...]:
        subject = f"process instance {run.id}"
        state = process_state(run.state)
        if state is None:
            return (unreadable_cause(subject, f"its state {run.state} is not known here"),)
        if state.is_terminal:
            return (ended_run_cause(self._facts, self._shapes, run, state, subject),)
        if state is ProcessState.SERIAL_WAIT:
            return (serial_wait_cause(self._facts, run, subject),)
        if state is ProcessState.WAITING_THREAD:
            return (waiting_thread_cause(self._facts, run, subject),)
        causes = list(owner_causes(self._facts, run, subject))
        if run.wanted_state is not None or state in (
            ProcessState.READY_PAUSE,
            ProcessState.READY_STOP,
        ):
            return (*causes, self._of_intent(run, state, subject, depth))
        return (*causes, *self._of_live_run(run, subject, depth))

    def of_task(self, run: Run, name: str) -> tuple[Cause, ...]:
        left = (left_cause(run, each) for each in run.lost if each.name == name)
        return (*self._of_task(run, name), *left)

    def _of_task(self, run: Run, name: str) -> tuple[Cause, ...]:
        state = process_state(run.state)
        subject = f"process instance {run.id}"
        attempt = attempts_by_name(run).get(name)
        if state is None or state in (ProcessState.SERIAL_WAIT, ProcessState.WAITING_THREAD):
            return self._of_run(run, 0)
        if attempt is not None and not is_live(attempt) and attempt.retry_at is None:
            return (finished_cause(self._shapes, run, attempt),)
        if state.is_terminal:
            ended = ended_run_cause(self._facts, self._shapes, run, state, subject)
            if attempt is not None:
                return (finished_cause(self._shapes, run, attempt), ended)
            return (self._of_node(run, name, 0, {}), ended)
        return (*owner_causes(self._facts, run, subject), self._of_node(run, name, 0, {}))

    def _of_intent(self, run: Run, state: ProcessState, subject: str, depth: int) -> Cause:
        stops = run.wanted_state in (ProcessState.STOP, ProcessState.FAILURE) or (
            state is ProcessState.READY_STOP
        )
        live = [each for each in run.attempts if is_live(each)]
        word = "stopped" if stops else "paused"
        doing = "being ended" if stops else "going on to its end"
        because = tuple(self._of_ending(run, each, doing, depth) for each in live[:MAX_LISTED])
        more = f" (and {len(live) - MAX_LISTED} more)" if len(live) > MAX_LISTED else ""
        if live:
            text = f"{subject} is being {word} and waits for {counted(len(live), 'task')}{more}"
        else:
            text = f"{subject} is being {word}; nothing of it runs any more"
        at_last = run.wanted_deadline if stops else None
        return Cause(
            cause=CauseKind.STOPPING if stops else CauseKind.PAUSING,
            subject=subject,
            text=text,
            since=run.wanted_at,
            next="it is over at the latest then, whatever workers do"
            if at_last
            else "its owner ends it as soon as they have ended",
            next_at=at_last,
            because=because,
        )

    def _of_ending(self, run: Run, attempt: Attempt, doing: str, depth: int) -> Cause:
        where = f" on {attempt.host}" if attempt.host else ""
        child = child_of(self._facts, attempt)
        return Cause(
            cause=CauseKind.RUNNING,
            subject=task_subject(attempt),
            text=f"task {attempt.name!r} is {state_name(TaskState, attempt.state)}{where}, {doing}",
            since=attempt.start_time or attempt.submit_time,
            because=() if child is None else self._of_child(child, depth),
        )

    def _of_live_run(self, run: Run, subject: str, depth: int) -> tuple[Cause, ...]:
        busy = [each for each in run.attempts if is_live(each) or each.retry_at is not None]
        seen: dict[str, Cause] = {}
        causes = [self._of_node(run, each.name, depth, seen) for each in busy[:MAX_LISTED]]
        if len(busy) > MAX_LISTED:
            causes.append(
                Cause(
                    cause=CauseKind.RUNNING,
                    subject=subject,
                    text=f"also live: {counted(len(busy) - MAX_LISTED, 'task')} more"
                    f" (orcaflow task list --instance {run.id})",
                )
            )
        if causes:
            waiting = self._not_begun(run)
            if waiting:
                named = ", ".join(repr(name) for name in waiting[:3])
                more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
                causes.append(
                    Cause(
                        cause=CauseKind.UPSTREAM,
                        subject=subject,
                        text=f"not begun: {counted(len(waiting), 'task')} ({named}{more})",
                        next=f"orcaflow instance why {run.id} --task NAME tells of one of them",
                    )
                )
            return tuple(causes)
        unsettled = [each for each in run.attempts if not is_live(each) and not each.settled]
        what = (
            f"{counted(len(unsettled), 'ended task')} still to be taken into account"
            if unsettled
            else "nothing of it is live"
        )
        return (
            Cause(
                cause=CauseKind.NEXT,
                subject=subject,
                text=f"{subject}: {what}",
                next="its owner decides next, at once or within a second",
            ),
        )

    def _not_begun(self, run: Run) -> list[str]:
        shape = self._shapes.of(run)
        if shape is None:
            return []
        return [
            name
            for name in shape.dag.names
            if name not in shape.begun
            and name not in shape.left_out
            and not shape.graph.nodes[name].forbidden
        ]

    def _of_node(self, run: Run, name: str, depth: int, seen: dict[str, Cause]) -> Cause:
        if name not in seen:
            # It is explained once in full; anywhere else its name is enough.
            seen[name] = Cause(
                cause=CauseKind.UPSTREAM, subject=f"task {name!r}", text=f"task {name!r}: see above"
            )
            attempt = attempts_by_name(run).get(name)
            if attempt is None:
                made = self._of_unbegun(run, name, depth, seen)
            elif is_live(attempt):
                made = self._of_live(run, attempt, depth)
            elif attempt.retry_at is not None:
                made = retry_cause(self._facts, attempt)
            else:
                made = finished_cause(self._shapes, run, attempt)
            return made
        return seen[name]

    def _of_unbegun(self, run: Run, name: str, depth: int, seen: dict[str, Cause]) -> Cause:
        subject = f"task {name!r}"
        shape = self._shapes.of(run)
        if shape is None:
            return unreadable_cause(subject, "the definition of the run can't be read")
        if name not in shape.dag.upstream:
            return Cause(
                cause=CauseKind.OUT_OF_SCOPE,
                subject=subject,
                text=f"{subject} is not among the tasks that this run was started with",
                next="nothing: a run never changes which tasks it has",
            )
        scope = names_in(run.run_scope)
        if scope is not None and name not in scope:
            return Cause(
                cause=CauseKind.OUT_OF_SCOPE,
                subject=subject,
                text=f"{subject} is not among the tasks that the last command asked for",
                next="nothing before another command: orcaflow instance recover",
            )
        if shape.graph.nodes[name].forbidden:
            return Cause(
                cause=CauseKind.FORBIDDEN,
                subject=subject,
                text=f"{subject} is forbidden by its author: it is passed over without running",
            )
        chooser = shape.left_out.get(name)
        if chooser is not None:
            return Cause(
                cause=CauseKind.LEFT_OUT,
                subject=subject,
                text=f"{subject} is left out: {chooser!r} took another branch",
                next="nothing: it does not run",
            )
        return self._of_upstream(run, name, depth, seen)

    def _of_upstream(self, run: Run, name: str, depth: int, seen: dict[str, Cause]) -> Cause:
        subject = f"task {name!r}"
        shape = self._shapes.of(run)
        if shape is None:
            return unreadable_cause(subject, "the definition of the run can't be read")
        begun = shape.begun
        open_ = [above for above in shape.working_above(name) if shape.is_open(above)]
        failed = [above for above in shape.working_above(name) if shape.is_bad(above)]
        if failed and shape.graph.nodes[name].task_type != "CONDITIONS":
            attempt = begun[failed[0]]
            return Cause(
                cause=CauseKind.UPSTREAM_FAILED,
                subject=subject,
                text=f"{subject} does not begin: task {failed[0]!r} above it is"
                f" {state_name(TaskState, attempt.state)}",
                since=attempt.end_time,
                next="nothing in this run, unless it is recovered after its end",
                because=(finished_cause(self._shapes, run, attempt),),
            )
        ending = self._run_is_ending(run, shape)
        if ending is not None:
            return Cause(
                cause=CauseKind.ENDING,
                subject=subject,
                text=f"{subject} does not begin: task {ending.name!r} has failed, and the failure"
                " strategy END lets nothing else begin",
                since=ending.end_time,
            )
        if open_:
            more = f" and {len(open_) - 3} more" if len(open_) > 3 else ""
            # Far up or in a crowd, what matters is where the chains begin, not each of their links.
            near = depth < _NEAR and len(open_) <= _FEW
            shown = open_ if near else shape.frontier(open_)
            return Cause(
                cause=CauseKind.UPSTREAM,
                subject=subject,
                text=f"{subject} waits for {', '.join(map(repr, open_[:3]))}{more}",
                because=tuple(
                    self._of_node(run, above, depth + 1, seen) for above in shown[:MAX_LISTED]
                ),
            )
        return Cause(
            cause=CauseKind.NEXT,
            subject=subject,
            text=f"{subject} has nothing to wait for",
            next="its owner submits it, at once or within a second",
        )

    def _run_is_ending(self, run: Run, shape: Shape) -> Attempt | None:
        if run.failure_strategy != FailureStrategy.END:
            return None
        return next(
            (
                each
                for each in run.attempts
                if shape.is_bad(each.name) and not shape.is_looked_at(each.name)
            ),
            None,
        )

    def _of_live(self, run: Run, attempt: Attempt, depth: int) -> Cause:
        match attempt.state:
            case TaskState.DELAY_EXECUTION:
                return delay_cause(attempt)
            case TaskState.WAITING_DEPEND if attempt.id not in self._facts.locks:
                return pools_cause(self._facts, attempt)
            case TaskState.WAITING_DEPEND if attempt.id not in self._facts.pools:
                return locks_cause(self._facts, attempt)
            case TaskState.WAITING_DEPEND:
                pools = pools_cause(self._facts, attempt)
                return replace(pools, because=(*pools.because, locks_cause(self._facts, attempt)))
            case _ if attempt.task_type == "SUB_PROCESS":
                return sub_process_cause(
                    self._facts, attempt, lambda child: self._of_child(child, depth)
                )
            case _ if attempt.task_type == "DEPENDENT":
                return dependent_cause(self._facts, attempt)
            case TaskState.SUBMITTED:
                return queued_cause(self._facts, attempt)
            case _:
                return running_cause(self._facts, attempt)

    def _of_child(self, child: Run, depth: int) -> tuple[Cause, ...]:
        return self.of_run(child, depth + 1) if depth < MAX_DEPTH else ()
