"""The loop that acts on time-outs."""

from __future__ import annotations

from datetime import datetime

from master.loops.timeout_loop import TimeoutConfig, TimeoutLoop
from tests.unit.master_loops.place import SECOND, Place


class Timeouts:
    def __init__(self) -> None:
        self.calls: list[datetime] = []

    def time_out(self, *, now: datetime) -> int:
        self.calls.append(now)
        return 3


def test_time_outs_are_checked_at_the_interval(place: Place) -> None:
    store = Timeouts()
    loop = TimeoutLoop(
        store, identity=place.identity, clock=place.clock, config=TimeoutConfig(interval=SECOND)
    )
    assert loop.run_once() == SECOND
    assert store.calls == [place.clock.now()]


def test_a_master_that_is_not_trusted_ends_nothing_for_taking_too_long(place: Place) -> None:
    store = Timeouts()
    place.identity.become(None)
    loop = TimeoutLoop(store, identity=place.identity, clock=place.clock)
    assert loop.run_once() == SECOND
    assert store.calls == []
