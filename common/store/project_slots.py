"""The projects that runs, attempts and commands are charged to, for the shares of slots.

A sub process is charged to the project of the run at the top of its tree, also if its definition is
a shared one of another project: otherwise one project could use up the share of another. If that
run or its definition was deleted, the project of the sub process itself is charged. Rows without a
definition are charged to project 0. Used by masters, workers and `common.store.people`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Engine,
    Integer,
    case,
    func,
    literal_column,
    select,
)

from common.model.grants import GrantKind
from common.store.fixed_statement import FixedStatement
from common.store.tables import grant, process_definition, process_instance, task_instance
from common.store.transaction import any_of, possible_ids, repeatable

_OWN: Final = process_definition.alias("own_definition")
_RUN: Final = process_instance.alias("charged_run")
_ROOT: Final = process_instance.alias("charged_root")
_DEFINITION: Final = process_definition.alias("charged_definition")
_NONE: Final = literal_column("0", Integer)


def project_of_run(run_id: ColumnElement[int]) -> ColumnElement[Any]:
    """Return the project that a process instance is charged to, or NULL."""
    of_root = (
        select(_DEFINITION.c.project_id)
        .join_from(
            _RUN,
            _ROOT,
            _ROOT.c.id == case((_RUN.c.root_id == 0, _RUN.c.id), else_=_RUN.c.root_id),
        )
        .join(_DEFINITION, _DEFINITION.c.id == _ROOT.c.process_definition_id)
        .where(_RUN.c.id == run_id)
        .scalar_subquery()
    )
    own = (
        select(_OWN.c.project_id)
        .join_from(_RUN, _OWN, _OWN.c.id == _RUN.c.process_definition_id)
        .where(_RUN.c.id == run_id)
        .scalar_subquery()
    )
    # PostgreSQL evaluates the second one only without the first.
    return func.coalesce(of_root, own)


_OF_RUNS: Final = FixedStatement(
    select(
        process_instance.c.id,
        func.coalesce(project_of_run(process_instance.c.id), _NONE).label("project"),
    ).where(process_instance.c.id == any_of("ids"))
)
_OF_ATTEMPTS: Final = FixedStatement(
    select(
        task_instance.c.id,
        func.coalesce(project_of_run(task_instance.c.process_instance_id), _NONE).label("project"),
    ).where(task_instance.c.id == any_of("ids"))
)
SEVERAL_PROJECTS: Final = select(
    func.min(process_definition.c.project_id) < func.max(process_definition.c.project_id)
)
"""Selects True if several projects have definitions."""
_SEVERAL_GRANTED: Final = (
    select(func.min(grant.c.project_id) < func.max(grant.c.project_id))
    .where(grant.c.object_type == GrantKind.WORKER_GROUP)
    .where(grant.c.object_id == any_of("ids"))
)


def projects_of_runs(engine: Engine, process_instance_ids: Collection[int]) -> dict[int, int]:
    """Return the project that each run is charged to; 0 for those without one."""
    return _projects(engine, _OF_RUNS, process_instance_ids)


def projects_of_attempts(engine: Engine, task_instance_ids: Collection[int]) -> dict[int, int]:
    """Return the project that each attempt is charged to; 0 for those without one."""
    return _projects(engine, _OF_ATTEMPTS, task_instance_ids)


def _projects(engine: Engine, statement: FixedStatement, ids: Collection[int]) -> dict[int, int]:
    found = dict.fromkeys(ids, 0)
    asked = {"ids": possible_ids(found)}
    rows = repeatable(engine, lambda db: statement.execute(db, asked).all())
    found.update((row.id, row.project) for row in rows)
    return found


def several_projects(engine: Engine, group_ids: Collection[int] | None = None) -> bool:
    """Return True if several projects have definitions; with groups, if several may use these.

    A project without definitions starts no runs, so it needs no free slots.
    """
    if group_ids is None:
        return bool(repeatable(engine, lambda db: db.scalar(SEVERAL_PROJECTS)))
    asked = {"ids": sorted(group_ids)}
    return bool(repeatable(engine, lambda db: db.scalar(_SEVERAL_GRANTED, asked)))
