"""The look of every state: a word, a glyph and a colour. Colour means state and nothing else.

Pure. A glyph is never told by its colour alone: each word and each colour has a shape of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Final

from api.console.words import Say
from api.marking import marked
from common.model.complement_states import DateState
from common.model.schedules import FireOutcome
from common.model.states import ProcessState, TaskState


@dataclass(frozen=True, slots=True)
class Look:
    """`glyph` is a symbol of the pages' sprite, `colour` a token of `console.css`."""

    word: str
    glyph: str
    colour: str


NOT_BEGUN: Final = Look(marked("not begun"), "waiting", "waiting")
_UNKNOWN: Final = Look(marked("unknown"), "waiting", "waiting")
RUNS: Final[Mapping[ProcessState, Look]] = {
    ProcessState.SUBMITTED: Look(marked("queued"), "queued", "waiting"),
    ProcessState.RUNNING: Look(marked("running"), "running", "running"),
    ProcessState.READY_PAUSE: Look(marked("pausing"), "stopping", "running"),
    ProcessState.PAUSE: Look(marked("paused"), "paused", "paused"),
    ProcessState.READY_STOP: Look(marked("stopping"), "stopping", "running"),
    ProcessState.STOP: Look(marked("stopped"), "stopped", "ink-2"),
    ProcessState.FAILURE: Look(marked("failed"), "failure", "failure"),
    ProcessState.SUCCESS: Look(marked("success"), "success", "success"),
    ProcessState.WAITING_THREAD: Look(marked("waits"), "waiting", "waiting"),
    ProcessState.SERIAL_WAIT: Look(marked("waits for its turn"), "waiting", "waiting"),
}
TASKS: Final[Mapping[TaskState, Look]] = {
    TaskState.SUBMITTED: Look(marked("queued"), "queued", "waiting"),
    TaskState.RUNNING: Look(marked("running"), "running", "running"),
    TaskState.PAUSE: Look(marked("paused"), "paused", "paused"),
    TaskState.FAILURE: Look(marked("failed"), "failure", "failure"),
    TaskState.SUCCESS: Look(marked("success"), "success", "success"),
    TaskState.NEED_FAULT_TOLERANCE: Look(marked("lost, done again"), "lost", "waiting"),
    TaskState.KILL: Look(marked("killed"), "killed", "failure"),
    TaskState.WAITING_DEPEND: Look(marked("waits"), "waiting", "waiting"),
    TaskState.DELAY_EXECUTION: Look(marked("delayed"), "waiting", "waiting"),
    TaskState.FORCED_SUCCESS: Look(marked("forced"), "forced", "success"),
}
MARKS: Final = tuple({look.glyph: look for look in TASKS.values()}.values())
"""A look for each glyph that a task may have."""
DATES: Final[Mapping[str, Look]] = {
    DateState.PENDING: Look(marked("pending"), "waiting", "waiting"),
    DateState.SUBMITTED: Look(marked("queued"), "queued", "waiting"),
    DateState.RUNNING: RUNS[ProcessState.RUNNING],
    DateState.SUCCESS: RUNS[ProcessState.SUCCESS],
    DateState.FAILURE: RUNS[ProcessState.FAILURE],
    DateState.SKIPPED: Look(marked("left out"), "skipped", "ink-2"),
    DateState.CANCELLED: Look(marked("cancelled"), "stopped", "ink-2"),
}
FIRES: Final[Mapping[str, Look]] = {
    FireOutcome.FIRED: Look(marked("fired"), "queued", "waiting"),
    FireOutcome.SKIPPED: Look(marked("skipped"), "skipped", "ink-2"),
    FireOutcome.COALESCED: Look(marked("a later one stands for it"), "skipped", "ink-2"),
    FireOutcome.MISSED: Look(marked("missed"), "late", "late"),
}
_WANTED: Final[Mapping[int, Look]] = {
    ProcessState.PAUSE: RUNS[ProcessState.READY_PAUSE],
    ProcessState.STOP: RUNS[ProcessState.READY_STOP],
    ProcessState.FAILURE: Look(marked("timed out, stopping"), "stopping", "running"),
}


@cache
def known_looks(say: Say = str) -> str:
    """Return the looks of tasks and runs by their states, as JSON; a wanted one as `wanted-5`."""
    wanted = {f"wanted-{int(code)}": look for code, look in _WANTED.items()}
    runs = {str(int(code)): look for code, look in RUNS.items()} | wanted
    looks = {"tasks": {str(int(code)): look for code, look in TASKS.items()}, "runs": runs}
    return json.dumps(
        {
            kind: {code: asdict(replace(look, word=say(look.word))) for code, look in each.items()}
            for kind, each in looks.items()
        },
        ensure_ascii=False,
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
