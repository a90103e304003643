"""Walks from a run, a task or a command to what holds it back, and tells it. Pure.

It explains and decides nothing: where it and a daemon differ, the daemon is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from common.model.cluster import Node
from common.model.commands import (
    BEGINNING_COMMANDS,
    CommandType,
)
from common.model.failures import UNEXPLAINED
from common.model.states import (
    FailureStrategy,
    ProcessState,
    TaskState,
)
from common.why.causes import Cause, CauseKind
from common.why.facts import (
    Alive,
    Attempt,
    Facts,
    PendingCommand,
    PoolWait,
    QueuePlace,
    Run,
)
from common.why.shape import BAD_ENDS, Shape, graph_of, is_live, names_in

MAX_DEPTH: Final = 30
MAX_LISTED: Final = 10
"""Of many alike, so many are told one by one; the others are counted."""
_NOBODY: Final = (CauseKind.NO_WORKER, CauseKind.NO_WORKER_IN_GROUP)


def why_instance(facts: Facts, process_instance_id: int) -> tuple[Cause, ...]:
    """What keeps the process instance from its end."""
    return Explainer(facts).of_run(facts.runs[process_instance_id], 0)


def why_task(facts: Facts, process_instance_id: int, name: str) -> tuple[Cause, ...]:
    """What keeps one task of the process instance from running, or from its end."""
    return Explainer(facts).of_task(facts.runs[process_instance_id], name)


def why_command(facts: Facts, command: PendingCommand) -> tuple[Cause, ...]:
    """What keeps a command from being carried out."""
    return (Explainer(facts).of_command(command),)


def task_names(run: Run, task_types: frozenset[str]) -> tuple[str, ...]:
    """The tasks that the process instance has, in order; none if its JSON can't be read."""
    graph, dag = graph_of(run, task_types)
    return () if graph is None or dag is None else dag.names


