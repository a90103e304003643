"""Finds secrets in a block of a log, in all forms in which programs print them.

Pure. A *needle* is a form of a secret. An *encoded* needle, in base 64, may be split by line ends,
because `base64` breaks its output at 76 columns. The characters next to it share bits with it and
are also masked.

A needle with a byte that is rare in logs is found by that byte: `bytes.find` skips to a single byte
at the speed of memory, and one pass serves all needles with the same byte. Any other needle is
searched for as a whole. An attacker could make a rare byte frequent in a log; the search then stops
using that byte for the log. Many needles have an index instead (`worker.secret_index`): its search
takes the same time for any number of needles.

A log may also consist of a secret alone, such as one letter in a row. After many matches in one
block, everything from the next match of a needle to its last one is a single place.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from worker.secret_index import SecretIndex

Span: TypeAlias = tuple[int, int]

_MOST_LOOKED_AT: Final = 64
_MOST_SINGLE: Final = 64
"""The maximum number of needles that are searched for without an index."""
_SHORTEST_LINE: Final = 32
"""The minimum length of lines that split an encoded needle."""
_RARE: Final = 0.002
"""The largest share of a usual log at which a byte is rare."""
_MOST_PLACES: Final = 0.004
"""The share of a block above which a byte is no longer used."""
_FEWEST_PLACES: Final = 50
_MOST_MATCHES: Final = 20_000
"""The limit for all needles in one block."""
_EDGE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_MOST_PADDING: Final = 2
_LINE_ENDS: Final = b"\r\n"
_LINE_END: Final = re.compile(rb"[\r\n]")
_FREQUENT: Final = frozenset(b" etaoinsrhldcumfpgwybvk0123456789.,:;/-_=()[]\"'\n\r\t")
_LESS_FREQUENT: Final = frozenset(b"ACDEFILMNOPRSTWBjqxz{}<>")


def _usual(byte: int) -> float:
    """Return the approximate share of a byte in a usual log."""
    if byte in _FREQUENT:
        return 0.02
    return 0.0015 if byte in _LESS_FREQUENT else 0.0005


_RARE_BYTES: Final = frozenset(byte for byte in range(256) if _usual(byte) <= _RARE)


@dataclass(frozen=True, slots=True)
class _Needle:
    text: bytes
    at: int
    """The position of its rare byte, which is never its last byte."""
    is_encoded: bool


class SecretSearch:
    """The search for a set of needles. `longest_bytes` is the limit of a match's length."""

    def __init__(self, plain: Iterable[bytes], encoded: Iterable[bytes] = ()) -> None:
        self._encoded = sorted({each for each in encoded if each})
        self._plain = sorted({each for each in plain if each}.difference(self._encoded))
        reaches = [*map(len, self._plain), *map(_reach, self._encoded)]
        self.longest_bytes = max(reaches, default=0)
        self._by_byte: dict[int, dict[int, list[_Needle]]] = {}
        self._whole: list[bytes] = []
        self._whole_encoded: list[bytes] = []
        left = [
            *((each, False) for each in self._plain),
            *((each, True) for each in self._encoded),
        ]
        self._index: SecretIndex | None = None
        self._encoded_index: SecretIndex | None = None
        if len(left) > _MOST_SINGLE:
            # Imported here, because numpy takes 20 MB of memory and few workers need it.
            from worker.secret_index import SHORTEST, SecretIndex

            self._index = SecretIndex(each for each in self._plain if len(each) >= SHORTEST)
            self._encoded_index = SecretIndex(
                each for each in self._encoded if len(each) >= SHORTEST
            )
            left = [each for each in left if len(each[0]) < SHORTEST]
        while left:
            # The byte of the most needles first, because each byte costs a pass over a block.
            covers = Counter(byte for text, _ in left for byte in _rare_bytes(text))
            if not covers:
                break
            byte = min(covers, key=lambda each: (-covers[each], _usual(each), each))
            for text, is_encoded in left:
                if byte in _rare_bytes(text):
                    self._add(byte, _Needle(text, text.index(byte), is_encoded))
            left = [each for each in left if byte not in _rare_bytes(each[0])]
        for text, is_encoded in left:
            (self._whole_encoded if is_encoded else self._whole).append(text)

    def spans(self, block: bytes) -> list[Span]:
        """Return the places of needles in a block, in order and without overlaps."""
        found: set[Span] = set()
        for byte in list(self._by_byte):
            if not self._find_by(byte, block, found):
                for needles in self._by_byte.pop(byte).values():
                    self._give_up(needles)
        matches = _Matches(_MOST_MATCHES)
        for needle in self._whole:
            found.update(matches.runs(block, needle))
        if self._whole_encoded or self._encoded_index is not None:
            ends = _LineEnds(block)
            for needle in self._whole_encoded:
                found.update(_edged(block, each) for each in ends.spans(needle, matches))
            if self._encoded_index is not None:
                runs = ends.indexed(self._encoded_index, matches)
                found.update(_edged(block, each) for each in runs)
        if self._index is not None:
            found.update(self._index.runs(block, is_over=matches.is_over))
        return _merged(found)

    def _add(self, byte: int, needle: _Needle) -> None:
        # The byte after the rare one selects the candidates.
        by_next = self._by_byte.setdefault(byte, {})
        following = needle.text[needle.at + 1]
        for each in (following, *(_LINE_ENDS if needle.is_encoded else b"")):
            by_next.setdefault(each, []).append(needle)

    def _give_up(self, needles: Iterable[_Needle]) -> None:
        for needle in needles:
            whole = self._whole_encoded if needle.is_encoded else self._whole
            if needle.text not in whole:
                whole.append(needle.text)

    def _find_by(self, byte: int, block: bytes, found: set[Span]) -> bool:
        """Find needles by their rare byte; False if the byte is too frequent here."""
        by_next, mark = self._by_byte[byte], bytes((byte,))
        left = max(_FEWEST_PLACES, int(len(block) * _MOST_PLACES))
        last = len(block) - 1
        at = block.find(mark)
        while 0 <= at < last:
            candidates = by_next.get(block[at + 1], ())
            for needle in candidates:
                found.update(_at(block, at, needle))
            left -= max(1, len(candidates))
            if left <= 0:
                return False
            at = block.find(mark, at + 1)
        return True


