"""Regular expressions of the numbers and names in texts of times.

Pure. The expressions match what Joda's parser accepts, without numbers outside a range, such as
hour 24. Joda takes as many digits as a part may have and never gives one back. Each expression
therefore matches a run of digits in one way. Java and Python read the syntax. Used by `joda`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

SHORT: Final = 3
"""The number of letters in the short name of a month or a day."""

_TWO: Final = 2
_YEAR_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Expressions of the numbers in a range: one for one digit, one for two digits."""

    one: str
    two: str


MONTH: Final = Bounds(one="[1-9]", two="0[1-9]|1[0-2]")
DAY: Final = Bounds(one="[1-9]", two="0[1-9]|[12][0-9]|3[01]")
WEEK: Final = Bounds(one="[1-9]", two="0[1-9]|[1-4][0-9]|5[0-3]")
WEEKDAY: Final = Bounds(one="[1-7]", two="0[1-7]")
HOUR: Final = Bounds(one="[0-9]", two="[01][0-9]|2[0-3]")
CLOCK_HOUR: Final = Bounds(one="[1-9]", two="0[1-9]|1[0-9]|2[0-4]")
HALF_HOUR: Final = Bounds(one="[0-9]", two="0[0-9]|1[01]")
HALF_CLOCK_HOUR: Final = Bounds(one="[1-9]", two="0[1-9]|1[0-2]")
SIXTY: Final = Bounds(one="[0-9]", two="[0-5][0-9]")


def number(bounds: Bounds, most: int) -> str:
    """Return an expression of a number with at most `most` digits; its group has one or two."""
    one, two = bounds.one, bounds.two
    if most == 1:
        return f"({one})"
    if most == _TWO:
        return f"({two}|{one}(?![0-9]))"
    return (
        f"(?>0{{{most - 2}}}(?={two})|0{{0,{most - 3}}}(?=(?:{two})(?![0-9]))"
        f"|(?={one}(?![0-9])))((?>{two}|{one}))"
    )


def year(most: int) -> str:
    """Return an expression of a year; its groups capture the years from 0 to 10000.

    The groups are alternatives, except the third. It is empty and belongs to the second, which has
    less than four digits.
    """
    return (
        "(?>([0-9]{4})(?![0-9])|([0-9]{1,3})(?![0-9])()"
        f"|0{{1,{most - 5}}}([0-9]{{4}})(?![0-9])|0{{{most - 4}}}([0-9]{{4}})"
        f"|0{{0,{most - 5}}}(10000)(?![0-9])|[0-9]{{1,{most}}}+)"
    )


def year_before_number(count: int) -> str:
    """Return an expression of a year in front of a number: it has `count` digits."""
    if count <= _YEAR_DIGITS:
        return f"([0-9]{{{count}}})"
    return f"(?>0{{{count - 4}}}([0-9]{{4}})|0{{{count - 5}}}(10000)|[0-9]{{{count}}})"


def signed(year: str, *, zero: str, digits: str) -> str:
    """Return an expression of a year behind a sign; it captures a negative year only if it is 0."""
    return rf"(?>(?:\+|-(?={zero}))?+{year}|-{digits})"


def one_of(names: Sequence[str]) -> str:
    """Return an expression for long and short names, also in lower or in upper case."""
    long_or_short = {*names, *(each[:SHORT] for each in names)}
    spelt = {each for name in long_or_short for each in (name, name.lower(), name.upper())}
    return f"(?>{'|'.join(sorted(spelt, key=lambda each: (-len(each), each)))})"


def any_of(names: Iterable[str]) -> str:
    """Return an expression for many names, with each common prefix written once."""
    endings = sorted(set(names))
    found = [] if endings[:1] != [""] else [""]
    for first, group in groupby((each for each in endings if each), key=lambda each: each[0]):
        found.append(f"{_escaped(first)}{any_of(each[1:] for each in group)}")
    # The empty ending is the last, so that the longest name is tried first.
    found = [*(each for each in found if each), *(each for each in found if not each)]
    return found[0] if len(found) == 1 else f"(?:{'|'.join(found)})"


def literal(text: str) -> str:
    """Return an expression for a literal text; Joda ignores its case."""
    escaped = "".join(map(_escaped, text))
    return f"(?iu:{escaped})" if any(each.isalpha() for each in text) else escaped


def _escaped(character: str) -> str:
    # A backslash in front of anything but an ASCII letter or digit means the character itself.
    return character if character.isalnum() else f"\\{character}"
