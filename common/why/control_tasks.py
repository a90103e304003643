"""Causes for SUB_PROCESS and DEPENDENT attempts, which wait for other runs. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from common.model.complement_states import RunOrder
from common.model.states import ProcessState, TaskState
from common.why.causes import Cause, CauseKind
from common.why.commands import command_cause
from common.why.facts import Attempt, ComplementOfRun, Facts, Run
from common.why.phrases import MAX_LISTED, state_name, task_subject

DEPENDENT: Final = "DEPENDENT"


def sub_process_cause(
    facts: Facts, attempt: Attempt, behind_child: Callable[[Run], tuple[Cause, ...]]
) -> Cause:
    """Build the cause for a SUB_PROCESS attempt; `behind_child` explains a child that has begun."""
    if attempt.id in facts.foreign:
        return Cause(
            cause=CauseKind.SUB_PROCESS,
            subject=task_subject(attempt),
            text=f"task {attempt.name!r} waits for its sub process, which is in a project that is"
            " not yours",
            since=attempt.start_time or attempt.submit_time,
            next="ask somebody who may see that project",
        )
    child = child_of(facts, attempt)
    command = facts.child_commands.get(attempt.id)
    because: tuple[Cause, ...] = ()
    later: str | None = None
    if command is not None:
        text = f"task {attempt.name!r} waits for its sub process to begin"
        because = (command_cause(facts, command),)
    elif child is not None:
        state = state_name(ProcessState, child.state)
        text = f"task {attempt.name!r} waits for its sub process, instance {child.id} ({state})"
        because = behind_child(child)
    else:
        text = f"task {attempt.name!r} waits for its sub process, of which there is no trace yet"
        later = "its owner looks at it within a few seconds"
    return Cause(
        cause=CauseKind.SUB_PROCESS,
        subject=task_subject(attempt),
        text=text,
        since=attempt.start_time or attempt.submit_time,
        next=later,
        because=because,
    )


def child_of(facts: Facts, attempt: Attempt) -> Run | None:
    """Return the run that a SUB_PROCESS attempt has begun."""
    return facts.runs.get(facts.children.get(attempt.id, 0))


def dependent_cause(facts: Facts, attempt: Attempt) -> Cause:
    """Build the cause for a DEPENDENT attempt from the evidence in its row."""
    entries = [entry for entry in _entries(attempt.evidence) if entry.get("result") == "WAITING"]
    because = tuple(_of_evidence(facts, entry) for entry in entries[:MAX_LISTED])
    more = f" ({len(entries)} in all)" if len(entries) > MAX_LISTED else ""
    return Cause(
        cause=CauseKind.DEPENDENT,
        subject=task_subject(attempt),
        text=f"task {attempt.name!r} waits for {_awaited(entries)}{more}"
        if attempt.evidence
        else f"task {attempt.name!r} has not looked at what it depends on yet",
        since=attempt.start_time or attempt.submit_time,
        next="looked at again whenever a process instance ends or a stream publishes, and every few"
        f" seconds; orcaflow task force-success {attempt.id} ends the wait",
        because=because,
    )


def _awaited(entries: Sequence[Mapping[str, Any]]) -> str:
    about = {bool(entry.get("dataset")) for entry in entries}
    runs, datasets = "other process instances", "datasets to be complete"
    return datasets if about == {True} else runs if True not in about else f"{runs}, and {datasets}"


def _entries(evidence: str | None) -> Sequence[Mapping[str, Any]]:
    try:
        entries = json.loads(evidence or "[]")
    except (ValueError, RecursionError):
        return ()
    if isinstance(entries, dict):
        entries = entries.get("evidence", ())
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else ()


def evidence_runs(evidence: str | None) -> frozenset[int]:
    """Return the ids of the process instances that the evidence of a DEPENDENT attempt names."""
    runs = (entry.get("run") for entry in _entries(evidence))
    ids = (run.get("id") for run in runs if isinstance(run, dict))
    return frozenset(each for each in ids if type(each) is int)


def awaited_intervals(attempt: Attempt) -> Iterator[tuple[datetime, datetime]]:
    """Yield the intervals in which a DEPENDENT attempt waits for a run that does not exist yet."""
    if attempt.task_type != DEPENDENT or attempt.state != TaskState.RUNNING:
        return
    for entry in _entries(attempt.evidence):
        if entry.get("result") == "WAITING" and not entry.get("run") and not entry.get("dataset"):
            start, end = _moment(entry.get("from")), _moment(entry.get("to"))
            if start is not None and end is not None:
                yield start, end


def _moment(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found


def _complement_of(facts: Facts, entry: Mapping[str, Any]) -> ComplementOfRun | None:
    """Return the complement of the waiting run if the awaited date is pending in it."""
    key, start, end = (
        str(entry.get("key", "")),
        _moment(entry.get("from")),
        _moment(entry.get("to")),
    )
    if start is None or end is None:
        return None
    return next(
        (
            each
            for each in facts.complements
            if key.startswith((f"{each.definition_id}-", f"{each.definition_name}-"))
            and any(start <= moment < end for moment in each.pending)
        ),
        None,
    )


def _of_evidence(facts: Facts, entry: Mapping[str, Any]) -> Cause:
    run = entry.get("run")
    if isinstance(run, dict) and not _may_name(facts, run.get("id")):
        return Cause(
            cause=CauseKind.DEPENDENT,
            subject="dependent item",
            text="an item waits for a process instance of a project that is not yours",
        )
    key = str(entry.get("key", "?"))
    interval = f" from {entry['from']} to {entry.get('to')}" if entry.get("from") else ""
    day = f", business date {entry['businessDate']}," if entry.get("businessDate") else ""
    if entry.get("dataset"):
        return Cause(
            cause=CauseKind.DEPENDENT,
            subject=f"dependent item {key}",
            text=f"item {key}{interval} is not complete: {entry.get('why', '')}",
            next=f"orcaflow stream status {entry['dataset']} tells more",
        )
    if isinstance(run, dict):
        looked = f"looked at process instance {run.get('id')} in state {run.get('state')}"
        later = f"orcaflow instance why {run.get('id')} tells more"
    elif (found := _complement_of(facts, entry)) is not None:
        looked = (
            f"its complement {found.id} has not started that date, because it runs"
            f" {found.parallelism} date{'' if found.parallelism == 1 else 's'} at the same time in"
            f" {found.order} order"
        )
        other = "descending" if found.order == RunOrder.ASCENDING else "ascending"
        later = (
            "if all its live runs wait like this, none of them ends: orcaflow complement cancel"
            f" {found.id}, then create it again with --order {other}"
        )
    else:
        looked, later = "found no process instance to look at", None
    return Cause(
        cause=CauseKind.DEPENDENT,
        subject=f"dependent item {key}",
        text=f"item {key}{day}{interval}: {looked} ({entry.get('why', '')})",
        next=later,
    )


def _may_name(facts: Facts, run_id: object) -> bool:
    return facts.seen is None or (type(run_id) is int and run_id in facts.seen)
