"""Takes a text of Spark SQL apart into its statements.

Pure, and no parser: it knows where a statement ends and leaves everything else to Spark. A `;` ends
one unless it stands in a quoted text, a quoted name, a comment (those in `/* */` nest), a text
between `$$`, or a compound statement, which begins with BEGIN and ends with its END. The *names* of
a statement are what looks like a named parameter in it, `:day`; some may be something else, as
`:b` is in `payload:b`, so whoever binds takes those that have a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from worker.sql_scanner import SPARK, Part, Token

MAX_CHARS: Final = 1_000_000


class StatementError(Exception):
    """The text can't be taken apart; it says where. Its author has to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement, without the comments before it and the `;` behind it."""

    text: str
    line: int
    """Of the whole text, from 1: where the statement begins."""
    names: tuple[str, ...] = ()

    @property
    def first_line(self) -> str:
        """The line that stands for the statement in a log."""
        return self.text.partition("\n")[0].strip()

    @property
    def word(self) -> str:
        """The first word, in capitals: what kind of statement it is."""
        match = _WORD.search(self.text)
        return match[0].upper() if match else ""


def split(text: str) -> tuple[Statement, ...]:
    """The statements in a text, in their order. Raises `StatementError`."""
    if len(text) > MAX_CHARS:
        raise StatementError(f"it has {len(text):,} characters; {MAX_CHARS:,} are allowed")
    return _Scan(text).statements()


_WORD = re.compile(r"[^\W\d]\w*")
_NAMES: Final = {"'": "text in '", '"': 'text in "', "`": "name in `"}
_ENDED = re.compile(r"\s+(CASE|IF|WHILE|LOOP|REPEAT|FOR)\b", re.IGNORECASE)
"""The words that an END may close besides BEGIN. All but CASE are not counted when they open
either, since some are names of functions as well."""


class _Scan:
    """One pass over a text, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._done: list[Statement] = []
        self._begin_statement()

    def _begin_statement(self) -> None:
        self._start: int | None = None
        self._end = 0
        self._names: dict[str, None] = {}
        self._words: list[str] = []
        self._opened: list[int] = []

    def statements(self) -> tuple[Statement, ...]:
        text, position = self._text, 0
        while (token := SPARK.find(text, position)) is not None:
            self._keep(position, token.start)
            position = self._take(token)
        self._keep(position, len(text))
        if self._opened:
            raise StatementError(f"{self._at(self._opened[0])}: a BEGIN has no END")
        self._end_statement()
        return tuple(self._done)

    def _take(self, token: Token) -> int:
        """Take a part into the statement; return the position behind it."""
        start = token.start
        match token.part:
            case Part.LINE_COMMENT:
                return SPARK.line_comment_end(self._text, token)
            case Part.BLOCK_COMMENT:
                # A hint, which looks like a comment, is kept with what is around it.
                end = SPARK.block_comment_end(self._text, token)
                if end is None:
                    raise StatementError(f"{self._at(start)}: a comment is never closed")
                return end
            case Part.END if not self._opened:
                self._end_statement()
                return token.end
            case Part.PREFIX:
                return self._quoted(start, token.end)
            case Part.QUOTE:
                return self._quoted(start, start)
            case Part.MARKER:
                return self._parameter(start)
            case Part.DOLLAR:
                end = SPARK.dollar_end(self._text, token)
                if end is None:
                    raise StatementError(
                        f"{self._at(start)}: a text in {token.text} is never closed"
                    )
                return self._keep(start, end)
            case Part.WORD:
                return self._word(token.text.upper(), start, token.end)
            case _:
                return self._keep(start, token.end)

    def _keep(self, start: int, end: int) -> int:
        """Return the part that belongs to the statement, unless it is blank, and its end."""
        if self._text[start:end].strip():
            if self._start is None:
                self._start = start + _blank(self._text[start:end])
            self._end = end
        return end

    def _quoted(self, start: int, quote: int) -> int:
        found = SPARK.quoted_at(self._text, quote)
        if found is None:
            name = _NAMES[self._text[quote]]
            raise StatementError(f"{self._at(start)}: a {name} is never closed")
        return self._keep(start, found.end)

    def _parameter(self, start: int) -> int:
        if self._text.startswith("::", start):
            return self._keep(start, start + 2)
        name = _WORD.match(self._text, start + 1)
        if name is None or (name[0].upper() == "BEGIN" and len(self._words) == 1):
            return self._keep(start, start + 1)
        self._names[name[0]] = None
        return self._keep(start, name.end())

    def _word(self, word: str, start: int, end: int) -> int:
        """Follow what decides whether a `;` ends the statement; where to go on."""
        if len(self._words) < _HEAD_WORDS:
            self._words.append(word)
        if (word == "BEGIN" and (self._opened or self._is_compound())) or (
            self._opened and word == "CASE"
        ):
            self._opened.append(start)
        elif self._opened and word == "END":
            what = _ENDED.match(self._text, end)
            if what is None:
                self._opened.pop()
            elif what[1].upper() == "CASE":
                self._opened.pop()
                end = what.end()
        return self._keep(start, end)

    def _is_compound(self) -> bool:
        """True if a BEGIN that was just read makes a compound statement: it comes first."""
        head = self._words
        if len(head) == 1 or head[0] == "CREATE":
            return len(head) == 1 or not _BODIES.isdisjoint(head)
        # With a label before it.
        return len(head) == 2 and self._text[self._end - 1 : self._end] == ":"

    def _end_statement(self) -> None:
        if self._start is not None:
            text = self._text[self._start : self._end].rstrip()
            self._done.append(
                Statement(text=text, line=self._line(self._start), names=tuple(self._names))
            )
        self._begin_statement()

    def _line(self, position: int) -> int:
        return self._text.count("\n", 0, position) + 1

    def _at(self, position: int) -> str:
        return f"line {self._line(position)}"


_HEAD_WORDS = 12
_BODIES: Final = frozenset({"FUNCTION", "PROCEDURE"})


def _blank(text: str) -> int:
    return len(text) - len(text.lstrip())
