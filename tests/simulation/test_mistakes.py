"""Each mistake that is planted is caught, so the simulator would catch it if we made it."""

from __future__ import annotations

import pytest

from tests.simulation import mistakes
from tests.simulation.checkers import broken
from tests.simulation.faults import Options
from tests.simulation.world import Parts, World

_SEEDS = 100


def complaints(parts: Parts, options: Options) -> str:
    """What is found broken first, and by which seed; nothing if all seeds are well."""
    for seed in range(_SEEDS):
        world = World(seed, parts=parts, options=options)
        world.run()
        for sentence in broken(world) + world.surprises:
            return f"seed {seed}: {sentence}"
    return ""


# Each hunt brings the fault that the mistake gets wrong, and little else, so that it is a short one.
@pytest.mark.parametrize(
    ("parts", "options"),
    [
        pytest.param(
            mistakes.UNFENCED,
            Options(pause=0.5, pause_before=("save",)),
            id="no ownership fence",
        ),
        pytest.param(
            mistakes.MEMORY_KEPT, Options(no_answer=0.2), id="memory kept after a failed save"
        ),
        pytest.param(
            mistakes.UNCOUNTED,
            Options(pause=0.5, pause_before=("claim",), failing_tasks=0.6, stop=0.8),
            id="start without a claim",
        ),
        pytest.param(
            mistakes.ADDRESS_ONLY,
            Options(crash_at_commit=0.3, expire=0.01),
            id="worker known by address only",
        ),
    ],
)
def test_a_planted_mistake_is_caught(parts: Parts, options: Options) -> None:
    assert complaints(parts, options)
    # And the same faults do no harm where the mistake is not made.
    assert not complaints_of_the_first(12, options)


def test_an_attempt_that_is_not_compared_in_a_report_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = Options(repeat_report=0.8, failing_tasks=0.4, crash_at_commit=0.1)
    assert not complaints_of_the_first(12, options)
    monkeypatch.setattr("master.engine.advance.is_current", lambda _reported, _attempt: True)
    assert complaints(Parts(), options)


def complaints_of_the_first(seeds: int, options: Options) -> list[str]:
    """What is found broken in a cluster without a planted mistake."""
    found: list[str] = []
    for seed in range(seeds):
        world = World(seed, options=options)
        world.run()
        found += broken(world) + world.surprises
    return found
