"""Commands that take over a live run or let a waiting one begin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.model.cluster import Node
from common.model.commands import CommandType
from common.model.plans import Drop, Resume
from common.model.states import ProcessState
from tests.unit.commands.planning import MASTER, about, planned
from tests.unit.commands.recoveries import (
    ENDED,
    FAILOVER,
    LIVE,
    SERIAL_WAIT,
    WAITING_THREAD,
    an_instance,
)


@pytest.mark.parametrize(
    "state", [state for state in LIVE if state is not ProcessState.SERIAL_WAIT]
)
def test_a_failover_takes_a_run_over_whose_owner_is_gone(state: ProcessState) -> None:
    found = planned(about(FAILOVER), instance=an_instance(state))
    assert found == Resume(process_instance_id=12, epoch=4)


def test_a_failover_takes_a_run_over_that_nobody_owns() -> None:
    found = planned(about(FAILOVER), instance=an_instance(owner=None), live=frozenset({MASTER}))
    assert found == Resume(process_instance_id=12, epoch=4)


def test_a_failover_takes_over_from_a_former_start_at_a_live_address() -> None:
    reborn = replace(MASTER, incarnation=MASTER.incarnation + 1)
    found = planned(about(FAILOVER), instance=an_instance(), live=frozenset({reborn}))
    assert isinstance(found, Resume)


@pytest.mark.parametrize("others", [(), (Node(address="m2:5678", incarnation=3),)])
def test_a_second_failover_command_leaves_a_run_to_its_owner_t14(others: tuple[Node, ...]) -> None:
    found = planned(about(FAILOVER), instance=an_instance(), live=frozenset({MASTER, *others}))
    assert found == Drop(reason="the owner of process instance 12 is alive")


def test_a_failover_of_what_waits_for_its_turn_comes_to_nothing() -> None:
    instance = an_instance(ProcessState.SERIAL_WAIT, owner=None)
    found = planned(about(FAILOVER), instance=instance)
    assert found == Drop(reason="process instance 12 waits for its turn")


@pytest.mark.parametrize("command_type", [FAILOVER, CommandType.STOP, CommandType.PAUSE])
@pytest.mark.parametrize("state", ENDED)
def test_what_has_ended_is_left_alone(state: ProcessState, command_type: CommandType) -> None:
    found = planned(about(command_type), instance=an_instance(state))
    assert found == Drop(reason=f"process instance 12 has ended: {state.name}")


@pytest.mark.parametrize(
    ("command_type", "state"),
    [(WAITING_THREAD, ProcessState.WAITING_THREAD), (SERIAL_WAIT, ProcessState.SERIAL_WAIT)],
)
def test_what_waits_begins_when_its_time_has_come(
    command_type: CommandType, state: ProcessState
) -> None:
    found = planned(about(command_type), instance=an_instance(state, owner=None))
    assert found == Resume(process_instance_id=12, epoch=4, command_type=command_type)


@pytest.mark.parametrize(
    ("command_type", "waiting"),
    [(WAITING_THREAD, ProcessState.WAITING_THREAD), (SERIAL_WAIT, ProcessState.SERIAL_WAIT)],
)
def test_what_does_not_wait_is_left_alone(command_type: CommandType, waiting: ProcessState) -> None:
    for state in ProcessState:
        found = planned(about(command_type), instance=an_instance(state))
        assert isinstance(found, Drop) == (state is not waiting)


@pytest.mark.parametrize("value", ["12", '"12"'])
def test_a_waiting_instance_is_named_by_the_original_s_key(value: str) -> None:
    command = about(WAITING_THREAD, f'{{"WaittingThreadInstanceId": {value}}}')
    found = planned(command, instance=an_instance(ProcessState.WAITING_THREAD))
    assert isinstance(found, Resume)
