"""The total tables: what each event means in each state. Pure data, printed into ARCHITECTURE.md.

An event about the process is looked up by the state of the process. An event about a task is looked
up there first, and then, if its attempt is the current one, by the phase of the task. A cell is a
rule, or one of the words of `Answer`:

*late*: it was true once, and something has been decided since. *repeated*: it has been taken into
account already. Both are normal, and are answered with nothing. *impossible*: no history leads to
it; the run tells its story and is dropped from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

from common.model.decisions import Decision
from common.model.states import LIVE_PROCESS_STATES, ProcessState
from master.engine import rules
from master.engine.events import (
    PROCESS_EVENTS,
    TASK_EVENTS,
    Event,
    RunOpened,
    StopRequested,
    TaskFailed,
    TaskKilled,
    TaskSucceeded,
    TimerFired,
    WorkerLost,
)
from master.engine.run import ProcessRun, TaskPhase


class Answer(Enum):
    """What a table says when no rule applies."""

    LATE = "late"
    REPEATED = "repeated"
    IMPOSSIBLE = "impossible"
    BY_TASK = "by task"


Rule: TypeAlias = Callable[[ProcessRun, Any, datetime], list[Decision]]
Cell: TypeAlias = Rule | Answer

LATE, REPEATED, IMPOSSIBLE, BY_TASK = (
    Answer.LATE,
    Answer.REPEATED,
    Answer.IMPOSSIBLE,
    Answer.BY_TASK,
)


def _process_row(opened: Cell, stop: Cell, task: Cell) -> dict[type[Event], Cell]:
    row: dict[type[Event], Cell] = {RunOpened: opened, StopRequested: stop}
    return row | dict.fromkeys(TASK_EVENTS, task)


_PAUSING = {ProcessState.READY_PAUSE, ProcessState.SUBMITTED, ProcessState.WAITING_THREAD}

PROCESS_TABLE: dict[ProcessState, dict[type[Event], Cell]] = {
    **{state: _process_row(LATE, LATE, LATE) for state in ProcessState if state.is_terminal},
    # No command leads into these yet; a row that a person put there is not to be guessed at.
    **{
        state: _process_row(IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE)
        for state in LIVE_PROCESS_STATES
        if state in _PAUSING
    },
    ProcessState.RUNNING: _process_row(rules.open_run, rules.stop, BY_TASK),
    ProcessState.READY_STOP: _process_row(rules.open_run, REPEATED, BY_TASK),
}

TASK_TABLE: dict[TaskPhase, dict[type[Event], Cell]] = {
    TaskPhase.IDLE: dict.fromkeys(TASK_EVENTS, IMPOSSIBLE),
    TaskPhase.PASSED: dict.fromkeys(TASK_EVENTS, IMPOSSIBLE),
    TaskPhase.LIVE: {
        TaskSucceeded: rules.succeed,
        TaskFailed: rules.fail,
        TaskKilled: rules.killed,
        WorkerLost: rules.lose,
        TimerFired: LATE,
    },
    TaskPhase.RETRYING: {
        TaskSucceeded: IMPOSSIBLE,
        TaskFailed: REPEATED,
        TaskKilled: REPEATED,
        WorkerLost: REPEATED,
        TimerFired: rules.wake,
    },
    TaskPhase.SUCCEEDED: {
        TaskSucceeded: REPEATED,
        TaskFailed: IMPOSSIBLE,
        TaskKilled: IMPOSSIBLE,
        WorkerLost: IMPOSSIBLE,
        TimerFired: IMPOSSIBLE,
    },
    TaskPhase.FAILED: {
        TaskSucceeded: IMPOSSIBLE,
        TaskFailed: REPEATED,
        TaskKilled: REPEATED,
        WorkerLost: REPEATED,
        TimerFired: LATE,
    },
    TaskPhase.KILLED: {
        TaskSucceeded: IMPOSSIBLE,
        TaskFailed: IMPOSSIBLE,
        TaskKilled: REPEATED,
        WorkerLost: REPEATED,
        TimerFired: LATE,
    },
}


def table_text() -> str:
    """Both tables as Markdown, for ARCHITECTURE.md; a test keeps the two equal."""
    return "\n\n".join(
        (
            _markdown("process", PROCESS_TABLE, (*PROCESS_EVENTS, *TASK_EVENTS)),
            _markdown("task", TASK_TABLE, TASK_EVENTS),
        )
    )


def _markdown(
    corner: str,
    table: dict[ProcessState, dict[type[Event], Cell]] | dict[TaskPhase, dict[type[Event], Cell]],
    events: tuple[type[Event], ...],
) -> str:
    lines = [
        "| " + " | ".join((corner, *(event.__name__ for event in events))) + " |",
        "|" + "---|" * (len(events) + 1),
    ]
    for state, row in table.items():
        cells = (_word(row[event]) for event in events)
        lines.append("| " + " | ".join((state.name, *cells)) + " |")
    return "\n".join(lines)


def _word(cell: Cell) -> str:
    return cell.value if isinstance(cell, Answer) else f"**{cell.__name__}**"
