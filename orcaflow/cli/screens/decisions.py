"""The decision of a control task in lines, which `orcaflow task log` prints in place of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from common.model.states import ProcessState, TaskState
from operations.documents.instances import name_of
from orcaflow.cli.output import escaped

if TYPE_CHECKING:
    from operations.control_decisions import ControlDecision


def decision_lines(decision: ControlDecision) -> Iterator[str]:
    """Yield the state, the grounds and the result."""
    task = decision.task
    state = name_of(TaskState, task.state)
    over = "" if task.end_time else ": not decided yet"
    yield f"{task.task_type} {escaped(task.name)} (attempt {task.attempt}) is {state}{over}"
    for each in decision.looked_at:
        ended = each.state or "has no attempt"
        yield f"  {escaped(each.task)}: {ended} (asked for: {each.wanted})"
    for entry in decision.evidence:
        yield f"  {_of_entry(entry)}"
    if decision.branch is not None:
        yield f"  took: {', '.join(map(escaped, decision.branch)) or 'no branch'}"
    if decision.child is not None:
        child = decision.child
        name = escaped(child.definition_name or "a deleted definition")
        yield (
            f"  sub process: process instance {child.process_instance_id} ({name}) is"
            f" {name_of(ProcessState, child.state)}: orcaflow instance show"
            f" {child.process_instance_id}"
        )
    elif task.task_type == "SUB_PROCESS":
        yield "  sub process: none has begun"
    if task.reason:
        yield f"  {escaped(task.reason)}"
    if not task.end_time:
        yield f"  the reason that it waits: orcaflow task why {task.id}"


def _of_entry(entry: Mapping[str, Any]) -> str:
    key, run = escaped(str(entry.get("key", "?"))), entry.get("run")
    interval = f" from {entry['from']} to {entry.get('to')}" if entry.get("from") else ""
    looked = "no process instance"
    if isinstance(run, dict):
        looked = f"process instance {run.get('id')} {run.get('state')}"
    why = f" ({entry['why']})" if entry.get("why") else ""
    return escaped(f"{key}{interval}: {looked}: {entry.get('result', '?')}{why}")
