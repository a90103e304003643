"""Ranges of batches, and their pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.spark.streaming.documents import Limits
from worker.spark.streaming.ranges import PastTheEndError, Piece, next_offsets, pieces


def test_a_batch_reads_up_to_the_latest_offsets_or_the_ends() -> None:
    begin, latest = {0: 10, 1: 5, 2: 7}, {0: 100, 1: 5}
    assert next_offsets(begin, latest, Limits(), None) == {0: 100, 1: 5, 2: 7}
    ends = Limits(ends={0: 40, 1: 5, 2: 9})
    assert next_offsets(begin, latest, ends, None) == {0: 40, 1: 5, 2: 7}
    assert next_offsets(begin, latest, Limits(paused=True, ends={0: 40}), None) == begin


def test_an_end_that_is_passed_already_is_an_error() -> None:
    with pytest.raises(PastTheEndError, match="partition 0 was to end at offset 9"):
        next_offsets({0: 10}, {0: 20}, Limits(ends={0: 9}), None)


def test_what_a_short_partition_leaves_of_a_batch_is_for_the_others() -> None:
    begin, latest = {0: 0, 1: 0, 2: 50}, {0: 1_000, 1: 10, 2: 50}
    assert next_offsets(begin, latest, Limits(), 100) == {0: 90, 1: 10, 2: 50}


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 50_000))),
    st.integers(1, 8),
    st.integers(1, 500),
)
def test_pieces_are_all_of_a_batch_once(
    spans: dict[int, tuple[int, int]], at_once: int, least: int
) -> None:
    begin = {partition: start for partition, (start, _) in spans.items()}
    end = {partition: start + length for partition, (start, length) in spans.items()}
    found = pieces(begin, end, at_once, least)
    assert all(piece.start < piece.end for piece in found)
    assert len(found) <= len(spans) + 2 * at_once
    for partition in spans:
        own = [piece for piece in found if piece.partition == partition]
        edges = [begin[partition], *(piece.end for piece in own)]
        assert [piece.start for piece in own] == edges[:-1]
        assert edges[-1] == end[partition]


def test_a_long_partition_is_shared_by_all_tasks() -> None:
    halves = (Piece(partition=3, start=0, end=5_000), Piece(partition=3, start=5_000, end=10_000))
    assert pieces({3: 0}, {3: 10_000}, 2, 100) == halves
    assert len(pieces({3: 0}, {3: 90}, 2, 100)) == 1