class Explainer:
    """Walks from one thing to what holds it back."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._graphs: dict[int, Shape | None] = {}

    def of_run(self, run: Run, depth: int) -> tuple[Cause, ...]:
        subject = f"process instance {run.id}"
        state = _process_state(run.state)
        if state is None:
            return (self._unreadable(subject, f"its state {run.state} is not known here"),)
        if state.is_terminal:
            return (self._of_ended_run(run, state, subject),)
        if state is ProcessState.SERIAL_WAIT:
            return (self._of_serial_wait(run, subject),)
        if state is ProcessState.WAITING_THREAD:
            return (self._of_waiting_thread(run, subject),)
        causes = list(self._of_owner(run, subject))
        if run.wanted_state is not None or state in (
            ProcessState.READY_PAUSE,
            ProcessState.READY_STOP,
        ):
            return (*causes, self._of_intent(run, state, subject, depth))
        return (*causes, *self._of_live_run(run, subject, depth))

    def of_task(self, run: Run, name: str) -> tuple[Cause, ...]:
        state = _process_state(run.state)
        subject = f"process instance {run.id}"
        attempt = _attempts(run).get(name)
        if state is None or state in (ProcessState.SERIAL_WAIT, ProcessState.WAITING_THREAD):
            return self.of_run(run, 0)
        if attempt is not None and not is_live(attempt) and attempt.retry_at is None:
            return (self._of_finished(run, attempt),)
        if state.is_terminal:
            ended = self._of_ended_run(run, state, subject)
            if attempt is not None:
                return (self._of_finished(run, attempt), ended)
            return (self._of_node(run, name, 0, {}), ended)
        return (*self._of_owner(run, subject), self._of_node(run, name, 0, {}))

    def of_command(self, command: PendingCommand) -> Cause:
        kind = _name(CommandType, command.command_type)
        subject = f"command {command.id}"
        about = f" for {command.definition_name!r}" if command.definition_name else ""
        because = tuple(self._of_masters(command))
        return Cause(
            cause=CauseKind.COMMAND,
            subject=subject,
            text=f"command {command.id} ({kind}){about} waits for a master to take it",
            since=command.start_time,
            next=None if because else "a master looks at the commands at once, or within a second",
            because=because,
        )

    def _of_masters(self, command: PendingCommand) -> Iterator[Cause]:
        alive = self._facts.alive
        begins = command.command_type in BEGINNING_COMMANDS
        if begins and command.release_state is None:
            yield Cause(
                cause=CauseKind.NO_DEFINITION,
                subject=f"process definition {command.process_definition_id}",
                text=f"there is no process definition {command.process_definition_id}",
                next="a master moves the command to t_ds_error_command",
            )
        elif begins and command.release_state != 1:
            yield Cause(
                cause=CauseKind.OFFLINE,
                subject=f"process definition {command.definition_name!r}",
                text=f"process definition {command.definition_name!r} is OFFLINE, so no new run of"
                " it begins",
                next=f"orcaflow definition online {command.definition_name!r} lets it begin",
            )
        if alive is None:
            yield self._zookeeper()
            return
        if not alive.masters:
            yield self._no_master()
            return
        room = [
            node.address
            for node in sorted(alive.masters, key=_by_address)
            if alive.owned.get(node.address, 0) < self._facts.exec_threads
        ]
        if not room and not command.parent_task_instance_id:
            yield Cause(
                cause=CauseKind.MASTERS_FULL,
                subject="masters",
                text=f"every living master runs {self._facts.exec_threads} process instances or"
                " more, which is what master.exec_threads allows",
                next="one takes it as soon as a process instance has ended",
            )
        elif command.ahead:
            yield Cause(
                cause=CauseKind.QUEUED,
                subject="t_ds_command",
                text=f"before it, by priority or age: {_counted(command.ahead, 'command')}",
                next="masters take them in batches",
            )

    def _of_ended_run(self, run: Run, state: ProcessState, subject: str) -> Cause:
        recovery = self._facts.recoveries.get(run.id)
        because: list[Cause] = []
        if recovery is not None:
            because.append(self.of_command(recovery))
        failed = [each for each in run.attempts if each.state in BAD_ENDS]
        because += [self._of_finished(run, each) for each in failed[:MAX_LISTED]]
        reason = f": {run.state_reason}" if run.state_reason else ""
        if recovery is not None:
            later = None
        elif state is ProcessState.SUCCESS:
            later = "nothing: it is done"
        else:
            later = f"nothing before somebody asks: orcaflow instance recover {run.id}"
        return Cause(
            cause=CauseKind.ENDED,
            subject=subject,
            text=f"{subject} has ended: {state.name}{reason}",
            since=run.end_time,
            next=later,
            because=tuple(because),
        )

    def _of_serial_wait(self, run: Run, subject: str) -> Cause:
        others = tuple(
            Cause(
                cause=CauseKind.RUNNING
                if other.state != ProcessState.SERIAL_WAIT
                else CauseKind.SERIAL,
                subject=f"process instance {other.id}",
                text=f"process instance {other.id} is {_name(ProcessState, other.state)}",
                since=other.start_time,
                next=f"orcaflow instance why {other.id} tells more",
            )
            for other in run.before[:MAX_LISTED]
        )
        more = len(run.before) - len(others)
        count = f" ({more} more go before it)" if more > 0 else ""
        alive = self._facts.alive
        because = others if alive is None or alive.masters else (*others, self._no_master())
        if others:
            text = f"{subject} waits for its turn behind {others[0].subject}{count}"
            later = "it begins when those before it have ended"
        else:
            text = f"{subject} waits for its turn, and no other run goes before it any more"
            later = "a master lets it go within a few seconds"
        return Cause(
            cause=CauseKind.SERIAL,
            subject=subject,
            text=text,
            since=run.start_time,
            next=later,
            because=because,
        )

    def _of_waiting_thread(self, run: Run, subject: str) -> Cause:
        recovery = self._facts.recoveries.get(run.id)
        return Cause(
            cause=CauseKind.THREAD,
            subject=subject,
            text=f"{subject} waits for room on a master (WAITTING_THREAD)",
            since=run.start_time,
            next=None
            if recovery
            else "nothing: a command RECOVER_WAITTING_THREAD for it is missing; put one",
            because=() if recovery is None else (self.of_command(recovery),),
        )

    def _of_owner(self, run: Run, subject: str) -> Iterator[Cause]:
        alive = self._facts.alive
        recovery = self._facts.recoveries.get(run.id)
        if alive is None:
            yield self._zookeeper()
            return
        owned = run.host is not None and run.owner_incarnation is not None
        owner = Node(address=run.host or "", incarnation=run.owner_incarnation or 0)
        if owned and owner in alive.masters:
            return
        because: list[Cause] = []
        if not alive.masters:
            because.append(self._no_master())
        elif recovery is not None:
            because.append(self.of_command(recovery))
        what = f"its owner, the master {run.host}, is gone" if owned else "it has no owner"
        yield Cause(
            cause=CauseKind.OWNER_GONE,
            subject=subject,
            text=f"{subject}: {what}, so nothing is decided for it",
            next=None if because else "a living master takes it over within a few seconds",
            because=tuple(because),
        )

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
            text = f"{subject} is being {word} and waits for {_counted(len(live), 'task')}{more}"
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
        child = self._child(attempt)
        because: tuple[Cause, ...] = ()
        if child is not None and depth < MAX_DEPTH:
            because = self.of_run(child, depth + 1)
        return Cause(
            cause=CauseKind.RUNNING,
            subject=_subject(attempt),
            text=f"task {attempt.name!r} is {_name(TaskState, attempt.state)}{where}, {doing}",
            since=attempt.start_time or attempt.submit_time,
            because=because,
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
                    text=f"also live: {_counted(len(busy) - MAX_LISTED, 'task')} more"
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
                        text=f"not begun: {_counted(len(waiting), 'task')} ({named}{more})",
                        next=f"orcaflow instance why {run.id} --task NAME tells of one of them",
                    )
                )
            return tuple(causes)
        unsettled = [each for each in run.attempts if not is_live(each) and not each.settled]
        what = (
            f"{_counted(len(unsettled), 'ended task')} still to be taken into account"
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
        shape = self._shape(run)
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
            # Said once in full; elsewhere a name is enough.
            seen[name] = Cause(
                cause=CauseKind.UPSTREAM, subject=f"task {name!r}", text=f"task {name!r}: see above"
            )
            attempt = _attempts(run).get(name)
            if attempt is None:
                made = self._of_unbegun(run, name, depth, seen)
            elif is_live(attempt):
                made = self._of_live(run, attempt, depth)
            elif attempt.retry_at is not None:
                made = self._of_retry(attempt)
            else:
                made = self._of_finished(run, attempt)
            return made
        return seen[name]

    def _of_unbegun(self, run: Run, name: str, depth: int, seen: dict[str, Cause]) -> Cause:
        subject = f"task {name!r}"
        shape = self._shape(run)
        if shape is None:
            return self._unreadable(subject, "the definition of the run can't be read")
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
        shape = self._shape(run)
        if shape is None:
            return self._unreadable(subject, "the definition of the run can't be read")
        begun = shape.begun
        open_ = [above for above in shape.working_above(name) if shape.is_open(above)]
        failed = [above for above in shape.working_above(name) if shape.is_bad(above)]
        if failed and shape.graph.nodes[name].task_type != "CONDITIONS":
            attempt = begun[failed[0]]
            return Cause(
                cause=CauseKind.UPSTREAM_FAILED,
                subject=subject,
                text=f"{subject} does not begin: task {failed[0]!r} above it is"
                f" {_name(TaskState, attempt.state)}",
                since=attempt.end_time,
                next="nothing in this run, unless it is recovered after its end",
                because=(self._of_finished(run, attempt),),
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
                return Cause(
                    cause=CauseKind.DELAY,
                    subject=_subject(attempt),
                    text=f"task {attempt.name!r} is delayed by its definition",
                    since=attempt.submit_time,
                    next="it is queued when the delay is over",
                    next_at=attempt.due_at,
                )
            case TaskState.WAITING_DEPEND:
                return self._of_pools(attempt)
            case _ if attempt.task_type == "SUB_PROCESS":
                return self._of_sub_process(attempt, depth)
            case _ if attempt.task_type == "DEPENDENT":
                return self._of_dependent(attempt)
            case TaskState.SUBMITTED:
                return self._of_queued(attempt)
            case _:
                return self._of_running(attempt)

    def _of_running(self, attempt: Attempt) -> Cause:
        alive = self._facts.alive
        worker = Node(address=attempt.host or "", incarnation=attempt.worker_incarnation or 0)
        if alive is not None and worker not in alive.workers:
            return Cause(
                cause=CauseKind.WORKER_GONE,
                subject=_subject(attempt),
                text=f"task {attempt.name!r} ran on the worker {attempt.host}, which is gone",
                since=attempt.start_time,
                next="a master takes it for lost and submits it again, unless that worker comes"
                " back within its session time-out",
                because=() if alive.masters else (self._no_master(),),
            )
        wanted = ", and is being killed" if attempt.wanted_state is not None else ""
        return Cause(
            cause=CauseKind.RUNNING,
            subject=_subject(attempt),
            text=f"task {attempt.name!r} runs on {attempt.host}"
            f" (attempt {attempt.attempt}){wanted}",
            since=attempt.start_time,
            next=f"orcaflow task log {attempt.id} -f shows what it does",
        )

    def _of_queued(self, attempt: Attempt) -> Cause:
        place = self._facts.queue.get(attempt.id, QueuePlace(ahead=0))
        alive = self._facts.alive
        group = place.group_name or str(place.group_id)
        whom = f"a worker of the group {group!r}" if place.group_id > 0 else "a worker"
        because = [] if alive is None else list(self._of_workers(place, alive, group))
        if alive is None:
            because.append(self._zookeeper())
        ahead = f"; before it: {_counted(place.ahead, 'task')}" if place.ahead else ""
        return Cause(
            cause=CauseKind.QUEUED,
            subject=_subject(attempt),
            text=f"task {attempt.name!r} is in the queue and waits for {whom} with a free slot"
            f"{ahead}",
            since=attempt.submit_time,
            next=None
            if because and because[0].cause in _NOBODY
            else "the first free slot takes it",
            because=tuple(because),
        )

    def _of_workers(self, place: QueuePlace, alive: Alive, group: str) -> Iterator[Cause]:
        workers = sorted(alive.workers, key=_by_address)
        if not workers:
            yield Cause(
                cause=CauseKind.NO_WORKER,
                subject="workers",
                text="no worker is alive",
                next="orcaflow server start worker-server",
            )
            return
        fits = workers
        if place.group_id > 0:
            fits = [
                node
                for node in workers
                if node in place.served_by or node.address.rpartition(":")[0] in place.addresses
            ]
        if not fits:
            names = ", ".join(node.address for node in workers[:MAX_LISTED])
            yield Cause(
                cause=CauseKind.NO_WORKER_IN_GROUP,
                subject=f"worker group {group!r}",
                text=f"no living worker is known to serve the group {group!r}: none of"
                f" {names} has ever taken a task of it",
                next=f"orcaflow server start worker-server --groups {group}",
            )
            return
        yield Cause(
            cause=CauseKind.RUNNING,
            subject="workers",
            text="workers that may take it: "
            + ", ".join(
                f"{node.address} (running {_counted(alive.running.get(node.address, 0), 'task')})"
                for node in fits[:MAX_LISTED]
            ),
            next="orcaflow task list --state running shows what runs",
        )

    def _of_pools(self, attempt: Attempt) -> Cause:
        waits = self._facts.pools.get(attempt.id, ())
        because: list[Cause] = []
        for wait in waits:
            if wait.size is None or wait.slots > wait.size:
                problem = (
                    f"there is no pool {wait.name!r}"
                    if wait.size is None
                    else f"it asks for {wait.slots} slots, and pool {wait.name!r} has {wait.size}"
                )
                because.append(
                    Cause(
                        cause=CauseKind.POOL_UNKNOWN,
                        subject=f"pool {wait.name!r}",
                        text=problem,
                        next="the attempt fails with this reason within a few seconds",
                    )
                )
            elif not wait.has_room or wait.ahead:
                because.append(self._of_pool(wait))
        missing = [repr(wait.name) for wait in waits if not wait.has_room] or [
            repr(wait.name) for wait in waits
        ]
        return Cause(
            cause=CauseKind.POOL,
            subject=_subject(attempt),
            text=f"task {attempt.name!r} waits for slots in {', '.join(missing) or 'a pool'}",
            since=attempt.submit_time,
            next="it is looked at as soon as a slot is free, and every few seconds",
            because=tuple(because),
        )

    def _of_pool(self, wait: PoolWait) -> Cause:
        holders = tuple(
            Cause(
                cause=CauseKind.RUNNING,
                subject=f"task instance {holder.task_instance_id}",
                text=f"task {holder.task_name!r} of process instance"
                f" {holder.process_instance_id} holds {holder.slots}",
                since=holder.since,
                next=f"orcaflow task why {holder.task_instance_id} tells more",
            )
            for holder in wait.holders[:MAX_LISTED]
        )
        ahead = f"; before it: {_counted(wait.ahead, 'task')}" if wait.ahead else ""
        return Cause(
            cause=CauseKind.POOL,
            subject=f"pool {wait.name!r}",
            text=f"pool {wait.name!r}: {wait.used} of {wait.size} slots are taken, {wait.slots}"
            f" are needed{ahead}",
            next=f"orcaflow pool show {wait.name!r}",
            because=holders,
        )

    def _of_sub_process(self, attempt: Attempt, depth: int) -> Cause:
        child = self._child(attempt)
        command = self._facts.child_commands.get(attempt.id)
        because: tuple[Cause, ...] = ()
        later: str | None = None
        if command is not None:
            text = f"task {attempt.name!r} waits for its sub process to begin"
            because = (self.of_command(command),)
        elif child is not None:
            state = _name(ProcessState, child.state)
            text = f"task {attempt.name!r} waits for its sub process, instance {child.id} ({state})"
            if depth < MAX_DEPTH:
                because = self.of_run(child, depth + 1)
        else:
            text = (
                f"task {attempt.name!r} waits for its sub process, of which there is no trace yet"
            )
            later = "its owner looks at it within a few seconds"
        return Cause(
            cause=CauseKind.SUB_PROCESS,
            subject=_subject(attempt),
            text=text,
            since=attempt.start_time or attempt.submit_time,
            next=later,
            because=because,
        )

    def _of_dependent(self, attempt: Attempt) -> Cause:
        entries = [
            entry for entry in _entries(attempt.evidence) if entry.get("result") == "WAITING"
        ]
        because = tuple(_of_evidence(entry) for entry in entries[:MAX_LISTED])
        more = f" ({len(entries)} in all)" if len(entries) > MAX_LISTED else ""
        return Cause(
            cause=CauseKind.DEPENDENT,
            subject=_subject(attempt),
            text=f"task {attempt.name!r} waits for other process instances{more}"
            if attempt.evidence
            else f"task {attempt.name!r} has not looked at what it depends on yet",
            since=attempt.start_time or attempt.submit_time,
            next="looked at again whenever a process instance ends, and every few seconds",
            because=because,
        )

    def _of_retry(self, attempt: Attempt) -> Cause:
        late = attempt.retry_at is not None and attempt.retry_at < self._facts.now
        reason = f": {attempt.reason}" if attempt.reason else ""
        return Cause(
            cause=CauseKind.RETRY,
            subject=_subject(attempt),
            text=f"task {attempt.name!r} waits for its retry; attempt {attempt.attempt} ended as"
            f" {_name(TaskState, attempt.state)}{reason}",
            since=attempt.end_time,
            next=f"its owner makes attempt {attempt.attempt + 1}"
            + (", which is due already" if late else ""),
            next_at=attempt.retry_at,
        )

    def _of_finished(self, run: Run, attempt: Attempt) -> Cause:
        state = _name(TaskState, attempt.state)
        reason = f": {attempt.reason}" if attempt.reason else ""
        reason += self._why_not_retried(run, attempt)
        bad = attempt.state in BAD_ENDS
        return Cause(
            cause=CauseKind.FAILED if bad else CauseKind.ENDED,
            subject=_subject(attempt),
            text=f"task {attempt.name!r} has ended: {state} (attempt {attempt.attempt}){reason}",
            since=attempt.end_time,
            next=f"orcaflow task log {attempt.id} shows what it said"
            if bad and attempt.host is not None
            else None,
        )

    def _why_not_retried(self, run: Run, attempt: Attempt) -> str:
        """What to add about an attempt that another could have followed."""
        shape = self._shape(run)
        failure = attempt.failure or UNEXPLAINED.get(attempt.state)
        if shape is None or attempt.name not in shape.graph.nodes or failure is None:
            return ""
        node = shape.graph.nodes[attempt.name]
        forbids = node.retry_policy.why_not(failure)
        if forbids is None or attempt.retry_times >= node.max_retry_times:
            return ""
        return f"; it is not tried again, for {forbids}"

    def _child(self, attempt: Attempt) -> Run | None:
        return self._facts.runs.get(self._facts.children.get(attempt.id, 0))

    def _shape(self, run: Run) -> Shape | None:
        if run.id not in self._graphs:
            graph, dag = graph_of(run, self._facts.task_types)
            self._graphs[run.id] = (
                None if graph is None or dag is None else Shape(graph, dag, _attempts(run))
            )
        return self._graphs[run.id]

    def _no_master(self) -> Cause:
        return Cause(
            cause=CauseKind.NO_MASTER,
            subject="masters",
            text="no master is alive",
            next="orcaflow server start master-server",
        )

    def _zookeeper(self) -> Cause:
        return Cause(
            cause=CauseKind.ZOOKEEPER,
            subject="ZooKeeper",
            text="ZooKeeper could not be asked who is alive; without it nothing new begins",
            next="orcaflow doctor tells what is wrong",
        )

    def _unreadable(self, subject: str, problem: str) -> Cause:
        return Cause(cause=CauseKind.UNREADABLE, subject=subject, text=f"{subject}: {problem}")


_NEAR: Final = 3
_FEW: Final = 3


def _attempts(run: Run) -> dict[str, Attempt]:
    return {each.name: each for each in run.attempts}


def _process_state(code: int) -> ProcessState | None:
    try:
        return ProcessState(code)
    except ValueError:
        return None


def _name(kind: type[ProcessState | TaskState | CommandType], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return str(code)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _subject(attempt: Attempt) -> str:
    return f"task instance {attempt.id}"


def _by_address(node: Node) -> str:
    return node.address


def _entries(evidence: str | None) -> Sequence[Mapping[str, Any]]:
    try:
        entries = json.loads(evidence or "[]")
    except (ValueError, RecursionError):
        return ()
    if isinstance(entries, dict):
        entries = entries.get("evidence", ())
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else ()


def _of_evidence(entry: Mapping[str, Any]) -> Cause:
    run = entry.get("run")
    key = str(entry.get("key", "?"))
    interval = f" from {entry['from']} to {entry.get('to')}" if entry.get("from") else ""
    if isinstance(run, dict):
        looked = f"looked at process instance {run.get('id')} in state {run.get('state')}"
        later = f"orcaflow instance why {run.get('id')} tells more"
    else:
        looked, later = "found no process instance to look at", None
    return Cause(
        cause=CauseKind.DEPENDENT,
        subject=f"dependent item {key}",
        text=f"item {key}{interval}: {looked} ({entry.get('why', '')})",
        next=later,
    )
