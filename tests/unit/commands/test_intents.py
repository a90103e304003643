"""PAUSE and STOP: intents for the owner of a run."""

from __future__ import annotations

import pytest

from common.model.commands import CommandType
from common.model.plans import Drop, SetIntent
from common.model.states import ProcessState
from tests.unit.commands.planning import about, planned
from tests.unit.commands.recoveries import GONE, LIVE, SUSPENDED, a_task, an_instance, recovered


@pytest.mark.parametrize("state", [state for state in LIVE if state is not ProcessState.READY_STOP])
def test_a_stop_is_an_intent_for_whoever_owns_the_run(state: ProcessState) -> None:
    found = planned(about(CommandType.STOP), instance=an_instance(state))
    assert found == SetIntent(
        process_instance_id=12, command_type=CommandType.STOP, wanted_state=ProcessState.STOP
    )


@pytest.mark.parametrize("state", [ProcessState.RUNNING, ProcessState.READY_PAUSE])
def test_a_pause_is_an_intent_for_whoever_owns_the_run(state: ProcessState) -> None:
    found = planned(about(CommandType.PAUSE), instance=an_instance(state))
    assert found == SetIntent(
        process_instance_id=12, command_type=CommandType.PAUSE, wanted_state=ProcessState.PAUSE
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (ProcessState.READY_STOP, "process instance 12 is being stopped"),
        (ProcessState.SERIAL_WAIT, "process instance 12 has not begun"),
    ],
)
def test_what_can_t_pause_any_more_or_yet_is_left_alone(state: ProcessState, reason: str) -> None:
    found = planned(about(CommandType.PAUSE), instance=an_instance(state))
    assert found == Drop(reason=reason)


def test_a_paused_run_without_anything_paused_can_be_gone_on_with_t49b() -> None:
    killed_alone = an_instance(ProcessState.PAUSE, a_task("a", GONE), a_task("b"), shape="a b")
    assert recovered(SUSPENDED, killed_alone).reset == ("a",)
    nothing_left = an_instance(ProcessState.PAUSE, a_task("a"), a_task("b"), shape="a b")
    assert recovered(SUSPENDED, nothing_left).reset == ()


def test_a_stop_of_what_is_being_stopped_changes_nothing() -> None:
    found = planned(about(CommandType.STOP), instance=an_instance(ProcessState.READY_STOP))
    assert found == Drop(reason="process instance 12 is being stopped")
