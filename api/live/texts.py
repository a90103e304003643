"""The texts of a stream: events with their documents, as server-sent events have them.

Pure. Snapshots hold a run's attempts as pairs of numbers: the distance to the id before, and the
state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final, assert_never

from api.live.changes import Change, OverviewPicture, RunPicture
from common.model.complement_states import ComplementState
from common.model.live import LiveAttempt, LiveComplement, LiveRun
from common.model.spark import progress_from
from common.model.states import ProcessState, TaskState

PING: Final = b"event: ping\ndata: {}\n\n"


def change_event(change: Change) -> bytes:
    """Write a change as an event."""
    match change:
        case LiveRun():
            return event("instance", run_document(change))
        case LiveAttempt():
            return event("task", attempt_document(change))
        case LiveComplement():
            return event("complement", complement_document(change))
        case _:
            assert_never(change)


def event(kind: str, document: Mapping[str, Any]) -> bytes:
    """Write an event; JSON has no line ends of its own."""
    return f"event: {kind}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n".encode()


def snapshot_event(
    runs: Iterable[RunPicture], overview: OverviewPicture | None, projects: frozenset[int | None]
) -> bytes:
    """Write all that a stream is about, as it is now."""
    document: dict[str, Any] = {
        "instances": [
            run_document(each.run) | {"tasks": packed(each.attempts.values())} for each in runs
        ]
    }
    if overview is not None:
        document["overview"] = {
            "instances": [
                run_document(each) for each in overview.runs.values() if each.project_id in projects
            ],
            "complements": [
                complement_document(each)
                for each in overview.complements.values()
                if each.project_id in projects
            ],
        }
    return event("snapshot", document)


def packed(attempts: Iterable[LiveAttempt]) -> list[int]:
    """Write attempts as one flat list: of each, the distance to the id before, and the state."""
    flat: list[int] = []
    before = 0
    for each in sorted(attempts, key=lambda attempt: attempt.id):
        flat += (each.id - before, each.state)
        before = each.id
    return flat


def run_document(run: LiveRun) -> dict[str, Any]:
    """Describe a run."""
    return {
        "id": run.id,
        "name": run.name,
        "state": _state(ProcessState, run.state),
        "wanted_state": None
        if run.wanted_state is None
        else _state(ProcessState, run.wanted_state),
        "start": _moment(run.start_time),
        "end": _moment(run.end_time),
    }


def attempt_document(attempt: LiveAttempt) -> dict[str, Any]:
    """Describe an attempt."""
    return {
        "id": attempt.id,
        "instance_id": attempt.process_instance_id,
        "name": attempt.name,
        "attempt": attempt.attempt,
        "state": _state(TaskState, attempt.state),
        "start": _moment(attempt.start_time),
        "end": _moment(attempt.end_time),
        "progress": _progress(attempt.progress),
    }


def complement_document(complement: LiveComplement) -> dict[str, Any]:
    """Describe a complement."""
    return {
        "id": complement.id,
        "state": _state(ComplementState, complement.state),
        "end": _moment(complement.end_time),
    }


def _progress(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    progress = progress_from(text)
    return {**asdict(progress), "share": progress.share}


def _state(kind: type[IntEnum], code: int) -> dict[str, Any]:
    try:
        return {"code": code, "name": kind(code).name}
    except ValueError:
        return {"code": code, "name": str(code)}


def _moment(moment: datetime | None) -> str | None:
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
