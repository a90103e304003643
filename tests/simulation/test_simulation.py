"""The simulated cluster, seed by seed; a failing seed is run again with `-k "[17]"`.

The number of seeds is 500, or what `ORCAFLOW_SEEDS` says.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.checkers import broken
from tests.simulation.world import World

_SEEDS = int(os.environ.get("ORCAFLOW_SEEDS", "500"))


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_whatever_happens_all_ends_right(seed: int) -> None:
    world = World(seed)
    world.run()
    found = broken(world) + world.surprises
    assert found == [], f"seed {seed} ({world.options}):\n" + "\n".join([*found, *world.log])


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = World(5), World(5)
    first.run()
    second.run()
    assert first.log == second.log
    assert first.database.changes == second.database.changes


def test_seeds_bring_every_kind_of_fault() -> None:
    worlds = [World(seed) for seed in range(12)]
    for world in worlds:
        world.run()
    log = "\n".join(line for world in worlds for line in world.log)
    assert all(
        word in log for word in ("freezes", "is held up before save", "dies before", "dies after")
    )
    assert any(p.owner_epoch > 2 for world in worlds for p in world.database.processes)
