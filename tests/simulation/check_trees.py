"""Sub processes: a child begins, ends and restarts exactly as its parent's attempt does."""

from __future__ import annotations

from collections.abc import Iterator

from common.model.states import ProcessState, TaskState
from tests.memory.store import Change, ProcessRecord, RelationRecord, TaskRecord
from tests.simulation.history import Tables, described, has_ended, has_restarted, task_name

_AS_THE_CHILD = {
    ProcessState.SUCCESS: TaskState.SUCCESS,
    ProcessState.FAILURE: TaskState.FAILURE,
    ProcessState.STOP: TaskState.KILL,
    ProcessState.PAUSE: TaskState.PAUSE,
}
_WAITING = (TaskState.SUBMITTED, TaskState.RUNNING)
_STOPPING = (ProcessState.STOP, ProcessState.FAILURE)


class ChildrenAndParents:
    """One child per attempt and per node, one end for both, and no child without a parent."""

    def __init__(self) -> None:
        self._expected: tuple[int, TaskState] | None = None
        self._child_of_attempt: dict[int, int] = {}
        self._child_of_node: dict[tuple[int, str], int] = {}

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        yield from self._the_parent_follows(change)
        old, new = change.old, change.new
        if isinstance(new, RelationRecord) and new.process_instance_id:
            yield from self._related(new, before)
        if isinstance(new, ProcessRecord) and new.is_sub_process:
            if old is None or has_restarted(change):
                yield from self._begins(new, before)
            elif has_ended(change):
                parent = before.tasks[new.parent_task_instance_id]
                if parent.state in _WAITING:
                    self._expected = parent.id, _end(new, parent)
        if isinstance(old, TaskRecord) and isinstance(new, TaskRecord):
            if (
                new.task_type == "SUB_PROCESS"
                and new.state == TaskState.SUCCESS
                and old.state != TaskState.SUCCESS
                and self._expected is not None
            ):
                yield f"{described(change)} ended it, and no child has"
            yield from self._given_up(old, new, before)

    def _given_up(self, old: TaskRecord, new: TaskRecord, before: Tables) -> Iterator[str]:
        """At the deadline of a stop, only attempts that were asked to end in time are left."""
        if old.is_finished or not (new.reason or "").startswith("given up"):
            return
        if old.state != TaskState.RUNNING:
            yield (
                f"attempt {new.id} was {task_name(old.state)}; it should have been withdrawn at"
                " once, and not been given up at the deadline (T41)"
            )
        child = before.processes.get(self._child_of_attempt.get(new.id, 0))
        if child is not None and child.is_live and child.wanted_state not in _STOPPING:
            yield f"sub process {child.id} was not told to stop, and its parent waits no longer"

    def _the_parent_follows(self, change: Change) -> Iterator[str]:
        """The next change after a child's end is that of the attempt which waited for it."""
        if self._expected is None:
            return
        attempt, state = self._expected
        self._expected = None
        if not isinstance(change.new, TaskRecord) or (change.id, change.new.state) != (
            attempt,
            state,
        ):
            yield f"attempt {attempt} should have ended as {state.name} with its child"

    def _begins(self, child: ProcessRecord, before: Tables) -> Iterator[str]:
        place = f"sub process {child.id}"
        parent = before.tasks[child.parent_task_instance_id]
        if parent.state != TaskState.RUNNING:
            yield f"{place} begins though its parent's attempt is {task_name(parent.state)} (T36c)"
        if not before.processes[parent.process_instance_id].is_live:
            yield f"{place} begins under a parent that has ended (T36c)"
        if not child.root_id or child.root_id == child.id:
            yield f"{place} does not know its root"
        if self._child_of_attempt.setdefault(parent.id, child.id) != child.id:
            yield f"attempt {parent.id} has a second child, {child.id}"
        node = parent.process_instance_id, parent.name
        if self._child_of_node.setdefault(node, child.id) != child.id:
            yield f"{place} begins anew where another child of the node exists"

    def _related(self, relation: RelationRecord, before: Tables) -> Iterator[str]:
        others = [
            other
            for other in before.relations.values()
            if other.parent_task_instance_id == relation.parent_task_instance_id
            and other.id != relation.id
        ]
        if others:
            yield f"attempt {relation.parent_task_instance_id} has two relations"


def _end(child: ProcessRecord, parent: TaskRecord) -> TaskState:
    state = _AS_THE_CHILD[ProcessState(child.state)]
    if parent.reason is not None and state is not TaskState.SUCCESS:
        # It timed out, and its child was stopped for that.
        return TaskState.FAILURE
    return state
