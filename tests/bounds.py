"""Limits for tests that repeat a step until a condition holds.

Without a limit, a fault that prevents the condition ends the test by pytest's time limit, after
ten minutes and without naming the condition.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from common.clock import SystemClock


def step_until(
    is_so: Callable[[], bool], step: Callable[[], object], *, awaited: str, steps: int = 1_000
) -> None:
    """Repeat a step until a condition holds; fail after `steps` steps.

    For steps that change the checked state themselves: virtual clocks, in-memory tables.
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
    """Repeat a step until a condition holds; fail after `within`. For effects of other threads.

    The limit is far above the usual time on a busy machine, so no outcome depends on it.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + within.total_seconds()
    while not is_so():
        assert clock.monotonic() < deadline, f"{awaited}: not so after {within}"
        step()
