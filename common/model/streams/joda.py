"""Reads patterns of times in the language of Joda-Time, which Druid's specifications use.

Pure. A pattern is a row of *parts*: runs of one letter, and literal text. `reader_of` turns it into
a `TimeReader`: one regular expression that accepts the texts that Joda's parser accepts, and what
to replace them by. `printed_parts` checks a pattern for printing. A pattern that can't be followed
is a `PatternError` with the reason and what to write instead.

The expressions of single parts are in `time_tokens`. `worker.spark.streaming.joda` computes the
times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Final

from common.model.streams import time_tokens as tokens
from common.model.streams.time_tokens import SHORT
from common.model.streams.zones import JODA_ZONES

MAX_LENGTH: Final = 200
MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
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
_MILLIS: Final = 3
_MOST_YEAR: Final = 9
_MOST_SIGNED_YEAR: Final = 1_000
"""The most digits of a year with a sign where `yy` is expected; Joda does not limit them."""
_LEAST_DIGITS: Final = 4
_GROUPS_OF_YEAR: Final = 6
_YEAR_OF_DATES: Final = "2000"
"""Joda's year for a month or a day without a year."""
_YEAR_OF_CLOCKS: Final = "1970"
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
    """The way from a text to a time in the form of ISO 8601, by one replacement.

    Spark reads ISO 8601 fast, and evaluates a replacement and a cast in generated code. Names and
    hours of half days become numbers by a *table* that follows the text: `lookups` find the name in
    the table and capture the number behind it. The last attributes are forms of the replacement,
    with groups as `$2`; an empty form marks a part that the pattern lacks. The first group
    belongs to the caller.
    """

    expression: str
    """The expression of the text, without anchors."""
    fields: tuple[Field, ...]
    table: str
    lookups: str
    """The expressions at the start of the table, which don't move forward."""
    has_window: bool
    """True if the table needs the window of two-digit years at its start, as `WINDOW` says."""
    moment: str
    """Date and clock, without a zone; if `date` is not empty, the clock of the first of 1970."""
    offset: str
    date: str
    """The date if it has to be moved to a day of the year, a week or a weekday."""
    ordinal: str
    week: str
    weekday: str
    zone: str
    usual: tuple[Usual, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """A form of a pattern's texts that Spark's own parser reads as Joda does, and faster.

    Every part has as many digits as letters, names are short and in lower case behind an initial.
    """

    expression: str
    spark_pattern: str


WINDOW: Final = 28
"""The length of a window, such as `1920:56789----:4:6789------:` for the years from 1946 to 2045.

Its parts are both centuries, the tens digits above the first year's, the first year's tens digit,
and the ones digits from the first year's upwards.
"""

_NUMBERS: Final[Mapping[str, tuple[Field, int, tokens.Bounds | None]]] = {
    "w": (Field.WEEK, 2, tokens.WEEK),
    "e": (Field.WEEKDAY, 1, tokens.WEEKDAY),
    "d": (Field.DAY, 2, tokens.DAY),
    "D": (Field.DAY_OF_YEAR, 3, None),
    "H": (Field.HOUR, 2, tokens.HOUR),
    "k": (Field.CLOCK_HOUR, 2, tokens.CLOCK_HOUR),
    "K": (Field.HALF_HOUR, 2, tokens.HALF_HOUR),
    "h": (Field.HALF_CLOCK_HOUR, 2, tokens.HALF_CLOCK_HOUR),
    "m": (Field.MINUTE, 2, tokens.SIXTY),
    "s": (Field.SECOND, 2, tokens.SIXTY),
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
_USUAL_YEAR: Final = "[1-9][0-9]{3}"
_USUAL_OFFSETS: Final = (
    ("(?:Z|[+-](?:0[0-9]|1[0-7])[0-5][0-9])", "XX"),
    ("(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])", "XXX"),
)
_USUAL: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("yyyy", "YYYY"), (_USUAL_YEAR, "yyyy")),
    **{letters: ("[0-9]{2}", letters) for letters in ("MM", "dd", "HH", "mm", "ss")},
    **dict.fromkeys(("MMM", "MMMM"), ("[A-Z][a-z]{2}", "MMM")),
    "SSS": ("[0-9]{3}", "SSS"),
}
"""The expressions of parts in their usual form, and their patterns for Spark."""
_TRIMMED: Final = "".join(map(chr, range(33))) + '"'

