"""Each mistake that is planted is caught, so the simulator would catch it if we made it."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulation import mistakes
from tests.simulation.checkers import broken
from tests.simulation.world import Parts, World

_SEEDS = 200


def complaints(parts: Parts, *, enough: int = 1) -> list[str]:
    """What is found broken in the first worlds that show something; their seeds with it."""
    shown = (
        f"seed {seed}: {sentence}"
        for seed in range(_SEEDS)
        for sentence in lived(World(seed, parts=parts))
    )
    return list(islice(shown, enough))


def lived(world: World) -> list[str]:
    world.run()
    return broken(world) + world.surprises


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        pytest.param(mistakes.UNFENCED, "I3", id="no ownership fence"),
        pytest.param(mistakes.MEMORY_KEPT, "", id="memory kept after a failed save"),
        pytest.param(mistakes.UNCOUNTED, "I2", id="start without a claim"),
        pytest.param(mistakes.ADDRESS_ONLY, "", id="worker known by address only"),
    ],
)
def test_a_planted_mistake_is_caught(parts: Parts, what: str) -> None:
    found = complaints(parts, enough=3)
    assert any(what in sentence for sentence in found), found


def test_an_attempt_that_is_not_compared_in_a_report_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("master.engine.advance.is_current", lambda reported, attempt: True)
    assert complaints(Parts())
