"""Reads the rows that some claimed attempts need before they start.

These are data sources, environments, values of former runs, and the owners of named resources. Most
attempts need none of them, so most claims cost no further statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from common.model.user_resources import owners_in
from common.store.worker.ports import ClaimedTask, TaskStore
from common.task_types import task_type_spec
from worker.launching.base import environment_code
from worker.launching.datasource import datasource_ids


def awaits_inputs(task: ClaimedTask) -> bool:
    """Return True if an attempt needs rows before it starts."""
    return (
        task_type_spec(task.task_type).wants_datasources(task.task_json)
        or _wants_former_values(task)
        or environment_code(task) is not None
        or bool(_owners(task))
    )


def with_inputs(store: TaskStore, tasks: Sequence[ClaimedTask]) -> list[ClaimedTask]:
    """Return the attempts with their rows; those that are missing or not allowed are left out."""
    sources_of = {
        task.id: [
            (task.project_id, each)
            for each in datasource_ids(task, task_type_spec(task.task_type).datasources)
        ]
        for task in tasks
    }
    ids = sorted({each for several in sources_of.values() for each in several})
    found = store.datasources(ids) if ids else {}
    codes = {
        task.id: (task.project_id, code)
        for task in tasks
        if (code := environment_code(task)) is not None
    }
    named = sorted(set(codes.values()))
    environments = store.environments(named) if named else {}
    compared = [task.id for task in tasks if _wants_former_values(task)]
    former = store.former_quality(compared) if compared else {}
    owners = sorted({(task.project_id, owner) for task in tasks for owner in _owners(task)})
    lent = store.lenders(owners) if owners else frozenset()
    filled = []
    for task in tasks:
        sources = tuple(found[each] for each in sources_of[task.id] if each in found)
        filled.append(
            replace(
                task,
                datasource=sources[0] if sources else None,
                datasources=sources,
                former_quality=former.get(task.id, {}),
                environment=environments.get(codes.get(task.id, (0, 0))),
                lenders=frozenset(owner for project, owner in lent if project == task.project_id),
            )
        )
    return filled


def _owners(task: ClaimedTask) -> frozenset[int]:
    return owners_in((task.task_json, task.global_params, task.input_pool, task.start_params))


def _wants_former_values(task: ClaimedTask) -> bool:
    return task_type_spec(task.task_type).wants_former_values(task.task_json)
