"""The pace of a user's requests, by a clock that is set by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.pace import Pace
from api.problems import TooManyError
from tests.simulation.virtual_clock import VirtualClock


def number_let_through(pace: Pace, user: int, *, tries: int) -> int:
    let = 0
    for _ in range(tries):
        try:
            pace.take(user)
        except TooManyError:
            continue
        let += 1
    return let


def test_a_user_may_ask_twice_as_much_at_once_and_then_at_the_pace() -> None:
    clock = VirtualClock()
    pace = Pace(per_second=8, clock=clock)
    assert number_let_through(pace, 1, tries=100) == 17
    assert number_let_through(pace, 2, tries=5) == 5
    clock.move_to(timedelta(seconds=1))
    assert number_let_through(pace, 1, tries=100) == 8
    clock.move_to(timedelta(hours=1))
    assert number_let_through(pace, 1, tries=100) == 17


def test_whoever_waits_as_long_as_told_is_let_through() -> None:
    clock = VirtualClock()
    pace = Pace(per_second=1, clock=clock)
    number_let_through(pace, 1, tries=10)
    with pytest.raises(TooManyError) as told:
        pace.take(1)
    clock.move_to(timedelta(seconds=told.value.retry_after))
    pace.take(1)


def test_without_a_pace_everything_is_let_through() -> None:
    pace = Pace(per_second=0, clock=VirtualClock())
    assert number_let_through(pace, 1, tries=1000) == 1000