def _rare_bytes(text: bytes) -> frozenset[int]:
    """Return the rare bytes by which a needle can be found."""
    return _RARE_BYTES.intersection(text[:_MOST_LOOKED_AT][:-1])


class _LineEnds:
    """A block without its line ends, and the mapping of positions back to the block."""

    def __init__(self, block: bytes) -> None:
        self._joined = block.replace(b"\n", b"")
        if b"\r" in self._joined:
            self._joined = self._joined.replace(b"\r", b"")
        self._block = block
        self._keys: list[int] | None = None

    def spans(self, needle: bytes, matches: _Matches) -> Iterator[Span]:
        """Yield the places of an encoded needle in the block."""
        for at, end in matches.each(self._joined, needle):
            begin, last = self._place(at), self._place(end - 1)
            # The text between two matches that are one place may have any number of line ends.
            if last + 1 - begin <= len(needle) + _breaks(len(needle)) or end - at > len(needle):
                yield begin, last + 1

    def indexed(self, index: SecretIndex, matches: _Matches) -> Iterator[Span]:
        """Yield the places of encoded needles in the block; matches that touch are one place."""
        has_ends = len(self._joined) < len(self._block)
        accepts = self._is_near if has_ends else None
        for at, end in index.runs(self._joined, is_over=matches.is_over, accepts=accepts):
            yield self._place(at), self._place(end - 1) + 1

    def _is_near(self, at: int, size: int) -> bool:
        """Return whether a match has no more line ends within it than an encoded text has."""
        return self._place(at + size - 1) + 1 - self._place(at) <= size + _breaks(size)

    def _place(self, at: int) -> int:
        if self._keys is None:
            ends = enumerate(_LINE_END.finditer(self._block))
            self._keys = [found.start() - number for number, found in ends]
        return at + bisect_right(self._keys, at)


class _Matches:
    """The matches of whole needles in one block. Only a limited number is looked at."""

    def __init__(self, most: int) -> None:
        self._left = most

    def each(self, text: bytes, needle: bytes) -> Iterator[Span]:
        """Yield the matches of a needle in their order. The last one may contain several."""
        at = text.find(needle)
        while at >= 0:
            if self.is_over():
                yield at, text.rindex(needle) + len(needle)
                return
            yield at, at + len(needle)
            at = text.find(needle, at + 1)

    def runs(self, text: bytes, needle: bytes) -> Iterator[Span]:
        """Yield the matches of a needle in their order, those that overlap as one."""
        size = len(needle)
        begin = text.find(needle)
        while begin >= 0:
            last = begin
            while not (is_over := self.is_over()):
                # Of the matches that overlap this one, the last: it may be one letter in a row.
                overlapping = text.rfind(needle, last + 1, last + 2 * size)
                if overlapping < 0:
                    break
                last = overlapping
            if is_over:
                last = text.rindex(needle)
            yield begin, last + size
            begin = text.find(needle, last + 1)

    def is_over(self) -> bool:
        """Count one match; return True if there were too many before it."""
        self._left -= 1
        return self._left < 0


def _breaks(size: int) -> int:
    """Return the maximum number of line-end bytes inside an encoded needle of this length."""
    return 2 * (size // _SHORTEST_LINE + 1)


def _reach(needle: bytes) -> int:
    return len(needle) + _breaks(len(needle)) + 2 + _MOST_PADDING


def _at(block: bytes, at: int, needle: _Needle) -> Iterator[Span]:
    """Yield the places of a needle around a rare byte in the block."""
    begin, text = at - needle.at, needle.text
    if not needle.is_encoded:
        if begin >= 0 and block.startswith(text, begin):
            yield begin, begin + len(text)
        return
    if needle.at:
        if not at:
            return  # The needle starts before the block.
        before = block[at - 1]
        if before != text[needle.at - 1] and before not in _LINE_ENDS:
            return
    more = _breaks(len(text))
    low = max(0, begin - more)
    around = _LineEnds(block[low : begin + len(text) + more])
    for first, end in around.spans(text, _Matches(_MOST_MATCHES)):
        yield _edged(block, (low + first, low + end))


def _edged(block: bytes, span: Span) -> Span:
    """Extend a span by the adjacent characters that share bits with it, and by the padding."""
    begin, end = span
    if begin and block[begin - 1] in _EDGE:
        begin -= 1
    if end < len(block) and block[end] in _EDGE:
        end += 1
    for _ in range(_MOST_PADDING):
        end += block.startswith(b"=", end)
    return begin, end


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
