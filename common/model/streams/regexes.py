"""Checks regular expressions of Java, which Spark compiles later, and patterns of LIKE.

Pure. An expression that Java can't compile would fail every task of a stream, so a submission
refuses it. The check rewrites the expression for Python's compiler, which knows nearly the same
language. What the two read differently is refused with what to write instead; so is the little that
Java reads and Python does not.
"""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 2_000
MAX_GROUPS: Final = 100

_PROPERTIES: Final = frozenset(
    (
        *("Lower", "Upper", "ASCII", "Alpha", "Digit", "Alnum", "Punct", "Graph", "Print"),
        *("Blank", "Cntrl", "XDigit", "Space", "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd"),
        *("P", "S", "Sc", "Sm", "Z", "Zs", "C", "Cc", "IsAlphabetic", "IsDigit", "IsLetter"),
        *("IsUppercase", "IsLowercase", "IsPunctuation", "IsLatin", "IsGreek", "IsCyrillic"),
        *("IsHan", "IsHiragana", "IsKatakana", "IsArabic", "IsHebrew"),
    )
)
_PROPERTY: Final = re.compile(r"\\[pP](?:\{([A-Za-z]+)\}|([LMNPSZC]))")
_ESCAPE: Final = re.compile(
    r"\\(?:[1-9]|[tnrfaedDsSwWhHvV]|x[0-9A-Fa-f]{2}|x\{[0-9A-Fa-f]{1,5}\}|u[0-9A-Fa-f]{4}"
    r"|0[0-3]?[0-7]{1,2}|c[A-Z]|[^A-Za-z0-9])",
    re.DOTALL,
)
_OUTSIDE: Final = re.compile(r"\\(?:[bBAzZR]|k<[A-Za-z][A-Za-z0-9]*>)")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_GROUP: Final = re.compile(
    r"\((?:\?(?:[:=!>]|<[=!]|<(?P<name>[A-Za-z][A-Za-z0-9]*)>|[idmsuU]*(?:-[idmsuU]+)?[:)]))?"
)
_REPEAT: Final = re.compile(r"\{[0-9]{1,9}(?:,[0-9]{0,9})?\}")


class RegexError(ValueError):
    """An expression that can't be used; the message says why and what to write instead."""


def read_regex(text: str) -> int:
    """Check a regular expression, and return the number of its groups."""
    if not text:
        raise RegexError("it is empty")
    if len(text) > MAX_LENGTH:
        raise RegexError(f"an expression has at most {MAX_LENGTH} characters")
    rewritten = _Rewriter(text).rewritten()
    try:
        groups = re.compile(rewritten).groups
    except (re.error, OverflowError, RecursionError) as error:
        reason = error.msg if isinstance(error, re.error) else "it repeats or nests too much"
        raise RegexError(f"{reason}") from None
    if groups > MAX_GROUPS:
        raise RegexError(f"it has more than {MAX_GROUPS} groups")
    return groups


def like_pattern(text: str, escape: str | None = None) -> str:
    """Return a pattern of LIKE as Spark reads it: with a backslash before each sign that is meant.

    `%` stands for any text and `_` for one character. Without `escape`, no sign escapes another.
    """
    if len(text) > MAX_LENGTH:
        raise RegexError(f"a pattern has at most {MAX_LENGTH} characters")
    if escape and len(escape) > 1:
        raise RegexError("its escape must be one character")
    parts: list[str] = []
    letters = iter(text)
    for letter in letters:
        if escape and letter == escape:
            meant = next(letters, "")
            if not meant:
                raise RegexError("it ends with its escape; write the escape twice")
            parts.append(f"\\{meant}" if meant in "%_\\" else meant)
        else:
            parts.append("\\\\" if letter == "\\" else letter)
    return "".join(parts)


