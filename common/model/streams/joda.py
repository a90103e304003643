"""Reads patterns of times in the language of Joda-Time, which Druid's specifications use.

Pure. A pattern is a row of *parts*: runs of one letter, and literal text. `reader_of` turns it into
a `TimeReader`: one regular expression that accepts the texts that Joda's parser accepts, and the
field that each of its groups holds. `printed_parts` checks a pattern for printing. A pattern that
can't be followed is a `PatternError` with the reason and what to write instead.

Joda's parser takes as many digits as a field may have and never gives one back, so the expressions
use possessive quantifiers. Spark reads the syntax of Java.
`worker.spark.streaming.joda` computes the times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

MAX_LENGTH: Final = 200
MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT: Final = 3
"""The number of letters in the short name of a month or a day."""
SHORT_ZONES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("UT", "UTC", "GMT"), "UTC"),
    **dict.fromkeys(("EST", "EDT"), "America/New_York"),
    **dict.fromkeys(("CST", "CDT"), "America/Chicago"),
    **dict.fromkeys(("MST", "MDT"), "America/Denver"),
    **dict.fromkeys(("PST", "PDT"), "America/Los_Angeles"),
}
"""The zones that the letter `z` reads, by their names."""

_MOST_PRINTED_FRACTION: Final = 9
_MOST_FRACTION: Final = 18
_MOST_YEAR: Final = 9
_TWO_DIGITS: Final = 2
_MORE_NUMBERS: Final = frozenset("CxyYS")


class PatternError(ValueError):
    """A pattern that can't be used; the message says why and what to write instead."""


class Field(StrEnum):
    """The content of a group of a `TimeReader`."""

    ERA = "era"
    YEAR = "year"
    YEAR_OF_ERA = "year of the era"
    SHORT_YEAR = "short year"
    WEEKYEAR = "weekyear"
    SHORT_WEEKYEAR = "short weekyear"
    MONTH = "month"
    MONTH_NAME = "month name"
    DAY = "day"
    DAY_OF_YEAR = "day of year"
    WEEK = "week"
    WEEKDAY = "weekday"
    WEEKDAY_NAME = "weekday name"
    HALF = "half of the day"
    HOUR = "hour"
    CLOCK_HOUR = "hour from 1 to 24"
    HALF_HOUR = "hour of the half day"
    HALF_CLOCK_HOUR = "hour from 1 to 12"
    MINUTE = "minute"
    SECOND = "second"
    FRACTION = "fraction of the second"
    OFFSET = "offset"
    SHORT_ZONE = "name of a zone"
    ZONE = "zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A run of `count` equal letters, or a literal text."""

    letter: str = ""
    count: int = 0
    text: str = ""

    @property
    def shown(self) -> str:
        return self.letter * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeReader:
    """An expression without anchors, and the fields of its groups in their order."""

    expression: str
    fields: tuple[Field, ...]


_NUMBERS: Final[Mapping[str, tuple[Field, int]]] = {
    "w": (Field.WEEK, 2),
    "e": (Field.WEEKDAY, 1),
    "d": (Field.DAY, 2),
    "D": (Field.DAY_OF_YEAR, 3),
    "H": (Field.HOUR, 2),
    "k": (Field.CLOCK_HOUR, 2),
    "K": (Field.HALF_HOUR, 2),
    "h": (Field.HALF_CLOCK_HOUR, 2),
    "m": (Field.MINUTE, 2),
    "s": (Field.SECOND, 2),
}
"""The letters of plain numbers, each with the most digits that Joda reads of it."""

_ASPECTS: Final[Mapping[str, str]] = {
    "G": "era",
    "C": "century",
    "y": "year",
    "Y": "year",
    "x": "year of a week",
    "w": "week",
    "e": "day of the week",
    "E": "day of the week",
    "M": "month",
    "d": "day of the month",
    "D": "day of the year",
    "a": "half of the day",
    **dict.fromkeys("HkKh", "hour"),
    "m": "minute",
    "s": "second",
    "S": "fraction",
    "Z": "zone",
    "z": "name of a zone",
}
"""The aspect that each letter of a pattern reads; a pattern reads each aspect once."""

_SECONDS_OF_OFFSET: Final = "(?::[0-5][0-9](?:[.,][0-9]{1,3}+|(?![.,]))|(?!:))"
_PLAIN_SECONDS_OF_OFFSET: Final = "(?:[0-5][0-9](?:[0-9]{1,3}+|(?![0-9]))|(?![0-9]))"
_OFFSET: Final = (
    "(?:[zZ]|([+-](?:[01][0-9]|2[0-3])"
    f"(?::[0-5][0-9]{_SECONDS_OF_OFFSET}|[0-5][0-9]{_PLAIN_SECONDS_OF_OFFSET}|(?![:0-9]))))"
)
_ZONE: Final = "([A-Za-z][A-Za-z0-9_+/-]*+)"


