"""Lists and shows process instances, and reads one as it is now for whoever watches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from common.model.states import ProcessState, TaskDependType
from common.store.people import views
from common.store.people.run_details import ProcessInstanceDetail
from common.store.people.views import (
    ProcessInstanceView,
    TaskInstanceView,
    process_instances,
    task_instances,
)
from operations.lookup import (
    definition_named,
    instance_with_id,
    no_instance,
    state_named,
    task_with_id,
)
from operations.session import Session, operation

if TYPE_CHECKING:
    from common.dag import Dag
    from common.store.people.families import Relative
    from common.store.people.grids import TaskCells

_LONGEST_KEPT = 1_000_000
"""In characters."""
_TERMINAL = frozenset(int(state) for state in ProcessState if state.is_terminal)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """A run at one moment. `tasks` holds the valid attempt of each node."""

    instance: ProcessInstanceView
    tasks: dict[str, TaskInstanceView]

    @property
    def has_ended(self) -> bool:
        return self.instance.state in _TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.instance.state == ProcessState.SUCCESS


@operation
def list_instances(
    session: Session,
    *,
    definition: str | None = None,
    definition_id: int | None = None,
    states: Sequence[str] = (),
    limit: int,
    before: int | None = None,
) -> list[ProcessInstanceView]:
    """The newest instances first, `limit` at most; of one definition, in one of the states.

    `before` limits the list to smaller ids. A name matches all definitions that have it, except at
    the database, where it must identify one definition.
    """
    codes = [state_named(ProcessState, each) for each in states]
    with session.engine.connect() as db:
        if definition is not None and session.principal.owns_database:
            definition_id = definition_named(db, session.principal, definition).id
            definition = None
        return process_instances(
            db,
            definition_name=definition,
            definition_id=definition_id,
            states=codes or None,
            limit=limit,
            principal=session.principal,
            before=before,
        )


@operation
def instance_detail(
    session: Session, process_instance_id: int, *, with_tasks: bool = True
) -> ProcessInstanceDetail:
    """An instance with its parameters and every attempt at its tasks, unless these are left out."""
    # A list has no use for them.
    from common.model.rights import Action
    from common.store.people.rights import Thing
    from operations.business_dates import business_date_of
    from operations.rights import seen

    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.INSTANCE, process_instance_id)
        detail = views.process_instance_detail(db, process_instance_id, with_tasks=with_tasks)
    if detail is None:
        raise no_instance(process_instance_id)
    run = detail.instance
    moment = detail.business_time or run.schedule_time or run.start_time
    day = business_date_of(moment, detail.timezone_id, session.config)
    return replace(detail, business_date=day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The run to which a sub process belongs, and the sub processes that a run has begun."""

    parent: Relative | None
    children: tuple[Relative, ...]


@operation
def family_of(session: Session, instance: ProcessInstanceView) -> Family:
    """The parent of the run, if it is a sub process, and its children in their order.

    Those of other projects are there for whoever may see these.
    """
    # A list has no use for it.
    from common.store.people import families
    from common.store.people.rights import seen_instances

    with session.engine.connect() as db:
        parent = None
        if instance.parent_task_instance_id:
            parent = families.parent_of(db, instance.parent_task_instance_id)
        children = families.children_of(db, instance.id)
        if session.principal.sees_all:
            return Family(parent=parent, children=tuple(children))
        ids = {each.process_instance_id for each in (parent, *children) if each is not None}
        known = seen_instances(db, session.principal, ids)
    return Family(
        parent=None if parent is None or parent.process_instance_id not in known else parent,
        children=tuple(each for each in children if each.process_instance_id in known),
    )


def child_of(session: Session, task_instance_id: int) -> int | None:
    """The run that a SUB_PROCESS attempt has begun, if the principal sees it; None without one."""
    from common.store.people import families

    with session.engine.connect() as db:
        task_with_id(db, session.principal, task_instance_id)
        child = families.child_of_attempt(db, task_instance_id)
        if child is None:
            return None
        # It may be of another project.
        return instance_with_id(db, session.principal, child.process_instance_id).id


@operation
def cells_of(session: Session, definition_id: int, *, runs: Sequence[int]) -> list[TaskCells]:
    """The attempts that count in these runs of a definition that the principal sees."""
    # A list has no use for them.
    from common.model.rights import Action
    from common.store.people import grids
    from common.store.people.rights import Thing
    from operations.rights import seen

    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.DEFINITION, definition_id)
        return grids.cells_of(db, definition_id, runs)


@operation
def find_instance(session: Session, process_instance_id: int) -> ProcessInstanceView:
    """The instance; `NotFoundError` if there is none."""
    with session.engine.connect() as db:
        return instance_with_id(db, session.principal, process_instance_id)


@operation
def snapshot_of(session: Session, process_instance_id: int) -> RunSnapshot:
    """The run as it is now."""
    with session.engine.connect() as db:
        instance = instance_with_id(db, session.principal, process_instance_id)
        tasks = task_instances(db, process_instance_id=process_instance_id, valid_only=True)
    return RunSnapshot(instance=instance, tasks={task.name: task for task in tasks})


@operation
def dag_of(session: Session, process_instance_id: int) -> Dag | None:
    """The nodes that the run has, in order; None if its JSON can't be read."""
    # Here, since a list is shown without the readers of definitions, which take longer to import.
    from common.dag import select
    from common.errors import InvalidDefinitionError
    from common.model.command_param import CommandParam
    from common.store.people.runs import run_shape

    with session.engine.connect() as db:
        instance_with_id(db, session.principal, process_instance_id)
        shape = run_shape(db, process_instance_id)
    if shape is None:
        return None
    try:
        text = shape.process_instance_json
        dag = _kept_dag(text) if len(text) <= _LONGEST_KEPT else _dag(text)
        names = CommandParam.of_instance(shape.command_param).start_node_names
        return select(dag, names, TaskDependType(shape.task_depend_type))
    except (InvalidDefinitionError, ValueError):
        return None


def _dag(text: str) -> Dag:
    from common.model.definitions import read_process_json
    from common.task_types import known_task_types

    return read_process_json(text, task_types=known_task_types()).dag


_kept_dag = lru_cache(maxsize=8)(_dag)
"""An open page asks for its run once a second, and the runs of a definition have the same text."""
