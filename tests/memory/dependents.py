"""`DependentStore` in memory: the upstream runs of DEPENDENT attempts, and the attempts' end."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from common.model.cluster import Node
from common.model.states import ProcessState, TaskState, TimeoutStrategy
from common.model.upstream import (
    Absence,
    Answer,
    AnyQuestion,
    DatasetQuestion,
    Question,
    UpstreamRun,
    UpstreamTask,
)
from common.store.master.ports import (
    PAGE,
    AnsweringRun,
    DependentDecision,
    DependentStore,
    WaitingDependent,
)
from common.store.transaction import storable
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.progress import progress_of
from tests.memory.rows import DEPENDENT, EPOCH, ProcessRecord, TaskRecord

_KNOWN_STATES = tuple(ProcessState)


class MemoryDependentStore(DependentStore):
    """`DependentStore` in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def undecided(self, node: Node) -> Mapping[int, int]:
        mine = {process.id: process for process in self._db.live_runs(node)}
        return {one.task_instance_id: one.ownership.epoch for one in self._undecided(mine)}

    def waiting(
        self, node: Node, *, after: int = 0, limit: int = PAGE
    ) -> tuple[WaitingDependent, ...]:
        mine = {process.id: process for process in self._db.live_runs(node)}
        found = [one for one in self._undecided(mine) if one.task_instance_id > after]
        return tuple(found[:limit])

    def held_up(self, process_instance_ids: Collection[int]) -> tuple[WaitingDependent, ...]:
        named = (self._db.processes.get(number) for number in sorted(process_instance_ids))
        return self._undecided(
            {
                process.id: process
                for process in named
                if process is not None and process.host is not None and not self._moves(process)
            }
        )

    def _undecided(self, runs: Mapping[int, ProcessRecord]) -> tuple[WaitingDependent, ...]:
        return tuple(
            WaitingDependent(
                ownership=process.ownership,
                task_instance_id=task.id,
                name=task.name,
                task_json=task.task_json,
                process_definition_id=process.process_definition_id,
                moment=process.moment,
                start_time=task.start_time or EPOCH,
                evidence=task.evidence,
                timezone_id=process.timezone_id,
                project_id=None if own is None else own.project_id,
            )
            for task in self._db.tasks
            if task.runs_as(DEPENDENT)
            and task.flag == 1
            and (process := runs.get(task.process_instance_id)) is not None
            for own in [self._db.definitions.get(process.process_definition_id)]
        )

    def _moves(self, process: ProcessRecord) -> bool:
        if process.state != ProcessState.RUNNING or process.wanted_state is not None:
            return True
        if process.timeout > 0 and not process.timeout_flag and _fails(process.timeout_strategy):
            return True
        return any(
            task.retry_at is not None
            or (
                not task.settled
                and (
                    not task.runs_as(DEPENDENT)
                    or (task.timeout_seconds is not None and _fails(task.timeout_strategy))
                )
            )
            for task in self._db.attempts(process.id)
            if task.flag == 1
        )

    def runs(self, process_instance_ids: Collection[int]) -> tuple[AnsweringRun, ...]:
        named = (self._db.processes.get(number) for number in sorted(process_instance_ids))
        return tuple(
            AnsweringRun(
                process_instance_id=process.id,
                process_definition_id=process.process_definition_id,
                definition_name=None if definition is None else definition.name,
                moment=process.moment,
            )
            for process in named
            if process is not None
            for definition in [self._db.definitions.get(process.process_definition_id)]
        )

    def look_up(self, questions: Sequence[AnyQuestion]) -> tuple[Answer, ...]:
        return tuple(
            progress_of(self._db, question.dataset)
            if isinstance(question, DatasetQuestion)
            else self._answer(question)
            for question in questions
        )

    def decide(self, decisions: Sequence[DependentDecision], *, now: datetime) -> frozenset[int]:
        with self._db.transaction("decide") as tx:
            return frozenset(
                each.waiting.task_instance_id for each in decisions if self._decide(tx, each, now)
            )

    def _decide(self, tx: Transaction, decision: DependentDecision, now: datetime) -> bool:
        owned = tx.by = decision.waiting.ownership
        task = self._db.tasks.get(decision.waiting.task_instance_id)
        process = self._db.processes.get(owned.process_instance_id)
        if (
            task is None
            or not task.runs_as(DEPENDENT)
            or task.flag != 1
            or process is None
            or task.process_instance_id != process.id
            or not process.is_live
            or (process.host, process.owner_epoch) != (owned.host, owned.epoch)
        ):
            return False
        evidence = storable(decision.evidence, len(decision.evidence))
        tx.update(self._db.tasks, task.id, evidence=evidence)
        if decision.state is not None:
            reason, failure = decision.reason, decision.failure
            tx.update(
                self._db.tasks,
                task.id,
                state=int(decision.state),
                end_time=now,
                reason=None if reason is None else storable(reason),
                failure_reason=None if failure is None else failure.value,
            )
        return True

    def _answer(self, question: Question) -> Answer:
        # The store in memory does not support shares.
        reached = [
            one
            for one in self._db.definitions
            if question.asking_project in (None, one.project_id)
            and question.project in (None, one.project_id)
        ]
        definition_id = question.definition_id
        if definition_id is None:
            named = [one.id for one in reached if one.name == question.definition_name]
            definition_id = named[0] if len(named) == 1 else None
        elif definition_id not in [one.id for one in reached]:
            return Absence.NO_DEFINITION
        found = None
        for process in self._db.processes:
            if (
                process.process_definition_id == definition_id
                and process.id != question.apart_from
                and process.state in _KNOWN_STATES
                and process.flag == 1
                and question.start <= process.moment < question.end
            ):
                found = process
        if found is not None:
            return self._upstream_run(found, question.task)
        if self._db.definitions.get(definition_id) is None:
            return Absence.NO_DEFINITION
        asking = self._db.processes.get(question.apart_from)
        others = [
            process.id
            for process in self._db.processes
            if process.process_definition_id == definition_id and process.id != question.apart_from
        ]
        if asking is not None and asking.process_definition_id == definition_id and not others:
            return Absence.FIRST_RUN
        return None

    def _upstream_run(self, process: ProcessRecord, task_name: str | None) -> UpstreamRun:
        task = None
        if task_name is not None:
            task = next(
                (
                    one
                    for one in self._db.attempts(process.id)
                    if one.name == task_name and one.flag == 1
                ),
                None,
            )
        return UpstreamRun(
            id=process.id,
            state=ProcessState(process.state),
            schedule_time=process.schedule_time,
            moment=process.moment,
            start_time=process.start_time,
            end_time=process.end_time,
            task=None if task is None else _upstream_task(process, task),
            has_node=task_name is None or task is not None or _has_node(process, task_name),
        )


def _fails(strategy: int | None) -> bool:
    return strategy is not None and TimeoutStrategy(strategy).fails


def _upstream_task(process: ProcessRecord, task: TaskRecord) -> UpstreamTask:
    state = TaskState(task.state)
    undecided = process.is_live and state.is_finished and not state.is_success and not task.settled
    return UpstreamTask(
        id=task.id,
        state=state,
        retry_pending=task.retry_at is not None or undecided,
        end_time=task.end_time,
    )


def _has_node(process: ProcessRecord, name: str) -> bool:
    try:
        nodes = json.loads(process.process_instance_json)["tasks"]
        return any(node["name"] == name for node in nodes)
    except (ValueError, RecursionError, TypeError, KeyError):
        return False
