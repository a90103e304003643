"""The newest attempts at the tasks of several runs, for a grid of runs and tasks. Read only."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, Float, cast, extract, func, select
from sqlalchemy.dialects.postgresql import distinct_on

from common.store.tables import task_instance
from common.store.transaction import any_of


class TaskCells(NamedTuple):
    """A task in the runs in which it has begun: ids of runs, and for each a state and seconds.

    They are those of the attempt that counts in a run, the valid one or the last; None seconds
    until it has ended.
    """

    name: str
    runs: list[int]
    states: list[int]
    seconds: list[float | None]


def cells_of(
    db: Connection, process_definition_id: int, process_instance_ids: Collection[int]
) -> list[TaskCells]:
    """Read one attempt for each task that has begun in these runs of a definition."""
    run, name = task_instance.c.process_instance_id, task_instance.c.name
    span = extract("epoch", task_instance.c.end_time - task_instance.c.start_time)
    cell = (
        select(run, name, task_instance.c.state, cast(span, Float).label("seconds"))
        .where(run == any_of("runs"))
        .where(task_instance.c.process_definition_id == process_definition_id)
        .ext(distinct_on(run, name))
        .order_by(run, name, task_instance.c.flag.desc(), task_instance.c.id.desc())
        .subquery()
    )
    # A row for each task: tens of thousands of cells would be made one by one.
    statement = select(
        cell.c.name,
        func.array_agg(cell.c.process_instance_id),
        func.array_agg(cell.c.state),
        func.array_agg(cell.c.seconds),
    ).group_by(cell.c.name)
    return [TaskCells(*row) for row in db.execute(statement, {"runs": list(process_instance_ids)})]
