"""The tables of event effects are total, and ARCHITECTURE.md shows them unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.model.states import ProcessState
from master.engine.events import PROCESS_EVENTS, TASK_EVENTS
from master.engine.task_run import TaskPhase
from master.engine.transitions import PROCESS_TABLE, TASK_TABLE, Answer, table_text

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"


@pytest.mark.parametrize("state", ProcessState)
def test_the_process_table_has_a_cell_for_every_state_and_event(state: ProcessState) -> None:
    assert set(PROCESS_TABLE[state]) == {*PROCESS_EVENTS, *TASK_EVENTS}


@pytest.mark.parametrize("phase", TaskPhase)
def test_the_task_table_has_a_cell_for_every_phase_and_event(phase: TaskPhase) -> None:
    assert set(TASK_TABLE[phase]) == set(TASK_EVENTS)


def test_only_the_process_table_passes_on_to_the_task_table() -> None:
    assert all(cell is not Answer.BY_TASK for row in TASK_TABLE.values() for cell in row.values())


@pytest.mark.parametrize("state", [state for state in ProcessState if state.is_terminal])
def test_a_terminal_state_answers_everything_with_late(state: ProcessState) -> None:
    assert set(PROCESS_TABLE[state].values()) == {Answer.LATE}


def test_architecture_md_shows_the_tables_as_the_code_has_them() -> None:
    assert table_text() in ARCHITECTURE.read_text(encoding="utf-8")
