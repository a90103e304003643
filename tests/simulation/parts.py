"""The parts of a world that a planted mistake may replace: its stores and what is done to its loops.

Two stores disturb what they serve, as slow and repeating networks do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from common.model.cluster import Node
from common.model.instances import TaskReport
from master.assembly import Master
from master.loops.run_worker import RunWorker
from tests.memory.store import (
    MemoryCommandStore,
    MemoryComplementStore,
    MemoryDatabase,
    MemoryDependentStore,
    MemoryFailoverStore,
    MemoryHoldStore,
    MemoryRunStore,
    MemoryScheduleStore,
    MemoryTaskStore,
    MemoryTimeoutStore,
)
from worker.assembly import Worker

if TYPE_CHECKING:
    from tests.simulation.daemons import Daemon
    from tests.simulation.world import World


class RepeatingRunStore(MemoryRunStore):
    """Delivers reports again: late ones, repeated ones."""

    def __init__(self, database: MemoryDatabase, world: World) -> None:
        super().__init__(database)
        self._world = world
        self._recent_reports: list[TaskReport] = []

    def reports(self, node: Node, **page: Any) -> tuple[TaskReport, ...]:
        reports = super().reports(node, **page)
        again = tuple(
            report
            for report in self._recent_reports
            if self._world.random.random() < self._world.options.repeat_report / 4
        )
        self._recent_reports = [*self._recent_reports, *reports][-20:]
        return again + reports


class HeldUpFailoverStore(MemoryFailoverStore):
    """Holds a master up around its looks at owners: before and after it asks the registry."""

    def __init__(self, database: MemoryDatabase, world: World) -> None:
        super().__init__(database)
        self._world = world

    def task_owners(self) -> frozenset[Node]:
        self._world.hold_up("look at owners")
        owners = super().task_owners()
        self._world.hold_up("look at the registry")
        return owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a world; a planted mistake replaces one of them."""

    command_store: Callable[[MemoryDatabase], MemoryCommandStore] = MemoryCommandStore
    run_store: Callable[[MemoryDatabase, World], MemoryRunStore] = RepeatingRunStore
    hold_store: Callable[[MemoryDatabase], MemoryHoldStore] = MemoryHoldStore
    timeout_store: Callable[[MemoryDatabase], MemoryTimeoutStore] = MemoryTimeoutStore
    dependent_store: Callable[[MemoryDatabase], MemoryDependentStore] = MemoryDependentStore
    schedule_store: Callable[[MemoryDatabase], MemoryScheduleStore] = MemoryScheduleStore
    complement_store: Callable[[MemoryDatabase], MemoryComplementStore] = MemoryComplementStore
    task_store: Callable[[MemoryDatabase], MemoryTaskStore] = MemoryTaskStore
    failover_store: Callable[[MemoryDatabase, World], MemoryFailoverStore] = HeldUpFailoverStore
    run_worker: Callable[[RunWorker], None] = lambda _: None
    hold_interval: timedelta = timedelta(seconds=2)
    with_master: Callable[[Daemon, Master], None] = lambda _, _master: None
    with_worker: Callable[[Daemon, Worker], None] = lambda _, _worker: None
