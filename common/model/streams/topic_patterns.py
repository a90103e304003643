"""Patterns of topics: regular expressions of Java that a whole name has to match.

Pure. A pattern comes from an author and may be hostile, so no backtracking engine gets it. Each
part of a pattern maps a set of places in a name to the places that it can reach from them. A set
of places is one integer with a bit for each place. Matching takes a bounded number of steps.

Names of topics consist of letters, digits, `.`, `_` and `-` of ASCII. The reader refuses patterns
that Java refuses, and parts of Java's language that it does not support. The error says why.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_LENGTH: Final = 255
"""The longest name of a stream in the tables."""
MAX_DEPTH: Final = 20
MAX_STEPS: Final = 20_000
"""The most steps for one name; a pattern of a usual form takes some hundreds."""

_LETTERS: Final = string.ascii_letters + string.digits + "._-"
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_MOST_REPEATS: Final = 1_000
_ESCAPED: Final = {
    "d": frozenset(string.digits),
    "w": _WORD,
    "s": frozenset(""),
}
_PROPERTIES: Final = {
    "Lower": frozenset(string.ascii_lowercase),
    "Upper": frozenset(string.ascii_uppercase),
    "Alpha": frozenset(string.ascii_letters),
    "Digit": frozenset(string.digits),
    "Alnum": frozenset(string.ascii_letters + string.digits),
    "Punct": frozenset("._-"),
    "ASCII": frozenset(_LETTERS),
    "Graph": frozenset(_LETTERS),
    "Print": frozenset(_LETTERS),
    "XDigit": frozenset(string.hexdigits),
    "L": frozenset(string.ascii_letters),
    "Lu": frozenset(string.ascii_uppercase),
    "Ll": frozenset(string.ascii_lowercase),
    "N": frozenset(string.digits),
    "Nd": frozenset(string.digits),
}


class PatternError(ValueError):
    """A pattern that can't be used; the message says why and what to write instead."""


class PatternTooSlowError(Exception):
    """The match of a name takes too many steps."""


