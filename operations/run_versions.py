"""A run's copy of its definition beside the latest version, and the results that stay valid.

Users read this before they restart a run with the latest version. The master applies the same rule
(`common.kept_results`) when it takes the command.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from common.dag import select
from common.definition_diff import Difference, difference
from common.errors import InvalidDefinitionError, NotAllowedError
from common.kept_results import kept_results
from common.model.command_param import CommandParam
from common.model.definitions import ProcessGraph, read_process_json
from common.model.states import TaskDependType, TaskState
from common.params import ParameterError
from common.store.people.definitions import definition_by_id
from common.store.people.runs import run_shape
from common.store.people.views import TaskInstanceView, task_instances
from common.task_types import known_task_types
from operations.lookup import instance_with_id
from operations.run_changes import own_document
from operations.session import Session, operation

_MOST_ATTEMPTS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAndLatest:
    """The difference between a run's copy of its definition and the latest version.

    `process_instance_id` is the root of the run's tree, to which commands go. A restart with the
    latest version keeps the results of the tasks in `kept` and runs the tasks in `runs`. `removed`
    names tasks that the latest version does not have.
    """

    process_instance_id: int
    definition: str
    version: int | None
    latest_version: int
    difference: Difference
    kept: tuple[str, ...]
    runs: tuple[str, ...]
    removed: tuple[str, ...]

    def with_all_tasks(self) -> RunAndLatest:
        """Return the same for a rerun of all tasks, which keeps no result."""
        return replace(self, kept=(), runs=(*self.kept, *self.runs))


@operation
def compare_with_latest(session: Session, process_instance_id: int) -> RunAndLatest:
    """Compare a run, or the root of its tree, with the latest version of its definition.

    `NotAllowedError` if that has been deleted, or can't run.
    """
    with session.engine.connect() as db:
        found = instance_with_id(db, session.principal, process_instance_id)
        if found.root_id not in (0, found.id):
            # It may be of another project.
            found = instance_with_id(db, session.principal, found.root_id)
        shape = run_shape(db, found.id)
        definition = definition_by_id(db, found.process_definition_id)
        attempts = task_instances(db, process_instance_id=found.id, limit=_MOST_ATTEMPTS)
    if definition is None or shape is None:
        raise NotAllowedError(
            f"process instance {found.id} has no latest version: its definition"
            f" {found.process_definition_id} was deleted"
        )
    latest = definition.process_definition_json or ""
    after = _graph(latest)
    if isinstance(after, str):
        raise NotAllowedError(
            f"version {definition.version} of {definition.name!r} can't run: {after}"
        )
    names = CommandParam.as_stored(shape.command_param).start_node_names
    chosen = select(after.dag, names, TaskDependType(shape.task_depend_type)).names
    kept, removed = _kept(_graph(shape.process_instance_json), after, attempts, chosen)
    return RunAndLatest(
        process_instance_id=found.id,
        definition=definition.name,
        version=found.version,
        latest_version=definition.version,
        difference=difference(own_document(shape.process_instance_json), own_document(latest)),
        kept=kept,
        runs=tuple(name for name in chosen if name not in set(kept)),
        removed=removed,
    )


def _graph(text: str) -> ProcessGraph | str:
    """Return the graph of a definition, or the reason why it has none."""
    try:
        return read_process_json(text, task_types=known_task_types())
    except InvalidDefinitionError as error:
        return str(error)


def _kept(
    before: ProcessGraph | str,
    after: ProcessGraph,
    attempts: Collection[TaskInstanceView],
    chosen: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tasks that keep their results, and the removed tasks."""
    if isinstance(before, str):
        return (), ()
    states = {each.name: _state(each) for each in attempts if each.valid}
    known = {name: state for name, state in states.items() if state is not None}
    try:
        found = kept_results(before, after, known)
    except ParameterError:
        return (), ()
    selected = frozenset(chosen)
    return tuple(name for name in found.kept if name in selected), found.removed


def _state(view: TaskInstanceView) -> TaskState | None:
    try:
        return TaskState(view.state)
    except ValueError:
        return None
