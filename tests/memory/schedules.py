"""`ScheduleStore` in memory: due fires become rows of the ledger, and commands."""

from __future__ import annotations

from datetime import datetime, timedelta

from common.errors import SchedulerError
from common.model.commands import CommandType
from common.model.schedules import (
    Fire,
    FireOutcome,
    FirePlan,
    FirePlanner,
    MisfirePolicy,
    Schedule,
)
from common.model.states import ExecutionType, FailureStrategy, Priority, WarningType
from common.store.master.ports import Fired, ScheduleStore
from common.store.transaction import storable, unstorable
from tests.memory.database import MemoryDatabase, RowRefusedError, Transaction
from tests.memory.rows import CommandRecord, FireRecord, ScheduleRecord


class MemoryScheduleStore(ScheduleStore):
    """`ScheduleStore` in memory. The simulator plants mistakes by overriding `_note`, `_move_on`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def fire(self, *, planner: FirePlanner, now: datetime, limit: int) -> Fired:
        noted = commands = 0
        with self._db.transaction("fire") as tx:
            for row in self._due(now)[: max(limit, 0)]:
                try:
                    plan = planner(schedule_of(self._db, row))
                except (SchedulerError, ArithmeticError, LookupError, ValueError) as error:
                    # The effects of one row must not hold up the others.
                    plan = FirePlan(fault=f"it can't be planned: {error}")
                if cause := unstorable({"command_param": plan.command_param}):
                    plan = FirePlan(fault=cause)
                for fire in plan.fires:
                    if not self._note(tx, row, fire, now):
                        continue
                    noted += 1
                    if fire.outcome is FireOutcome.FIRED:
                        self._command(tx, row, plan, fire, now)
                        commands += 1
                self._move_on(tx, row, plan)
            next_due = self._next_due(now)
        return Fired(commands=commands, fires=noted, next_due=next_due)

    def _due(self, now: datetime) -> list[ScheduleRecord]:
        found = [
            row
            for row in self._db.schedules
            if row.fires
            and (
                row.counted_from is not None
                or (row.next_fire_time is not None and row.next_fire_time <= now)
            )
        ]
        return sorted(found, key=lambda row: (row.next_fire_time or row.counted_from, row.id))

    def _note(self, tx: Transaction, row: ScheduleRecord, fire: Fire, now: datetime) -> bool:
        """Write a fire into the ledger; true if it was not there yet."""
        try:
            tx.insert(
                self._db.fires,
                FireRecord(
                    schedule_id=row.id,
                    fire_time=fire.fire_time,
                    outcome=fire.outcome.value,
                    process_definition_id=row.process_definition_id,
                    reason=None if fire.reason is None else storable(fire.reason),
                    create_time=now,
                ),
            )
        except RowRefusedError:
            return False
        return True

    def _command(
        self, tx: Transaction, row: ScheduleRecord, plan: FirePlan, fire: Fire, now: datetime
    ) -> None:
        command_id = tx.insert(
            self._db.commands,
            CommandRecord(
                command_type=int(CommandType.SCHEDULER),
                process_definition_id=row.process_definition_id,
                command_param=plan.command_param,
                failure_strategy=row.failure_strategy,
                warning_type=row.warning_type,
                warning_group_id=row.warning_group_id,
                schedule_time=fire.fire_time,
                start_time=now,
                update_time=now,
                executor_id=row.user_id,
                process_instance_priority=row.process_instance_priority,
                worker_group_id=row.worker_group_id,
            ),
        )
        noted = self._db.fires.of(row.id, fire.fire_time)
        assert noted is not None
        tx.update(self._db.fires, noted.id, command_id=command_id)

    def _move_on(self, tx: Transaction, row: ScheduleRecord, plan: FirePlan) -> None:
        if plan.fault is not None:
            tx.update(self._db.schedules, row.id, fault=storable(plan.fault))
            return
        tx.update(self._db.schedules, row.id, counted_from=None, next_fire_time=plan.next_fire_time)

    def _next_due(self, now: datetime) -> datetime | None:
        due = [
            now if row.counted_from is not None else row.next_fire_time
            for row in self._db.schedules
            if row.fires
        ]
        return min((moment for moment in due if moment is not None), default=None)


def schedule_of(database: MemoryDatabase, row: ScheduleRecord) -> Schedule:
    """A row for the planner of its fires; raises `ValueError` if it is unreadable."""
    definition = database.definitions.get(row.process_definition_id)
    return Schedule(
        id=row.id,
        process_definition_id=row.process_definition_id,
        definition_name=None if definition is None else definition.name,
        definition_is_online=definition is not None
        and definition.release_state == 1
        and definition.flag == 1,
        crontab=row.crontab,
        timezone_id=row.timezone_id,
        missing_time=row.missing_time,
        repeated_time=row.repeated_time,
        start_time=row.start_time,
        end_time=row.end_time,
        misfire_policy=MisfirePolicy(row.misfire_policy),
        misfire_limit=row.misfire_limit,
        deadline=timedelta(seconds=row.deadline) if row.deadline else None,
        execution_type=None if row.execution_type is None else ExecutionType(row.execution_type),
        start_params=row.start_params,
        failure_strategy=FailureStrategy(row.failure_strategy),
        user_id=row.user_id,
        warning_type=WarningType(row.warning_type),
        warning_group_id=row.warning_group_id,
        priority=Priority(row.process_instance_priority),
        worker_group_id=row.worker_group_id,
        environment_code=row.environment_code,
        counted_from=row.counted_from,
        next_fire_time=row.next_fire_time,
    )


def online_schedules(database: MemoryDatabase, definition_id: int) -> tuple[Schedule, ...]:
    """The ONLINE schedules of a definition."""
    return tuple(
        schedule_of(database, row)
        for row in database.schedules
        if row.process_definition_id == definition_id and row.release_state == 1
    )


def note_beginnings(tx: Transaction, begun: dict[int, int]) -> None:
    """Write the process instance of each command into the ledger, by command id."""
    for command_id, process_instance_id in begun.items():
        fire = tx.database.fires.of_command(command_id)
        if fire is not None:
            tx.update(tx.database.fires, fire.id, process_instance_id=process_instance_id)
