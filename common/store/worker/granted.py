"""The shared objects that attempts may use, by the grants of their projects.

A statement that claims attempts checks their tenants and worker groups; these conditions are
columns of it. Data sources and environments are read right before an attempt starts, and only if
its project may use them. Only `common.store.worker.tasks` uses this module.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Engine, Integer, and_, case, cast, null, select

from common.model.grants import GrantedObject, GrantKind
from common.store.grants import is_granted, lends_files
from common.store.tables import (
    datasource,
    environment,
    process_definition,
    process_instance,
    task_instance,
)
from common.store.transaction import repeatable, unnested
from common.store.worker.ports import DataSource, Environment, Wanted

# The SQL form of `effective_group`.
GROUP_OF_ATTEMPT: Final = case(
    (task_instance.c.worker_group_id > 0, task_instance.c.worker_group_id),
    else_=process_instance.c.worker_group_id,
)
NOTHING_LACKED: Final = tuple(
    cast(null(), Integer).label(name) for name in ("lacked_tenant", "lacked_group")
)
"""The columns of `lacked` for attempts that need no grant."""
_WANTED: Final = unnested("wanted", project_id=Integer, number=BigInteger)
_DATASOURCES: Final = (
    select(
        _WANTED.c.project_id,
        datasource.c.id,
        datasource.c.name,
        datasource.c.type,
        datasource.c.connection_params,
    )
    .join_from(_WANTED, datasource, datasource.c.id == _WANTED.c.number)
    .where(is_granted(GrantKind.DATASOURCE, _WANTED.c.number, _WANTED.c.project_id))
)
_ENVIRONMENTS: Final = (
    select(_WANTED.c.project_id, environment.c.code, environment.c.name, environment.c.config)
    .join_from(_WANTED, environment, environment.c.code == _WANTED.c.number)
    .where(is_granted(GrantKind.ENVIRONMENT, _WANTED.c.number, _WANTED.c.project_id))
)


_LENDERS: Final = (
    select(_WANTED.c.project_id, _WANTED.c.number)
    .select_from(_WANTED)
    .where(lends_files(_WANTED.c.number, _WANTED.c.project_id))
)


def unless_granted(kind: GrantKind, number: ColumnElement[Any]) -> ColumnElement[Any]:
    """Build the column of an object's number if the run's project may not use it, else NULL."""
    granted = is_granted(kind, number, process_definition.c.project_id)
    # NULL also for a number that is 0, less or NULL, since no object is named.
    return case((and_(number > 0, ~granted), number))


def lacked(tenant: int | None, group: int | None) -> tuple[GrantedObject, ...]:
    """Return the objects that a project may not use, from columns that `unless_granted` built."""
    if tenant is None and group is None:
        return ()
    numbers = ((GrantKind.TENANT, tenant), (GrantKind.WORKER_GROUP, group))
    return tuple(GrantedObject(kind, number) for kind, number in numbers if number is not None)


def datasources(engine: Engine, wanted: Collection[Wanted]) -> dict[Wanted, DataSource]:
    """Read the requested data sources that exist and are granted to their projects."""
    given = _pairs(wanted)
    rows = repeatable(engine, lambda db: db.execute(_DATASOURCES, given).all())
    return {
        (row.project_id, row.id): DataSource(
            id=row.id,
            name=row.name,
            type=row.type,
            connection_params=row.connection_params,
        )
        for row in rows
    }


def environments(engine: Engine, wanted: Collection[Wanted]) -> dict[Wanted, Environment]:
    """Read the requested environments that exist and are granted to their projects."""
    given = _pairs(wanted)
    rows = repeatable(engine, lambda db: db.execute(_ENVIRONMENTS, given).all())
    return {
        (row.project_id, row.code): Environment(code=row.code, name=row.name, config=row.config)
        for row in rows
    }


def lenders(engine: Engine, wanted: Collection[Wanted]) -> frozenset[Wanted]:
    """Read the requested projects and users in which tasks may use the user's resources."""
    given = _pairs(wanted)
    rows = repeatable(engine, lambda db: db.execute(_LENDERS, given).all())
    return frozenset((row.project_id, row.number) for row in rows)


def _pairs(wanted: Collection[Wanted]) -> dict[str, list[int]]:
    """Return the parameters of `_WANTED`, without numbers outside the range of the columns."""
    possible = sorted({each for each in wanted if 0 < each[0] < 2**31 and 0 < each[1] < 2**63})
    return {
        "wanted_project_id": [project for project, _ in possible],
        "wanted_number": [number for _, number in possible],
    }
