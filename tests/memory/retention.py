"""`RetentionStore` in memory: what is old enough is marked, and deleted a few rows at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from common.model.complement_states import ComplementState, DateState
from common.model.date_rules import DateRule
from common.model.states import LIVE_TASK_STATES, TERMINAL_PROCESS_STATES, ProcessState
from common.retention import Need, Wait
from common.store.retention import History, Marked, Page, Place, RetentionStore
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.rows import (
    AlertRecord,
    ComplementRecord,
    FireRecord,
    LedgerRecord,
    ProcessRecord,
    Rows,
)

_GOES = tuple(state for state in TERMINAL_PROCESS_STATES if state is not ProcessState.PAUSE)
_KEEPING = tuple(
    state for state in ComplementState if not state.is_ended or state is ComplementState.PAUSE
)


class MemoryRetentionStore(RetentionStore):
    """`RetentionStore` in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def waits(self, *, now: datetime) -> tuple[Wait, ...]:
        runs = [
            Wait(
                document=process.process_instance_json,
                first=process.moment,
                last=process.business_time or process.schedule_time or now,
            )
            for process in self._db.processes
            if process.is_live and "DEPENDENT" in process.process_instance_json
        ]
        dates = []
        for complement in self._db.complements:
            definition = self._db.definitions.get(complement.process_definition_id)
            document = None if definition is None else definition.process_definition_json
            times = [
                date.schedule_time
                for date in self._db.dates(complement.id)
                if date.state in (DateState.PENDING, DateState.SUBMITTED)
            ]
            if complement.state in _KEEPING and times and document and "DEPENDENT" in document:
                is_later = complement.date_rule == DateRule.BUSINESS_DATE
                last = max(times) + timedelta(days=2 if is_later else 0)
                dates.append(Wait(document=document, first=min(times), last=last))
        return (*runs, *dates)

    def mark(
        self,
        *,
        before: datetime,
        after: Place,
        limit: int,
        needs: Sequence[Need],
        definition_id: int | None = None,
    ) -> Marked:
        with self._db.transaction("mark") as tx:
            candidates = sorted(
                (
                    process
                    for process in self._db.processes
                    if after < Place(process.start_time, process.id)
                    and process.start_time < before
                    and process.state in _GOES
                    and definition_id in (None, process.process_definition_id)
                    and (not process.is_sub_process or not self._has_parent(process))
                ),
                key=lambda each: Place(each.start_time, each.id),
            )[:limit]
            place = None
            if len(candidates) == limit:
                place = Place(candidates[-1].start_time, candidates[-1].id)
            chosen: set[int] = set()
            for root in candidates:
                tree = self._tree(root)
                if not any(self._is_kept(each, before, needs) for each in tree):
                    chosen.update(each.id for each in tree)
            for process_id in sorted(chosen):
                if self._db.processes.the(process_id).flag == 1:
                    tx.update(self._db.processes, process_id, flag=0)
            return Marked(ids=tuple(sorted(chosen)), place=place)

    def _has_parent(self, process: ProcessRecord) -> bool:
        return any(
            relation.process_instance_id == process.id
            and self._db.processes.get(relation.parent_process_instance_id) is not None
            for relation in self._db.relations
        )

    def _tree(self, root: ProcessRecord) -> list[ProcessRecord]:
        ids, found = [root.id], [root]
        for process_id in ids:
            for relation in self._db.relations:
                child = self._db.processes.get(relation.process_instance_id)
                if (
                    relation.parent_process_instance_id == process_id
                    and child is not None
                    and child.id not in ids
                ):
                    ids.append(child.id)
                    found.append(child)
        return found

    def _is_kept(self, process: ProcessRecord, before: datetime, needs: Sequence[Need]) -> bool:
        attempts = self._db.attempts(process.id)
        ids = [task.id for task in attempts]
        if (
            process.state not in _GOES
            or any(task.lost_at or task.state in LIVE_TASK_STATES for task in attempts)
            or any(
                command.process_instance_id == process.id or command.parent_task_instance_id in ids
                for command in self._db.commands
            )
            or any(
                date.process_instance_id == process.id
                and self._db.complements.the(date.complement_id).state in _KEEPING
                for date in self._db.complement_dates
            )
        ):
            return True
        if process.flag == 0:
            return False
        assert process.end_time is not None
        definition_id = process.process_definition_id
        definition = self._db.definitions.get(definition_id)
        moment = process.moment
        newest = max(
            each.id for each in self._db.processes if each.process_definition_id == definition_id
        )
        return (
            process.end_time >= before
            or (definition is not None and process.id == newest)
            or any(need.covers(definition_id, moment) for need in needs)
        )

    def delete_attempts(self, ids: Collection[int], *, limit: int) -> int:
        with self._db.transaction("delete_attempts") as tx:
            old = [
                task
                for task in self._db.tasks
                if task.process_instance_id in ids and self._is_marked(task.process_instance_id)
            ][:limit]
            for task in old:
                for share in self._db.pool_queue:
                    if share.task_id == task.id:
                        tx.delete(self._db.pool_queue, share.id)
                for result in self._db.quality:
                    if result.task_instance_id == task.id:
                        tx.delete(self._db.quality, result.id)
                if self._db.log_tails.get(task.id) is not None:
                    tx.delete(self._db.log_tails, task.id)
                tx.delete(self._db.tasks, task.id)
            return len(old)

    def _is_marked(self, process_id: int) -> bool:
        process = self._db.processes.get(process_id)
        return process is not None and process.flag == 0 and process.state in _GOES

    def delete_instances(self, ids: Collection[int], *, limit: int) -> list[tuple[int, int]]:
        with self._db.transaction("delete_instances") as tx:
            gone = [
                (process.process_definition_id, process.id)
                for process in self._db.processes
                if process.id in ids
                and self._is_marked(process.id)
                and not self._db.attempts(process.id)
            ][:limit]
            numbers = [number for _, number in gone]
            for number in numbers:
                tx.delete(self._db.processes, number)
            for relation in self._db.relations:
                if (
                    relation.parent_process_instance_id in numbers
                    or relation.process_instance_id in numbers
                ):
                    tx.delete(self._db.relations, relation.id)
            return sorted(gone)

    def delete_history(
        self,
        history: History,
        *,
        before: datetime,
        after: int,
        limit: int,
        definition_id: int | None = None,
    ) -> Page:
        if history is History.COMPLEMENTS:
            limit = 1
        if history is History.AUDIT:
            return Page(deleted=0, after=None)  # There are no people here.
        rows = self._rows(history)
        if history is History.ALERTS and definition_id is not None:
            return Page(deleted=0, after=None)
        with self._db.transaction("delete_history") as tx:
            page = [row for row in rows if row.id > after][:limit]
            old = [
                row
                for row in page
                if self._goes(row, before)
                and definition_id in (None, getattr(row, "process_definition_id", None))
            ]
            for row in old:
                self._delete_line(tx, rows, row)
            is_last = len(page) < limit or _age(page[-1]) >= before
            return Page(deleted=len(old), after=None if is_last else page[-1].id)

    def _rows(self, history: History) -> Rows[Any]:
        return next(rows for rows in self._db.tables if rows.name == history.value)

    def _goes(self, row: Any, before: datetime) -> bool:
        if not isinstance(row, ComplementRecord):
            return _age(row) < before
        return (
            row.state not in _KEEPING
            and row.end_time is not None
            and row.end_time < before
            and not any(
                other.after_id == row.id and other.state in _KEEPING
                for other in self._db.complements
            )
        )

    def _delete_line(self, tx: Transaction, rows: Rows[Any], row: Any) -> None:
        if isinstance(row, ComplementRecord):
            for date in self._db.dates(row.id):
                tx.delete(self._db.complement_dates, date.id)
        tx.delete(rows, row.id)


def _age(row: FireRecord | LedgerRecord | ComplementRecord | AlertRecord) -> datetime:
    return row.handled_at if isinstance(row, LedgerRecord) else row.create_time
