"""DEPENDENT tasks: their evidence was true, and their decision follows from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from common.model.states import ProcessState, TaskState
from tests.memory.store import Change, TaskRecord
from tests.simulation.history import Tables

_WAIT_CYCLE = re.compile("wait for each other|waits for itself")
_LOST = (ProcessState.STOP, ProcessState.FAILURE)
_OVER = (*_LOST, ProcessState.SUCCESS)


class EvidenceWasTrue:
    """Every row in the evidence was in that state at some moment; together they make the result."""

    def see(self, change: Change, before: Tables) -> Iterator[str]:
        old, new = change.old, change.new
        if (
            not isinstance(old, TaskRecord)
            or not isinstance(new, TaskRecord)
            or change.transaction != "decide"
            or new.state == old.state
        ):
            return
        place = f"attempt {new.id} (DEPENDENT)"
        entries: list[dict[str, Any]] = json.loads(new.evidence or "[]")
        dependence = json.loads(json.loads(new.task_json)["dependence"])
        relation = dependence["dependTaskList"][0]["relation"]
        results = [entry["result"] for entry in entries]
        if relation == "AND":
            expected = _first(results, "FAILED", "WAITING") or "SUCCESS"
        else:
            expected = _first(results, "SUCCESS", "WAITING") or "FAILED"
        decided = "SUCCESS" if new.state == TaskState.SUCCESS else "FAILED"
        if (expected, decided) == ("WAITING", "FAILED") and _WAIT_CYCLE.search(new.reason or ""):
            expected = "FAILED"
            yield from _faults_of_wait_cycle(place, new, before)
        if expected != decided:
            yield f"{place} was decided {decided}, its evidence makes {expected}"
        for entry in entries:
            fault = _fault(entry, before, new.process_instance_id)
            if fault is not None:
                yield f"{place}: {fault}: {entry}"


def _faults_of_wait_cycle(place: str, decided: TaskRecord, before: Tables) -> Iterator[str]:
    """Runs that wait for each other: all their live attempts are such waits."""
    members = [int(number) for number in re.findall(r"[0-9]+", decided.reason or "")]
    if decided.process_instance_id not in members:
        yield f"{place} ended for a wait cycle that it is not in: {decided.reason}"
    for member in members:
        process = before.processes.get(member)
        if process is None or not process.is_live:
            yield f"{place} ended for a wait cycle with process instance {member}, which has ended"
            continue
        for task in before.rows(member).values():
            if not task.is_finished and task.task_type != "DEPENDENT":
                yield f"{place} ended for a wait cycle, yet task {task.id} of {member} goes on"


def _first(results: list[str], *wanted: str) -> str | None:
    return next((result for result in wanted if result in results), None)


def _fault(entry: dict[str, Any], before: Tables, asking: int) -> str | None:
    run = entry["run"]
    if run is None:
        if entry["result"] == "WAITING":
            return None
        return None if "never run before" in entry["why"] else "decided without a run"
    state = ProcessState[run["state"]]
    if (run["id"], int(state)) not in before.process_states:
        return "the run was never in that state"
    process = before.processes[run["id"]]
    if run["id"] == asking:
        return "it asked itself"
    moment = process.moment
    start, end = datetime.fromisoformat(entry["from"]), datetime.fromisoformat(entry["to"])
    if not start <= moment < end:
        return f"the run is of {moment}"
    task, of_all = entry["task"], "-ALL-" in entry["key"]
    if task is not None:
        of_task = TaskState[task["state"]]
        if (task["id"], int(of_task)) not in before.task_states:
            return "the task was never in that state"
        good = of_task.is_success
    else:
        good = state is ProcessState.SUCCESS
    if entry["result"] == "SUCCESS" and not good:
        return "it is no success"
    # A task may have failed in a run that succeeded, or not be in it at all.
    if entry["result"] == "FAILED" and state not in (_LOST if of_all else _OVER):
        return "more may come of it"
    return None
