"""The table of findings of rules on data: writes those of an attempt, and reads former ones.

The *moment* of a result is the time that its run stands for, its schedule time if it has one. So a
run of a complement compares with the runs before it, and not with those of later days.
Used by `common.store.worker.tasks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, Double, Integer, Text, func, insert, select
from sqlalchemy.dialects.postgresql import distinct_on

from common.model.quality import COMPARED, MAX_FORMER, QualityResult, QualityState
from common.store.business_times import MOMENT
from common.store.tables import process_instance, quality_result, task_instance
from common.store.transaction import any_of, storable, unnested

_KEPT: Final = unnested(
    "kept",
    position=Integer,
    task_id=Integer,
    rule=Text,
    type=Text,
    target=Text,
    level=Text,
    state=Text,
    value=Double,
    expected=Text,
    rows=BigInteger,
    failed=BigInteger,
    detail=Text,
)
_COLUMNS: Final = (
    "rule", "type", "target", "level", "state", "value", "expected", "rows", "failed", "detail",
)  # fmt: skip
_KEEP: Final = insert(quality_result).from_select(
    [
        "task_instance_id",
        "process_instance_id",
        "process_definition_id",
        "task_name",
        "moment",
        *_COLUMNS,
    ],
    select(
        task_instance.c.id,
        task_instance.c.process_instance_id,
        task_instance.c.process_definition_id,
        task_instance.c.name,
        func.coalesce(MOMENT, func.now()),
        *(_KEPT.c[name] for name in _COLUMNS),
    )
    .join_from(_KEPT, task_instance, task_instance.c.id == _KEPT.c.task_id)
    .join(process_instance, process_instance.c.id == task_instance.c.process_instance_id)
    .order_by(_KEPT.c.position),
)

_former: Final = (
    select(
        task_instance.c.id.label("task_id"),
        quality_result.c.rule,
        quality_result.c.moment,
        quality_result.c.value,
    )
    # Of a run that was made again the last word counts.
    .ext(distinct_on(task_instance.c.id, quality_result.c.rule, quality_result.c.moment))
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .join(
        quality_result,
        (quality_result.c.process_definition_id == task_instance.c.process_definition_id)
        & (quality_result.c.task_name == task_instance.c.name)
        & (quality_result.c.moment < MOMENT),
    )
    .where(task_instance.c.id == any_of("ids"))
    .where(quality_result.c.type == COMPARED)
    .where(quality_result.c.value.is_not(None))
    .where(quality_result.c.state != QualityState.BROKEN.value)
    .order_by(
        task_instance.c.id,
        quality_result.c.rule,
        quality_result.c.moment.desc(),
        quality_result.c.id.desc(),
    )
    .subquery("former")
)
_NUMBERED: Final = select(
    _former,
    func.row_number()
    .over(partition_by=[_former.c.task_id, _former.c.rule], order_by=_former.c.moment.desc())
    .label("number"),
).subquery("numbered")
FORMER: Final = (
    select(_NUMBERED)
    .where(_NUMBERED.c.number <= MAX_FORMER)
    .order_by(_NUMBERED.c.task_id, _NUMBERED.c.rule, _NUMBERED.c.number)
)


def keep_quality(db: Connection, found: Mapping[int, Sequence[QualityResult]]) -> None:
    """Write the findings of attempts, by task instance id; once for each attempt."""
    rows = [(task_id, each) for task_id, results in found.items() for each in results]
    if not rows:
        return
    values: dict[str, Any] = {
        "kept_position": list(range(len(rows))),
        "kept_task_id": [task_id for task_id, _ in rows],
    }
    for name in _COLUMNS:
        column = [getattr(each, name) for _, each in rows]
        texts = [storable(str(cell)) if isinstance(cell, str) else cell for cell in column]
        values[f"kept_{name}"] = texts
    db.execute(_KEEP, values)
