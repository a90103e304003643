"""Tells what a control task has decided: those have no log, since no worker runs them.

A *decision* is what stands in the rows: the branch that a CONDITIONS or a SWITCH took and how the
tasks above it ended, the evidence of a DEPENDENT, the run that a SUB_PROCESS has begun.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import NotFoundError
from common.model.control import Conditions, read_control
from common.model.control_types import CONTROL_TYPES
from common.model.rights import Action, Principal
from common.model.states import TaskState
from common.store.connect import Connection
from common.store.people.families import Relative, child_of_attempt, control_document
from common.store.people.rights import Thing
from common.store.people.views import TaskInstanceView, task_instances
from operations.documents.instances import name_of, names_in
from operations.lookup import task_with_id
from operations.rights import seen
from operations.session import Session, operation


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """A task above a CONDITIONS: how it had to end, and how it did (None: not at all)."""

    task: str
    wanted: str
    state: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlDecision:
    """A decision with its grounds; what does not belong to the task's type is empty.

    `evidence`: an entry for each interval of each item of a DEPENDENT, as the row keeps it.
    """

    task: TaskInstanceView
    branch: tuple[str, ...] | None = None
    looked_at: tuple[LookedAt, ...] = ()
    evidence: tuple[Mapping[str, Any], ...] = ()
    child: Relative | None = None


def is_control_task(task: TaskInstanceView) -> bool:
    """True for a task that a master decides itself."""
    return task.task_type in CONTROL_TYPES


@operation
def decision_of(session: Session, task_instance_id: int) -> ControlDecision:
    """Read the decision of a control task as it stands, without runs that are foreign."""
    with session.engine.connect() as db:
        task = task_with_id(db, session.principal, task_instance_id)
        document = control_document(db, task_instance_id)
        child = child_of_attempt(db, task_instance_id)
        others = task_instances(db, process_instance_id=task.process_instance_id, valid_only=True)
        evidence = () if document is None else _entries(document.evidence)
        evidence = tuple(_shown(db, session.principal, each) for each in evidence)
        if child is not None and not _is_seen(db, session.principal, child.process_instance_id):
            child = None
    branch = names_in(task.branch)
    return ControlDecision(
        task=task,
        branch=None if branch is None else tuple(branch),
        looked_at=()
        if document is None
        else _looked_at(task, document.task_json, {each.name: each for each in others}),
        evidence=evidence,
        child=child,
    )


def _shown(db: Connection, principal: Principal, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    run = entry.get("run")
    number = run.get("id") if isinstance(run, dict) else None
    if not isinstance(number, int) or _is_seen(db, principal, number):
        return entry
    # The words name the run, and the task's attempt in it.
    return {**entry, "run": None, "task": None, "why": "a run of a project that is not yours"}


def _is_seen(db: Connection, principal: Principal, process_instance_id: int) -> bool:
    try:
        seen(db, principal, Action.VIEW, Thing.INSTANCE, process_instance_id)
    except NotFoundError:
        return False
    return True


def _looked_at(
    task: TaskInstanceView, task_json: str, others: Mapping[str, TaskInstanceView]
) -> tuple[LookedAt, ...]:
    try:
        node = json.loads(task_json)
    except (ValueError, RecursionError):
        return ()
    control = read_control(task.task_type, node, task.name, []) if isinstance(node, dict) else None
    if not isinstance(control, Conditions):
        return ()
    return tuple(
        LookedAt(
            task=each.task,
            wanted=each.wanted.value,
            state=name_of(TaskState, others[each.task].state) if each.task in others else None,
        )
        for group in control.groups
        for each in group.conditions
    )


def _entries(evidence: str | None) -> tuple[Mapping[str, Any], ...]:
    try:
        entries = json.loads(evidence or "[]")
    except (ValueError, RecursionError):
        return ()
    return (
        tuple(each for each in entries if isinstance(each, dict))
        if isinstance(entries, list)
        else ()
    )
