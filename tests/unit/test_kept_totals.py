"""Totals of many rows are kept for a moment, and no others."""

from __future__ import annotations

from datetime import timedelta

from operations.kept_totals import KeptTotals
from tests.simulation.virtual_clock import VirtualClock


def test_a_total_of_many_rows_is_kept_for_some_seconds() -> None:
    clock = VirtualClock()
    kept = KeptTotals(clock)
    kept.keep(("tasks", 1), 100_000)
    assert kept.find(("tasks", 1)) == 100_000
    assert kept.find(("tasks", 2)) is None
    clock.move_to(timedelta(seconds=5))
    assert kept.find(("tasks", 1)) is None


def test_a_total_of_few_rows_is_counted_each_time() -> None:
    kept = KeptTotals(VirtualClock())
    kept.keep("few", 9_999)
    assert kept.find("few") is None


def test_no_more_than_a_thousand_are_kept() -> None:
    kept = KeptTotals(VirtualClock())
    for number in range(1_001):
        kept.keep(number, 10_000)
    assert kept.find(1_000) == 10_000
    assert kept.find(0) is None
