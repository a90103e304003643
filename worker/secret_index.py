"""Finds any of very many byte strings in a text, in a time that does not grow with their number.

Pure. A *needle* is a byte string of at least four bytes. An array operation finds the places where
the text has the first four or eight bytes of a needle. At such a place, a binary search in the
sorted needles finds the longest one. `worker.secret_search` uses this index for many needles, and
plain searches for few.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Accepts: TypeAlias = Callable[[int, int], bool]
"""Returns whether a needle at a position, with this length, counts as a match."""

SHORTEST: Final = 4
"""The minimum length of a needle in bytes."""
_LONG: Final = 8
_FIRST_BYTES: Final = 64
_MOST_KNOWN: Final = 4_096
_SLICE_BYTES: Final = 64 * 1024
_FEWEST_BITS: Final = 12
_MOST_BITS: Final = 20
_SPARSE_BITS: Final = 4
"""A table has this many bits more than the number of its needles has."""
_MULTIPLIER: Final = 0x9E3779B97F4A7C15


class SecretIndex:
    """The index of a set of needles. `longest_bytes` is the length of the longest one."""

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._needles = sorted({*needles})
        self._lengths = _lengths(self._needles)
        self._known: dict[bytes, tuple[Sequence[int], int]] = {}
        """The results for texts of which no needle is a longer form. A log repeats its lines."""
        self.longest_bytes = max(map(len, self._needles), default=0)
        self._any = _Prefixes(SHORTEST, self._needles)
        self._short = _Prefixes(SHORTEST, [each for each in self._needles if len(each) < _LONG])
        self._long = _Prefixes(_LONG, [each for each in self._needles if len(each) >= _LONG])

    def runs(
        self, text: bytes, *, is_over: Callable[[], bool], accepts: Accepts | None = None
    ) -> Iterator[tuple[int, int]]:
        """Yield the places of needles in a text, in order; matches that touch are one place.

        `is_over` is called for each match that is read. Once it returns True, the rest up to the
        last match is one place.
        """
        begin = end = -1
        for at in self._candidates(text):
            if at + self.longest_bytes <= end:
                continue
            size = self._match(text, at, accepts)
            if at + size <= end or not size:
                continue
            if at > end:
                if end > 0:
                    yield begin, end
                begin = at
            end = at + size
            # A text may repeat a needle many times.
            while not (stops := is_over()) and (size := self._match(text, end, accepts)):
                end += size
            if stops:
                end = max(end, self._last_end(text))
                break
        if end > 0:
            yield begin, end

    def _match(self, text: bytes, at: int, accepts: Accepts | None) -> int:
        """Return the length of the longest match at a position; 0 without a match."""
        lengths, number = self._found(text, at)
        if accepts is None:
            return lengths[number - 1] if number else 0
        return next((each for each in reversed(lengths[:number]) if accepts(at, each)), 0)

    def _found(self, text: bytes, at: int) -> tuple[Sequence[int], int]:
        """Return lengths of needles, in ascending order, and how many of them are at a position."""
        first = text[at : at + _FIRST_BYTES]
        if (known := self._known.get(first)) is not None:
            return known
        place = bisect_left(self._needles, first)
        if place < len(self._needles) and self._needles[place].startswith(first):
            whole = text[at : at + self.longest_bytes]
            return self._below(bisect_right(self._needles, whole, place), whole)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        found = self._known[first] = self._below(place, first)
        return found

    def _below(self, place: int, text: bytes) -> tuple[Sequence[int], int]:
        """Return what `_found` returns. `place` is the number of needles not above the text."""
        if not place:
            return (), 0
        # Every needle here is a prefix of the last needle that sorts before the text or is equal.
        needle, lengths = self._needles[place - 1], self._lengths[place - 1]
        if text.startswith(needle):
            return lengths, len(lengths)
        low, high = 0, len(lengths) - 1
        while low < high:
            middle = (low + high) // 2
            if text.startswith(needle[: lengths[middle]]):
                low = middle + 1
            else:
                high = middle
        return lengths, low

    def _last_end(self, text: bytes) -> int:
        """Return the end of the last match."""
        last = 0
        for start in reversed(range(0, len(text), _SLICE_BYTES)):
            for at in reversed(self._candidates_from(text, start)):
                if last and at + self.longest_bytes <= last:
                    return last
                lengths, number = self._found(text, at)
                if number:
                    last = max(last, at + lengths[number - 1])
        return last

    def _candidates(self, text: bytes) -> Iterator[int]:
        """Yield the positions at which a needle may start, in order."""
        starts = range(0, len(text), _SLICE_BYTES)
        return chain.from_iterable(self._candidates_from(text, start) for start in starts)

    def _candidates_from(self, text: bytes, start: int) -> list[int]:
        part = np.frombuffer(text, np.uint8)[start : start + _SLICE_BYTES + _LONG - 1]
        places = self._any.places(part)
        places = places[places < _SLICE_BYTES]
        found = self._short.among(part, places) | self._long.among(part, places)
        positions: list[int] = (places[found] + start).tolist()
        return positions


class _Prefixes:
    """The first bytes of needles, as a table of hashes."""

    def __init__(self, size: int, needles: Sequence[bytes]) -> None:
        self._size = size
        self._bits = min(_MOST_BITS, max(_FEWEST_BITS, len(needles).bit_length() + _SPARSE_BITS))
        self._table: Flags = np.zeros(1 << self._bits, bool)
        first = np.frombuffer(b"".join(each[:size] for each in needles), np.uint8)
        self._table[self._hashes([first[byte::size] for byte in range(size)])] = True

    def places(self, part: Bytes) -> Numbers:
        """Return the places in a part of a text at which such bytes may start."""
        number = max(0, len(part) - self._size + 1)
        hashes = self._hashes([part[byte : byte + number] for byte in range(self._size)])
        return np.flatnonzero(self._table[hashes])

    def among(self, part: Bytes, places: Numbers) -> Flags:
        """Return which of these places, in ascending order, may have such bytes."""
        found: Flags = np.zeros(len(places), bool)
        inside = places[: np.searchsorted(places, len(part) - self._size, "right")]
        hashes = self._hashes([part[inside + byte] for byte in range(self._size)])
        found[: len(inside)] = self._table[hashes]
        return found

    def _hashes(self, columns: Sequence[Bytes]) -> NDArray[np.uint64]:
        """Return the hash of each row, by multiplication."""
        words = columns[0].astype(np.uint64)
        for byte, column in enumerate(columns[1:], 1):
            words |= column.astype(np.uint64) << np.uint64(8 * byte)
        words *= np.uint64(_MULTIPLIER)
        return words >> np.uint64(64 - self._bits)


def _lengths(needles: Sequence[bytes]) -> list[array[int]]:
    """Return for each sorted needle its length, after the lengths of needles that are its prefixes.

    Their number is limited by the size of all needles.
    """
    found: list[array[int]] = []
    prefixes: list[bytes] = []
    for needle in needles:
        while prefixes and not needle.startswith(prefixes[-1]):
            prefixes.pop()
        prefixes.append(needle)
        found.append(array("I", map(len, prefixes)))
    return found
