"""The newest attempts at the tasks of several runs, for a grid of runs and tasks. Read only."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import distinct_on

from common.store.tables import task_instance
from common.store.transaction import any_of


class CellView(NamedTuple):
    """The attempt at a task that counts in its run: the valid one, or the last."""

    process_instance_id: int
    name: str
    state: int
    start_time: datetime | None
    end_time: datetime | None


def cells_of(
    db: Connection, process_definition_id: int, process_instance_ids: Collection[int]
) -> list[CellView]:
    """Read one attempt for each task that has begun in these runs of a definition."""
    run, name = task_instance.c.process_instance_id, task_instance.c.name
    statement = (
        select(
            run, name, task_instance.c.state, task_instance.c.start_time, task_instance.c.end_time
        )
        .where(run == any_of("runs"))
        .where(task_instance.c.process_definition_id == process_definition_id)
        .ext(distinct_on(run, name))
        .order_by(run, name, task_instance.c.flag.desc(), task_instance.c.id.desc())
    )
    return [CellView(*row) for row in db.execute(statement, {"runs": list(process_instance_ids)})]
