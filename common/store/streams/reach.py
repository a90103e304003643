"""The SQL of the rule that tasks reach the datasets of their project and datasets shared with it.

Every project may use a name that no dataset has yet. The first publication claims the dataset for
the project of its task. No project may use a dataset that has rows but no project. The conditions
are parts of the statements that read or change a dataset, so the rule costs no round trip.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Text,
    and_,
    bindparam,
    cast,
    exists,
    false,
    func,
    or_,
    select,
)

from common.model.reach import ShareKind
from common.model.states import TaskState
from common.store.sharing import is_shared
from common.store.streams.datasets import own_new
from common.store.tables import (
    dataset,
    process_definition,
    process_instance,
    segment,
    task_instance,
)
from common.store.transaction import AnyRow


def project_of_task(task_id: Any) -> ColumnElement[Any]:
    """Build the query for the project of an attempt; NULL if its definition was deleted."""
    of_task = task_instance.alias("reaching")
    run = process_instance.alias("reaching_run")
    definition = process_definition.alias("reaching_definition")
    return (
        select(definition.c.project_id)
        .join_from(of_task, run, run.c.id == of_task.c.process_instance_id)
        .join(definition, definition.c.id == run.c.process_definition_id)
        .where(of_task.c.id == task_id)
        .correlate_except(of_task, run, definition)
        .scalar_subquery()
    )


def _is_allowed(project_id: ColumnElement[Any], name: Any) -> ColumnElement[Any]:
    """Build the query whether a project owns or shares a dataset; NULL if no project owns it."""
    owned = dataset.alias("owned")
    return (
        select(
            func.coalesce(
                or_(
                    owned.c.project_id == project_id,
                    is_shared(owned.c.id, project_id, kind=ShareKind.DATASET),
                ),
                false(),
            )
        )
        .where(owned.c.name == name)
        .correlate_except(owned)
        .scalar_subquery()
    )


def reaches_dataset(project_id: ColumnElement[Any], name: Any) -> ColumnElement[bool]:
    """Build the condition that tasks of a project may read, lock and change a dataset."""
    published = segment.alias("published")
    has_rows = exists().where(published.c.dataset == name).correlate_except(published)
    # The second condition is evaluated only for a dataset without a project.
    return func.coalesce(_is_allowed(project_id, name), ~has_rows)


def counts_for(
    project_id: ColumnElement[Any], holder: ColumnElement[Any], name: Any
) -> ColumnElement[bool]:
    """Build the condition that locks of the project `holder` restrict tasks of another project.

    Locks on a name that no project owns restrict only tasks of the same project.
    """
    return func.coalesce(_is_allowed(holder, name), holder.is_not_distinct_from(project_id))


_NAME: Final = cast(bindparam("dataset"), Text)
TASK_REACHES: Final = reaches_dataset(
    project_of_task(cast(bindparam("task_id"), Integer)), _NAME
).label("reached")
"""The condition with the parameters `dataset` and `task_id`."""
# The lock keeps the attempt running: a failover waits for the commit, or has already ended it.
_WRITER: Final = (
    select(
        and_(task_instance.c.state == TaskState.RUNNING, task_instance.c.flag == 1).label(
            "is_running"
        ),
        TASK_REACHES,
        exists().where(dataset.c.name == _NAME).label("is_owned"),
    )
    .where(task_instance.c.id == bindparam("task_id"))
    .with_for_update(read=True)
)
_LOOK: Final = select(TASK_REACHES)


def find_writer(db: Connection, task_id: int, name: str) -> AnyRow | None:
    """Lock a publishing attempt; return `is_running`, `reached` and `is_owned`."""
    return db.execute(_WRITER, {"task_id": task_id, "dataset": name}).first()


def claims(db: Connection, task_id: int, name: str) -> bool:
    """Claim a new dataset for the project of an attempt; return True if the project reaches it."""
    if own_new(db, name, task_id):
        return True
    # Another project may have published first.
    return bool(db.scalar(_LOOK, {"task_id": task_id, "dataset": name}))
