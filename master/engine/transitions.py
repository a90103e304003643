"""The total tables: each event in each state. Pure data, printed into ARCHITECTURE.md.

An event about the process is looked up by the state of the process. An event about a task is looked
up there first, and then, if its attempt is the current one, by the phase of the task. A cell is a
rule, or an `Answer`:

*late*: it was true once, and something has been decided since. *repeated*: it has been taken into
account already. Both are normal and ignored. *impossible*: no history leads to it; the run's last
events and decisions are logged, and it is dropped from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, TypeAlias

from common.model.decisions import Decision
from common.model.states import LIVE_PROCESS_STATES, ProcessState
from master.engine import rules
from master.engine.events import (
    PROCESS_EVENTS,
    TASK_EVENTS,
    DeadlinePassed,
    Event,
    PauseRequested,
    ProcessTimedOut,
    RunOpened,
    StopRequested,
    TaskEvent,
    TaskFailed,
    TaskKilled,
    TaskPaused,
    TaskSucceeded,
    TimerFired,
    WorkerLost,
)
from master.engine.run import ProcessRun
from master.engine.task_run import TaskPhase


class Answer(Enum):
    """The content of a cell in which no rule applies."""

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


def _all(cell: Cell) -> dict[type[Event], Cell]:
    return dict.fromkeys((*PROCESS_EVENTS, *TASK_EVENTS), cell)


def _by_task(cells: Mapping[type[Event], Cell]) -> dict[type[Event], Cell]:
    return dict.fromkeys(TASK_EVENTS, BY_TASK) | dict(cells)


_NOT_DRIVEN = {ProcessState.SUBMITTED, ProcessState.WAITING_THREAD, ProcessState.SERIAL_WAIT}

PROCESS_TABLE: dict[ProcessState, dict[type[Event], Cell]] = {
    **{state: _all(LATE) for state in ProcessState if state.is_terminal},
    # An instance in these has no owner; a row set so by hand is not guessed at.
    **{state: _all(IMPOSSIBLE) for state in LIVE_PROCESS_STATES if state in _NOT_DRIVEN},
    ProcessState.RUNNING: _by_task(
        {
            RunOpened: rules.open_run,
            PauseRequested: rules.pause,
            StopRequested: rules.stop,
            ProcessTimedOut: rules.break_off,
            DeadlinePassed: LATE,
        }
    ),
    ProcessState.READY_PAUSE: _by_task(
        {
            RunOpened: rules.open_run,
            PauseRequested: REPEATED,
            StopRequested: rules.stop,
            ProcessTimedOut: rules.break_off,
            DeadlinePassed: LATE,
        }
    ),
    # A stop outranks a pause, and a time-out does not outrun it.
    ProcessState.READY_STOP: _by_task(
        {
            RunOpened: rules.open_run,
            PauseRequested: LATE,
            StopRequested: REPEATED,
            ProcessTimedOut: LATE,
            DeadlinePassed: rules.abandon,
        }
    ),
}


def _task_row(default: Cell, cells: dict[type[TaskEvent], Cell]) -> dict[type[TaskEvent], Cell]:
    return dict.fromkeys(TASK_EVENTS, default) | cells


_ENDED_BADLY: dict[type[TaskEvent], Cell] = {
    TaskFailed: REPEATED,
    TaskKilled: REPEATED,
    WorkerLost: REPEATED,
    TimerFired: LATE,
}

TASK_TABLE: dict[TaskPhase, dict[type[TaskEvent], Cell]] = {
    # Reports may still come of an attempt that a recovery put aside.
    **{
        phase: dict.fromkeys(TASK_EVENTS, LATE)
        for phase in (TaskPhase.IDLE, TaskPhase.PASSED, TaskPhase.SKIPPED)
    },
    TaskPhase.LIVE: {
        TaskSucceeded: rules.succeed,
        TaskFailed: rules.fail,
        TaskKilled: rules.killed,
        TaskPaused: rules.paused,
        WorkerLost: rules.lose,
        TimerFired: LATE,
    },
    TaskPhase.RETRYING: _task_row(IMPOSSIBLE, _ENDED_BADLY | {TimerFired: rules.wake}),
    # It may have failed first: a person can declare a failed attempt to be good.
    TaskPhase.SUCCEEDED: _task_row(LATE, {TaskSucceeded: REPEATED}),
    TaskPhase.BRANCHED: _task_row(IMPOSSIBLE, {}),
    TaskPhase.TOLERATED: _task_row(IMPOSSIBLE, _ENDED_BADLY),
    TaskPhase.FAILED: _task_row(IMPOSSIBLE, _ENDED_BADLY),
    TaskPhase.KILLED: _task_row(
        IMPOSSIBLE, {TaskKilled: REPEATED, WorkerLost: REPEATED, TimerFired: LATE}
    ),
    TaskPhase.PAUSED: _task_row(IMPOSSIBLE, {TaskPaused: REPEATED, TimerFired: LATE}),
}


def table_text() -> str:
    """Render both tables as Markdown for ARCHITECTURE.md; a test keeps the two equal."""
    return "\n\n".join(
        (
            _markdown("process", PROCESS_TABLE, (*PROCESS_EVENTS, *TASK_EVENTS)),
            _markdown("task", TASK_TABLE, TASK_EVENTS),
        )
    )


def _markdown(
    corner: str,
    table: Mapping[Any, Mapping[Any, Cell]],
    events: tuple[type[Event], ...],
) -> str:
    lines = [
        "| " + " | ".join((corner, *(event.__name__ for event in events))) + " |",
        "|" + "---|" * (len(events) + 1),
    ]
    # States that answer every event alike share a line.
    names: dict[tuple[str, ...], list[str]] = {}
    for state, row in table.items():
        names.setdefault(tuple(_word(row[event]) for event in events), []).append(state.name)
    lines += [
        "| " + " | ".join((", ".join(alike), *cells)) + " |" for cells, alike in names.items()
    ]
    return "\n".join(lines)


def _word(cell: Cell) -> str:
    return cell.value if isinstance(cell, Answer) else f"**{cell.__name__}**"
