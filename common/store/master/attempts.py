"""Attempts as the statements of a save name them, and their places in the queue.

Adds the words *name* of an attempt, by which decisions refer to it (process instance, task,
number), and *place*: the parts of its queue entry besides its own id. Used by the modules that
write the decisions of runs, and by those that release held attempts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Integer, Text, and_, exists, or_, select

from common.model.cluster import QueueEntry
from common.store.queue_entries import effective_group, is_complement, queue_entry
from common.store.tables import task_group_queue, task_instance, task_lock_holder, worker_group
from common.store.transaction import AnyRow, StoreConflictError, any_of, unnested

AttemptName: TypeAlias = tuple[int, str, int]

NAMED: Final = unnested("named", run_id=Integer, name=Text, attempt=Integer)
IS_NAMED: Final = and_(
    task_instance.c.process_instance_id == NAMED.c.run_id,
    task_instance.c.name == NAMED.c.name,
    task_instance.c.attempt == NAMED.c.attempt,
)

# Whether slots in pools or locks become free, or a wait for them ends, when the attempt is over.
USES_POOLS: Final = or_(
    exists().where(task_group_queue.c.task_id == task_instance.c.id),
    exists().where(task_lock_holder.c.task_id == task_instance.c.id),
)

_ADDRESS_LISTS: Final = select(worker_group.c.id, worker_group.c.ip_list).where(
    worker_group.c.id == any_of("ids")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The parts of an attempt's place in the queue, besides its own id."""

    process_priority: int
    process_instance_id: int
    task_priority: int
    worker_group_id: int
    yields: bool
    worker: str | None = None
    """The worker that was chosen for it, if it asks for one."""


def place_in_queue(
    run: AnyRow, *, task_priority: int, task_group_id: int, worker: str | None = None
) -> Place:
    """Return the place of an attempt of this run, given its own priority and group."""
    return Place(
        process_priority=run.process_instance_priority,
        process_instance_id=run.id,
        task_priority=task_priority,
        worker_group_id=effective_group(task_group_id, run.worker_group_id),
        yields=is_complement(run.history_cmd),
        worker=worker,
    )


def queue_entries(db: Connection, places: Iterable[Mapping[int, Place]]) -> list[list[QueueEntry]]:
    """Return the entries of attempts by their ids, for each of the mappings; one query for all."""
    several = list(places)
    groups = sorted(
        {
            place.worker_group_id
            for one in several
            for place in one.values()
            if place.worker_group_id > 0
        }
    )
    lists: dict[int, str | None] = {}
    if groups:
        lists = {row.id: row.ip_list for row in db.execute(_ADDRESS_LISTS, {"ids": groups})}
    return [
        [
            queue_entry(
                process_priority=place.process_priority,
                process_instance_id=place.process_instance_id,
                task_priority=place.task_priority,
                task_instance_id=task_id,
                worker_group_id=place.worker_group_id,
                ip_list=lists.get(place.worker_group_id),
                yields=place.yields,
                worker=place.worker,
            )
            for task_id, place in one.items()
        ]
        for one in several
    ]


def conflict(
    name: AttemptName, cause: str = "its row is not as its owner believes"
) -> StoreConflictError:
    """Return the error to raise when an attempt's row contradicts the run in memory."""
    run_id, task, attempt = name
    return StoreConflictError(
        f"process instance {run_id}: attempt {attempt} of task {task!r}: {cause}"
    )


def require_all(expected: Collection[AttemptName], changed: Sequence[AnyRow]) -> None:
    """Raise unless each of these was changed; changed rows begin with the attempt's name."""
    if len(changed) == len(expected):
        return
    found = {tuple(row)[:3] for row in changed}
    raise conflict(next(name for name in expected if name not in found))


def named(names: Collection[AttemptName], prefix: str = "named") -> dict[str, list[Any]]:
    """Return the parameters of `NAMED`, or of a table like it under another prefix."""
    return {
        f"{prefix}_run_id": [run_id for run_id, _, _ in names],
        f"{prefix}_name": [task for _, task, _ in names],
        f"{prefix}_attempt": [attempt for _, _, attempt in names],
    }
