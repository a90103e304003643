"""Reads trees of sub processes: the runs that a run's tasks have begun, and the one above it.

Each reads within a transaction of its caller. Also what a control task has looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, select

from common.store.tables import (
    process_definition,
    process_instance,
    relation_process_instance,
    task_instance,
)

if TYPE_CHECKING:
    # It brings the metrics of daemons along, which a command has none of.
    from common.store.transaction import AnyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A run that a SUB_PROCESS attempt connects with another: its child, or its parent."""

    process_instance_id: int
    definition_name: str | None
    state: int
    task_instance_id: int
    task_name: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlDocument:
    """The node of a control task, and the evidence that its decision rests on."""

    task_json: str
    evidence: str | None


_RELATIVE: Final = (
    process_instance.c.id,
    process_definition.c.name.label("definition_name"),
    process_instance.c.state,
    task_instance.c.id.label("task_id"),
    task_instance.c.name.label("task_name"),
    task_instance.c.attempt,
)
"""The columns of a `Relative`."""
_CHILDREN: Final = (
    select(*_RELATIVE)
    .join_from(
        relation_process_instance,
        process_instance,
        process_instance.c.id == relation_process_instance.c.process_instance_id,
    )
    .join(task_instance, task_instance.c.id == relation_process_instance.c.parent_task_instance_id)
    .outerjoin(
        process_definition, process_definition.c.id == process_instance.c.process_definition_id
    )
    .order_by(relation_process_instance.c.id)
)
_PARENT: Final = (
    select(*_RELATIVE)
    .join_from(
        task_instance,
        process_instance,
        process_instance.c.id == task_instance.c.process_instance_id,
    )
    .outerjoin(
        process_definition, process_definition.c.id == process_instance.c.process_definition_id
    )
)


def children_of(db: Connection, process_instance_id: int) -> list[Relative]:
    """List the runs that attempts of this one have begun, in their order."""
    rows = db.execute(
        _CHILDREN.where(
            relation_process_instance.c.parent_process_instance_id == process_instance_id
        )
    )
    return [_relative(row) for row in rows]


def child_of_attempt(db: Connection, task_instance_id: int) -> Relative | None:
    """Read the run that a SUB_PROCESS attempt has begun; None if there is none yet."""
    row = db.execute(
        _CHILDREN.where(relation_process_instance.c.parent_task_instance_id == task_instance_id)
    ).first()
    return None if row is None else _relative(row)


def parent_of(db: Connection, parent_task_instance_id: int) -> Relative | None:
    """Read the run to which the attempt that began a sub process belongs."""
    row = db.execute(_PARENT.where(task_instance.c.id == parent_task_instance_id)).first()
    return None if row is None else _relative(row)


def control_document(db: Connection, task_instance_id: int) -> ControlDocument | None:
    """Read the node and the evidence of a control task; None if there is no such attempt."""
    row = db.execute(
        select(task_instance.c.task_json, task_instance.c.evidence).where(
            task_instance.c.id == task_instance_id
        )
    ).first()
    return None if row is None else ControlDocument(task_json=row.task_json, evidence=row.evidence)


def _relative(row: AnyRow) -> Relative:
    return Relative(
        process_instance_id=row.id,
        definition_name=row.definition_name,
        state=row.state,
        task_instance_id=row.task_id,
        task_name=row.task_name,
        attempt=row.attempt,
    )