class _Rewriter:
    """One pass over an expression of Java, which becomes one of Python with the same groups."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def rewritten(self) -> str:
        parts: list[str] = []
        while self._place < len(self._text):
            letter = self._text[self._place]
            if letter == "\\":
                parts.append(self._escape(in_class=False))
            elif letter == "[":
                parts.append(self._class(depth=1))
            elif letter == "(":
                parts.append(self._group())
            elif letter == "{":
                found = self._take(_REPEAT, "a { that repeats nothing; write \\{")
                parts.append(found[0])
            else:
                parts.append(letter)
                self._place += 1
        return "".join(parts)

    def _take(self, form: re.Pattern[str], problem: str) -> re.Match[str]:
        found = form.match(self._text, self._place)
        if found is None:
            shown = self._text[self._place : self._place + 10]
            raise RegexError(f"{shown!r} at {self._place + 1} is {problem}")
        self._place = found.end()
        return found

    def _escape(self, *, in_class: bool) -> str:
        """Rewrite an escape; one for several characters stays one for several characters."""
        rest = self._text[self._place :]
        if rest.startswith("\\Q"):
            return re.escape(self._take(_QUOTED, "")[1])
        if rest[1:2] in {"p", "P"}:
            found = self._take(_PROPERTY, "no class of characters; write as in \\p{Alpha}")
            name = found[1] or found[2]
            if name not in _PROPERTIES:
                known = ", ".join(sorted(_PROPERTIES))
                raise RegexError(f"the class \\p{{{name}}} is not supported; known are {known}")
            return "\\w"
        if not in_class:
            special = _OUTSIDE.match(self._text, self._place)
            if special is not None:
                self._place = special.end()
                return _outside(special[0])
        found = self._take(_ESCAPE, "an escape that is not supported")
        return _plain(found[0], in_class=in_class)

    def _class(self, *, depth: int) -> str:
        """Rewrite a class in brackets; a nested one is checked, and stands for a word's letters."""
        if depth > 10:
            raise RegexError("classes in brackets are nested more than 10 deep")
        begin = self._place
        self._place += 1
        parts = ["["]
        if self._text.startswith("^", self._place):
            parts.append("^")
            self._place += 1
        if self._text.startswith("]", self._place):
            raise RegexError(
                f"the ] at {self._place + 1} ends an empty class; write \\] for the sign"
            )
        while self._place < len(self._text):
            letter = self._text[self._place]
            if letter == "]":
                self._place += 1
                return "".join((*parts, "]"))
            if self._text.startswith("[:", self._place):
                raise RegexError("[:alpha:] is no class in Java; write \\p{Alpha}")
            if self._text.startswith("&&", self._place):
                self._place += 2
                if len(parts) < 2 or self._text.startswith("]", self._place):
                    raise RegexError("&& in brackets has to stand between two classes")
                parts.append("\\w")
            elif letter == "[":
                self._class(depth=depth + 1)
                parts.append("\\w")
            elif letter == "\\":
                parts.append(self._escape(in_class=True))
            else:
                parts.append("\\" + letter if letter in "&|~" else letter)
                self._place += 1
        raise RegexError(f"the class that begins with [ at {begin + 1} has no end")

    def _group(self) -> str:
        found = self._take(_GROUP, "no group")
        written = found[0]
        if found["name"]:
            return f"(?P<{found['name']}>"
        if written.startswith("(?") and written[-1] == ")":
            return ""  # Flags for the rest; they change no group.
        if written.startswith("(?") and written[-1] == ":":
            return "(?:"
        if written == "(" and self._text.startswith("?", self._place):
            raise RegexError(
                f"the group at {self._place} is not one of Java; write (?<name>…), (?:…) or (…)"
            )
        return written


def _outside(written: str) -> str:
    match written[1]:
        case "k":
            return f"(?P={written[3:-1]})"
        case "z" | "Z":
            return "\\Z"
        case "R":
            return "\\s"
        case _:
            return written


def _plain(written: str, *, in_class: bool) -> str:
    letter = written[1]
    if letter in "hHvV":
        return "\\s"
    if letter == "e" or (letter == "x" and "{" in written) or letter in "0c":
        return "\\x01"
    if letter.isdigit() and in_class:
        raise RegexError(f"{written} in brackets is no group; remove it")
    return written