_OFFSET: Final = (
    "(?:[zZ]|([+-](?:[01][0-9]|2[0-3])"
    f"(?::[0-5][0-9]{_SECONDS_OF_OFFSET}|[0-5][0-9]{_PLAIN_SECONDS_OF_OFFSET}|(?![:0-9]))))"
)


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
    """Turn a pattern into the reader of the texts that Joda reads by it."""
    parts = read_pattern(text)
    _check_readable(parts)
    reading = _Reading(usual=_usual(parts))
    for part, following in zip(parts, (*parts[1:], None), strict=True):
        reading.add(part, before_number=following is not None and _is_number(following))
    _check_fields(frozenset(reading.fields))
    return reading.reader()


def _usual(parts: Sequence[Part]) -> tuple[Usual, ...]:
    """Return the usual forms; none if the pattern is not made of a whole date and a clock.

    Both forms of an offset get a parser: an optional part would make Spark's parser slow.
    """
    letters = {part.letter for part in parts if part.letter}
    clock = "".join(each for each in "HmsS" if each in letters)
    if not (letters & {"y", "Y"} and {"M", "d"} <= letters and "HmsS".startswith(clock)):
        return ()
    texts = [part.text for part in parts if not part.letter]
    if any(
        each.strip(_TRIMMED) != each for each in texts if each in {parts[0].text, parts[-1].text}
    ):
        return ()
    forms = [Usual(expression="", spark_pattern="")]
    for before, part in zip((None, *parts[:-1]), parts, strict=True):
        quoted = part.text.replace("'", "''")
        known = [(re.escape(part.text), f"'{quoted}'" if quoted else "")]
        if part.letter == "S" and before is not None and _is_number(before):
            # Spark reads a fraction only behind other text.
            return ()
        if part.letter == "Z" and part.count < SHORT:
            known = list(_USUAL_OFFSETS if part.count == 1 else reversed(_USUAL_OFFSETS))
        elif part.letter:
            known = [_USUAL[part.shown]] if part.shown in _USUAL else []
        forms = [
            Usual(expression=form.expression + added, spark_pattern=form.spark_pattern + letters)
            for form in forms
            for added, letters in known
        ]
    return tuple(forms)


def printed_parts(text: str) -> tuple[Part, ...]:
    """Return the parts of a pattern that times are printed by."""
    parts = read_pattern(text)
    for part in parts:
        if part.letter == "S" and part.count > _MOST_PRINTED_FRACTION:
            raise PatternError(f"a fraction has at most {_MOST_PRINTED_FRACTION} S")
    return parts


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _is_year_of_era(part: Part) -> bool:
    return part.letter == "Y" and part.count != _TWO_DIGITS


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


@cache
def _zone_names() -> str:
    return tokens.any_of(JODA_ZONES)


