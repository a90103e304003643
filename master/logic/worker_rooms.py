"""Counts the room of workers as the tasks of each project may use it. Pure.

A running task takes one slot from all projects. The other slots of its `capacity` count only in its
project, and an availability group is a group of one project. A task of one project therefore does
not keep the tasks of another project out while slots are free. `common.model.slot_share` counts the
share of a project, with the capacities of this project and the slots of the others. As in the claim
loop of a worker, other attempts get slots before attempts of complements.

Used by `master.logic.assignment`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from common.model.assignments import AskingTask, RunningTasks
from common.model.slot_share import NO_LIMIT, SlotShare
from common.model.workers import WorkerStatus
from master.logic.worker_choice import WorkerRoom


@dataclass(slots=True, kw_only=True)
class _Ledger:
    """The tasks of one worker, running or given to it."""

    room: WorkerRoom
    percent: int
    groups: set[tuple[int, str]]
    live: Counter[int] = field(default_factory=Counter)
    """The slots of each project, without complements."""
    yielding: Counter[int] = field(default_factory=Counter)
    """The slots of each project's complements."""
    surplus: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """The slots that tasks count for beyond the first, by project and `yields`."""
    late: set[int] = field(default_factory=set)
    """The projects with a task that the worker has not claimed for some seconds."""
    views: dict[tuple[int, bool], WorkerRoom] = field(default_factory=dict)


class WorkerRooms:
    """The rooms of workers while tasks are given to them."""

    def __init__(
        self,
        rooms: Iterable[WorkerRoom],
        *,
        workers: Mapping[str, WorkerStatus],
        groups: Mapping[str, frozenset[tuple[int, str]]],
        several_projects: bool,
        granted: Mapping[int, frozenset[int]],
    ) -> None:
        """`rooms`: of empty workers. `granted`: the projects of worker groups."""
        self._ledgers = {
            room.address: _Ledger(
                room=room,
                percent=_percent(workers[room.address], several_projects, granted),
                groups=set(groups.get(room.address, ())),
            )
            for room in rooms
        }

    def count(self, running: RunningTasks) -> None:
        """Count running tasks; tasks of unknown workers are ignored."""
        ledger = self._ledgers.get(running.worker)
        if ledger is not None:
            _add(ledger, running)

    def give(self, address: str, task: AskingTask, *, is_late: bool = False) -> None:
        """Count a task that a worker has been given; `is_late`: it should have claimed it."""
        ledger = self._ledgers[address]
        need = task.need
        _add(
            ledger,
            RunningTasks(
                worker=address, project=task.project, yields=task.yields, capacity=need.capacity
            ),
        )
        if need.availability_group is not None:
            ledger.groups.add((task.project, need.availability_group))
        if is_late:
            ledger.late.add(task.project)

    def seen_by(self, task: AskingTask) -> list[WorkerRoom]:
        """Return the room of each worker for the tasks of this task's project."""
        key = (task.project, task.yields)
        return [_view(ledger, key) for ledger in self._ledgers.values()]


def _percent(
    status: WorkerStatus, several_projects: bool, granted: Mapping[int, frozenset[int]]
) -> int:
    """Return the share of a worker's slots that one project may hold."""
    if status.is_reserved:
        projects = {each for group in status.group_ids for each in granted.get(group, ())}
        several_projects = len(projects) > 1
    return status.share_percent if several_projects else NO_LIMIT


def _add(ledger: _Ledger, tasks: RunningTasks) -> None:
    slots = ledger.yielding if tasks.yields else ledger.live
    slots[tasks.project] += tasks.slots
    ledger.surplus[tasks.project, tasks.yields] += tasks.capacity - tasks.slots
    ledger.views.clear()


def _view(ledger: _Ledger, key: tuple[int, bool]) -> WorkerRoom:
    if key not in ledger.views:
        ledger.views[key] = _made_view(ledger, *key)
    return ledger.views[key]


def _made_view(ledger: _Ledger, project: int, yields: bool) -> WorkerRoom:
    surplus = ledger.surplus[project, False] + (ledger.surplus[project, True] if yields else 0)
    used = ledger.live.total() + (ledger.yielding.total() if yields else 0) + surplus
    return replace(
        ledger.room,
        used=used,
        availability_groups=frozenset(name for owner, name in ledger.groups if owner == project),
        is_assigned=project in ledger.late,
        share=_share(ledger, project, yields),
    )


def _share(ledger: _Ledger, project: int, yields: bool) -> int | None:
    if ledger.percent == NO_LIMIT:
        return None
    held = Counter(ledger.yielding if yields else ledger.live)
    held[project] += ledger.surplus[project, yields]
    share = SlotShare.of(ledger.percent, ledger.room.capacity, held)
    if yields:
        taken = ledger.live.total() + ledger.yielding.total()
        share.free = min(share.free, ledger.room.capacity - taken)
    return share.room(project)
