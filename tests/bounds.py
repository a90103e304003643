"""Limits for tests that repeat a step until something has happened.

Without one, a fault that keeps it from happening ends the test by pytest's time limit, after ten
minutes and without a word about what was missing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from common.clock import SystemClock


def step_until(
    is_so: Callable[[], bool], step: Callable[[], object], *, awaited: str, steps: int = 1_000
) -> None:
    """Repeat a step until it is so; fail after that many steps.

    For steps that change what is checked: virtual clocks, in-memory tables.
    """
    for _ in range(steps):
        if is_so():
            return
        step()
    assert is_so(), f"{awaited}: not so after {steps} steps"


def step_within(
    is_so: Callable[[], bool],
    step: Callable[[], object],
    *,
    awaited: str,
    within: timedelta = timedelta(seconds=30),
) -> None:
    """Repeat a step until it is so; fail after that time. For the effects of other threads.

    The limit is far above what the step takes on a busy machine, so no outcome depends on it.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + within.total_seconds()
    while not is_so():
        assert clock.monotonic() < deadline, f"{awaited}: not so after {within}"
        step()
