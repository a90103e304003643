"""Reads the load of daemons by project, for `common.why`.

Used by `common.store.people.reasons`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Select, func, select

from common.model.cluster import Node
from common.model.slot_share import NO_SHARES, SharePercents
from common.model.states import LIVE_PROCESS_STATES, TaskState
from common.store.people.offers import offers
from common.store.project_slots import SEVERAL_PROJECTS, project_of_run
from common.store.tables import process_instance, project, task_assignment, task_instance
from common.store.worker_modes import worker_modes
from common.why import Alive


def alive(db: Connection, members: tuple[frozenset[Node], frozenset[Node]] | None) -> Alive | None:
    """Return the living daemons with their load; None if they could not be read."""
    if members is None:
        return None
    running_of = _by_project(
        db,
        select(
            task_instance.c.host,
            project_of_run(task_instance.c.process_instance_id).label("project"),
        )
        .where(task_instance.c.state == TaskState.RUNNING)
        .where(task_instance.c.flag == 1)
        .where(task_instance.c.host.is_not(None)),
    )
    owned_of = _by_project(
        db,
        select(process_instance.c.host, project_of_run(process_instance.c.id).label("project"))
        .where(process_instance.c.state.in_(LIVE_PROCESS_STATES))
        .where(process_instance.c.host.is_not(None))
        # Sub processes need no room: their parents have it.
        .where(process_instance.c.parent_task_instance_id == 0),
    )
    return Alive(
        masters=members[0],
        workers=members[1],
        offers=offers(db, members[1]),
        modes=worker_modes(db),
        running={host: sum(held.values()) for host, held in running_of.items()},
        owned={host: sum(held.values()) for host, held in owned_of.items()},
        running_of=running_of,
        owned_of=owned_of,
    )


def _by_project(db: Connection, slots: Select[Any]) -> dict[str, dict[int, int]]:
    """Count rows of a host and a project by both."""
    each = slots.subquery("slots")
    counted = select(each.c.host, each.c.project, func.count().label("number"))
    found: dict[str, dict[int, int]] = {}
    for row in db.execute(counted.group_by(each.c.host, each.c.project)):
        found.setdefault(row.host, {})[row.project or 0] = row.number
    return found


def project_names(db: Connection, project_ids: Collection[int]) -> dict[int, str]:
    """Return the names of the projects that exist."""
    rows = db.execute(select(project.c.id, project.c.name).where(project.c.id.in_(project_ids)))
    return {row.id: row.name for row in rows}


def shares_in_force(db: Connection, shares: SharePercents) -> SharePercents:
    """Return the shares; none while one project alone has definitions."""
    return shares if db.scalar(SEVERAL_PROJECTS) else NO_SHARES


def surplus_slots(db: Connection) -> dict[int, dict[str, int]]:
    """Read the slots that running attempts count for beyond one each, by project and worker."""
    rows = db.execute(
        select(
            project_of_run(task_instance.c.process_instance_id).label("project_id"),
            task_instance.c.host,
            task_assignment.c.capacity,
        )
        .join_from(task_assignment, task_instance, task_instance.c.id == task_assignment.c.task_id)
        .where(task_instance.c.state == TaskState.RUNNING)
        .where(task_assignment.c.capacity > 1)
    )
    found: dict[int, dict[str, int]] = {}
    for row in rows:
        of_project = found.setdefault(row.project_id or 0, {})
        of_project[row.host] = of_project.get(row.host, 0) + row.capacity - 1
    return found
