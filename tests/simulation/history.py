"""Replays the audit of the tables: the state of every row at the time of each change.

A `Watcher` gets each change with the tables as they were just before it, and yields sentences about
violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from common.model.lock_needs import LockNeed
from common.model.states import ProcessState, TaskState
from tests.memory.store import (
    Change,
    CommandRecord,
    ComplementDateRecord,
    ComplementRecord,
    DefinitionRecord,
    ErrorCommandRecord,
    FireRecord,
    LockRequestRecord,
    PoolQueueRecord,
    PoolRecord,
    ProcessRecord,
    RelationRecord,
    ScheduleRecord,
    TaskRecord,
)


@dataclass(slots=True)
class Tables:
    """The rows at one moment of the history. `valid`: the attempts that count, by run and name."""

    commands: dict[int, CommandRecord] = field(default_factory=dict)
    definitions: dict[int, DefinitionRecord] = field(default_factory=dict)
    processes: dict[int, ProcessRecord] = field(default_factory=dict)
    tasks: dict[int, TaskRecord] = field(default_factory=dict)
    pools: dict[int, PoolRecord] = field(default_factory=dict)
    pool_queue: dict[int, PoolQueueRecord] = field(default_factory=dict)
    lock_needs: dict[int, list[LockNeed]] = field(default_factory=dict)
    relations: dict[int, RelationRecord] = field(default_factory=dict)
    schedules: dict[int, ScheduleRecord] = field(default_factory=dict)
    fires: dict[tuple[int, datetime], FireRecord] = field(default_factory=dict)
    complements: dict[int, ComplementRecord] = field(default_factory=dict)
    dates: dict[int, dict[int, ComplementDateRecord]] = field(default_factory=dict)
    refused: dict[int, ErrorCommandRecord] = field(default_factory=dict)
    valid: dict[int, dict[str, TaskRecord]] = field(default_factory=dict)
    process_states: set[tuple[int, int]] = field(default_factory=set)
    task_states: set[tuple[int, int]] = field(default_factory=set)

    def apply(self, change: Change) -> None:
        """Apply the change."""
        new = change.new
        if new is None:
            if isinstance(change.old, CommandRecord):
                del self.commands[change.id]
            return
        match new:
            case TaskRecord():
                self.tasks[new.id] = new
                self.task_states.add((new.id, new.state))
                rows = self.valid.setdefault(new.process_instance_id, {})
                if new.flag == 1:
                    rows[new.name] = new
                elif new.name in rows and rows[new.name].id == new.id:
                    del rows[new.name]
            case ProcessRecord():
                self.processes[new.id] = new
                self.process_states.add((new.id, new.state))
            case CommandRecord():
                self.commands[new.id] = new
            case DefinitionRecord():
                self.definitions[new.id] = new
            case PoolRecord():
                self.pools[new.id] = new
            case PoolQueueRecord():
                self.pool_queue[new.id] = new
            case LockRequestRecord():
                self.lock_needs.setdefault(new.task_id, []).append(new.need)
            case RelationRecord():
                self.relations[new.id] = new
            case ScheduleRecord():
                self.schedules[new.id] = new
            case FireRecord():
                self.fires[new.schedule_id, new.fire_time] = new
            case ComplementRecord():
                self.complements[new.id] = new
            case ComplementDateRecord():
                self.dates.setdefault(new.complement_id, {})[new.id] = new
            case ErrorCommandRecord():
                self.refused[new.command_id] = new

    def rows(self, process_instance_id: int) -> dict[str, TaskRecord]:
        """The valid attempts of a run."""
        return self.valid.get(process_instance_id, {})


class Watcher(Protocol):
    """A check of the whole history."""

    def see(self, change: Change, before: Tables) -> Iterable[str]:
        """Yield the violations of this change."""
        ...


def watch(
    changes: Iterable[Change], watchers: Iterable[Watcher], *, tables: Tables | None = None
) -> Iterator[str]:
    """Replay the history for all watchers and yield their findings. `tables` end as at its end."""
    tables = tables or Tables()
    together = tuple(watchers)
    for change in changes:
        for watcher in together:
            yield from watcher.see(change, tables)
        tables.apply(change)


def described(change: Change) -> str:
    """A change, in words for a person."""
    return f"{change.transaction} of {change.table} {change.id}"


def has_ended(change: Change) -> bool:
    """True if a live process instance becomes terminal by this change."""
    return (
        isinstance(change.old, ProcessRecord)
        and isinstance(change.new, ProcessRecord)
        and change.old.is_live
        and not change.new.is_live
    )


def has_restarted(change: Change) -> bool:
    """True if an ended process instance becomes live again by this change."""
    return (
        isinstance(change.old, ProcessRecord)
        and isinstance(change.new, ProcessRecord)
        and not change.old.is_live
        and change.new.is_live
    )


def process_name(state: int) -> str:
    """The name of a process state."""
    return ProcessState(state).name


def task_name(state: int) -> str:
    """The name of a task state."""
    return TaskState(state).name


def later(*moments: datetime | None) -> datetime:
    """The latest of these."""
    return max(moment for moment in moments if moment is not None)
