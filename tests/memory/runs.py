"""`RunStore` in memory: the reads and writes of the master that owns process instances."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from common.model.cluster import Node, QueueEntry
from common.model.decisions import FinishProcess
from common.model.instances import Ownership, TaskReport
from common.model.retry_policy import reason_from
from common.model.states import LIVE_TASK_STATES, ProcessState, TaskState
from common.store.master.plain_save import HintTarget, no_hint
from common.store.master.ports import PAGE, Intent, LoadedRun, RunStore, Saved, Step, UnreadableRun
from common.store.master.runs import WITH_ITS_TASK, WITHOUT_ITS_TASK
from tests.memory.database import MemoryDatabase
from tests.memory.reading import entry_of, process_row, task_row
from tests.memory.rows import EPOCH, SUB_PROCESS, ProcessRecord, TaskRecord
from tests.memory.saving import Writing
from tests.memory.sub_processes import child_of, end_parent

_STRONGER = {
    ProcessState.STOP: (ProcessState.STOP,),
    ProcessState.PAUSE: (ProcessState.PAUSE, ProcessState.STOP, ProcessState.FAILURE),
}


class MemoryRunStore(RunStore):
    """`RunStore` in memory. The simulator plants a mistake by overriding `_is_owned`."""

    def __init__(self, database: MemoryDatabase, *, hint_to: HintTarget = no_hint) -> None:
        self._db = database
        self.hint_to = hint_to

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun | UnreadableRun, ...]:
        loaded: list[LoadedRun | UnreadableRun] = []
        for ownership in ownerships:
            process = self._db.processes.get(ownership.process_instance_id)
            if process is None or not self._is_owned(process, ownership):
                continue
            try:
                run = LoadedRun(
                    ownership=ownership,
                    process=process_row(self._db, process),
                    tasks=tuple(task_row(task) for task in self._db.attempts(process.id)),
                )
            except ValueError as error:
                # An unreadable row is no reason to load none of the others.
                loaded.append(
                    UnreadableRun(
                        ownership=ownership,
                        reason=f"its rows can't be read: {error}",
                        live=tuple(
                            (task.name, task.attempt)
                            for task in self._db.attempts(process.id)
                            if task.state in LIVE_TASK_STATES
                        ),
                    )
                )
                continue
            loaded.append(run)
        return tuple(loaded)

    def save(self, steps: Sequence[Step]) -> Saved:
        lost: list[Ownership] = []
        with self._db.transaction("save") as tx:
            for step in steps:
                process = self._db.processes.get(step.ownership.process_instance_id)
                if process is None or not self._is_owned(process, step.ownership):
                    lost.append(step.ownership)
            overtaken = {
                step.ownership
                for step in steps
                if step.ownership not in lost and self._is_overtaken(step)
            }
            writing = Writing(tx)
            for step in steps:
                if step.ownership not in lost and step.ownership not in overtaken:
                    writing.step(step)
            saved = writing.saved()
            saved = replace(saved, hinted=tx.hint(self.hint_to, saved.offers))
        return replace(saved, lost=frozenset(lost), overtaken=frozenset(overtaken))

    def _is_overtaken(self, step: Step) -> bool:
        process = self._db.processes.the(step.ownership.process_instance_id)
        ends = {each.state for each in step.decisions if isinstance(each, FinishProcess)}
        return ProcessState.PAUSE in ends and process.wanted_state in (
            ProcessState.STOP,
            ProcessState.FAILURE,
        )

    def owned(self, node: Node, *, after: int = 0, limit: int = PAGE) -> frozenset[Ownership]:
        live = sorted(self._db.live_runs(node), key=lambda process: process.id)
        page = [process.ownership for process in live if process.id > after]
        return frozenset(page[:limit])

    def reports(
        self,
        node: Node,
        *,
        after: int = 0,
        limit: int = PAGE,
        only: Collection[int] | None = None,
    ) -> tuple[TaskReport, ...]:
        mine = [process.id for process in self._db.live_runs(node)]
        found = tuple(
            TaskReport(
                process_instance_id=task.process_instance_id,
                task_instance_id=task.id,
                name=task.name,
                attempt=task.attempt,
                state=TaskState(task.state),
                end_time=task.end_time or EPOCH,
                reason=task.reason,
                var_pool=task.var_pool,
                has_output=task.var_pool is not None,
                failure=reason_from(task.failure_reason),
            )
            for task in self._db.tasks
            if task.process_instance_id in mine
            and task.is_finished
            and not task.settled
            and task.flag == 1
            and (task.id > after if only is None else task.id in only)
        )
        return found[:limit] if only is None else found

    def wanted(self, node: Node) -> dict[Ownership, Intent]:
        return {
            process.ownership: Intent(
                state=ProcessState(process.wanted_state), at=process.wanted_at or self._db.now()
            )
            for process in self._db.live_runs(node)
            if process.wanted_state is not None
        }

    def propagate_intents(self, node: Node) -> int:
        asked = 0
        with self._db.transaction("propagate_intents", by=node) as tx:
            mine = [process.id for process in self._db.live_runs(node)]
            for task in self._db.tasks:
                if task.process_instance_id not in mine or not task.runs_as(SUB_PROCESS):
                    continue
                child = child_of(self._db, task)
                if child is None:
                    continue
                if not child.is_live:
                    if child.parent_task_instance_id == task.id:
                        end_parent(tx, child, None)
                    continue
                intent = _intent_for_child(task)
                if child.state == ProcessState.READY_STOP:
                    # It is being stopped; its final state was decided when that began.
                    continue
                if intent is not None and child.wanted_state not in _STRONGER[intent]:
                    now = self._db.now()
                    tx.update(
                        self._db.processes,
                        child.id,
                        wanted_state=int(intent),
                        wanted_at=now,
                        update_time=now,
                        state_reason=(
                            WITH_ITS_TASK if intent is ProcessState.STOP else child.state_reason
                        ),
                    )
                    asked += 1
            for process in self._db.live_runs(node):
                if self._is_orphan(process) and process.wanted_state != ProcessState.STOP:
                    now = self._db.now()
                    tx.update(
                        self._db.processes,
                        process.id,
                        wanted_state=int(ProcessState.STOP),
                        wanted_at=now,
                        update_time=now,
                        state_reason=WITHOUT_ITS_TASK,
                    )
                    asked += 1
        return asked

    def _is_orphan(self, process: ProcessRecord) -> bool:
        """True if it is a sub process that goes on though no attempt waits for its end any more."""
        parent = self._db.tasks.get(process.parent_task_instance_id)
        return (
            parent is not None
            and process.state != ProcessState.READY_STOP
            and (
                parent.is_finished or not self._db.processes.the(parent.process_instance_id).is_live
            )
        )

    def unclaimed(
        self, node: Node, *, submitted_before: datetime, after: int = 0, limit: int = PAGE
    ) -> tuple[QueueEntry, ...]:
        mine = [process.id for process in self._db.live_runs(node)]
        entries = [
            entry_of(self._db, task.id)
            for task in self._db.tasks
            if task.process_instance_id in mine
            and task.state == TaskState.SUBMITTED
            and not task.is_workerless
            and task.submit_time is not None
            and task.submit_time < submitted_before
            and task.id > after
        ]
        return tuple(sorted(entries[:limit], key=lambda entry: entry.sort_key))

    def _is_owned(self, process: ProcessRecord, ownership: Ownership) -> bool:
        return process.host == ownership.host and process.owner_epoch == ownership.epoch


def _intent_for_child(task: TaskRecord) -> ProcessState | None:
    match task.wanted_state:
        case TaskState.KILL:
            return ProcessState.STOP
        case TaskState.PAUSE:
            return ProcessState.PAUSE
    return None
