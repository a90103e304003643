"""States and health of a supervisor: thresholds, the first run, and states that stick."""

from __future__ import annotations

import pytest

from master.supervisors.health import ErrorEvent, Health, State, Thresholds
from tests.unit.stream_world import NOON, a_world


def after(*runs: bool, health: Health | None = None, suspended: bool = False) -> Health:
    health = health or Health()
    for good in runs:
        health = health.after_run(good=good, suspended=suspended)
    return health


def test_a_new_supervisor_is_pending_until_a_run_succeeds() -> None:
    assert Health().state is State.PENDING
    assert after(False, False).state is State.PENDING
    assert after(False, True).state is State.RUNNING
    assert after(True, suspended=True).state is State.SUSPENDED


def test_three_failed_runs_in_a_row_are_unhealthy_and_three_good_ones_healthy() -> None:
    bad = after(True, False, False, False)
    assert bad.state is State.UNHEALTHY_SUPERVISOR
    assert not bad.state.is_healthy
    assert after(True, False, False, True, False, False).state is State.RUNNING
    assert after(True, True, health=bad).state is State.UNHEALTHY_SUPERVISOR
    assert after(True, True, False, True, True, health=bad).state is State.UNHEALTHY_SUPERVISOR
    assert after(True, True, True, health=bad).state is State.RUNNING


def test_thresholds_are_settings() -> None:
    limits = Thresholds(unhealthiness=1, healthiness=1)
    assert after(False, health=Health(thresholds=limits)).state is State.UNHEALTHY_SUPERVISOR
    assert after(False, True, health=Health(thresholds=limits)).state is State.RUNNING


def test_failed_tasks_are_unhealthy_until_as_many_succeed() -> None:
    health = after(True)
    for _ in range(3):
        health = health.after_task(good=False)
    health = after(True, health=health)
    assert health.state is State.UNHEALTHY_TASKS
    for _ in range(2):
        health = after(True, health=health.after_task(good=True))
        assert health.state is State.UNHEALTHY_TASKS
    assert after(True, health=health.after_task(good=True)).state is State.RUNNING


def test_failed_runs_outweigh_failed_tasks() -> None:
    health = after(True, False, False, False)
    for _ in range(3):
        health = health.after_task(good=False)
    assert after(False, health=health).state is State.UNHEALTHY_SUPERVISOR
    assert after(True, health=health).state is State.UNHEALTHY_SUPERVISOR


@pytest.mark.parametrize(
    ("worked", "state"),
    [(False, State.UNABLE_TO_CONNECT_TO_STREAM), (True, State.LOST_CONTACT_WITH_STREAM)],
)
def test_the_last_error_of_the_stream_names_the_state(worked: bool, state: State) -> None:
    world = a_world()
    if worked:
        world.run()
    world.failure = "no broker answers"
    for _ in range(3):
        world.run()
    assert world.memory.health.state is state
    assert state.basic is State.UNHEALTHY_SUPERVISOR
    assert world.memory.health.errors[-1].text == "no broker answers"


def test_a_stream_without_partitions_is_an_error_of_the_stream() -> None:
    world = a_world()
    world.latest = {}
    world.run()
    assert world.memory.health.errors[-1].of_stream
    assert world.memory.health.state is State.CONNECTING_TO_STREAM
    assert world.memory.health.state.basic is State.RUNNING


def test_tasks_keep_their_place_while_the_stream_is_away() -> None:
    world = a_world(replicas=2)
    world.run()
    world.begin()
    world.failure = "no broker answers"
    world.fail(world.live[0])
    world.run()
    # A replacement of a known group needs nothing of the stream.
    assert len(world.memory.reading[0].tasks) == 2


def test_only_as_many_errors_are_kept_as_the_greatest_threshold() -> None:
    health = Health(thresholds=Thresholds(task_healthiness=5))
    for number in range(9):
        health = health.with_error(ErrorEvent(at=NOON, text=str(number), of_stream=False))
    assert [each.text for each in health.errors] == ["4", "5", "6", "7", "8"]


def test_stopping_is_final() -> None:
    stopping = after(True).towards(State.STOPPING)
    assert after(True, True, True, health=stopping).state is State.STOPPING
    assert stopping.towards(State.RUNNING).state is State.STOPPING
    assert State.STOPPING.is_healthy


def test_idle_sticks_until_it_is_left_or_suspended() -> None:
    idle = after(True).towards(State.IDLE)
    assert after(True, True, health=idle).state is State.IDLE
    assert idle.towards(State.RUNNING).state is State.RUNNING
    assert after(True, health=idle, suspended=True).state is State.SUSPENDED


def test_states_of_the_first_run_do_not_come_back() -> None:
    assert Health().towards(State.CREATING_TASKS).state is State.CREATING_TASKS
    assert after(True).towards(State.CREATING_TASKS).state is State.RUNNING


@pytest.mark.parametrize(
    ("detailed", "basic", "is_healthy"),
    [
        (State.PENDING, State.PENDING, True),
        (State.CONNECTING_TO_STREAM, State.RUNNING, True),
        (State.DISCOVERING_INITIAL_TASKS, State.RUNNING, True),
        (State.CREATING_TASKS, State.RUNNING, True),
        (State.RUNNING, State.RUNNING, True),
        (State.IDLE, State.IDLE, True),
        (State.SUSPENDED, State.SUSPENDED, True),
        (State.STOPPING, State.STOPPING, True),
        (State.UNABLE_TO_CONNECT_TO_STREAM, State.UNHEALTHY_SUPERVISOR, False),
        (State.LOST_CONTACT_WITH_STREAM, State.UNHEALTHY_SUPERVISOR, False),
        (State.UNHEALTHY_SUPERVISOR, State.UNHEALTHY_SUPERVISOR, False),
        (State.UNHEALTHY_TASKS, State.UNHEALTHY_TASKS, False),
    ],
)
def test_each_detailed_state_has_the_basic_state_and_the_health_of_druid(
    detailed: State, basic: State, is_healthy: bool
) -> None:
    assert (detailed.basic, detailed.is_healthy) == (basic, is_healthy)
