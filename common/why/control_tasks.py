"""Causes for SUB_PROCESS and DEPENDENT attempts, which wait for other runs. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.model.states import ProcessState
from common.why.causes import Cause, CauseKind
from common.why.commands import command_cause
from common.why.facts import Attempt, Facts, Run
from common.why.phrases import MAX_LISTED, state_name, task_subject


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
