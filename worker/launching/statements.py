"""Takes the text of an SQL task apart: statements, and in each the places of its parameters.

Pure. A `${name}`, along with quotation marks around it, becomes a *slot*, into which the driver
binds a typed value; the text of a parameter never becomes part of a statement (X11). A text literal
that holds more than a slot, as in `'%${name}%'`, becomes one slot as a whole. Where nothing can be
bound (inside a word, a quoted name, a dollar-quoted or an escape text) a parameter is refused by
name. In a comment `${…}` means nothing.

Statements are separated by `;`, save those inside literals, comments and the bodies of CREATE
FUNCTION, PROCEDURE and TRIGGER between BEGIN and END.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from common.params import DataType, with_some_date
from common.params.values import Value, bound
from common.statement_names import with_any_names
from worker.launching.base import TaskParameterError
from worker.sql_scanner import Part, Token, dialect_of

MAX_CHARS = 1_000_000
DIALECTS: Final[Mapping[str, str]] = {"PostgreSQL": "postgresql", "MySQL": "mysql", "other": ""}
"""The kinds of databases whose texts are read differently, each with a dialect of the kind."""


@dataclass(frozen=True, slots=True)
class Statement:
    """`texts` has one more than `values`: between two texts there is a slot for a value."""

    place: str
    texts: tuple[str, ...]
    values: tuple[Value, ...]

    def to_json(self) -> dict[str, object]:
        return {"place": self.place, "texts": self.texts, "values": self.values}


def statements(
    text: str,
    place: str,
    *,
    parameters: Mapping[str, str],
    types: Mapping[str, DataType],
    dialect: str,
) -> tuple[Statement, ...]:
    """Return the statements in a text, or `TaskParameterError` with the place and the parameter."""
    return _Scan(text, place, parameters.get, types, dialect).statements()


def count_statements(text: str, place: str, *, dialect: str) -> int:
    """Return the number of statements, or raise as `statements` does for any values.

    Only the form counts: there is a parameter of every name.
    """
    checked = with_some_date(with_any_names(text))
    return len(_Scan(checked, place, lambda _: "", {}, dialect).statements())


def typed(place: str, name: str, kind: DataType, text: str) -> tuple[Value, ...]:
    """Return the values that a parameter stands for: one, or as many as a list has."""
    if kind is DataType.LIST:
        return _listed(place, name, text)
    if not text and kind not in (DataType.VARCHAR, DataType.FILE):
        return ((kind.name, None),)
    try:
        bound((kind.name, text))
    except (ValueError, ArithmeticError):
        raise TaskParameterError(
            f"{place}: the value of parameter {name!r} is no {kind.name}"
        ) from None
    return ((kind.name, text),)


def _listed(place: str, name: str, text: str) -> tuple[Value, ...]:
    try:
        items = json.loads(text) if text.strip() else []
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or len(items) > 1_000:
        raise TaskParameterError(
            f"{place}: the value of parameter {name!r} is no JSON list of at most 1,000"
        )
    values: list[Value] = []
    for item in items:
        match item:
            case None:
                values.append((DataType.VARCHAR.name, None))
            case bool():
                values.append((DataType.BOOLEAN.name, "true" if item else "false"))
            case int():
                values.append((DataType.LONG.name, str(item)))
            case float():
                values.append((DataType.DOUBLE.name, repr(item)))
            case str() if "\0" not in item:
                values.append((DataType.VARCHAR.name, item))
            case _:
                raise TaskParameterError(
                    f"{place}: parameter {name!r} must list text, numbers and booleans"
                )
    # No row is in an empty list, and `in ()` would be an error.
    return tuple(values) or ((DataType.VARCHAR.name, None),)


_SLOT = re.compile(r"(['\"]*)\$\{([^{}]*)\}(['\"]*)")
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_BODIES = frozenset({"function", "procedure", "trigger"})


class _Scan:
    """One pass over a text, from left to right."""

    def __init__(
        self,
        text: str,
        place: str,
        value_of: Callable[[str], str | None],
        types: Mapping[str, DataType],
        dialect: str,
    ) -> None:
        if len(text) > MAX_CHARS:
            raise TaskParameterError(
                f"{place} has {len(text):,} characters; {MAX_CHARS:,} are allowed"
            )
        self._text = text
        self._place = place
        self._value_of = value_of
        self._types = types
        self._dialect = dialect_of(dialect)
        self._done: list[Statement] = []
        self._begin_statement()

    def _begin_statement(self) -> None:
        self._texts: list[str] = []
        self._values: list[Value] = []
        self._piece: list[str] = []
        self._words: list[str] = []
        self._creates_body = False
        self._depth = 0
        self._is_blank = True

    def statements(self) -> tuple[Statement, ...]:
        text, position = self._text, 0
        while (token := self._dialect.find(text, position)) is not None:
            self._keep(text[position : token.start])
            position = self._take(token)
        self._keep(text[position:])
        self._end_statement()
        return tuple(self._done)

    def _take(self, token: Token) -> int:
        """Take a part into the statement; return the position behind it."""
        text, start = self._text, token.start
        match token.part:
            case Part.LINE_COMMENT:
                return self._comment(start, self._dialect.line_comment_end(text, token))
            case Part.BLOCK_COMMENT:
                end = self._dialect.block_comment_end(text, token)
                return self._comment(start, len(text) if end is None else end)
            case Part.REFERENCE | Part.QUOTE:
                return self._slot_or_quoted(token)
            case Part.END if self._depth == 0:
                self._end_statement()
                return token.end
            case Part.DOLLAR:
                end = self._dialect.dollar_end(text, token)
                return self._verbatim(start, len(text) if end is None else end, "a $$ text")
            case Part.WORD if token.text[0].isalpha():
                self._word(token.text.lower())
            case _:
                pass
        self._keep(token.text)
        return token.end

    def _slot_or_quoted(self, token: Token) -> int:
        if token.text != "`":
            slot = _SLOT.match(self._text, token.start)
            # Quotation marks belong to the slot if they close as they opened.
            if slot is not None and slot[1] == slot[3][::-1]:
                return self._slot(slot)
            if token.part is Part.REFERENCE:
                name = slot[2] if slot else self._text[token.end : token.end + 40]
                self._refuse(None, "something else that is quoted or nested", name)
        return self._quoted(token.start, token.text)

    def _keep(self, text: str) -> None:
        if text:
            self._piece.append(text)
            self._is_blank = self._is_blank and not text.strip()

    def _comment(self, start: int, end: int) -> int:
        # Kept, since it may be a hint, but no statement by itself.
        self._piece.append(self._text[start:end])
        return end

    def _quoted(self, start: int, quote: str) -> int:
        found = self._dialect.quoted_at(self._text, start)
        if found is None:
            raise TaskParameterError(f"{self._place}: a {quote} is never closed")
        reference = _REFERENCE.search(found.body)
        if reference is None:
            self._keep(self._text[start : found.end])
        elif quote != "'":
            self._refuse(reference, "a quoted name")
        elif found.has_escapes or self._is_word(start - 1):
            self._refuse(reference, "a text with escapes or a prefix")
        else:
            whole = _REFERENCE.sub(lambda each: self._value(each[1]), found.body.replace("''", "'"))
            self._add_slot(typed(self._place, "", DataType.VARCHAR, whole))
        return found.end

    def _verbatim(self, start: int, end: int, what: str) -> int:
        text = self._text[start:end]
        reference = _REFERENCE.search(text)
        if reference is not None:
            self._refuse(reference, what)
        self._keep(text)
        return end

    def _slot(self, slot: re.Match[str]) -> int:
        name = slot[2]
        value = self._value(name)
        if self._is_word(slot.start() - 1) or self._is_word(slot.end()):
            self._refuse(slot, "a word", name)
        kind = self._types.get(name, DataType.VARCHAR)
        self._add_slot(typed(self._place, name, kind, value))
        return slot.end()

    def _is_word(self, position: int) -> bool:
        if not 0 <= position < len(self._text):
            return False
        # The brackets and the $ may be those of another slot, whose value would touch this one's.
        symbol = self._text[position]
        return symbol.isalnum() or symbol in "_$}&\\\"'."

    def _value(self, name: str) -> str:
        value = self._value_of(name)
        if value is None:
            raise TaskParameterError(f"{self._place}: there is no parameter {name[:80]!r}")
        return value

    def _refuse(self, match: re.Match[str] | None, where: str, name: str | None = None) -> None:
        name = name if name is not None or match is None else match[1]
        raise TaskParameterError(
            f"{self._place}: parameter {str(name)[:80]!r} stands inside {where}, where no value"
            f" can be bound; write !{{{str(name)[:80]}}} for a name or a part of one"
        )

    def _add_slot(self, values: tuple[Value, ...]) -> None:
        self._is_blank = False
        for index, value in enumerate(values):
            if index:
                self._piece.append(", ")
            self._texts.append("".join(self._piece))
            self._piece = []
            self._values.append(value)

    def _word(self, word: str) -> None:
        """Follow what decides whether a `;` ends the statement."""
        if len(self._words) < 8:
            self._words.append(word)
            self._creates_body = self._words[0] == "create" and not _BODIES.isdisjoint(self._words)
        if self._creates_body:
            if word in ("begin", "case"):
                self._depth += 1
            elif word == "end" and self._depth:
                self._depth -= 1

    def _end_statement(self) -> None:
        if not self._is_blank:
            texts = (*self._texts, "".join(self._piece))
            number = len(self._done) + 1
            place = self._place if number == 1 else f"{self._place}, statement {number}"
            self._done.append(Statement(place, texts, tuple(self._values)))
        self._begin_statement()
