"""The projects in memory that runs, attempts and commands are charged to."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from common.model.grants import GrantKind
from tests.memory.rows import CommandRecord

if TYPE_CHECKING:
    from tests.memory.database import MemoryDatabase


def project_of_run(db: MemoryDatabase, process_instance_id: int) -> int:
    """Return the project of the run at the top of the tree; without that, of the run itself."""
    process = db.processes.get(process_instance_id)
    if process is None:
        return 0
    root = db.processes.get(process.root_id or process.id)
    return (0 if root is None else db.project_of(root)) or db.project_of(process)


def project_of_command(db: MemoryDatabase, row: CommandRecord) -> int:
    """Return the project that a command waits for; a child belongs to the top of its tree."""
    run = row.process_instance_id
    if row.parent_task_instance_id:
        attempt = db.tasks.get(row.parent_task_instance_id)
        run = 0 if attempt is None else attempt.process_instance_id
    project = project_of_run(db, run)
    definition = db.definitions.get(row.process_definition_id or 0)
    return project or (0 if definition is None else definition.project_id)


def projects_of_runs(db: MemoryDatabase, ids: Collection[int]) -> dict[int, int]:
    """Return the project of each run."""
    return {each: project_of_run(db, each) for each in ids}


def projects_of_attempts(db: MemoryDatabase, ids: Collection[int]) -> dict[int, int]:
    """Return the project of each attempt."""
    tasks = {each: db.tasks.get(each) for each in ids}
    return {
        each: 0 if task is None else project_of_run(db, task.process_instance_id)
        for each, task in tasks.items()
    }


def several_projects(db: MemoryDatabase, group_ids: Collection[int] | None = None) -> bool:
    """Return True if several projects have definitions; with groups, if several may use these."""
    projects = {each.project_id for each in db.definitions}
    if group_ids is not None:
        projects = {
            project
            for project in projects
            if any(db.is_granted(GrantKind.WORKER_GROUP, group, project) for group in group_ids)
        }
    return len(projects) > 1
