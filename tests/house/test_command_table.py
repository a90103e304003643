"""Every command type has a plan for every state, as ARCHITECTURE.md shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.model.commands import (
    BEGINNING_COMMANDS,
    INTENT_COMMANDS,
    RESTARTING_COMMANDS,
    CommandType,
)
from common.model.plans import Begin, Complement, Drop, Reject, Restart, SetIntent
from common.model.states import ProcessState
from master.commands import PLANNERS
from master.commands.table import outcome, table_text

ARCHITECTURE = Path(__file__).parents[2] / "ARCHITECTURE.md"
STATES = (*ProcessState, None)


def test_every_command_type_has_a_planner() -> None:
    assert list(PLANNERS) == list(CommandType)


@pytest.mark.parametrize("command_type", BEGINNING_COMMANDS)
def test_what_begins_an_instance_asks_for_the_state_of_no_other(command_type: CommandType) -> None:
    begins = Complement if command_type is CommandType.COMPLEMENT_DATA else Begin
    assert {type(outcome(command_type, state)) for state in STATES} == {begins}


@pytest.mark.parametrize("state", ProcessState)
def test_only_an_ended_instance_is_restarted(state: ProcessState) -> None:
    plans = [outcome(command_type, state) for command_type in RESTARTING_COMMANDS]
    assert any(isinstance(plan, Restart) for plan in plans) == state.is_terminal


@pytest.mark.parametrize("state", ProcessState)
def test_only_a_live_instance_takes_an_intent(state: ProcessState) -> None:
    for command_type in INTENT_COMMANDS:
        assert isinstance(outcome(command_type, state), SetIntent | Drop)
    wants_it = isinstance(outcome(CommandType.STOP, state), SetIntent)
    assert wants_it != (state.is_terminal or state is ProcessState.READY_STOP)


@pytest.mark.parametrize(
    "command_type",
    [command_type for command_type in CommandType if command_type not in BEGINNING_COMMANDS],
)
def test_an_instance_that_does_not_exist_is_refused(command_type: CommandType) -> None:
    assert isinstance(outcome(command_type, None), Reject)


def test_architecture_md_shows_the_table_as_the_code_has_it() -> None:
    assert table_text() in ARCHITECTURE.read_text(encoding="utf-8")