@dataclass(slots=True, kw_only=True)
class _Name:
    """A name that is matched: the places of each letter, and the steps that are left."""

    places: dict[str, int]
    all: int
    length: int
    boundaries: int
    steps: int = MAX_STEPS

    def spend(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise PatternTooSlowError

    def of(self, letters: frozenset[str]) -> int:
        found = 0
        for letter, places in self.places.items():
            if letter in letters:
                found |= places
        return found


_Move: TypeAlias = Callable[[_Name, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of a pattern: the places that it reaches forwards, and from where backwards."""

    ends: _Move
    starts: _Move


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPattern:
    """A pattern that was read."""

    text: str
    part: _Part

    def matches(self, name: str) -> bool:
        """Return True if the whole name matches; `PatternTooSlowError` after too many steps."""
        places: dict[str, int] = {}
        boundaries, was_word = 0, False
        for place, letter in enumerate(name):
            places[letter] = places.get(letter, 0) | 1 << place
            is_word = letter in _WORD
            if is_word is not was_word:
                boundaries |= 1 << place
            was_word = is_word
        if was_word:
            boundaries |= 1 << len(name)
        read = _Name(
            places=places,
            all=(1 << (len(name) + 1)) - 1,
            length=len(name),
            boundaries=boundaries,
        )
        return bool(self.part.ends(read, 1) >> len(name) & 1)


def read_pattern(text: str) -> TopicPattern:
    """Read a pattern; `PatternError` says what is wrong in it."""
    if not text:
        raise PatternError("it is empty")
    if len(text) > MAX_LENGTH:
        raise PatternError(f"a pattern of topics has at most {MAX_LENGTH} characters")
    if not text.isprintable():
        raise PatternError("it has a character that can't be printed")
    return TopicPattern(text=text, part=_Reader(text).pattern())


def _letters(letters: frozenset[str]) -> _Part:
    def ends(name: _Name, at: int) -> int:
        name.spend()
        return (at & name.of(letters)) << 1

    def starts(name: _Name, at: int) -> int:
        name.spend()
        return (at >> 1) & name.of(letters)

    return _Part(ends=ends, starts=starts)


def _place(which: Callable[[_Name], int]) -> _Part:
    """Return a part that matches places and not letters."""

    def stay(name: _Name, at: int) -> int:
        name.spend()
        return at & which(name)

    return _Part(ends=stay, starts=stay)


def _sequence(parts: Sequence[_Part]) -> _Part:
    def ends(name: _Name, at: int) -> int:
        for part in parts:
            at = part.ends(name, at) if at else 0
        return at

    def starts(name: _Name, at: int) -> int:
        for part in reversed(parts):
            at = part.starts(name, at) if at else 0
        return at

    return _Part(ends=ends, starts=starts)


def _choice(parts: Sequence[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]

    def ends(name: _Name, at: int) -> int:
        found = 0
        for part in parts:
            found |= part.ends(name, at)
        return found

    def starts(name: _Name, at: int) -> int:
        found = 0
        for part in parts:
            found |= part.starts(name, at)
        return found

    return _Part(ends=ends, starts=starts)


def _repeat(part: _Part, least: int, most: int | None) -> _Part:
    def over(move: _Move) -> _Move:
        def moved(name: _Name, at: int) -> int:
            for _ in range(least):
                name.spend()
                at = move(name, at)
            found = new = at
            left = most
            while new and left != least:
                name.spend()
                new = move(name, new)
                if left is None:
                    # Further repetitions matter only from places that are new.
                    new &= ~found
                else:
                    left -= 1
                found |= new
            return found

        return moved

    return _Part(ends=over(part.ends), starts=over(part.starts))


def _look(part: _Part, *, ahead: bool, wanted: bool) -> _Part:
    def which(name: _Name) -> int:
        found = part.starts(name, name.all) if ahead else part.ends(name, name.all)
        return found if wanted else name.all & ~found

    return _place(which)


class _Reader:
    """One pass over the text of a pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._behind = 0
        """The look-behinds around the present place."""

    def pattern(self) -> _Part:
        part = self._alternatives()
        if self._at < len(self._text):
            raise self._error("closes no group; write \\)")
        return part

    def _error(self, problem: str, at: int | None = None) -> PatternError:
        place = self._at if at is None else at
        return PatternError(f"{self._text[place : place + 10]!r} at {place + 1} {problem}")

    def _has(self, sign: str) -> bool:
        return self._text.startswith(sign, self._at)

    def _took(self, sign: str) -> bool:
        if not self._has(sign):
            return False
        self._at += len(sign)
        return True

    def _alternatives(self) -> _Part:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError(f"its groups are nested more than {MAX_DEPTH} deep")
        found = [self._sequence()]
        while self._took("|"):
            found.append(self._sequence())
        self._depth -= 1
        return _choice(found)

    def _sequence(self) -> _Part:
        found: list[_Part] = []
        while self._at < len(self._text) and not self._has("|") and not self._has(")"):
            found += self._item()
        return _sequence(found)

    def _item(self) -> list[_Part]:
        """Read one item with its repetition; a quotation has several."""
        if self._took("\\Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : None if end < 0 else end]
            self._at = len(self._text) if end < 0 else end + 2
            parts = [_letters(frozenset(letter)) for letter in quoted]
            return [*parts[:-1], self._repeated(parts[-1])] if parts else []
        begin = self._at
        part, may_repeat = self._atom()
        if not may_repeat and self._at < len(self._text) and self._text[self._at] in "*+?{":
            raise self._error(
                "repeats a place, which Java and this reader treat differently", begin
            )
        return [self._repeated(part) if may_repeat else part]

    def _atom(self) -> tuple[_Part, bool]:
        """Read one item; False if it matches places and not letters."""
        letter = self._text[self._at]
        match letter:
            case "(":
                return self._group()
            case "[":
                return _letters(self._class()), True
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self._error("repeats nothing; write a backslash before the sign")
            case "{":
                raise self._error("repeats nothing; write \\{")
            case ".":
                self._at += 1
                return _letters(frozenset(_LETTERS)), True
            case "^":
                self._at += 1
                return _place(lambda _: 1), False
            case "$":
                self._at += 1
                return _place(lambda name: 1 << name.length), False
            case _:
                self._at += 1
                return _letters(frozenset(letter)), True

    def _repeated(self, part: _Part) -> _Part:
        begin = self._at
        if self._took("*"):
            least, most = 0, None
        elif self._took("+"):
            least, most = 1, None
        elif self._took("?"):
            least, most = 0, 1
        elif self._took("{"):
            least, most = self._counts(begin)
        else:
            return part
        if self._has("+"):
            raise self._error("is possessive, which is not supported; remove the last +", begin)
        if most is None and self._behind:
            raise self._error(
                "repeats without a limit, which Java refuses in a look-behind; write {0,9}", begin
            )
        # A reluctant repetition matches the same names.
        self._took("?")
        if self._at < len(self._text) and self._text[self._at] in "*+?{":
            raise self._error("repeats a repetition; put the first into (?:…)", begin)
        return _repeat(part, least, most)

    def _counts(self, begin: int) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        first, comma, second = self._text[self._at : end].partition(",")
        if end < 0 or not _is_count(first) or not (second == "" or _is_count(second)):
            raise self._error(
                "is not a repetition; write {2}, {2,} or {2,5}, or \\{ for the sign", begin
            )
        self._at = end + 1
        least = int(first)
        most = (int(second) if second else None) if comma else least
        if most is not None and most < least:
            raise self._error("has a limit below its minimum", begin)
        return least, most

    def _group(self) -> tuple[_Part, bool]:
        begin = self._at
        self._at += 1
        look: tuple[bool, bool] | None = None
        if self._took("?"):
            if self._took(":"):
                pass
            elif self._took("="):
                look = True, True
            elif self._took("!"):
                look = True, False
            elif self._took("<="):
                look = False, True
            elif self._took("<!"):
                look = False, False
            elif self._took("<"):
                self._name(begin)
            elif self._took(">"):
                raise self._error("is an atomic group, which is not supported; write (?:…)", begin)
            else:
                raise self._error(
                    "sets flags or is not a group of Java; write [Aa] in the place of (?i)", begin
                )
        is_behind = look is not None and not look[0]
        self._behind += is_behind
        part = self._alternatives()
        self._behind -= is_behind
        if not self._took(")"):
            raise self._error("does not end", begin)
        if look is None:
            return part, True
        return _look(part, ahead=look[0], wanted=look[1]), False

    def _name(self, begin: int) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : end] if end >= 0 else ""
        if not (name.isascii() and name.isalnum() and name[0].isalpha()):
            raise self._error("lacks the name of the group; write (?<name>…)", begin)
        self._at = end + 1

    def _escape(self) -> tuple[_Part, bool]:
        begin = self._at
        if self._text[self._at + 1 : self._at + 2] in {"A", "z", "Z", "b", "B"}:
            sign = self._text[self._at + 1]
            self._at += 2
            if sign == "A":
                return _place(lambda _: 1), False
            if sign in "zZ":
                return _place(lambda name: 1 << name.length), False
            if sign == "b":
                return _place(lambda name: name.boundaries), False
            return _place(lambda name: name.all & ~name.boundaries), False
        return _letters(self._escaped(begin)), True

    def _escaped(self, begin: int) -> frozenset[str]:
        """Read an escape that stands for letters, in brackets or outside."""
        self._at += 1
        sign = self._text[self._at : self._at + 1]
        if not sign:
            raise self._error("escapes nothing; write \\\\", begin)
        self._at += 1
        if sign in _ESCAPED:
            return _ESCAPED[sign]
        if sign.lower() in _ESCAPED:
            return frozenset(_LETTERS) - _ESCAPED[sign.lower()]
        if sign in "pP":
            end = self._text.find("}", self._at) if self._has("{") else self._at
            name = self._text[self._at : end + 1].strip("{}")
            if end < 0 or name not in _PROPERTIES:
                known = ", ".join(sorted(_PROPERTIES))
                raise self._error(f"is not a class of characters; known are {known}", begin)
            self._at = end + 1
            found = _PROPERTIES[name]
            return found if sign == "p" else frozenset(_LETTERS) - found
        if sign.isascii() and sign.isalnum():
            raise self._error("is an escape that is not supported in patterns of topics", begin)
        return frozenset(sign)

    def _class(self) -> frozenset[str]:
        begin = self._at
        self._at += 1
        negates = self._took("^")
        found: set[str] = set()
        is_first = True
        while True:
            if self._at >= len(self._text):
                raise self._error("does not end", begin)
            if self._has("]"):
                if is_first:
                    raise self._error("is an empty class; write \\] for the sign", begin)
                self._at += 1
                break
            if self._has("[") or self._has("&&"):
                raise self._error(
                    "combines classes, which is not supported; write one class", begin
                )
            is_first = False
            one = self._member()
            if not (self._has("-") and self._text[self._at + 1 : self._at + 2] not in {"]", ""}):
                found |= one
                continue
            range_begin = self._at - 1
            self._at += 1
            if self._has("[") or self._has("&&"):
                raise self._error(
                    "combines classes, which is not supported; write one class", begin
                )
            last = self._member()
            if len(one) != 1 or len(last) != 1 or min(one) > min(last):
                raise self._error("is not a range", range_begin)
            found |= {each for each in _LETTERS if min(one) <= each <= min(last)}
        return frozenset(_LETTERS) - found if negates else frozenset(found)

    def _member(self) -> frozenset[str]:
        if self._has("\\"):
            return self._escaped(self._at)
        self._at += 1
        return frozenset(self._text[self._at - 1])


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text[:6]) <= _MOST_REPEATS and len(text) <= 4
