"""Puts the values of `${name}` into the text of Spark SQL, as literals of their declared types.

Pure. DolphinScheduler replaces `${name}` in Spark SQL by the value's text. Here the value remains a
value: within quotation marks its characters are escaped, so that it ends where they end; elsewhere
it becomes a literal of the parameter's type, or a list of literals. A reference is refused where no
literal can be: in a word, beside a dot, in a name in backticks, in a raw text, in `$$`. In comments
it means nothing. A name without a parameter is not changed, because Spark has variables too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from typing import Final, NoReturn, TypeAlias

from common.params import DataType
from common.params.values import ParameterValueError, typed
from worker.spark.session.statements import StatementError
from worker.sql_scanner import SPARK, Part, Token

ValueOf: TypeAlias = Callable[[str], tuple[DataType, str] | None]
"""The type and the text of a parameter; None if there is no such parameter."""

_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_DIALECT: Final = replace(
    SPARK, special=re.compile(rf"(?P<reference>\$\{{)|{SPARK.special.pattern}")
)
# A value beside one of these would touch another word, name or text.
_BESIDE: Final = "_$.}\\\"'`"
# Spark replaces `${…}` in statements by its own variables, so a `$` of a value may not show.
_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", "'": "\\'", '"': '\\"', "$": "\\u0024", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)


def with_values(text: str, value_of: ValueOf) -> str:
    """Return the text with every reference to a parameter replaced.

    `StatementError` says where a reference can't be, and `ParameterValueError` which value is not
    of its type.
    """
    pieces: list[str] = []
    position = 0
    while (token := _DIALECT.find(text, position)) is not None:
        pieces.append(text[position : token.start])
        end, piece = _part(text, token, value_of)
        pieces.append(text[token.start : end] if piece is None else piece)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


def _part(text: str, token: Token, value_of: ValueOf) -> tuple[int, str | None]:
    """Return the end of a part and its new text; None leaves it as it is."""
    match token.part:
        case Part.LINE_COMMENT:
            return _DIALECT.line_comment_end(text, token), None
        case Part.BLOCK_COMMENT:
            end = _DIALECT.block_comment_end(text, token)
            return (len(text) if end is None else end), None
        case Part.REFERENCE:
            return _reference(text, token, value_of)
        case Part.QUOTE:
            return _quoted(text, token.start, value_of)
        case Part.PREFIX:
            return _verbatim(text, token.start, _closed(text, token.end), value_of, "a raw text")
        case Part.DOLLAR:
            end = _DIALECT.dollar_end(text, token)
            end = len(text) if end is None else end
            return _verbatim(text, token.start, end, value_of, f"a text in {token.text}")
        case _:
            return token.end, None


def _reference(text: str, token: Token, value_of: ValueOf) -> tuple[int, str | None]:
    found = _REFERENCE.match(text, token.start)
    value = None if found is None else value_of(found[1])
    if found is None or value is None:
        return token.end, None
    around = text[token.start - 1 : token.start] + text[found.end() : found.end() + 1]
    if any(sign.isalnum() or sign in _BESIDE for sign in around):
        _refuse(text, found, "a word or a name")
    return found.end(), _literal(found[1], *value)


def _quoted(text: str, start: int, value_of: ValueOf) -> tuple[int, str | None]:
    end = _closed(text, start)
    if text[start] == "`":
        return _verbatim(text, start, end, value_of, "a name in `")

    pieces: list[str] = []
    position = start
    for found in _REFERENCE.finditer(text, start, end):
        value = value_of(found[1])
        if value is None:
            continue
        if _is_escaped(text, found.start()):
            # The backslash would take the first sign of the value, which may be an escape as well.
            _refuse(text, found, "an escape sequence")
        typed(found[1], *value)
        pieces += [text[position : found.start()], value[1].translate(_ESCAPES)]
        position = found.end()
    return end, "".join((*pieces, text[position:end]))


def _is_escaped(text: str, position: int) -> bool:
    """Return whether the sign at a position follows an odd number of backslashes."""
    start = position
    while text[start - 1 : start] == "\\":
        start -= 1
    return (position - start) % 2 == 1


def _verbatim(
    text: str, start: int, end: int, value_of: ValueOf, where: str
) -> tuple[int, str | None]:
    for found in _REFERENCE.finditer(text, start, end):
        if value_of(found[1]) is not None:
            _refuse(text, found, where)
    return end, None


def _closed(text: str, start: int) -> int:
    """Return the end of a quoted text; all of the rest if it is never closed."""
    found = _DIALECT.quoted_at(text, start)
    return len(text) if found is None else found.end


def _refuse(text: str, found: re.Match[str], where: str) -> NoReturn:
    line = text.count("\n", 0, found.start()) + 1
    name = found[1][:80]
    raise StatementError(
        f"line {line}: ${{{name}}} is inside {where}, where no value can be; write !{{{name}}} for"
        " a name or a part of one"
    )


def _literal(name: str, kind: DataType, text: str) -> str:
    """Return a literal of Spark SQL, or several if the parameter is a list."""
    value = typed(name, kind, text)
    if isinstance(value, list):
        return ", ".join(_of_item(name, each) for each in value) or "NULL"
    return _of_item(name, value)


def _of_item(name: str, value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return _number(str(value))
        case float() if not math.isfinite(value):
            return f"CAST('{value}' AS DOUBLE)"
        case float():
            return _number(f"{value!r}D")
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case time():
            return f"'{value.isoformat()}'"
        case str() if "\0" not in value:
            return f"'{value.translate(_ESCAPES)}'"
        case _:
            raise ParameterValueError(
                f"parameter {name!r} must list text, numbers and booleans to be put into a"
                " statement"
            )


def _number(digits: str) -> str:
    # Two minus signs in a row would begin a comment.
    return f" {digits}" if digits.startswith("-") else digits
