"""One step of a run: decide, apply, and follow up until quiet. Pure.

`advance` is what loops call; `decide` is the look-up in the tables, without any effect.
"""

from __future__ import annotations

from datetime import datetime
from typing import cast

from common.model.decisions import Decision
from master.engine.events import Event, TaskEvent
from master.engine.flow import follow_up
from master.engine.run import ProcessRun, in_short
from master.engine.transitions import (
    BY_TASK,
    IMPOSSIBLE,
    LATE,
    PROCESS_TABLE,
    TASK_TABLE,
    Answer,
    Cell,
)


def decide(run: ProcessRun, event: Event, *, now: datetime) -> list[Decision]:
    """Look the event up in the tables; late and repeated events decide nothing.

    Raises `ImpossibleError` for an event that no history leads to.
    """
    cell = _cell(run, event)
    if cell is IMPOSSIBLE:
        raise run.impossible(
            f"{in_short(event)} can't have happened; story: {'; '.join(run.story()[-20:])}"
        )
    if isinstance(cell, Answer):
        return []
    return cell(run, event, now)


def advance(run: ProcessRun, event: Event, *, now: datetime) -> list[Decision]:
    """Decide, apply, and go on until the run is quiet; return all decisions in order.

    The caller must save the whole list in one transaction, or forget the run. Each task is
    released once and each attempt ends once, so a step has at most a few decisions a task; a step
    that has more is running away and raises `ImpossibleError`.
    """
    run.note(event)
    pending = decide(run, event, now=now)
    decided: list[Decision] = []
    most = 4 * len(run.tasks) + 5
    while True:
        for decision in pending:
            run.apply(decision)
        decided += pending
        if len(decided) > most:
            raise run.impossible(f"a step of more than {most} decisions is running away")
        pending = follow_up(run, now=now)
        if not pending:
            return decided


def _cell(run: ProcessRun, event: Event) -> Cell:
    cell = PROCESS_TABLE[run.state][type(event)]
    # Only the cells of events of tasks say so.
    return _cell_of_task(run, cast(TaskEvent, event)) if cell is BY_TASK else cell


def _cell_of_task(run: ProcessRun, event: TaskEvent) -> Cell:
    task = run.tasks.get(event.name)
    if task is None and event.name in run.rest:
        # It is outside the run's scope, and its row was settled before.
        return LATE
    if task is None or event.attempt > task.attempt:
        return IMPOSSIBLE
    if not is_current(event.attempt, task.attempt):
        # A stale attempt: it was given up at failover or retried since.
        return LATE
    return TASK_TABLE[task.phase][type(event)]


def is_current(reported: int, attempt: int) -> bool:
    """True if a report is of the current attempt."""
    return reported == attempt