class _Reading:
    """The expression of a pattern while its parts are added, with the groups of each field."""

    def __init__(self, *, usual: tuple[Usual, ...]) -> None:
        self.fields: dict[Field, tuple[int, ...]] = {}
        self._usual = usual
        self._pieces: list[str] = []
        # The first group belongs to the caller.
        self._groups = 1
        self._lookups: list[str] = []
        self._table: list[str] = []
        self._zeros = ""

    def add(self, part: Part, *, before_number: bool) -> None:
        if not part.letter:
            self._pieces.append(tokens.literal(part.text))
            return
        number = _NUMBERS.get(part.letter)
        if number is not None:
            field, digits, bounds = number
            most = max(digits, part.count)
            expression = tokens.number(bounds, most) if bounds else f"([0-9]{{1,{most}}}+)"
            self._add(field, expression)
            return
        match part.letter:
            case "y" | "Y" | "x":
                self._add_year(part, before_number=before_number)
            case "M" if part.count < SHORT:
                self._add(Field.MONTH, tokens.number(tokens.MONTH, 2))
            case "M":
                self._add(Field.MONTH_NAME, f"(?=([A-Za-z]{{3}})){tokens.one_of(MONTHS)}")
            case "E":
                self._add(Field.WEEKDAY_NAME, f"(?=([A-Za-z]{{3}})){tokens.one_of(DAYS)}")
            case "S":
                more = max(0, min(part.count, _MOST_FRACTION) - _MILLIS)
                first = f"([0-9]{{1,{min(part.count, _MILLIS)}}}+)"
                self._add(Field.FRACTION, f"{first}[0-9]{{0,{more}}}+" if more else first)
            case "a":
                self._add(Field.HALF, f"(?=([AaPp])){tokens.one_of(('AM', 'PM'))}")
            case "G":
                self._add(
                    Field.ERA, f"(?=([A-Za-z]{{2}})){tokens.one_of(('AD', 'BC', 'CE', 'BCE'))}"
                )
            case "Z" if part.count < SHORT:
                self._add(Field.OFFSET, _OFFSET)
            case "Z":
                self._add(Field.ZONE, f"({_zone_names()}(?![A-Za-z0-9_+/-]))")
            case "z" if part.count <= SHORT:
                names = sorted(SHORT_ZONES, key=lambda each: (-len(each), each))
                self._add(Field.SHORT_ZONE, f"((?>{'|'.join(names)}))")
            case "z":
                raise PatternError(f"Joda prints {part.shown} but can't read it; write z or ZZZ")
            case _:
                raise PatternError("C, the century, can't be read; write yyyy for the whole year")

    def reader(self) -> TimeReader:
        """Return the reader of all parts that were added."""
        fields = self.fields
        year, month = self._year(), self._month()
        day = f"{year}-{month}-{self._one(Field.DAY, '01')}"
        if fields.keys() & _OF_WEEKYEAR:
            # This day is in the first week of its year.
            day = f"{year}-01-04"
        is_moved = fields.keys() & (_OF_WEEKYEAR | _OF_WEEKDAY | {Field.DAY_OF_YEAR})
        clock = (
            f"{self._hour()}:{self._one(Field.MINUTE, '00')}:{self._one(Field.SECOND, '00')}"
            f".{self._one(Field.FRACTION, '0')}"
        )
        weekday = self._one(Field.WEEKDAY, "")
        if Field.WEEKDAY_NAME in fields:
            names = "".join(f"{name[:SHORT]}{at}" for at, name in enumerate(DAYS, start=1))
            weekday = self._found(names, f"(?i:{self._same(Field.WEEKDAY_NAME)})([1-7])")
        if {Field.ERA, Field.YEAR_OF_ERA} <= fields.keys():
            # A plain year overwrites the era.
            self._table.append(";AD;CE;")
            self._lookups.append(f"(?=.*?;(?i:{self._same(Field.ERA)});)")
        zone = self._one(Field.ZONE, "")
        if Field.SHORT_ZONE in fields:
            names = "".join(f";{name}={zone};" for name, zone in SHORT_ZONES.items())
            zone = self._found(names, f";{self._same(Field.SHORT_ZONE)}=([^;]*);")
        return TimeReader(
            expression="".join(self._pieces),
            fields=tuple(fields),
            table="".join(self._table),
            lookups="".join(self._lookups),
            has_window=bool(fields.keys() & _SHORT_YEARS),
            moment=f"{'1970-01-01' if is_moved else day}T{clock}",
            offset=self._one(Field.OFFSET, ""),
            date=day if is_moved else "",
            ordinal=self._one(Field.DAY_OF_YEAR, ""),
            week=self._one(Field.WEEK, "1") if fields.keys() & _OF_WEEKYEAR else "",
            weekday=weekday or ("1" if fields.keys() & _OF_WEEKYEAR else ""),
            zone=zone,
            usual=self._usual,
        )

    def _add(self, field: Field, expression: str) -> None:
        self._pieces.append(expression)
        count = re.compile(expression).groups
        self.fields[field] = tuple(range(self._groups + 1, self._groups + 1 + count))
        self._groups += count

    def _add_year(self, part: Part, *, before_number: bool) -> None:
        field, short, count = Field.YEAR, Field.SHORT_YEAR, part.count
        if part.letter == "x":
            field, short = Field.WEEKYEAR, Field.SHORT_WEEKYEAR
        if _is_year_of_era(part):
            field = Field.YEAR_OF_ERA
        if count == _TWO_DIGITS and before_number:
            self._add(short, "([0-9])([0-9])()")
        elif count == _TWO_DIGITS:
            self._pieces.append("(?>")
            self._add(short, "([0-9])([0-9])(?![0-9])()")
            self._pieces.append(r"|\+*+")
            year = tokens.year(_MOST_SIGNED_YEAR)
            self._add(field, tokens.signed(year, zero="0++(?![0-9])", digits="[0-9]++"))
            self._pieces.append(")")
        else:
            most = count if before_number else max(_MOST_YEAR, count)
            digits = f"[0-9]{{{most}}}" if before_number else f"[0-9]{{1,{most}}}+"
            zero = f"0{{{most}}}" if before_number else f"0{{1,{most}}}(?![0-9])"
            year = tokens.year_before_number(count) if before_number else tokens.year(most)
            if before_number:
                self._zeros = "0" * (_LEAST_DIGITS - count)
            if field is Field.YEAR_OF_ERA:
                year = f"(?!{zero}){year}"
            elif most > 1:
                # Joda reads a sign only where there is room for two characters.
                year = tokens.signed(year, zero=zero, digits=digits)
            self._add(field, year)

    def _one(self, field: Field, default: str) -> str:
        return f"${self.fields[field][0]}" if field in self.fields else default

    def _same(self, field: Field, at: int = 0) -> str:
        """Return an expression of the text that a group has captured."""
        return rf"(?:\{self.fields[field][at]})"

    def _found(self, entries: str, expression: str) -> str:
        """Extend the table; return the group that the expression captures in it."""
        self._table.append(entries)
        self._lookups.append(f"(?=.*?{expression})")
        self._groups += 1
        return f"${self._groups}"

    def _year(self) -> str:
        fields = self.fields
        years = [each for each in fields if each in _OF_YEAR | _OF_WEEKYEAR]
        if not years:
            is_date = fields.keys() & (_OF_MONTH | _OF_DAY)
            return _YEAR_OF_DATES if is_date else _YEAR_OF_CLOCKS
        return "".join(map(self._year_of, years))

    def _year_of(self, field: Field) -> str:
        groups = self.fields[field]
        shown = "".join(f"${each}" for each in groups)
        if field in _SHORT_YEARS:
            tens, ones, mark = (self._same(field, at) for at in range(len(groups)))
            first, second = self._groups + 1, self._groups + 2
            self._groups = second
            later = f"(?:[0-9]*{tens}[0-9-]*:|[0-9-]*:{tens}:[0-9]*{ones})"
            self._lookups.append(
                f"(?:{mark}(?:(?=[?]([0-9]{{2}})[0-9]{{2}}:{later})|(?=[?][0-9]{{2}}([0-9]{{2}})))"
                f"|(?!{mark}))"
            )
            return f"${first}${second}{shown}"
        if len(groups) < _GROUPS_OF_YEAR:
            return f"{self._zeros}{shown}"
        # Spark reads years of four to six digits.
        mark = self._same(field, 2)
        self._table.append("~000")
        self._lookups.append(f"(?:{mark}(?=.*?~(000))|(?!{mark}))")
        self._groups += 1
        return f"${self._groups}{shown}"

    def _hour(self) -> str:
        fields = self.fields
        half = f"(?i:{self._same(Field.HALF)})" if Field.HALF in fields else "a"
        if Field.HOUR in fields:
            # Joda sets the hour last, and overwrites a half of the day.
            return self._one(Field.HOUR, "")
        if Field.CLOCK_HOUR in fields:
            entries = "".join(f"k{hour:02}={hour % 24:02}" for hour in range(1, 25))
            return self._found(entries, f"k0?{self._same(Field.CLOCK_HOUR)}=([0-9]{{2}})")
        for field, most in ((Field.HALF_HOUR, 11), (Field.HALF_CLOCK_HOUR, 12)):
            if field in fields:
                entries = "".join(
                    f"{name}{hour:02}={hour % 12 + later:02}"
                    for name, later in (("a", 0), ("p", 12))
                    for hour in range(most + 1)
                )
                return self._found(entries, f"{half}0?{self._same(field)}=([0-9]{{2}})")
        if Field.HALF in fields:
            return self._found("a=00p=12", f"{half}=([0-9]{{2}})")
        return "00"

    def _month(self) -> str:
        if Field.MONTH_NAME not in self.fields:
            return self._one(Field.MONTH, "01")
        names = "".join(f"{name[:SHORT]}{at:02}" for at, name in enumerate(MONTHS, start=1))
        return self._found(names, f"(?i:{self._same(Field.MONTH_NAME)})([0-9]{{2}})")


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


_SHORT_YEARS: Final = frozenset({Field.SHORT_YEAR, Field.SHORT_WEEKYEAR})
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
