"""Writes the first steps of new runs, in the transaction that makes the runs.

Nothing is read for that and nothing locked: nobody else sees a row that this very transaction has
inserted. The run that a first step is decided on is made of its plan, and equals the one that
`RunStore.load` would return. Used by `common.store.master.commands` alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError

from common.model.instances import ProcessRow
from common.model.states import ProcessState
from common.store.master.beginnings import BatchRefusedError, Created, NewRun
from common.store.master.ports import NOTHING_SAVED, FirstStep, LoadedRun, Saved, Step
from common.store.master.save import ownership_of, write
from common.store.queue_entries import is_complement
from common.store.transaction import StoreConflictError


def write_first_steps(
    db: Connection, created: Iterable[Created], first_step: FirstStep, *, now: datetime
) -> tuple[list[Step], Saved]:
    """Write the first step of each that begins now, if it has one.

    Raises `BatchRefusedError` if one is refused, since then nothing of the transaction stands.
    """
    runs = [each.run for each in created if each.run is not None]
    steps = [step for run in runs if (step := first_step(_loaded(run, now))) is not None]
    if not steps:
        return [], NOTHING_SAVED
    try:
        return steps, write(db, steps, {run.row.id: run.row for run in runs})
    except (StoreConflictError, IntegrityError, DataError, ValueError) as error:
        raise BatchRefusedError from error


def _loaded(run: NewRun, now: datetime) -> LoadedRun:
    plan, row = run.plan, run.row
    return LoadedRun(
        ownership=ownership_of(row),
        process=ProcessRow(
            id=row.id,
            name=plan.name,
            state=ProcessState.RUNNING,
            wanted_state=None,
            failure_strategy=plan.failure_strategy,
            priority=plan.priority,
            worker_group_id=plan.worker_group_id,
            task_depend_type=int(plan.task_depend_type),
            command_param=run.command_param,
            process_definition_id=plan.process_definition_id,
            process_instance_json=plan.process_instance_json,
            executor_id=plan.executor_id,
            start_time=now.astimezone(UTC),
            global_params=plan.global_params,
            schedule_time=row.schedule_time,
            complement=is_complement(row.history_cmd),
            parent_task_instance_id=row.parent_task_instance_id,
            timezone_id=plan.timezone_id,
        ),
        tasks=(),
    )
