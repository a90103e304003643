"""The next step of a complement, from its dates alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.complement_states import ComplementState, OnFailure
from common.model.complements import ComplementSnapshot, ComplementStep
from master.logic.complement import free_chains, step

RUNNING, SUCCESS, FAILURE = (
    ComplementState.RUNNING,
    ComplementState.SUCCESS,
    ComplementState.FAILURE,
)


def found(state: ComplementState = RUNNING, **numbers: object) -> ComplementSnapshot:
    values: dict[str, object] = {
        "parallelism": 2,
        "on_failure": OnFailure.STOP,
        "pending": 0,
        "live": 0,
        "failed": 0,
    } | numbers
    return ComplementSnapshot(id=1, state=state, **values)  # type: ignore[arg-type]  # As above.


def test_as_many_dates_begin_as_there_are_chains() -> None:
    assert step(found(pending=5)) == ComplementStep(state=RUNNING, begin=2)


def test_a_date_begins_when_another_has_ended_and_not_before() -> None:
    assert step(found(pending=5, live=2)).begin == 0
    assert step(found(pending=5, live=1)).begin == 1


def test_no_more_begin_than_are_left() -> None:
    assert step(found(pending=1, parallelism=8)).begin == 1


def test_it_goes_on_while_the_last_date_runs() -> None:
    assert step(found(live=1)) == ComplementStep(state=RUNNING)


def test_it_is_a_success_when_no_date_is_left() -> None:
    assert step(found()).state is SUCCESS


def test_a_failed_date_stops_its_chain_and_no_other() -> None:
    assert step(found(pending=5, live=1, failed=1)) == ComplementStep(state=RUNNING)
    assert step(found(pending=5, failed=1)).begin == 1


def test_it_has_failed_when_every_chain_has_stopped() -> None:
    ended = step(found(pending=5, failed=2))
    assert ended.state is FAILURE
    assert ended.reason == "2 of its dates failed, so that 5 did not begin"


def test_a_failed_date_stops_nothing_where_it_is_to_go_on() -> None:
    going_on = found(pending=5, failed=2, on_failure=OnFailure.CONTINUE)
    assert step(going_on) == ComplementStep(state=RUNNING, begin=2)
    ended = step(found(failed=2, on_failure=OnFailure.CONTINUE))
    assert (ended.state, ended.reason) == (FAILURE, "2 of its dates failed")


def test_t32_one_that_failed_goes_on_at_the_next_date_once_the_failed_one_was_recovered() -> None:
    assert step(found(FAILURE, pending=5, failed=2)).state is FAILURE
    assert step(found(FAILURE, pending=5, failed=1)) == ComplementStep(state=RUNNING, begin=1)
    assert step(found(FAILURE, live=1, failed=1)).state is RUNNING
    assert step(found(FAILURE)).state is SUCCESS


def test_t32b_it_is_over_when_no_dates_are_left_even_if_it_was_to_be_paused() -> None:
    assert step(found(ComplementState.READY_PAUSE, live=1)).state is ComplementState.READY_PAUSE
    assert step(found(ComplementState.READY_PAUSE)).state is SUCCESS
    assert step(found(ComplementState.READY_PAUSE, failed=1)).state is FAILURE
    assert step(found(ComplementState.READY_STOP)).state is SUCCESS


def test_a_pause_begins_nothing_and_is_over_when_what_runs_has_ended() -> None:
    assert step(found(ComplementState.READY_PAUSE, pending=3, live=1)).begin == 0
    paused = step(found(ComplementState.READY_PAUSE, pending=3))
    assert paused.state is ComplementState.PAUSE
    assert step(found(ComplementState.PAUSE, pending=3)) == paused


def test_a_cancel_begins_nothing_and_is_over_when_what_runs_has_ended() -> None:
    ready = ComplementState.READY_STOP
    assert step(found(ready, pending=3, live=1)) == ComplementStep(state=ready)
    assert step(found(ready, pending=3)).state is ComplementState.STOP
    assert step(found(ready, failed=1)).state is ComplementState.STOP
    assert step(found(ready, cancelled=1)).state is ComplementState.STOP
    assert step(found(ComplementState.STOP)).state is ComplementState.STOP


@pytest.mark.parametrize(
    ("above", "state"),
    [
        (ComplementState.SUBMITTED, ComplementState.SUBMITTED),
        (ComplementState.RUNNING, ComplementState.SUBMITTED),
        (ComplementState.PAUSE, ComplementState.SUBMITTED),
        (ComplementState.SUCCESS, ComplementState.RUNNING),
        (ComplementState.FAILURE, ComplementState.FAILURE),
        (ComplementState.STOP, ComplementState.FAILURE),
        (None, ComplementState.FAILURE),
    ],
)
def test_one_that_follows_another_begins_when_that_has_succeeded(
    above: ComplementState | None, state: ComplementState
) -> None:
    following = found(ComplementState.SUBMITTED, pending=3, after_id=7, after_state=above)
    then = step(following)
    assert then.state is state
    assert bool(then.begin) == (state is ComplementState.RUNNING)
    assert ("complement 7" in str(then.reason)) == (state is FAILURE)


def test_one_that_failed_with_the_one_before_it_goes_on_once_that_is_a_success() -> None:
    following = found(FAILURE, pending=3, after_id=7, after_state=FAILURE)
    assert step(following) == ComplementStep(state=FAILURE)
    above_succeeded = found(FAILURE, pending=3, after_id=7, after_state=SUCCESS)
    assert step(above_succeeded) == ComplementStep(state=RUNNING, begin=2)


NUMBERS = st.integers(min_value=0, max_value=20)


@given(
    st.builds(
        ComplementSnapshot,
        id=st.just(1),
        state=st.sampled_from(ComplementState),
        parallelism=st.integers(min_value=1, max_value=10),
        on_failure=st.sampled_from(OnFailure),
        pending=NUMBERS,
        live=NUMBERS,
        failed=NUMBERS,
    )
)
def test_never_more_than_the_parallelism_and_never_stuck(before: ComplementSnapshot) -> None:
    after = step(before)
    assert 0 <= after.begin <= min(before.pending, free_chains(before))
    assert before.live + after.begin <= max(before.live, before.parallelism)
    if after.begin:
        assert after.state is RUNNING
    # A RUNNING complement has something that will move it.
    if after.state is RUNNING:
        assert before.live or after.begin
    if after.state is SUCCESS:
        assert before.state is SUCCESS or not (before.live or before.pending or before.failed)
