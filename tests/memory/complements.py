"""`ComplementStore` in memory: dates that end, dates that begin, and people's intents.

Also how complements are written, and the fence that lets a date begin.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime

from common.business_dates import slots_of
from common.model.command_param import CommandParam
from common.model.commands import CommandOutcome, CommandType
from common.model.complement_states import ComplementState, DateState, OnFailure, Reprocess
from common.model.complements import ComplementDecider, ComplementSnapshot, NewComplement
from common.model.date_rules import DateRule, Slot
from common.model.plans import LedgerLine
from common.model.states import ProcessState
from common.store.master.ports import ComplementStore, Progressed
from tests.memory.database import MemoryDatabase, Transaction
from tests.memory.ledger import enter
from tests.memory.rows import (
    CommandRecord,
    ComplementDateRecord,
    ComplementRecord,
    ProcessRecord,
)
from tests.memory.serial import ask_to_stop

_LOOKED_AT = (
    ComplementState.SUBMITTED,
    ComplementState.RUNNING,
    ComplementState.READY_PAUSE,
    ComplementState.READY_STOP,
)
_HALTING = (ComplementState.READY_PAUSE, ComplementState.READY_STOP)
_FOLLOWED = (ComplementState.SUCCESS, ComplementState.FAILURE, ComplementState.STOP)
_LIVE_DATES = (DateState.SUBMITTED, DateState.RUNNING)
_LOST = (ProcessState.FAILURE, ProcessState.STOP)


def create_complements(
    tx: Transaction, complements: Sequence[NewComplement], *, command_id: int, now: datetime
) -> tuple[int, ...]:
    """Write complements with all their dates; return their ids, in order."""
    ids: list[int] = []
    for new in complements:
        settings = new.settings
        complement_id = tx.insert(
            tx.database.complements,
            ComplementRecord(
                process_definition_id=new.process_definition_id,
                state=int(
                    ComplementState.RUNNING if new.after is None else ComplementState.SUBMITTED
                ),
                parallelism=new.parallelism,
                run_order=new.order.value,
                on_failure=new.on_failure.value,
                reprocess=new.reprocess.value,
                date_rule=new.date_rule.value,
                timezone_id=new.timezone_id,
                after_id=0 if new.after is None else ids[new.after],
                command_id=0 if ids else command_id,
                task_depend_type=int(settings.task_depend_type),
                failure_strategy=int(settings.failure_strategy),
                warning_type=int(settings.warning_type),
                warning_group_id=settings.warning_group_id,
                executor_id=settings.executor_id,
                process_instance_priority=int(settings.priority),
                worker_group_id=settings.worker_group_id,
                environment_code=settings.environment_code,
                start_node_names=",".join(settings.start_node_names) or None,
                start_params=settings.start_params,
                create_time=now,
                update_time=now,
            ),
        )
        for position, (date, slot) in enumerate(zip(new.dates, slots_of(new), strict=True), 1):
            reason = _why_skipped(tx.database, new, slot)
            tx.insert(
                tx.database.complement_dates,
                ComplementDateRecord(
                    complement_id=complement_id,
                    position=position,
                    schedule_time=date,
                    state=DateState.PENDING if reason is None else DateState.SKIPPED,
                    reason=reason,
                    update_time=now,
                ),
            )
        ids.append(complement_id)
    return tuple(ids)


def _why_skipped(database: MemoryDatabase, new: NewComplement, slot: Slot) -> str | None:
    if new.reprocess is Reprocess.ALL:
        return None
    newest = None
    for process in database.processes:
        if (
            process.process_definition_id == new.process_definition_id
            and process.schedule_time is not None
            and slot.contains(process.moment)
            and not process.is_sub_process
        ):
            newest = process
    if newest is None:
        return None
    state = ProcessState(newest.state)
    has_ended_badly = not newest.is_live and state is not ProcessState.SUCCESS
    if new.reprocess is Reprocess.FAILED and has_ended_badly:
        return None
    return f"process instance {newest.id} {'is' if newest.is_live else 'ended as'} {state.name}"


def may_begin_date(database: MemoryDatabase, date_id: int, command_id: int) -> bool:
    """The fence: true if this command still stands for a date of a RUNNING complement."""
    date = database.complement_dates.get(date_id)
    return (
        date is not None
        and date.state == DateState.SUBMITTED
        and date.command_id == command_id
        and database.complements.the(date.complement_id).state == ComplementState.RUNNING
    )


class MemoryComplementStore(ComplementStore):
    """`ComplementStore` in memory. The simulator plants mistakes by overriding its steps."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def advance(self, *, decide: ComplementDecider, now: datetime, thorough: bool) -> Progressed:
        begun = 0
        looked_at = deque(
            row.id
            for row in self._db.complements
            if (row.state in _LOOKED_AT and not self._still_follows(row, decide))
            or (thorough and self._may_go_on(row))
        )
        while looked_at:
            complement_id = looked_at.popleft()
            self._stop_runs(complement_id, now)
            with self._db.transaction("advance") as tx:
                before = self._db.complements.get(complement_id)
                if before is None:
                    continue
                begun += self._advance(tx, before, decide, now, thorough=thorough)
                after = self._db.complements.the(complement_id)
                if after.state != before.state and after.state in _FOLLOWED:
                    looked_at.extend(
                        row.id
                        for row in self._db.complements
                        if row.after_id == complement_id and row.id not in looked_at
                    )
        return Progressed(
            begun=begun, moving=any(row.state in _LOOKED_AT for row in self._db.complements)
        )

    def _still_follows(self, row: ComplementRecord, decide: ComplementDecider) -> bool:
        """True if the complement waits for the end of another, which it follows."""
        if row.state != ComplementState.SUBMITTED:
            return False
        above = self._db.complements.get(row.after_id)
        counts = Counter(DateState(date.state) for date in self._db.dates(row.id))
        return decide(self._snapshot(row, counts, above)).state is ComplementState.SUBMITTED

    def _may_go_on(self, row: ComplementRecord) -> bool:
        """True if some of its failed dates, or the complement that it failed with, recovered."""
        if row.state != ComplementState.FAILURE:
            return False
        dates = self._db.dates(row.id)
        if any(self._is_recovered(date) for date in dates):
            return True
        above = self._db.complements.get(row.after_id)
        states = {date.state for date in dates}
        return (
            above is not None
            and above.state == ComplementState.SUCCESS
            and DateState.PENDING in states
            and DateState.FAILURE not in states
        )

    def _is_recovered(self, date: ComplementDateRecord) -> bool:
        process = self._db.processes.get(date.process_instance_id)
        return (
            date.state == DateState.FAILURE
            and process is not None
            and (process.is_live or process.state == ProcessState.SUCCESS)
        )

    def _stop_runs(self, complement_id: int, now: datetime) -> None:
        """Request a stop of a cancelled complement's runs: their rows are locked before its own."""
        row = self._db.complements.get(complement_id)
        if row is None or row.state != ComplementState.READY_STOP:
            return
        with self._db.transaction("stop_runs") as tx:
            runs = [
                process
                for date in self._db.dates(complement_id)
                if date.state == DateState.RUNNING
                and (process := self._db.processes.get(date.process_instance_id)) is not None
                and process.is_live
            ]
            ask_to_stop(tx, runs, now, reason=f"complement {complement_id} was cancelled")

    def _advance(
        self,
        tx: Transaction,
        row: ComplementRecord,
        decide: ComplementDecider,
        now: datetime,
        *,
        thorough: bool,
    ) -> int:
        for date in self._db.dates(row.id):
            if thorough or date.state != DateState.FAILURE:
                self._settle(tx, row, date, now)
        counts = Counter(DateState(date.state) for date in self._db.dates(row.id))
        above = self._db.complements.get(row.after_id)
        step = decide(self._snapshot(row, counts, above))
        pending = [date for date in self._db.dates(row.id) if date.state == DateState.PENDING]
        for date in pending[: step.begin]:
            self._begin(tx, row, date, now)
        if step.state is not ComplementState(row.state):
            self._move(tx, row, step.state, step.reason, now)
        return len(pending[: step.begin])

    def _snapshot(
        self, row: ComplementRecord, counts: Counter[DateState], above: ComplementRecord | None
    ) -> ComplementSnapshot:
        return ComplementSnapshot(
            id=row.id,
            state=ComplementState(row.state),
            parallelism=row.parallelism,
            on_failure=OnFailure(row.on_failure),
            pending=counts[DateState.PENDING],
            live=sum(counts[state] for state in _LIVE_DATES),
            failed=counts[DateState.FAILURE],
            cancelled=counts[DateState.CANCELLED],
            after_id=row.after_id,
            after_state=None if above is None else ComplementState(above.state),
        )

    # The state of a date

    def _settle(
        self, tx: Transaction, row: ComplementRecord, date: ComplementDateRecord, now: datetime
    ) -> None:
        process = self._db.processes.get(date.process_instance_id)
        match DateState(date.state):
            case DateState.SUBMITTED:
                self._settle_submitted(tx, row, date, now)
            case DateState.RUNNING if process is None:
                self._put(tx, date, DateState.FAILURE, "its process instance is gone", now)
            case DateState.RUNNING if process is not None:
                self._settle_running(tx, row, date, process, now)
            case DateState.FAILURE if process is not None and self._is_recovered(date):
                state = DateState.RUNNING if process.is_live else DateState.SUCCESS
                self._put(tx, date, state, None, now)
            case _:
                pass

    def _settle_submitted(
        self, tx: Transaction, row: ComplementRecord, date: ComplementDateRecord, now: datetime
    ) -> None:
        if self._db.commands.get(date.command_id) is not None:
            if row.state in _HALTING:
                self._take_back(tx, date, now)
            return
        refused = [
            error.message
            for error in self._db.error_commands
            if error.command_id == date.command_id
        ]
        if refused:
            self._put(tx, date, DateState.FAILURE, refused[-1], now)
        else:
            self._make_pending(tx, date, now)

    def _take_back(self, tx: Transaction, date: ComplementDateRecord, now: datetime) -> None:
        """Delete the command of a date that no master has taken yet."""
        line = LedgerLine(
            command_id=date.command_id,
            outcome=CommandOutcome.DROPPED,
            reason=f"date {date.id} was withdrawn: its complement begins no more",
        )
        enter(tx, self._db.commands.the(date.command_id), line, host=None, now=now)
        self._make_pending(tx, date, now)

    def _settle_running(
        self,
        tx: Transaction,
        row: ComplementRecord,
        date: ComplementDateRecord,
        process: ProcessRecord,
        now: datetime,
    ) -> None:
        state = ProcessState(process.state)
        if state is ProcessState.SUCCESS:
            self._put(tx, date, DateState.SUCCESS, None, now)
        elif state in _LOST:
            how = "failed" if state is ProcessState.FAILURE else "was stopped"
            reason = process.state_reason or f"process instance {process.id} {how}"
            is_cancelled = state is ProcessState.STOP and row.state == ComplementState.READY_STOP
            ended = DateState.CANCELLED if is_cancelled else DateState.FAILURE
            self._put(tx, date, ended, reason, now)
        elif state is ProcessState.PAUSE and row.state == ComplementState.READY_STOP:
            reason = f"process instance {process.id} was paused when the complement was cancelled"
            self._put(tx, date, DateState.CANCELLED, reason, now)

    def _make_pending(self, tx: Transaction, date: ComplementDateRecord, now: datetime) -> None:
        tx.update(
            self._db.complement_dates,
            date.id,
            state=DateState.PENDING,
            command_id=0,
            process_instance_id=0,
            update_time=now,
        )

    def _put(
        self,
        tx: Transaction,
        date: ComplementDateRecord,
        state: DateState,
        reason: str | None,
        now: datetime,
    ) -> None:
        tx.update(self._db.complement_dates, date.id, state=state, reason=reason, update_time=now)

    # The intent of the complement

    def _begin(
        self, tx: Transaction, row: ComplementRecord, date: ComplementDateRecord, now: datetime
    ) -> None:
        param = CommandParam.of(
            timezone_id=row.timezone_id,
            start_node_names=(row.start_node_names,) if row.start_node_names else (),
            start_params=row.start_params,
            date_rule=DateRule(row.date_rule),
            environment_code=row.environment_code if row.environment_code > 0 else None,
        )
        command_id = tx.insert(
            self._db.commands,
            CommandRecord(
                command_type=int(CommandType.COMPLEMENT_DATA),
                process_definition_id=row.process_definition_id,
                command_param=param.text(),
                task_depend_type=row.task_depend_type,
                failure_strategy=row.failure_strategy,
                warning_type=row.warning_type,
                warning_group_id=row.warning_group_id,
                schedule_time=date.schedule_time,
                start_time=now,
                update_time=now,
                executor_id=row.executor_id,
                process_instance_priority=row.process_instance_priority,
                worker_group_id=row.worker_group_id,
                complement_date_id=date.id,
            ),
        )
        tx.update(
            self._db.complement_dates,
            date.id,
            state=DateState.SUBMITTED,
            command_id=command_id,
            process_instance_id=0,
            reason=None,
            update_time=now,
        )

    def _move(
        self,
        tx: Transaction,
        row: ComplementRecord,
        state: ComplementState,
        reason: str | None,
        now: datetime,
    ) -> None:
        tx.update(
            self._db.complements,
            row.id,
            state=int(state),
            state_reason=reason,
            end_time=now if state.is_ended else None,
            update_time=now,
        )
        if state is not ComplementState.STOP:
            return
        for date in self._db.dates(row.id):
            if date.state == DateState.PENDING:
                self._put(tx, date, DateState.CANCELLED, None, now)
