"""What must hold whatever happened. Reads the tables, their audit, and the computers' own record.

Each check answers with sentences about what is broken. The numbers are those of the invariants of
ARCHITECTURE.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from common.model.cluster import Node
from common.model.instances import Ownership
from common.model.states import ProcessState, TaskState
from tests.memory.store import Change, MemoryDatabase, ProcessRecord, TaskRecord
from tests.simulation.computer import Computer
from tests.simulation.world import World

_FINAL_PROCESS = tuple(state for state in ProcessState if state.is_terminal)


def broken(world: World) -> list[str]:
    """Everything that is broken after the faults have ended and all has come to rest."""
    database, computers = world.database, tuple(world.computers.values())
    return [
        *_commands_lost_or_doubled(database, world.starts),
        *_unfinished(database),
        *_started_without_right(database, computers),
        *_started_too_early(database, computers),
        *_stale_writes(database),
        *_left_a_final_state(database),
        *_wrong_ends(database),
        *_attempts(database),
        *_leftovers(computers),
    ]


def _commands_lost_or_doubled(database: MemoryDatabase, commands: int) -> Iterator[str]:
    """I1: every command became one process instance, or stands in the error table."""
    taken = len(database.processes) + len(database.error_commands)
    if taken != commands:
        yield f"I1: {commands} starts were asked for, {taken} are accounted for"


def _unfinished(database: MemoryDatabase) -> Iterator[str]:
    """Every run ends."""
    for process in database.processes:
        if process.is_live:
            yield f"process instance {process.id} is still {ProcessState(process.state).name}"


def _started_without_right(
    database: MemoryDatabase, computers: Sequence[Computer]
) -> Iterator[str]:
    """I2: an attempt is started at most once, and only by the worker whose claim its row shows."""
    started = Counter(
        process.task_instance_id for computer in computers for process in computer.started
    )
    claims = {
        change.id: change.new.host
        for change in database.changes
        if isinstance(change.new, TaskRecord) and change.new.state == TaskState.RUNNING
    }
    for computer in computers:
        for process in computer.started:
            if started[process.task_instance_id] > 1:
                yield f"I2: attempt {process.task_instance_id} was started more than once"
            if claims.get(process.task_instance_id) != computer.address:
                yield f"I2: attempt {process.task_instance_id} was started without a claim"
    for task in database.tasks:
        if task.state == TaskState.SUCCESS and started[task.id] != 1:
            yield f"I2: attempt {task.id} is SUCCESS and was started {started[task.id]} times"


def _started_too_early(database: MemoryDatabase, computers: Sequence[Computer]) -> Iterator[str]:
    """No process of a task begins before all its upstream has succeeded."""
    successes = {
        (change.new.process_instance_id, change.new.name): change.new.end_time
        for change in database.changes
        if isinstance(change.new, TaskRecord) and change.new.state == TaskState.SUCCESS
    }
    for computer in computers:
        for process in computer.started:
            record = database.processes.get(process.process_instance_id)
            assert record is not None
            for name in _live_upstream(record, process.name):
                ended = successes.get((process.process_instance_id, name))
                if ended is None or ended > process.started:
                    yield f"attempt {process.task_instance_id} began before {name!r} succeeded"


def _stale_writes(database: MemoryDatabase) -> Iterator[str]:
    """I3: no change by an owner whose epoch, or a worker whose incarnation, is not the row's."""
    epochs: dict[int, int] = {}
    for change in database.changes:
        if isinstance(change.by, Ownership):
            epoch = epochs.get(change.by.process_instance_id)
            if epoch != change.by.epoch:
                yield f"I3: {_said(change)} by epoch {change.by.epoch}, the row has {epoch}"
        if (
            isinstance(change.by, Node)
            and isinstance(change.old, TaskRecord)
            and isinstance(change.new, TaskRecord)
            and change.old.state == TaskState.RUNNING
            and change.transaction in ("report", "started")
            and (change.old.host, change.old.worker_incarnation)
            != (change.by.address, change.by.incarnation)
        ):
            yield f"I3: {_said(change)} by {change.by}, which does not hold it"
        if isinstance(change.new, ProcessRecord):
            epochs[change.id] = change.new.owner_epoch