def read_pattern(text: str) -> tuple[Part, ...]:
    """Split a pattern into its parts."""
    if not text:
        raise PatternError("an empty pattern reads no time; use auto")
    if len(text) > MAX_LENGTH:
        raise PatternError(f"a pattern has at most {MAX_LENGTH} characters")
    if any(each < " " for each in text):
        raise PatternError("control characters can't be used; write them as spaces in the records")
    parts: list[Part] = []
    place = 0
    while place < len(text):
        letter = text[place]
        if _is_letter(letter):
            end = place + 1
            while text[end : end + 1] == letter:
                end += 1
            if letter not in _ASPECTS:
                raise PatternError(_unknown(letter))
            parts.append(Part(letter=letter, count=end - place))
            place = end
        else:
            literal, place = _literal(text, place)
            parts.append(Part(text=literal))
    return tuple(parts)


def reader_of(text: str) -> TimeReader:
    """Turn a pattern into an expression that reads the texts that Joda reads by it."""
    parts = read_pattern(text)
    _check_readable(parts)
    pieces: list[str] = []
    fields: list[Field] = []
    for part, following in zip(parts, (*parts[1:], None), strict=True):
        if not part.letter:
            pieces.append(_any_case(part.text))
            continue
        before_number = following is not None and _is_number(following)
        expression, held = _reading(part, before_number=before_number)
        pieces.append(expression)
        fields += held
    _check_fields(frozenset(fields))
    return TimeReader(expression="".join(pieces), fields=tuple(fields))


def printed_parts(text: str) -> tuple[Part, ...]:
    """Return the parts of a pattern that times are printed by."""
    parts = read_pattern(text)
    for part in parts:
        if part.letter == "S" and part.count > _MOST_PRINTED_FRACTION:
            raise PatternError(f"a fraction has at most {_MOST_PRINTED_FRACTION} S")
    return parts


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _is_number(part: Part) -> bool:
    """Return True for a number: a year in front of it has as many digits as letters."""
    is_month = part.letter == "M" and part.count < SHORT
    return is_month or part.letter in _NUMBERS or part.letter in _MORE_NUMBERS


def _unknown(letter: str) -> str:
    hint = {
        "u": "; write yyyy for the year or e for the day of the week",
        "n": "; write SSSSSSSSS for a fraction of nine digits",
        "X": "; write ZZ for an offset such as Z or +01:00",
        "V": "; write ZZZ for a zone such as Europe/Paris",
        "T": "; write 'T' in quotes",
        "L": "; write M for the month",
        "A": "; write a for AM or PM",
        "t": "; write 't' in quotes",
    }.get(letter, "; write text in single quotes")
    return f"the letter {letter} means nothing in a pattern of Joda{hint}"


def _literal(text: str, place: int) -> tuple[str, int]:
    """Return the literal text at a place and the place behind it, as Joda reads quotes.

    Two quotes are one, within quotes and outside; a quote that is never closed ends with the text.
    """
    found: list[str] = []
    quoted = False
    while place < len(text):
        character = text[place]
        if character == "'":
            if text[place + 1 : place + 2] == "'":
                found.append(character)
                place += 1
            else:
                quoted = not quoted
        elif not quoted and _is_letter(character):
            break
        else:
            found.append(character)
        place += 1
    return "".join(found), place


def _any_case(text: str) -> str:
    """Return an expression for a literal text; Joda ignores its case."""
    if not any(each.isalpha() for each in text):
        return _escaped(text)
    return f"(?iu:{_escaped(text)})"


def _escaped(text: str) -> str:
    # A backslash in front of anything but an ASCII letter or digit means the character itself.
    return "".join(each if each.isalnum() else f"\\{each}" for each in text)


