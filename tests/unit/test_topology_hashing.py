"""The hashes of fields groupings, against what Spark and Java themselves say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from common.topology.hashing import UngroupableError, spark_hash, storm_hash, storm_pair

# Spark 4: `SELECT hash(…)` of columns of the types string, bigint, double, boolean and binary.
# Java 17: `Arrays.deepHashCode(new Object[] {…})` of String, Long, Double, Boolean and byte[].
VECTORS: list[tuple[tuple[Any, ...], int, int]] = [
    (("abc",), 1322437556, 96385),
    (("Zürich",), -761243618, -1482116131),
    (("\N{GRINNING FACE}",), 1877935379, 1772930),
    (("",), 142593372, 31),
    ((7,), 1293116811, 38),
    ((-1,), -939490007, 31),
    ((1 << 40,), -1596767687, 287),
    ((-(1 << 63),), -853646085, -2147483617),
    ((1.5,), 1290763749, 1073217567),
    ((-0.0,), -1670924195, -2147483617),
    ((0.0,), -1670924195, 31),
    ((math.nan,), -1281358385, 2146959391),
    ((True,), -559580957, 1262),
    ((False,), 933211791, 1268),
    ((None,), 42, 31),
    ((bytes([1, 255, 127]),), -167461402, 30879),
    (("a", 1), 1838122449, 3969),
    ((None, "b", 2.0), 668753007, 1073774653),
]


@pytest.mark.parametrize(("values", "spark", "storm"), VECTORS, ids=lambda value: f"{value!r}")
def test_a_hash_is_that_of_spark_and_that_of_java(
    values: tuple[Any, ...], spark: int, storm: int
) -> None:
    assert (spark_hash(values), storm_hash(values)) == (spark, storm)


def test_bytes_beside_whole_words_are_signed() -> None:
    assert spark_hash((bytes([1, 255, 127, 128, 200]),)) == 693317692
    assert spark_hash(("abcdefg",)) == 2132013596


def test_a_list_within_is_hashed_by_its_values_as_java_does() -> None:
    assert storm_hash((["x", 3],)) == 4715


# Results of Java 17, computed like Storm 2: `Random(Arrays.hashCode(bytes))` with the bytes of the
# fields' hashes, then two calls of `nextInt` for 2, 6, 8 and 1,000 tasks. If both choices are
# equal, the second moves to the next task.
PAIRS: list[tuple[tuple[Any, ...], list[tuple[int, int]]]] = [
    (("abc",), [(0, 1), (5, 0), (3, 2), (191, 599)]),
    ((7,), [(0, 1), (2, 5), (2, 7), (744, 891)]),
    ((1 << 40,), [(0, 1), (3, 2), (2, 3), (757, 266)]),
    ((1.5,), [(0, 1), (1, 2), (1, 2), (651, 664)]),
    ((True,), [(0, 1), (3, 5), (2, 1), (281, 161)]),
    ((None,), [(0, 1), (1, 5), (2, 0), (365, 523)]),
    ((bytes([1, 255, 127]),), [(0, 1), (4, 1), (1, 2), (494, 915)]),
    (("a", 1), [(1, 0), (2, 5), (7, 4), (46, 301)]),
    (("Zürich",), [(1, 0), (0, 1), (7, 0), (620, 841)]),
]


@pytest.mark.parametrize(("values", "pairs"), PAIRS, ids=lambda value: f"{value!r}"[:30])
def test_a_partial_key_has_the_two_tasks_that_storm_gives_it(
    values: tuple[Any, ...], pairs: list[tuple[int, int]]
) -> None:
    assert [storm_pair(values, tasks) for tasks in (2, 6, 8, 1_000)] == pairs


@pytest.mark.parametrize("value", [1 << 63, object(), {"a": 1}, 1j])
def test_a_value_without_a_common_hash_is_refused(value: object) -> None:
    for hashed in (spark_hash, storm_hash):
        with pytest.raises(UngroupableError, match="can't be grouped by"):
            hashed((value,))
