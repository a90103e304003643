"""The hashes by which a fields grouping finds a task: Spark's, and Java's as Storm uses it. Pure.

Spark's is Murmur3 with the seed 42, column after column, as `org.apache.spark.sql.catalyst.
expressions.Murmur3Hash` has it: then `repartition(n, columns)` sends a row to the same task. Java's
is that of `Arrays.deepHashCode`, of the list of values. A Python int counts as a long, a float as a
double, and a value of another type than those here is refused, since it has no hash that both
languages agree on.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from common.errors import SchedulerError

_MASK: Final = 0xFFFFFFFF
_LONG_MASK: Final = 0xFFFFFFFFFFFFFFFF
_SEED: Final = 42
_RANDOM_MASK: Final = (1 << 48) - 1


class UngroupableError(SchedulerError):
    """A value can't be grouped by: it has no hash that every task would compute alike."""


def spark_hash(values: Sequence[Any]) -> int:
    """Return Spark's hash of a row of these values, a signed number of 32 bits."""
    seed = _SEED
    for value in values:
        seed = _murmur(value, seed)
    return _signed(seed)


def storm_hash(values: Sequence[Any]) -> int:
    """Return Java's hash of a list of these values, a signed number of 32 bits."""
    found = 1
    for value in values:
        found = (31 * found + _java(value)) & _MASK
    return _signed(found)


def spark_pair(values: Sequence[Any], tasks: int) -> tuple[int, int]:
    """Return the two tasks of a partial key; they differ if `tasks` is 2 or more."""
    hashed = spark_hash(values)
    return _apart(hashed % tasks, spark_hash((hashed, "second")) % tasks, tasks)


def storm_pair(values: Sequence[Any], tasks: int) -> tuple[int, int]:
    """Return the two tasks of a partial key in Storm 2; they differ if `tasks` is 2 or more."""
    raw = b"".join(struct.pack(">I", _java(value)) for value in values)
    random = _JavaRandom(_signed(_java(raw)))
    return _apart(random.below(tasks), random.below(tasks), tasks)


def _apart(first: int, second: int, tasks: int) -> tuple[int, int]:
    """Move a second choice to the next task if it equals the first, as Storm does."""
    return first, (second + 1) % tasks if second == first else second


class _JavaRandom:
    """The generator of `java.util.Random`, with its documented arithmetic."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ 0x5DEECE66D) & _RANDOM_MASK

    def below(self, bound: int) -> int:
        """Return the next value of `nextInt(bound)`."""
        drawn = self._drawn()
        if bound & (bound - 1) == 0:
            return bound * drawn >> 31
        # Java draws again in the last, incomplete range of remainders.
        while drawn - drawn % bound + bound - 1 >= 1 << 31:
            drawn = self._drawn()
        return drawn % bound

    def _drawn(self) -> int:
        self._state = (self._state * 0x5DEECE66D + 0xB) & _RANDOM_MASK
        return self._state >> 17


HASHES: Final[dict[str, Callable[[Sequence[Any]], int]]] = {
    "spark": spark_hash,
    "storm": storm_hash,
}
PAIRS: Final[dict[str, Callable[[Sequence[Any], int], tuple[int, int]]]] = {
    "spark": spark_pair,
    "storm": storm_pair,
}
"""The functions for the two tasks of a partial key, by the hash of the topology."""


def _murmur(value: Any, seed: int) -> int:
    match value:
        case None:
            return seed
        case bool():
            return _of_int(int(value), seed)
        case int():
            return _of_long(_as_long(value), seed)
        case float():
            return _of_long(0 if value == 0 else _bits(value), seed)
        case str():
            return _of_bytes(_utf8(value), seed)
        case bytes():
            return _of_bytes(value, seed)
        case _:
            raise _ungroupable(value)


def _java(value: Any) -> int:
    match value:
        case None:
            return 0
        case bool():
            return 1231 if value else 1237
        case int():
            return _folded(_as_long(value))
        case float():
            return _folded(_bits(value))
        case str():
            found = 0
            units = value.encode("utf-16-le", "surrogatepass")
            for low, high in zip(units[::2], units[1::2], strict=True):
                found = (31 * found + (high << 8 | low)) & _MASK
            return found
        case bytes():
            found = 1
            for byte in value:
                found = (31 * found + (byte - 256 if byte > 127 else byte)) & _MASK
            return found
        case list() | tuple():
            return storm_hash(value) & _MASK
        case _:
            raise _ungroupable(value)


def _ungroupable(value: Any) -> UngroupableError:
    return UngroupableError(
        f"a value of type {type(value).__name__} can't be grouped by; emit a text, a number, a"
        " truth value, bytes or None in its place"
    )


def _as_long(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise UngroupableError(f"{value!r:.50} can't be grouped by: it has more than 64 bits")
    return value & _LONG_MASK


def _bits(value: float) -> int:
    # Java has one NaN.
    if math.isnan(value):
        return 0x7FF8000000000000
    (found,) = struct.unpack(">Q", struct.pack(">d", value))
    return int(found)


def _utf8(value: str) -> bytes:
    return value.encode("utf-8", "replace")


def _folded(bits: int) -> int:
    return (bits ^ bits >> 32) & _MASK


def _of_int(value: int, seed: int) -> int:
    return _final(_mixed(seed, value & _MASK), 4)


def _of_long(value: int, seed: int) -> int:
    return _final(_mixed(_mixed(seed, value & _MASK), value >> 32), 8)


def _of_bytes(value: bytes, seed: int) -> int:
    aligned = len(value) - len(value) % 4
    found = seed
    for place in range(0, aligned, 4):
        found = _mixed(found, int.from_bytes(value[place : place + 4], "little"))
    # Unlike Murmur3 elsewhere, each byte that is left is mixed in as a signed number.
    for byte in value[aligned:]:
        found = _mixed(found, (byte - 256 if byte > 127 else byte) & _MASK)
    return _final(found, len(value))


def _mixed(hashed: int, word: int) -> int:
    word = _turned(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_turned(hashed ^ word, 13) * 5 + 0xE6546B64) & _MASK


def _final(hashed: int, length: int) -> int:
    hashed ^= length
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    return hashed ^ hashed >> 16


def _turned(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _MASK


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word