def _reading(part: Part, *, before_number: bool) -> tuple[str, tuple[Field, ...]]:
    """Return the expression of a run of letters with the fields of its groups."""
    number = _NUMBERS.get(part.letter)
    if number is not None:
        field, most = number
        return f"([0-9]{{1,{max(most, part.count)}}}+)", (field,)
    match part.letter:
        case "y" | "Y" | "x":
            return _year(part, before_number=before_number)
        case "M" if part.count < SHORT:
            return "([0-9]{1,2}+)", (Field.MONTH,)
        case "M":
            return _one_of(MONTHS), (Field.MONTH_NAME,)
        case "E":
            return _one_of(DAYS), (Field.WEEKDAY_NAME,)
        case "S":
            return f"([0-9]{{1,{min(part.count, _MOST_FRACTION)}}}+)", (Field.FRACTION,)
        case "a":
            return _one_of(("AM", "PM")), (Field.HALF,)
        case "G":
            return _one_of(("AD", "BC", "CE", "BCE")), (Field.ERA,)
        case "Z" if part.count < SHORT:
            return _OFFSET, (Field.OFFSET,)
        case "Z":
            return _ZONE, (Field.ZONE,)
        case "z" if part.count <= SHORT:
            return f"((?>{'|'.join(_longest_first(SHORT_ZONES))}))", (Field.SHORT_ZONE,)
        case "z":
            raise PatternError(f"Joda prints {part.shown} but can't read it; write z or ZZZ")
        case _:
            raise PatternError("C, the century, can't be read; write yyyy for the whole year")


def _year(part: Part, *, before_number: bool) -> tuple[str, tuple[Field, ...]]:
    field, short = Field.YEAR, Field.SHORT_YEAR
    if part.letter == "x":
        field, short = Field.WEEKYEAR, Field.SHORT_WEEKYEAR
    if part.count == _TWO_DIGITS:
        if before_number:
            return "([0-9]{2})", (short,)
        return r"(?:([0-9]{2})(?![0-9])|\+*+(-?+[0-9]++))", (short, field)
    most = part.count if before_number else max(_MOST_YEAR, part.count)
    if part.letter == "Y":
        return f"([0-9]{{1,{most}}}+)", (Field.YEAR_OF_ERA,)
    # Joda reads a sign only where there is room for two characters.
    sign = "[+-]?+" if most > 1 else ""
    return f"({sign}[0-9]{{1,{most}}}+)", (field,)


def _one_of(names: Sequence[str]) -> str:
    """Return an expression for long and short names, also in lower or in upper case."""
    long_or_short = {*names, *(each[:SHORT] for each in names)}
    spelt = {each for name in long_or_short for each in (name, name.lower(), name.upper())}
    return f"((?>{'|'.join(_longest_first(spelt))}))"


def _longest_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda each: (-len(each), each))


def _check_readable(parts: Sequence[Part]) -> None:
    seen: dict[str, Part] = {}
    for part in parts:
        if not part.letter:
            continue
        aspect = _ASPECTS[part.letter]
        if aspect in seen:
            both = f"{seen[aspect].shown} and {part.shown}"
            raise PatternError(f"{both} both read the {aspect}; write one, and text in quotes")
        seen[aspect] = part
    for part, following in pairwise(parts):
        if part.letter == "Z" and part.count >= SHORT:
            beginning = following.text[:1] or "0"
            if beginning.isalnum() or beginning in "_+-/":
                raise PatternError(f"{part.shown} needs a space or a sign such as ] behind it")


_OF_WEEKYEAR: Final = frozenset({Field.WEEKYEAR, Field.SHORT_WEEKYEAR})
_OF_YEAR: Final = frozenset({Field.YEAR, Field.YEAR_OF_ERA, Field.SHORT_YEAR})
_OF_MONTH: Final = frozenset({Field.MONTH, Field.MONTH_NAME})
_OF_DAY: Final = frozenset({Field.DAY, Field.DAY_OF_YEAR})
_OF_WEEKDAY: Final = frozenset({Field.WEEKDAY, Field.WEEKDAY_NAME})
_NO_TIME: Final = frozenset({Field.OFFSET, Field.ZONE, Field.SHORT_ZONE, Field.ERA})


def _check_fields(fields: frozenset[Field]) -> None:
    """Refuse what Joda fills up in ways that no author means, such as a week of a plain year."""
    if not fields - _NO_TIME:
        raise PatternError("the pattern reads no part of a time; write at least a date")
    if fields & _OF_WEEKYEAR:
        others = fields & (_OF_YEAR | _OF_MONTH | _OF_DAY)
        if others:
            raise PatternError(
                "x, the year of a week, goes with w and e alone; write y for the year of a date"
            )
    elif Field.WEEK in fields:
        raise PatternError("w, the week, needs the year of a week; write xxxx in place of the year")
    if Field.DAY_OF_YEAR in fields and fields & (_OF_MONTH | {Field.DAY}):
        raise PatternError("D is the day of the year; write d for the day of the month")
    has_date = Field.DAY_OF_YEAR in fields or (Field.DAY in fields and fields & _OF_MONTH)
    if fields & _OF_WEEKDAY and not (has_date or fields & _OF_WEEKYEAR):
        raise PatternError(
            "a day of the week needs a whole date; write its month and day, or xxxx and w"
        )
    if Field.ERA in fields and not fields & _OF_YEAR:
        raise PatternError("G, the era, needs a year; write yyyy")
