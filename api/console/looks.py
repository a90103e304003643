"""The look of every state: a word, a glyph and a colour. Colour means state and nothing else.

Pure. A glyph is never told by its colour alone: each word and each colour has a shape of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Final

from common.model.complement_states import DateState
from common.model.schedules import FireOutcome
from common.model.states import ProcessState, TaskState


@dataclass(frozen=True, slots=True)
class Look:
    """`glyph` is a symbol of the pages' sprite, `colour` a token of `console.css`."""

    word: str
    glyph: str
    colour: str


NOT_BEGUN: Final = Look("not begun", "waiting", "waiting")
_UNKNOWN: Final = Look("unknown", "waiting", "waiting")
RUNS: Final[Mapping[ProcessState, Look]] = {
    ProcessState.SUBMITTED: Look("queued", "queued", "waiting"),
    ProcessState.RUNNING: Look("running", "running", "running"),
    ProcessState.READY_PAUSE: Look("pausing", "stopping", "running"),
    ProcessState.PAUSE: Look("paused", "paused", "paused"),
    ProcessState.READY_STOP: Look("stopping", "stopping", "running"),
    ProcessState.STOP: Look("stopped", "stopped", "ink-2"),
    ProcessState.FAILURE: Look("failed", "failure", "failure"),
    ProcessState.SUCCESS: Look("success", "success", "success"),
    ProcessState.WAITING_THREAD: Look("waits", "waiting", "waiting"),
    ProcessState.SERIAL_WAIT: Look("waits for its turn", "waiting", "waiting"),
}
TASKS: Final[Mapping[TaskState, Look]] = {
    TaskState.SUBMITTED: Look("queued", "queued", "waiting"),
    TaskState.RUNNING: Look("running", "running", "running"),
    TaskState.PAUSE: Look("paused", "paused", "paused"),
    TaskState.FAILURE: Look("failed", "failure", "failure"),
    TaskState.SUCCESS: Look("success", "success", "success"),
    TaskState.NEED_FAULT_TOLERANCE: Look("lost, done again", "lost", "waiting"),
    TaskState.KILL: Look("killed", "killed", "failure"),
    TaskState.WAITING_DEPEND: Look("waits", "waiting", "waiting"),
    TaskState.DELAY_EXECUTION: Look("delayed", "waiting", "waiting"),
    TaskState.FORCED_SUCCESS: Look("forced", "forced", "success"),
}
DATES: Final[Mapping[str, Look]] = {
    DateState.PENDING: Look("pending", "waiting", "waiting"),
    DateState.SUBMITTED: Look("queued", "queued", "waiting"),
    DateState.RUNNING: RUNS[ProcessState.RUNNING],
    DateState.SUCCESS: RUNS[ProcessState.SUCCESS],
    DateState.FAILURE: RUNS[ProcessState.FAILURE],
    DateState.SKIPPED: Look("left out", "skipped", "ink-2"),
    DateState.CANCELLED: Look("cancelled", "stopped", "ink-2"),
}
FIRES: Final[Mapping[str, Look]] = {
    FireOutcome.FIRED: Look("fired", "queued", "waiting"),
    FireOutcome.SKIPPED: Look("skipped", "skipped", "ink-2"),
    FireOutcome.COALESCED: Look("a later one stands for it", "skipped", "ink-2"),
    FireOutcome.MISSED: Look("missed", "late", "late"),
}
_WANTED: Final[Mapping[int, Look]] = {
    ProcessState.PAUSE: RUNS[ProcessState.READY_PAUSE],
    ProcessState.STOP: RUNS[ProcessState.READY_STOP],
    ProcessState.FAILURE: Look("timed out, stopping", "stopping", "running"),
}


@cache
def known_looks() -> str:
    """Return the looks of tasks and runs by their states, as JSON; a wanted one as `wanted-5`."""
    wanted = {f"wanted-{int(code)}": look for code, look in _WANTED.items()}
    runs = {str(int(code)): look for code, look in RUNS.items()} | wanted
    looks = {"tasks": {str(int(code)): look for code, look in TASKS.items()}, "runs": runs}
    return json.dumps(
        {kind: {code: asdict(look) for code, look in each.items()} for kind, each in looks.items()},
        separators=(",", ":"),
    )


def of_run(state: int, wanted: int | None = None) -> Look:
    """Return the look of a run; a live one of which an end is wanted is on its way there."""
    try:
        known = ProcessState(state)
    except ValueError:
        return _UNKNOWN
    if wanted is not None and not known.is_terminal:
        return _WANTED.get(wanted, RUNS[known])
    return RUNS[known]


def of_task(state: int | None) -> Look:
    """Return the look of a task by its newest attempt; None has not begun."""
    if state is None:
        return NOT_BEGUN
    try:
        return TASKS[TaskState(state)]
    except ValueError:
        return _UNKNOWN


def of_date(state: str) -> Look:
    """Return the look of a complement's date."""
    return DATES.get(state, _UNKNOWN)


def of_fire(outcome: str, run_state: int | None) -> Look:
    """Return the look of a fire; one that has become a run looks like this."""
    if run_state is not None:
        return of_run(run_state)
    return FIRES.get(outcome, _UNKNOWN)
