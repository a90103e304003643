"""The past of a definition for estimates: durations of its runs, slots used at once, its shape.

Read only. A run counts if it is a SUCCESS that went through its whole definition in one go: neither
a sub process, nor started at chosen nodes, nor recovered after a failure or a pause. The newest are
those with the highest ids. Used by estimates and simulations; daemons don't.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    func,
    literal,
    or_,
    select,
    true,
    union_all,
)

from common.model.command_param import ParamKey
from common.model.control_types import MASTER_TASK_TYPES
from common.model.states import ExecutionType, ProcessState, TaskDependType
from common.schedule_simulator import Peak
from common.store.executed import duration_from
from common.store.tables import (
    process_definition,
    process_instance,
    relation_process_instance,
    task_group,
    task_group_queue,
    task_instance,
)
from common.store.transaction import any_of, possible_ids, unnested

_ASKED: Final = unnested("asked", id=Integer)
_NEWEST: Final = (
    select(
        process_instance.c.id,
        (process_instance.c.end_time - duration_from(process_instance)).label("duration"),
    )
    .where(process_instance.c.process_definition_id == _ASKED.c.id)
    .where(process_instance.c.state == ProcessState.SUCCESS)
    .where(process_instance.c.is_sub_process == 0)
    .where(process_instance.c.task_depend_type == TaskDependType.TASK_POST)
    .where(process_instance.c.run_scope.is_(None))
    .where(
        func.coalesce(process_instance.c.command_param, "").not_like(
            f"%{ParamKey.START_NODE_NAMES}%"
        )
    )
    # A run of a serial definition begins anew, start and all, when its turn comes.
    .where(
        or_(
            process_instance.c.restart_time.is_(None),
            process_instance.c.restart_time == process_instance.c.start_time,
        )
    )
    .order_by(process_instance.c.id.desc())
    .limit(bindparam("most", type_=Integer))
    .lateral("newest")
)
_RUNS: Final[Select[Any]] = select(
    _ASKED.c.id.label("definition_id"), _NEWEST.c.id, _NEWEST.c.duration
).join_from(_ASKED, _NEWEST, true())

_ROOTS: Final = _RUNS.cte("roots")
# The runs with all their sub processes, whose tasks take slots too.
_TREE: Final = select(
    _ROOTS.c.definition_id, _ROOTS.c.id.label("root_id"), _ROOTS.c.id.label("id")
).cte("tree", recursive=True)
_TREES: Final = _TREE.union(
    select(_TREE.c.definition_id, _TREE.c.root_id, relation_process_instance.c.process_instance_id)
    .join_from(
        _TREE,
        relation_process_instance,
        relation_process_instance.c.parent_process_instance_id == _TREE.c.id,
    )
    .where(relation_process_instance.c.process_instance_id != 0)
)
# Every attempt that a worker has run, each with what it took: slots of pools, and one on a worker.
_TAKEN: Final = (
    select(
        _TREES.c.definition_id,
        _TREES.c.root_id,
        literal(0).label("pool_id"),
        literal(1).label("number"),
        task_instance.c.start_time,
        task_instance.c.end_time,
    )
    .join_from(_TREES, task_instance, task_instance.c.process_instance_id == _TREES.c.id)
    .where(task_instance.c.task_type.not_in(sorted(MASTER_TASK_TYPES)))
    .where(task_instance.c.start_time.is_not(None))
    .where(task_instance.c.end_time.is_not(None))
)
_TAKEN_OF_POOLS: Final = (
    select(
        _TREES.c.definition_id,
        _TREES.c.root_id,
        task_group_queue.c.group_id,
        task_group_queue.c.weight,
        task_instance.c.start_time,
        task_instance.c.end_time,
    )
    .join_from(_TREES, task_instance, task_instance.c.process_instance_id == _TREES.c.id)
    .join(task_group_queue, task_group_queue.c.task_id == task_instance.c.id)
    .where(task_group_queue.c.group_id != 0)
    .where(task_instance.c.start_time.is_not(None))
    .where(task_instance.c.end_time.is_not(None))
)
_USE: Final = union_all(_TAKEN, _TAKEN_OF_POOLS).cte("use")
_CHANGE: Final = union_all(
    select(
        _USE.c.definition_id,
        _USE.c.root_id,
        _USE.c.pool_id,
        _USE.c.start_time.label("at"),
        _USE.c.number.label("by"),
    ),
    select(_USE.c.definition_id, _USE.c.root_id, _USE.c.pool_id, _USE.c.end_time, -_USE.c.number),
).cte("change")
# What ends at an instant has given its slots back before the next takes them.
_LEVEL: Final = select(
    _CHANGE.c.definition_id,
    _CHANGE.c.root_id,
    _CHANGE.c.pool_id,
    func.sum(_CHANGE.c.by)
    .over(
        partition_by=(_CHANGE.c.root_id, _CHANGE.c.pool_id),
        order_by=(_CHANGE.c.at, _CHANGE.c.by),
        rows=(None, 0),
    )
    .label("taken"),
).cte("level")
_PEAKS: Final = (
    select(
        _ROOTS.c.definition_id,
        _ROOTS.c.id.label("root_id"),
        _LEVEL.c.pool_id,
        task_group.c.name,
        func.max(_LEVEL.c.taken).label("peak"),
    )
    .outerjoin_from(_ROOTS, _LEVEL, _LEVEL.c.root_id == _ROOTS.c.id)
    .outerjoin(task_group, and_(task_group.c.id == _LEVEL.c.pool_id, _LEVEL.c.pool_id != 0))
    .group_by(_ROOTS.c.definition_id, _ROOTS.c.id, _LEVEL.c.pool_id, task_group.c.name)
    .order_by(_ROOTS.c.id.desc(), _LEVEL.c.pool_id)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionShape:
    """The shape of a definition, by which one without a past is judged."""

    execution_type: ExecutionType
    process_definition_json: str | None


def recent_durations(
    db: Connection, definition_ids: Collection[int], limit: int = 20
) -> Mapping[int, tuple[timedelta, ...]]:
    """Return the durations of the newest runs, the newest first; () if there was no such run."""
    found: dict[int, list[timedelta]] = {each: [] for each in definition_ids}
    statement = _RUNS.order_by(_NEWEST.c.id.desc())
    wanted = {"asked_id": possible_ids(definition_ids), "most": limit}
    for row in db.execute(statement, wanted):
        # A clock that was set back between the two is no reason for a negative span.
        found[row.definition_id].append(max(timedelta(), row.duration))
    return {each: tuple(durations) for each, durations in found.items()}


def recent_peaks(
    db: Connection, definition_ids: Collection[int], limit: int = 5
) -> Mapping[int, tuple[Peak, ...]]:
    """Return the peaks of the newest runs, the newest first; () if there was no such run.

    Tasks of sub processes count, and attempts that failed and were retried.
    """
    slots: dict[tuple[int, int], int] = {}
    pools: dict[tuple[int, int], dict[str, int]] = {}
    wanted = {"asked_id": possible_ids(definition_ids), "most": limit}
    for row in db.execute(_PEAKS, wanted):
        key = (row.definition_id, row.root_id)
        slots.setdefault(key, 0)
        taken = pools.setdefault(key, {})
        if row.pool_id == 0:
            slots[key] = int(row.peak)
        elif row.name is not None:
            taken[row.name] = int(row.peak)
    found: dict[int, list[Peak]] = {each: [] for each in definition_ids}
    for (definition_id, root_id), number in slots.items():
        found[definition_id].append(Peak(slots=number, pools=pools[definition_id, root_id]))
    return {each: tuple(peaks) for each, peaks in found.items()}


def shapes(db: Connection, definition_ids: Collection[int]) -> Mapping[int, DefinitionShape]:
    """Return the shapes of definitions by id; a definition that is gone is missing."""
    statement = select(
        process_definition.c.id,
        process_definition.c.execution_type,
        process_definition.c.process_definition_json,
    ).where(process_definition.c.id == any_of("ids"))
    return {
        row.id: DefinitionShape(
            execution_type=ExecutionType(row.execution_type),
            process_definition_json=row.process_definition_json,
        )
        for row in db.execute(statement, {"ids": possible_ids(definition_ids)})
    }
