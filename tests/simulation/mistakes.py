"""Mistakes that people make in such systems, each planted into the simulated cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from common.model.cluster import Node, NodeKind
from common.model.instances import Ownership
from common.model.states import TaskState
from common.store.protocol import AttemptEnd, AttemptFolders, ClaimedTask
from master.engine.run import ProcessRun
from master.run_worker import RunWorker
from tests.memory.store import (
    MemoryDatabase,
    MemoryFailoverStore,
    MemoryTaskStore,
    ProcessRecord,
    TaskRecord,
)
from tests.simulation.world import Parts, RepeatingRunStore, World


class UnfencedRunStore(RepeatingRunStore):
    """Writes for whoever asks, as long as the run is live."""

    def _is_owned(self, process: ProcessRecord, ownership: Ownership) -> bool:
        return process.is_live


def keep_memory_after_a_failed_save(runs: RunWorker) -> None:
    """What was decided stays in memory though nobody knows whether it was written."""

    def keep(stepped: list[ProcessRun]) -> None:
        for run in stepped:
            runs._keep(run)

    runs._lose = keep  # type: ignore[method-assign]  # The mistake.


class UncountedTaskStore(MemoryTaskStore):
    """Starts what was won in the registry, however many rows the UPDATE changed."""

    def claim(
        self,
        node: Node,
        task_instance_ids: Collection[int],
        *,
        folders: AttemptFolders,
        now: datetime,
    ) -> tuple[ClaimedTask, ...]:
        claimed = super().claim(node, task_instance_ids, folders=folders, now=now)
        known = [task.id for task in claimed]
        missed = [self._db.tasks.get(i) for i in task_instance_ids if i not in known]
        return claimed + tuple(
            self._claimed(task, folders.paths(0, 0, task.id), now)
            for task in missed
            if task is not None
        )


class AddressOnlyTaskStore(MemoryTaskStore):
    """Takes a report from whoever stands at the address that the row names."""

    _by_address = False

    def report(self, node: Node, ends: Sequence[AttemptEnd]) -> frozenset[int]:
        self._by_address = True
        try:
            return super().report(node, ends)
        finally:
            self._by_address = False

    def _holds(self, task: TaskRecord, node: Node) -> bool:
        if self._by_address:
            return task.state == TaskState.RUNNING and task.host == node.address
        return super()._holds(task, node)


class AddressOnlyFailoverStore(MemoryFailoverStore):
    """Takes a worker for alive when something stands at its address."""

    def __init__(self, database: MemoryDatabase, world: World) -> None:
        super().__init__(database)
        self._world = world

    def task_owners(self) -> frozenset[Node]:
        standing = self._world.zookeeper.children(NodeKind.WORKER.value)
        return frozenset(node for node in super().task_owners() if node.address not in standing)


UNFENCED = Parts(run_store=UnfencedRunStore)
MEMORY_KEPT = Parts(run_worker=keep_memory_after_a_failed_save)
UNCOUNTED = Parts(task_store=UncountedTaskStore)
ADDRESS_ONLY = Parts(task_store=AddressOnlyTaskStore, failover_store=AddressOnlyFailoverStore)
