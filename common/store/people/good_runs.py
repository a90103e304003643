"""A run beside the last good ones of its definition, with what they were given. Read only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ARRAY,
    JSON,
    Connection,
    Integer,
    Select,
    Text,
    any_,
    bindparam,
    cast,
    func,
    or_,
    select,
)

from common.model.command_param import ParamKey
from common.model.states import ProcessState, TaskDependType, TaskState
from common.store.tables import environment, process_instance, task_instance, tenant, worker_group

_LOOKED_THROUGH: Final = 1_000
"""The runs before this one, among which the good ones are looked for."""
_USUAL_RUNS: Final = 20
"""The good runs whose durations are the usual ones."""


class GivenRun(NamedTuple):
    """A run with what it was given; `environments` are the names of all by their codes."""

    id: int
    name: str
    definition_version: int | None
    process_instance_json: str
    command_param: str | None
    global_params: str | None
    timezone_id: str | None
    worker_group: str | None
    tenant: str | None
    environments: Mapping[str, str] | None


def with_last_good(
    db: Connection, definition_id: int, process_instance_id: int
) -> tuple[GivenRun, GivenRun] | None:
    """Read a run and the last one before it that ran the whole definition to its good end.

    None if there is none, among as many runs as a page may look through.
    """
    values = {"definition_id": definition_id, "run": process_instance_id}
    rows = [GivenRun(*row) for row in db.execute(_BOTH, values)]
    if len(rows) != 2:
        return None
    now, good = rows
    return now, good


def usual_durations(
    db: Connection, definition_id: int, process_instance_id: int, tasks: Sequence[str]
) -> dict[str, tuple[timedelta, int]]:
    """Read the 90th percentile of these tasks' durations in the last good runs before a run.

    With the number of these runs; a task that has succeeded in none of them is left out.
    """
    values = {"definition_id": definition_id, "run": process_instance_id, "tasks": list(tasks)}
    return {name: (p90, runs) for name, p90, runs in db.execute(_USUAL, values)}


_RUN: Final = process_instance.c
_FORMER: Final = (
    select(_RUN.id, _RUN.state, _RUN.task_depend_type, _RUN.command_param)
    .where(_RUN.process_definition_id == bindparam("definition_id", type_=Integer))
    .where(_RUN.id < bindparam("run", type_=Integer))
    .order_by(_RUN.id.desc())
    .limit(_LOOKED_THROUGH)
    .subquery()
)
_GOOD_ONES: Final = (
    select(_FORMER.c.id)
    .where(_FORMER.c.state == ProcessState.SUCCESS)
    .where(_FORMER.c.task_depend_type == TaskDependType.TASK_POST)
    .where(func.coalesce(_FORMER.c.command_param, "").not_like(f"%{ParamKey.START_NODE_NAMES}%"))
    .order_by(_FORMER.c.id.desc())
)
_GOOD: Final = _GOOD_ONES.limit(1).scalar_subquery()
_TASK: Final = task_instance.c
_USUAL: Final = (
    select(
        _TASK.name,
        func.percentile_disc(0.9).within_group(_TASK.end_time - _TASK.start_time),
        func.count(),
    )
    .where(_TASK.process_instance_id.in_(_GOOD_ONES.limit(_USUAL_RUNS)))
    .where(_TASK.name == any_(cast(bindparam("tasks"), ARRAY(Text))))
    .where(_TASK.flag == 1)
    .where(_TASK.state == TaskState.SUCCESS)
    .group_by(_TASK.name)
)
_ENVIRONMENTS: Final = select(
    cast(func.json_object_agg(cast(environment.c.code, Text), environment.c.name), JSON)
).scalar_subquery()
_BOTH: Final[Select[Any]] = (
    select(
        _RUN.id,
        _RUN.name,
        _RUN.definition_version,
        _RUN.process_instance_json,
        _RUN.command_param,
        _RUN.global_params,
        _RUN.timezone_id,
        worker_group.c.name,
        tenant.c.tenant_code,
        _ENVIRONMENTS,
    )
    .select_from(process_instance)
    .outerjoin(worker_group, worker_group.c.id == _RUN.worker_group_id)
    .outerjoin(tenant, tenant.c.id == _RUN.tenant_id)
    .where(or_(_RUN.id == bindparam("run", type_=Integer), _RUN.id == _GOOD))
    .order_by(_RUN.id.desc())
)
