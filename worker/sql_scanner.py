"""Finds the lexical parts of SQL: comments, quoted texts and names, words, ends of statements.

Pure, and no parser: a `Dialect` knows where a part begins and ends, and its users decide what to do
with it. Of the standard library alone, since processes of tasks load it too. Used by
`worker.launching.statements` (SQL tasks) and `worker.spark.session.statements` (Spark SQL).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Part(StrEnum):
    """The kind of a part, by its first signs; the values name groups of `Dialect.special`."""

    LINE_COMMENT = "line"
    BLOCK_COMMENT = "block"
    QUOTE = "quote"
    PREFIX = "prefix"
    DOLLAR = "dollar"
    END = "end"
    WORD = "word"
    REFERENCE = "reference"
    MARKER = "marker"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Token:
    """The opening signs of a part: `text[start:end]`."""

    part: Part
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quoted text or name that ends at `end`; `body` is between its marks, escapes as written."""

    end: int
    body: str
    has_escapes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The lexical rules of one kind of SQL.

    `prefixed` are the quotes after a word that stands alone before them (`e'…'`, `r'…'`);
    `word_signs` belong to words besides letters and digits. `escaped` are the marks whose texts
    know backslashes.
    """

    special: re.Pattern[str]
    line_comment: re.Pattern[str]
    quoted: Mapping[str, re.Pattern[str]]
    escaped: frozenset[str] = frozenset()
    prefixed: Mapping[str, Mapping[str, re.Pattern[str]]] = field(default_factory=dict)
    escaping_prefixes: frozenset[str] = frozenset()
    word_signs: str = "_"
    comments_nest: bool = True

    def find(self, text: str, position: int) -> Token | None:
        """Find the next part at a position or behind it."""
        match = self.special.search(text, position)
        if match is None:
            return None
        return Token(Part(match.lastgroup or ""), match.start(), match.end(), match[0])

    def line_comment_end(self, text: str, token: Token) -> int:
        match = self.line_comment.match(text, token.start)
        return token.end if match is None else match.end()

    def block_comment_end(self, text: str, token: Token) -> int | None:
        """Return the end behind its last `*/`; None if the comment is never closed."""
        depth, position = 1, token.end
        while (edge := _BLOCK_EDGE.search(text, position)) is not None:
            position = edge.end()
            if edge[0] == "*/":
                depth -= 1
                if depth == 0:
                    return position
            elif self.comments_nest:
                depth += 1
        return None

    def dollar_end(self, text: str, token: Token) -> int | None:
        """Return the end behind the closing `$tag$`; None if the text is never closed."""
        end = text.find(token.text, token.end)
        return None if end < 0 else end + len(token.text)

    def quoted_at(self, text: str, start: int) -> Quoted | None:
        """Read the text or name whose quotation mark is at `start`; None if it is never closed."""
        mark, prefix = text[start], self.word_before(text, start).lower()
        patterns = self.prefixed.get(prefix, {})
        is_prefixed = mark in patterns
        match = (patterns if is_prefixed else self.quoted)[mark].match(text, start)
        if match is None:
            return None
        has_escapes = prefix in self.escaping_prefixes if is_prefixed else mark in self.escaped
        return Quoted(match.end(), match[1], has_escapes)

    def word_before(self, text: str, position: int) -> str:
        """Return the word that ends right before a position, "" if there is none."""
        start = position
        while start > 0 and (text[start - 1].isalnum() or text[start - 1] in self.word_signs):
            start -= 1
        return text[start:position]


_BLOCK_EDGE = re.compile(r"/\*|\*/")
_TO_LINE_END = re.compile(r"[^\n]*")
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_SINGLE_ESCAPED = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_DOUBLE = re.compile(r'"((?:[^"]|"")*)"')
_DOUBLE_ESCAPED = re.compile(r'"((?:[^"\\]|""|\\.)*)"', re.DOTALL)
_BACKTICK = re.compile(r"`((?:[^`]|``)*)`")

_WORD_OR_NUMBER = r"(?P<word>[A-Za-z_](?:[A-Za-z0-9_]|\$(?!\{))*)|(?P<other>[0-9]+"
_TAG = r"\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$(?!\{)"
_REST = r"(?P<reference>\$\{)|(?P<end>;)|(?P<block>/\*)"

POSTGRESQL: Final = Dialect(
    special=re.compile(
        rf"(?P<line>--)|{_REST}|(?P<quote>['\"])|{_WORD_OR_NUMBER})|(?P<dollar>{_TAG})"
    ),
    line_comment=_TO_LINE_END,
    quoted={"'": _SINGLE, '"': _DOUBLE},
    prefixed={"e": {"'": _SINGLE_ESCAPED}},
    escaping_prefixes=frozenset({"e"}),
    word_signs="_$",
)
MYSQL: Final = Dialect(
    special=re.compile(rf"(?P<line>--|#)|{_REST}|(?P<quote>['\"`])|{_WORD_OR_NUMBER}|{_TAG})"),
    line_comment=_TO_LINE_END,
    quoted={"'": _SINGLE_ESCAPED, '"': _DOUBLE_ESCAPED, "`": _BACKTICK},
    escaped=frozenset("'\"`"),
    word_signs="_$",
    comments_nest=False,
)
OTHER: Final = Dialect(
    special=re.compile(rf"(?P<line>--)|{_REST}|(?P<quote>['\"`])|{_WORD_OR_NUMBER}|{_TAG})"),
    line_comment=_TO_LINE_END,
    quoted={"'": _SINGLE, '"': _DOUBLE, "`": _BACKTICK},
    word_signs="_$",
    comments_nest=False,
)
SPARK: Final = Dialect(
    special=re.compile(
        r"(?P<line>--)|(?P<block>/\*)|(?P<quote>['\"`])|(?P<end>;)|(?P<marker>:)"
        r"|(?P<dollar>\$[A-Za-z_]*\$)|(?P<prefix>\b[rR](?=['\"]))|(?P<word>[^\W\d]\w*)"
    ),
    # A backslash at its end takes the next line into the comment, as Spark has it.
    line_comment=re.compile(r"--(?:\\\r?\n|[^\r\n])*"),
    quoted={"'": _SINGLE_ESCAPED, '"': _DOUBLE_ESCAPED, "`": _BACKTICK},
    escaped=frozenset("'\""),
    prefixed={"r": {"'": re.compile(r"'([^']*)'"), '"': re.compile(r'"([^"]*)"')}},
)


def dialect_of(name: str) -> Dialect:
    """Return the dialect of a data source by its name in SQLAlchemy's URLs."""
    if name in ("mysql", "mariadb"):
        return MYSQL
    return POSTGRESQL if name == "postgresql" else OTHER
