"""Kills and crashes around a submission: no application may be left, and none be submitted twice.

Each is repeated ORCAFLOW_REPEATS times (2 if that isn't set), since what matters is when exactly it
hits. A sweep is another worker's, whose time passes at once: what it needs more than six passes
for would take more than a minute.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.states import TaskState
from tests.integration.managers.grounds import SWEEPS_A_MINUTE, Ground, Sweeper
from tests.integration.managers.server import TROUBLES

pytestmark = pytest.mark.waits_long

REPEATS = int(os.environ.get("ORCAFLOW_REPEATS", "2"))


@pytest.fixture(params=["yarn", "kubernetes"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path, request.param)
    yield ground
    ground.close()


def repeated(test: object) -> object:
    return pytest.mark.parametrize("number", range(1, REPEATS + 1), ids=str)(test)  # type: ignore[operator]


def soon(number: int, most: float) -> str:
    """A moment that differs from repeat to repeat, and is the same each time they are run."""
    return f"{random.Random(number).uniform(0, most):.3f}"


def swept(ground: Ground, number: int, state: TaskState) -> Sweeper:
    """Sweep until nothing is left, for a minute at most."""
    sweeper = Sweeper(ground)
    sweeper.knows(number, state)
    for _ in range(SWEEPS_A_MINUTE):
        sweeper.pass_by()
    assert ground.live() == 0
    return sweeper


@repeated
def test_a_kill_before_the_application_is_known_leaves_none(ground: Ground, number: int) -> None:
    ground.bench.begin(number, conf={"spark.fake.before": soon(number, 1.0)})
    ground.bench.wait_for("spark-submit was started", number)
    end = ground.bench.kill(number)
    assert end.state is TaskState.KILL
    assert ground.live() == 0, ground.bench.log(number)


@repeated
def test_a_kill_just_when_it_comes_into_being_leaves_none(ground: Ground, number: int) -> None:
    # It is there, and its manager does not show it yet.
    ground.fake.shows_after = float(soon(number, 2.0))
    ground.bench.begin(number, conf={"spark.fake.after": "1"})
    ground.bench.wait_for("the application is there", number)
    assert ground.bench.kill(number).state is TaskState.KILL
    assert ground.live() == 0, ground.bench.log(number)


@repeated
def test_a_kill_of_a_running_application_is_verified(ground: Ground, number: int) -> None:
    ground.fake.dies_after = float(soon(number, 1.5))
    ground.bench.begin(number)
    ground.bench.wait_for("is RUNNING", number)
    assert ground.bench.kill(number).state is TaskState.KILL
    assert ground.live() == 0, ground.bench.log(number)
    verified = f"says {ground.name}"
    assert verified in ground.bench.log(number).split("a kill was asked for")[1]


@repeated
def test_a_driver_of_our_own_is_killed_with_its_application(ground: Ground, number: int) -> None:
    if ground.name == "Kubernetes":
        pytest.skip("the fake's drivers are pods")
    ground.bench.begin(number, mode="client", conf={"spark.fake.runs": "60"})
    ground.bench.wait_for("is RUNNING", number)
    assert ground.bench.kill(number).state is TaskState.KILL
    assert ground.live() == 0, ground.bench.log(number)


@repeated
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_kill_that_the_manager_does_not_take_is_made_good_by_the_sweep(
    ground: Ground, trouble: str, number: int
) -> None:
    ground.bench.begin(number)
    ground.bench.wait_for("is RUNNING", number)
    ground.fake.trouble = trouble
    ground.bench.host.supervisor.kill(number)
    ground.bench.wait_for(f"{ground.name} can't be asked", number)
    # As the end of the grace period does.
    assert ground.bench.kill_runner(number).state is TaskState.KILL
    assert ground.live() == 1
    sweeper = Sweeper(ground)
    sweeper.knows(number, TaskState.KILL)
    sweeper.pass_by()
    ground.fake.trouble = ""
    for _ in range(SWEEPS_A_MINUTE - 1):
        sweeper.pass_by()
    assert ground.live() == 0
    assert ground.submitted() == 1


@repeated
@pytest.mark.parametrize("trouble", ["401", "500", "half", "garbage"])
def test_a_manager_that_comes_round_in_time_is_asked_again(
    ground: Ground, trouble: str, number: int
) -> None:
    ground.bench.begin(number)
    ground.bench.wait_for("is RUNNING", number)
    ground.fake.trouble = trouble
    ground.bench.host.supervisor.kill(number)
    ground.bench.wait_for(f"{ground.name} can't be asked", number)
    ground.fake.trouble = ""
    assert ground.bench.host.end_of(number).state is TaskState.KILL
    assert ground.live() == 0, ground.bench.log(number)


@repeated
def test_a_kill_that_was_accepted_and_not_done_is_asked_for_again(
    ground: Ground, number: int
) -> None:
    ground.bench.begin(number)
    ground.bench.wait_for("is RUNNING", number)
    ground.fake.kills_at_all = False
    ground.bench.host.supervisor.kill(number)
    ground.bench.host.until(lambda: ground.kills() >= 2)
    # As the end of the grace period does.
    assert ground.bench.kill_runner(number).state is TaskState.KILL
    assert ground.live() == 1
    ground.fake.kills_at_all = True
    swept(ground, number, TaskState.KILL)


@repeated
def test_a_runner_that_was_killed_outright_leaves_its_application_to_the_sweep(
    ground: Ground, number: int
) -> None:
    ground.bench.begin(number, conf={"spark.fake.before": soon(number, 0.5)})
    wait = "spark-submit was started" if number % 2 else "is RUNNING"
    ground.bench.wait_for(wait, number)
    assert ground.bench.kill_runner(number).state is TaskState.FAILURE
    swept(ground, number, TaskState.FAILURE)


@repeated
def test_a_substitute_takes_up_what_a_killed_runner_left(ground: Ground, number: int) -> None:
    ground.bench.begin(number, conf={"spark.fake.before": soon(number, 0.5)})
    if number % 2:
        ground.bench.wait_for("is RUNNING", number)
    else:
        # Anything may have happened by then, or not.
        ground.bench.wait_for("spark-submit was started", number)
    ground.bench.kill_runner(number)
    assert ground.live() == ground.submitted()
    again = number + 1000
    ground.bench.begin(again, lost_attempts=(number,))
    ground.bench.wait_for("is RUNNING", again)
    assert ground.live() == 1
    assert ground.submitted() == 1
    ground.end_well()
    assert ground.bench.host.end_of(again).state is TaskState.SUCCESS, ground.bench.log(again)


@repeated
def test_a_substitute_takes_up_what_a_lost_session_left(ground: Ground, number: int) -> None:
    ground.bench.begin(number)
    ground.bench.wait_for("is RUNNING", number)
    # No TERM, and so nobody who would have ended the application.
    ground.bench.host.supervisor.kill_all()
    assert ground.bench.host.end_of(number).state is TaskState.NEED_FAULT_TOLERANCE
    assert ground.live() == 1
    again = number + 1000
    ground.bench.begin(again, lost_attempts=(number,))
    ground.bench.wait_for("re-attached", again)
    assert ground.submitted() == 1
    assert ground.bench.kill(again).state is TaskState.KILL
    assert ground.live() == 0, ground.bench.log(again)


@repeated
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_substitute_submits_nothing_while_nobody_knows_what_is_left(
    ground: Ground, trouble: str, number: int
) -> None:
    ground.left_by(number)
    ground.fake.trouble = trouble
    again = number + 1000
    ground.bench.begin(again, lost_attempts=(number,))
    ground.bench.wait_for(f"{ground.name} can't be asked", again)
    assert ground.submitted() == 0
    ground.fake.trouble = ""
    ground.bench.wait_for("re-attached", again)
    ground.end_well()
    assert ground.bench.host.end_of(again).state is TaskState.SUCCESS, ground.bench.log(again)
    assert ground.submitted() == 0


@repeated
def test_the_sweep_leaves_alone_what_somebody_follows_or_will(ground: Ground, number: int) -> None:
    running, lost, unknown = number, number + 1000, number + 2000
    for each in (running, lost, unknown):
        ground.left_by(each)
    sweeper = Sweeper(ground)
    sweeper.knows(running, TaskState.RUNNING)
    sweeper.knows(lost, TaskState.NEED_FAULT_TOLERANCE)
    for _ in range(SWEEPS_A_MINUTE):
        sweeper.pass_by()
    assert ground.live() == 3
