"""Held attempts and runs: pools are never over-full, and serial runs go in turn, in their order."""

from __future__ import annotations

from collections.abc import Iterator

from common.model.commands import CommandType
from common.model.locks import LockType
from common.model.states import ExecutionType, ProcessState, TaskState
from tests.memory.store import Change, CommandRecord, ProcessRecord, TaskRecord
from tests.simulation.history import Tables, described

_TAKES_SLOTS = (TaskState.SUBMITTED, TaskState.RUNNING)
# All locks of the simulation are of one interval and priority.
_TOGETHER = (
    {LockType.SHARED},
    {LockType.APPEND},
    {LockType.APPEND, LockType.REPLACE},
)
_HELD = (TaskState.WAITING_DEPEND, TaskState.DELAY_EXECUTION)


class PoolsNeverOverfull:
    """Whenever an attempt is released, all its pools have room for it."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        old, new = change.old, change.new
        if (
            not isinstance(new, TaskRecord)
            or new.state not in _TAKES_SLOTS
            or (isinstance(old, TaskRecord) and old.state in _TAKES_SLOTS)
        ):
            return
        if isinstance(old, TaskRecord) and old.state not in _HELD:
            yield f"{described(change)} let go of what was not held"
        asked = [row for row in before.pool_queue.values() if row.task_id == new.id]
        for row in asked:
            pool = before.pools.get(row.group_id)
            if pool is None or row.status != 1:
                yield f"attempt {new.id} was let go of without its slots"
                continue
            used = row.weight + sum(
                other.weight
                for other in before.pool_queue.values()
                if other.group_id == pool.id
                and other.status == 1
                and other.task_id != new.id
                and before.tasks[other.task_id].state in _TAKES_SLOTS
            )
            if used > pool.group_size or pool.status != 1:
                yield f"pool {pool.name!r} has {pool.group_size} slots, and {used} are in use"


class LocksNeverConflict:
    """No two attempts that were let go of hold locks that can't stand beside each other."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        new = change.new
        if not isinstance(new, TaskRecord) or new.state not in _TAKES_SLOTS:
            return
        for need in before.lock_needs.get(new.id, ()):
            for other_id, others in before.lock_needs.items():
                other = before.tasks.get(other_id)
                if other is None or other.id == new.id or other.state not in _TAKES_SLOTS:
                    continue
                same_run = other.process_instance_id == new.process_instance_id
                for held in others:
                    if held.dataset != need.dataset or (same_run and held.type is need.type):
                        continue
                    if (kinds := {held.type, need.type}) not in _TOGETHER:
                        yield f"attempts {new.id} and {other_id} hold {need.dataset} as {kinds}"


class SerialRunsOneByOne:
    """One run of a serial definition is live at a time; the one that waits longest is next."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        new = change.new
        if isinstance(new, ProcessRecord) and not new.is_sub_process:
            yield from self._process(change, new, before)
        elif (
            isinstance(new, CommandRecord)
            and change.old is None
            and new.command_type == CommandType.RECOVER_SERIAL_WAIT
        ):
            others = _others(before, new.process_definition_id or 0, apart_from=0)
            waiting = [process.id for process in others if process.is_waiting]
            if len(waiting) < len(others):
                yield f"the turn of {new.process_instance_id} came while another went on"
            elif min(waiting, default=0) != new.process_instance_id:
                yield f"the turn of {new.process_instance_id} came before that of {min(waiting)}"

    def _process(self, change: Change, new: ProcessRecord, before: Tables) -> Iterator[str]:
        old = change.old
        kind = before.definitions[new.process_definition_id].execution_type
        # The policy of its schedule takes precedence, whenever it begins or restarts.
        if new.execution_type is not None:
            kind = new.execution_type
        if kind == ExecutionType.PARALLEL:
            return
        others = _others(before, new.process_definition_id, apart_from=new.id)
        continues = new.is_live and not new.is_waiting
        went_on = isinstance(old, ProcessRecord) and old.is_live and not old.is_waiting
        if continues and not went_on:
            running = [process.id for process in others if not process.is_waiting]
            if running:
                yield f"process instance {new.id} goes on beside {running} of a serial definition"
        if old is None and new.state == ProcessState.STOP and not others:
            yield f"process instance {new.id} was discarded though none was live"


def _others(before: Tables, definition_id: int, *, apart_from: int) -> list[ProcessRecord]:
    return [
        process
        for process in before.processes.values()
        if process.process_definition_id == definition_id
        and process.is_live
        and not process.is_sub_process
        and process.id != apart_from
    ]
