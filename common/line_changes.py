"""The lines in which two texts differ, compared within a bounded number of steps. Pure.

The time of a comparison grows with the square of the number of lines, or with its cube if many
lines are equal. Steps are counted before they are taken.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import accumulate

_AROUND = 2


class TooManyStepsError(Exception):
    """A comparison needs more steps than are left."""


class Steps:
    """A budget of steps that several comparisons share."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, number: int) -> None:
        """Take steps; `TooManyStepsError` if too few are left."""
        if number > self.left:
            raise TooManyStepsError
        self.left -= number


def changed_lines(old: Sequence[str], new: Sequence[str], steps: Steps) -> tuple[str, ...]:
    """Return the lines that differ, with two lines of context, in the form of `diff -u`.

    If the steps run out, all old lines are shown as removed and all new lines as added.
    """
    matcher = _Matcher(old, new, steps)
    try:
        return tuple(_groups(matcher, old, new))
    except TooManyStepsError:
        return replaced_lines(old, new)


def replaced_lines(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Return all old lines as removed and all new lines as added."""
    return (*(f"-{line}" for line in old), *(f"+{line}" for line in new))


class _Matcher(difflib.SequenceMatcher[str]):
    """A matcher that counts the pairs of lines that it checks."""

    b2j: dict[str, list[int]]
    """The positions of each line in the new text; the base class fills it."""

    def __init__(self, old: Sequence[str], new: Sequence[str], steps: Steps) -> None:
        super().__init__(None, old, new)
        self._steps = steps
        self._size = len(old)
        pairs = (1 + len(self.b2j.get(line, ())) for line in old)
        self._pairs_before = [0, *accumulate(pairs)]

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        """Count the steps of the search, then find a match as the base class does."""
        end = self._size if ahi is None else ahi
        self._steps.take(self._pairs_before[end] - self._pairs_before[alo])
        return super().find_longest_match(alo, ahi, blo, bhi)


def _groups(matcher: _Matcher, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    for group in matcher.get_grouped_opcodes(_AROUND):
        first, last = group[0], group[-1]
        yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
        for kind, begin, end, new_begin, new_end in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[begin:end])
                continue
            yield from replaced_lines(old[begin:end], new[new_begin:new_end])


def _range(begin: int, end: int) -> str:
    """Return a range of lines as `diff -u` writes it: the first line counts as 1."""
    length = end - begin
    if length == 1:
        return f"{begin + 1}"
    return f"{begin + 1 if length else begin},{length}"
