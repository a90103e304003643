"""Reads the text of a Quartz cron line, or reports the field and the position of its mistake.

Pure. A line is `seconds minutes hours day-of-month month day-of-week [year]`, at most `MAX_LENGTH`
characters, its fields separated by white space. Letters may be small or capital; Sunday is 1.

| field        | values    | names   | further                                                    |
|--------------|-----------|---------|------------------------------------------------------------|
| seconds      | 0-59      |         |                                                            |
| minutes      | 0-59      |         |                                                            |
| hours        | 0-23      |         |                                                            |
| day-of-month | 1-31      |         | `?` `L` `L-n` `LW` `L-nW` `nW`                             |
| month        | 1-12      | JAN-DEC |                                                            |
| day-of-week  | 1-7       | SUN-SAT | `?` `L` `nL` `n#k`                                         |
| year         | 1970-2199 |         | may be left out, which is `*`                              |

Every field is a list of parts with commas between them: `*`, `a`, `a-b`, `a-b/n`, `a/n` (from a to
the end of the field), `*/n` and `/n`. A range whose end is below its start wraps around, years
excepted. What a year leaves open at its end (`*`, `2024/4`) runs on to the year 9999.

What Quartz does was read in its `CronExpression` (the 2.5 line), and is followed:

- Exactly one of the two day fields is `?`. `*` in both, or `?` in both, is refused there and here.
- `L`, `L-n`, `LW`, `L-nW` and `nW` may stand in a list of days of the month. A month without that
  day (`31W` in June, `L-30` in June) has no fire; `nW` never leaves its month.
- `nL` and `n#k` of the day-of-week stand alone; `L` there, alone, is 7, Saturday.
- A step is at most 59, 59, 23, 31, 12 and 7 in the fields of the table.

Quartz reads on over some mistakes and then means something else than is written: it drops the
step of `MON-FRI/2`, the `DAY` of `MONDAY`, the 5 of `*5`, an `L` among the hours, empty parts of a
list, what follows `15W`, and takes `*/0` for `*`. All of these are refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from common.cron.unix import quartz_of_unix
from common.errors import SchedulerError

MAX_LENGTH = 256
FIRST_YEAR = 1970
LAST_WRITTEN_YEAR = 2199
LAST_YEAR = 9999
MAX_BEFORE_LAST_DAY = 30


class CronError(SchedulerError):
    """A cron line can't be read, or never fires.

    `position` counts the characters of the line from 1; `field` is the name of the field, or
    `line` where the whole line is meant; `reason` is the message without the two.
    """

    def __init__(self, position: int, field_name: str, reason: str) -> None:
        super().__init__(f"position {position}, {field_name}: {reason}")
        self.position = position
        self.field = field_name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Span:
    """Every `step`th number from `low` to `high`; `high` below `low` runs around the field's end.

    `starred` is a span that was written with `*`, or without a beginning, `stepped` one with `/n`.
    """

    low: int
    high: int
    step: int = 1
    starred: bool = False
    stepped: bool = False

    def values(self, first: int, circle: int) -> Iterator[int]:
        """The numbers, in a field of `circle` numbers that begins with `first`."""
        end = self.high if self.high >= self.low else self.high + circle
        return ((value - first) % circle + first for value in range(self.low, end + 1, self.step))


@dataclass(frozen=True, slots=True)
class LastDay:
    """The last day of the month or `before` days before it, or the weekday nearest that day."""

    before: int = 0
    to_weekday: bool = False


@dataclass(frozen=True, slots=True)
class NearestWeekday:
    """The day from Monday to Friday nearest to a day of the month, within the month."""

    day: int


@dataclass(frozen=True, slots=True)
class LastOf:
    """The last such day of the week in the month; Sunday is 1."""

    day_of_week: int


@dataclass(frozen=True, slots=True)
class NthOf:
    """The nth such day of the week in the month; Sunday is 1."""

    day_of_week: int
    nth: int


Part: TypeAlias = Span | LastDay | NearestWeekday | LastOf | NthOf


@dataclass(frozen=True, slots=True)
class Fields:
    """A line that has been read; exactly one of the two day fields is not None."""

    seconds: tuple[Span, ...]
    minutes: tuple[Span, ...]
    hours: tuple[Span, ...]
    days_of_month: tuple[Part, ...] | None
    months: tuple[Span, ...]
    days_of_week: tuple[Part, ...] | None
    years: tuple[Span, ...]
    # Where the day field that counts is written, for the message that a line never fires.
    day_position: int


@dataclass(frozen=True, slots=True)
class _Kind:
    """The values that one field may have."""

    name: str
    low: int
    high: int
    max_step: int
    names: Mapping[str, int]

    def bounds(self) -> str:
        if self is _DAY_OF_WEEK:
            return "1 (Sunday) to 7 (Saturday)"
        return f"{self.low} to {self.high}"


_NAMELESS: Mapping[str, int] = {}
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_SECONDS = _Kind("seconds", 0, 59, 59, _NAMELESS)
_MINUTES = _Kind("minutes", 0, 59, 59, _NAMELESS)
_HOURS = _Kind("hours", 0, 23, 23, _NAMELESS)
_DAY_OF_MONTH = _Kind("day-of-month", 1, 31, 31, _NAMELESS)
_MONTH = _Kind("month", 1, 12, 12, {name: at for at, name in enumerate(_MONTH_NAMES, 1)})
_DAY_OF_WEEK = _Kind("day-of-week", 1, 7, 7, {name: at for at, name in enumerate(_DAY_NAMES, 1)})
_YEAR = _Kind("year", FIRST_YEAR, LAST_WRITTEN_YEAR, LAST_WRITTEN_YEAR - FIRST_YEAR, _NAMELESS)
_KINDS = (_SECONDS, _MINUTES, _HOURS, _DAY_OF_MONTH, _MONTH, _DAY_OF_WEEK, _YEAR)

_FIELD_NAMES = "seconds minutes hours day-of-month month day-of-week [year]"
_EVERY_YEAR = (Span(FIRST_YEAR, LAST_YEAR, starred=True),)


def read_fields(text: str) -> Fields:
    """Read a line. Raises `CronError` at the first character that does not fit."""
    if len(text) > MAX_LENGTH:
        raise CronError(
            MAX_LENGTH + 1,
            "line",
            f"the line has {len(text):,} characters; at most {MAX_LENGTH} are allowed",
        )
    words = [(word.start() + 1, word.group()) for word in re.finditer(r"\S+", text)]
    _check_count(text, words)
    readers = [
        _Reader(kind, word, position) for kind, (position, word) in zip(_KINDS, words, strict=False)
    ]
    of_month, of_week = readers[3], readers[5]
    parts = [reader.parts() for reader in readers]
    if of_month.is_open and of_week.is_open:
        raise of_week.error("only one of day-of-month and day-of-week is '?'; give the other, or *")
    if not of_month.is_open and not of_week.is_open:
        raise of_week.error(
            "day-of-month and day-of-week are both given, which Quartz refuses;"
            " write '?' for the one that does not count"
        )
    return Fields(
        seconds=_spans(parts[0]),
        minutes=_spans(parts[1]),
        hours=_spans(parts[2]),
        days_of_month=None if of_month.is_open else parts[3],
        months=_spans(parts[4]),
        days_of_week=None if of_week.is_open else parts[5],
        years=_spans(parts[6]) if len(parts) > 6 else _EVERY_YEAR,
        day_position=(of_week if of_month.is_open else of_month).position,
    )


def numbers(spans: Sequence[Span], first: int, circle: int) -> tuple[int, ...]:
    """All numbers of a field, rising."""
    return tuple(sorted({value for span in spans for value in span.values(first, circle)}))


def years(spans: Sequence[Span]) -> Sequence[int]:
    """All years of the field, rising."""
    if len(spans) == 1:
        # Most lines name no year, and eight thousand numbers need not be written down for that.
        return range(spans[0].low, spans[0].high + 1, spans[0].step)
    return tuple(
        sorted({year for span in spans for year in range(span.low, span.high + 1, span.step)})
    )


def _spans(parts: tuple[Part, ...]) -> tuple[Span, ...]:
    return tuple(part for part in parts if isinstance(part, Span))


def _check_count(text: str, words: Sequence[tuple[int, str]]) -> None:
    if 6 <= len(words) <= 7:
        return
    if len(words) > 7:
        raise CronError(
            words[7][0], "line", f"expected 6 or 7 fields ({_FIELD_NAMES}), found {len(words)}"
        )
    end = len(text.rstrip()) + 1
    position, reason = end, f"expected 6 or 7 fields ({_FIELD_NAMES}), found {len(words)}"
    if words and words[0][1].startswith("@"):
        position, reason = words[0][0], f"Quartz has no such name; expected {_FIELD_NAMES}"
    advised = quartz_of_unix(" ".join(word for _, word in words))
    if advised is not None and _is_readable(advised):
        reason += f"; this looks like a line of Unix cron: did you mean {advised!r}?"
    raise CronError(position, "line", reason)


def _is_readable(text: str) -> bool:
    try:
        read_fields(text)
    except CronError:
        return False
    return True


class _Reader:
    """Reads the parts of one field from left to right."""

    def __init__(self, kind: _Kind, word: str, position: int) -> None:
        self._kind = kind
        self._text = word
        self._at = 0
        self.position = position
        self.is_open = word == "?" and kind in (_DAY_OF_MONTH, _DAY_OF_WEEK)

    def parts(self) -> tuple[Part, ...]:
        if self.is_open:
            return ()
        parts = [self._part()]
        while self._take(","):
            parts.append(self._part())
        if self._at < len(self._text):
            raise self._unexpected("a comma or the end of the field")
        if len(parts) > 1 and any(isinstance(part, LastOf | NthOf) for part in parts):
            raise self.error("'L' and '#' stand alone in day-of-week, not in a list")
        return tuple(parts)

    def error(self, reason: str, at: int = 0) -> CronError:
        return CronError(self.position + at, self._kind.name, reason)

    def _part(self) -> Part:
        begin = self._at
        if self._take("*"):
            return self._stepped(self._kind.low, self._end(), starred=True)
        if self._next() == "/":
            return self._stepped(self._kind.low, self._end(), starred=True)
        if self._kind is _DAY_OF_MONTH and (last := self._last_day()) is not None:
            return last
        if self._kind is _DAY_OF_WEEK and self._next().upper() == "L":
            self._at += 1
            # Alone, L is the last day of the week; it has no meaning for the month here.
            if len(self._text) > 1:
                raise self.error("'L' for Saturday stands alone; the last Friday is 6L", begin)
            return Span(7, 7)
        named = self._next().isalpha()
        low = self._value()
        if self._kind is _DAY_OF_MONTH and self._take_letter("W"):
            return NearestWeekday(low)
        if self._kind is _DAY_OF_WEEK and self._take_letter("L"):
            return LastOf(low)
        if self._kind is _DAY_OF_WEEK and self._take("#"):
            return NthOf(low, self._number("after '#'", 1, 5))
        if self._take("-"):
            return self._range(begin, low, named=named)
        if self._next() == "/":
            self._refuse_step_of_names(named=named)
            return self._stepped(low, self._end())
        return Span(low, low)

    def _range(self, begin: int, low: int, *, named: bool) -> Span:
        at = self._at
        if self._next().isalpha() != named and self._next().isalnum():
            raise self.error("a range goes from a number to a number or from a name to a name", at)
        high = self._value()
        if high < low and self._kind is _YEAR:
            raise self.error("a range of years ends before it begins", begin)
        if self._next() == "/":
            self._refuse_step_of_names(named=named)
        return self._stepped(low, high)

    def _refuse_step_of_names(self, *, named: bool) -> None:
        if named:
            raise self.error(
                "Quartz silently drops a step behind a name; write numbers, such as 2-6/2", self._at
            )

    def _last_day(self) -> LastDay | None:
        if not self._take_letter("L"):
            return None
        before = 0
        if self._take("-"):
            before = self._number("after 'L-'", 0, MAX_BEFORE_LAST_DAY)
        return LastDay(before, to_weekday=self._take_letter("W"))

    def _stepped(self, low: int, high: int, *, starred: bool = False) -> Span:
        if not self._take("/"):
            return Span(low, high, starred=starred)
        step = self._number("of a step", 1, self._kind.max_step)
        return Span(low, high, step, starred, stepped=True)

    def _end(self) -> int:
        """The end of a span that is left open."""
        return LAST_YEAR if self._kind is _YEAR else self._kind.high

    def _value(self) -> int:
        """A number or a name of this field."""
        kind, begin = self._kind, self._at
        if self._next().isalpha():
            letters = self._run(str.isalpha)
            value = kind.names.get(letters[:3].upper())
            if value is not None and len(letters) == 3:
                return value
            if value is not None and kind is _DAY_OF_WEEK and letters[3:].upper() == "L":
                self._at -= 1
                return value
            self._at = begin
            if value is not None:
                raise self.error(f"write {letters[:3].upper()}, not {shown(letters)}", begin)
            if kind.names:
                raise self._unexpected(f"a number or a name from {_ends(kind.names)}")
        digits = self._run(_is_digit)
        if not digits:
            self._at = begin
            raise self._unexpected("a number" if not kind.names else "a number or a name")
        if len(digits) > 4 or not kind.low <= int(digits) <= kind.high:
            raise self.error(f"{shown(digits)} is out of bounds, which are {kind.bounds()}", begin)
        return int(digits)

    def _number(self, where: str, low: int, high: int) -> int:
        begin = self._at
        digits = self._run(_is_digit)
        if not digits:
            raise self._unexpected(f"a number {where}")
        if len(digits) > 4 or not low <= int(digits) <= high:
            raise self.error(
                f"the number {where} is from {low} to {high}, not {shown(digits)}", begin
            )
        return int(digits)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, sign: str) -> bool:
        if self._next() != sign:
            return False
        self._at += 1
        return True

    def _take_letter(self, letter: str) -> bool:
        return self._take(letter) or self._take(letter.lower())

    def _run(self, belongs: Callable[[str], bool]) -> str:
        begin = self._at
        while self._at < len(self._text) and belongs(self._text[self._at]):
            self._at += 1
        return self._text[begin : self._at]

    def _unexpected(self, expected: str) -> CronError:
        found = shown(self._next()) if self._next() else "the end of the field"
        if self._next() == "?":
            found = "'?', which stands alone in day-of-month or day-of-week"
        return self.error(f"expected {expected}, found {found}", self._at)


def _is_digit(character: str) -> bool:
    # Other scripts have digits too; Quartz reads none of them.
    return character in "0123456789"


def _ends(names: Mapping[str, int]) -> str:
    first, *_, last = names
    return f"{first} to {last}"


def shown(found: str) -> str:
    """A part of the line for a message, bounded and without control characters."""
    return ascii(found) if len(found) <= 40 else f"{found[:40]!a}…"
