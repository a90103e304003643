"""Writes the first steps of new runs, in the transaction that makes the runs.

Nothing is read for that and nothing locked: nobody else sees a row that this very transaction has
inserted. The run that a first step is decided on is made of its plan, and equals the one that
`RunStore.load` would return. Used by `common.store.master.commands` and, for runs that begin in the
plainest way, by `common.store.master.plain_take`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, IntegrityError

from common.model.instances import Ownership, ProcessRow
from common.model.plans import Begin
from common.model.states import ProcessState
from common.store.master.beginnings import BatchRefusedError, Created
from common.store.master.ports import NOTHING_SAVED, FirstStep, LoadedRun, Saved, Step
from common.store.master.save import ownership_of, write
from common.store.queue_entries import is_complement
from common.store.transaction import StoreConflictError


def write_first_steps(
    db: Connection,
    created: Iterable[Created],
    first_step: FirstStep,
    *,
    now: datetime,
    most_sub_processes: int,
) -> tuple[list[Step], Saved]:
    """Write the first step of each that begins now, if it has one.

    Raises `BatchRefusedError` if one is refused, since then nothing of the transaction stands.
    """
    runs = [each.run for each in created if each.run is not None]
    steps = [
        step
        for run in runs
        if (step := first_step(loaded(run.plan, ownership_of(run.row), run.command_param, now)))
        is not None
    ]
    if not steps:
        return [], NOTHING_SAVED
    try:
        return steps, write(
            db,
            steps,
            {run.row.id: run.row for run in runs},
            most_sub_processes=most_sub_processes,
        )
    except (StoreConflictError, IntegrityError, DataError, ValueError) as error:
        raise BatchRefusedError from error


def loaded(plan: Begin, ownership: Ownership, command_param: str, now: datetime) -> LoadedRun:
    """Return a run that begins now as `RunStore.load` would."""
    at = plan.business_time or plan.schedule_time or now
    return LoadedRun(
        ownership=ownership,
        process=ProcessRow(
            id=ownership.process_instance_id,
            name=plan.name,
            state=ProcessState.RUNNING,
            wanted_state=None,
            failure_strategy=plan.failure_strategy,
            priority=plan.priority,
            worker_group_id=plan.worker_group_id,
            task_depend_type=int(plan.task_depend_type),
            command_param=command_param,
            process_definition_id=plan.process_definition_id,
            process_instance_json=plan.process_instance_json,
            executor_id=plan.executor_id,
            start_time=now.astimezone(UTC),
            global_params=plan.global_params,
            moment=at.astimezone(UTC),
            complement=is_complement(plan.command_type.name),
            parent_task_instance_id=0 if plan.child_of is None else plan.child_of.task_instance_id,
            timezone_id=plan.timezone_id,
            origin=plan.origin,
        ),
        tasks=(),
    )