def _left_a_final_state(database: MemoryDatabase) -> Iterator[str]:
    """I4: what is final stays so."""
    for change in database.changes:
        match change.old, change.new:
            case ProcessRecord(), ProcessRecord():
                final = change.old.state in _FINAL_PROCESS
            case TaskRecord(), TaskRecord():
                final = change.old.is_finished
            case _:
                continue
        if final and change.new.state != change.old.state:
            yield f"I4: {_said(change)} left the final state {change.old.state}"


def _wrong_ends(database: MemoryDatabase) -> Iterator[str]:
    """I8: a process's state agrees with its tasks and its DAG, by this small model of it."""
    for process in database.processes:
        valid = {
            task.name: TaskState(task.state)
            for task in database.tasks
            if task.process_instance_id == process.id and task.flag == 1
        }
        forbidden = [n["name"] for n in _nodes(process) if n.get("runFlag") == "FORBIDDEN"]
        good = all(
            node["name"] in forbidden or valid.get(node["name"]) is TaskState.SUCCESS
            for node in _nodes(process)
        )
        match ProcessState(process.state):
            case ProcessState.SUCCESS:
                right = good
            case ProcessState.FAILURE:
                right = not good and any(
                    state not in (TaskState.SUCCESS, TaskState.SUBMITTED, TaskState.RUNNING)
                    for state in valid.values()
                )
            case ProcessState.STOP:
                right = not good and process.wanted_state == ProcessState.STOP
            case _:
                continue
        if not right:
            states = {name: state.name for name, state in valid.items()}
            yield (
                f"I8: process instance {process.id} is {ProcessState(process.state).name}"
                f" ({process.state_reason}), its tasks are {states}"
            )


def _attempts(database: MemoryDatabase) -> Iterator[str]:
    """At most one success a task; retries are not overdrawn; attempts are numbered 1, 2, 3, …"""
    by_task: dict[tuple[int, str], list[TaskRecord]] = {}
    for task in database.tasks:
        by_task.setdefault((task.process_instance_id, task.name), []).append(task)
    for (process, name), attempts in by_task.items():
        place = f"process instance {process}, task {name!r}"
        if sum(task.state == TaskState.SUCCESS for task in attempts) > 1:
            yield f"{place} succeeded twice"
        if [task.attempt for task in attempts] != list(range(1, len(attempts) + 1)):
            yield f"{place} has the attempts {[task.attempt for task in attempts]}"
        if any(task.retry_times > task.max_retry_times for task in attempts):
            yield f"{place} was retried too often"
        if sum(task.flag for task in attempts) != 1:
            yield f"{place} has {sum(task.flag for task in attempts)} valid attempts"


def _leftovers(computers: Sequence[Computer]) -> Iterator[str]:
    """I10: no process runs when all is over."""
    for computer in computers:
        for process in computer.alive():
            yield f"I10: attempt {process.task_instance_id} still runs on {computer.address}"


def _nodes(process: ProcessRecord) -> list[dict[str, object]]:
    nodes: list[dict[str, object]] = json.loads(process.process_instance_json)["tasks"]
    return nodes


def _live_upstream(process: ProcessRecord, name: str) -> list[str]:
    """The tasks above this one that have to have run, through forbidden ones."""
    nodes = {str(node["name"]): node for node in _nodes(process)}
    found: list[str] = []
    waiting = list(_names(nodes[name]))
    while waiting:
        other = waiting.pop()
        if nodes[other].get("runFlag") == "FORBIDDEN":
            waiting += _names(nodes[other])
        else:
            found.append(other)
    return found


def _names(node: dict[str, object]) -> list[str]:
    names = node["preTasks"]
    assert isinstance(names, list)
    return names


def _said(change: Change) -> str:
    return f"{change.transaction} of {change.table} {change.id}"
