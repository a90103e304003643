"""Each planted mistake is caught, so the simulator would catch it if we made it."""

from __future__ import annotations

import warnings
from datetime import timedelta

import pytest

from tests.simulation.checkers import broken
from tests.simulation.faults import Options
from tests.simulation.mistakes import MISTAKES, Mistake
from tests.simulation.parts import Parts
from tests.simulation.world import World

_SEEDS = 400
"""Enough for the rarest: one seed in seventy exposes it."""
_REST_WITHIN = timedelta(minutes=10)
"""Enough for the worlds without a mistake. One with a mistake may never rest, which costs as much."""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_caught(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        mistake.plant(planted)
        seed = next(
            (
                seed
                for seed in dict.fromkeys((mistake.seed, *range(_SEEDS)))
                if complaints(seed, mistake.parts, mistake.options)
            ),
            None,
        )
    assert seed is not None
    if seed != mistake.seed:
        # Looking for it again and again costs more than all other worlds of this module.
        warnings.warn(
            f"{mistake.name!r}: seed={seed} exposes it now; write that down", stacklevel=1
        )
    # The same faults break nothing without the mistake.
    assert complaints(seed, Parts(), mistake.options) == []


def complaints(seed: int, parts: Parts, options: Options) -> list[str]:
    """The rules that this seed breaks."""
    world = World(seed, parts=parts, options=options, rest_within=_REST_WITHIN)
    world.run()
    return broken(world) + world.violations
