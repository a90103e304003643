"""Random histories, applied to both stores alike: after each step their rows must be equal."""

from __future__ import annotations

import pytest

from tests.conformance.store_tables import MemoryTables, PostgresTables
from tests.conformance.walk import Walk


@pytest.mark.parametrize("seed", range(4))
def test_both_stores_make_the_same_of_any_history(
    seed: int, emptied_tables: PostgresTables
) -> None:
    emptied_tables.draw_ids_afresh()
    walk = Walk(seed, MemoryTables(), emptied_tables)
    for _ in range(100):
        walk.step()
    # A history with no effect, or with nearly every step refused, would prove little.
    assert walk.outcomes["_save: conflict"] < walk.outcomes["_save: done"] > 5


@pytest.mark.parametrize("seed", range(4))
def test_both_stores_make_the_same_of_any_history_of_schedules_and_complements(
    seed: int, emptied_tables: PostgresTables
) -> None:
    emptied_tables.draw_ids_afresh()
    walk = Walk(seed, MemoryTables(), emptied_tables, of_dates=True)
    for _ in range(100):
        walk.step()
    assert walk.outcomes["_advance: done"] > 10
    assert walk.outcomes["_end_run: done"] > 2
