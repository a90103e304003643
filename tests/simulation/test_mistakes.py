"""Each mistake that is planted is caught, so the simulator would catch it if we made it."""

from __future__ import annotations

import pytest

from tests.simulation.checkers import broken
from tests.simulation.faults import Options
from tests.simulation.mistakes import MISTAKES, Mistake
from tests.simulation.world import Parts, World

_SEEDS = 100


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_caught(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    # The same faults do no harm where the mistake is not made.
    assert not complaint(8, Parts(), mistake.options)
    mistake.plant(monkeypatch)
    assert complaint(_SEEDS, mistake.parts, mistake.options)


def complaint(seeds: int, parts: Parts, options: Options) -> str:
    """What is found broken first, and by which seed; nothing if all seeds are well."""
    for seed in range(seeds):
        world = World(seed, parts=parts, options=options)
        world.run()
        for sentence in broken(world) + world.lint_warnings:
            return f"seed {seed}: {sentence}"
    return ""
