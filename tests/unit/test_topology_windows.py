"""The figures of components over windows of time."""

from __future__ import annotations

import json

from common.topology.windows import Windows, kind_of
from tests.topologies import Count, Kept, Lines, Split, words

PARTS = words().create_topology().parts
START = 1_000_000.0


def test_a_window_has_what_was_counted_within_it() -> None:
    windows = Windows(begun=START)
    windows.add({("executed", "split", "lines:default"): 5, ("micros", "split", ""): 10_000}, START)
    windows.add({("executed", "split", "lines:default"): 3}, START + 3_000)
    now = START + 3_060
    split = windows.components(PARTS, now)[1]
    assert split.windows["600"].executed == {"lines:default": 3}
    assert split.windows["10800"].executed == {"lines:default": 8}
    assert split.windows[":all-time"].acked == {"lines:default": 8}
    assert split.windows["10800"].latency_ms == 10 / 8
    assert split.windows["10800"].capacity == 0.01 / 3_060 / 2


def test_failed_records_are_not_acked() -> None:
    windows = Windows(begun=START)
    counts = {("executed", "split", "lines:default"): 5, ("failed", "split", "lines:default"): 2}
    windows.add(counts, START)
    found = windows.components(PARTS, START + 1)[1].windows["600"]
    assert (found.acked, found.failed) == ({"lines:default": 3}, {"lines:default": 2})


def test_a_day_is_forgotten_and_the_sum_of_all_is_kept_for_the_next_task() -> None:
    windows = Windows(begun=START)
    windows.add({("emitted", "lines", "default"): 7}, START)
    later = START + 2 * 86_400
    windows.add({("emitted", "lines", "default"): 1}, later)
    lines = windows.components(PARTS, later)[0].windows
    assert lines["86400"].emitted == {"default": 1}
    assert lines[":all-time"].emitted == {"default": 8}
    again = Windows(json.loads(json.dumps(windows.document(later))), begun=later)
    lines = again.components(PARTS, later)[0].windows
    assert lines["86400"].emitted == {}
    assert lines[":all-time"].emitted == {"default": 8}


def test_the_hot_key_is_that_of_the_busiest_task() -> None:
    windows = Windows(begun=START)
    counts = {
        ("task", "count", "1"): 90,
        ("task", "count", "3"): 10,
        ("key", "count", "3 ('rare',)"): 10,
        ("key", "count", "1 ('the',)"): 60,
        ("key", "count", "1 ('a',)"): 30,
    }
    windows.add(counts, START)
    count = windows.components(PARTS, START)[2]
    assert count.by_task == (0, 90, 0, 10)
    assert count.hot_key == "('the',)"


def test_keys_do_not_grow_without_bound() -> None:
    windows = Windows(begun=START)
    windows.add({("key", "count", f"0 {number}"): 1 + number for number in range(3_000)}, START)
    assert len(windows.document(START)["counts"]) == 1_000


def test_kinds_for_people() -> None:
    components = (Lines(), Split(), Count(), Kept())
    assert [kind_of(each) for each in components] == ["spout", "bolt", "stateful", "sink"]
