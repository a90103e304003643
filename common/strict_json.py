"""JSON from files and texts of people, read strictly and within limits of size and depth.

Python's reader keeps the last of repeated keys, accepts NaN and recurses as deep as a text nests;
here each of these is a mistake with its place. Nothing here knows what the document means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from common.errors import InvalidDefinitionError

MAX_BYTES: Final = 10_000_000
MAX_DEPTH: Final = 100
MAX_CONTAINERS: Final = 500_000
"""The limit of objects and lists per document; a definition with 10,000 tasks has 100,000."""


class NotJsonError(InvalidDefinitionError):
    """A text is not JSON at all."""


@dataclass(slots=True)
class Budget:
    """The number of objects and lists that remain for several texts together."""

    containers: int


_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def content_of(path: Path) -> bytes:
    """The bytes of a file; `InvalidDefinitionError` if it can't be read."""
    try:
        if path.is_dir():
            _refuse("is a folder, not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        _refuse(f"can't be read: {reason}")
    return content


def strict_json(content: bytes, budget: Budget | None = None) -> Any:
    """The document; `InvalidDefinitionError` for repeated keys, NaN, deep nesting, NUL and size.

    `budget` is shared by several texts; without it the document may have `MAX_CONTAINERS`.
    """
    if len(content) > MAX_BYTES:
        _refuse(f"is larger than {MAX_BYTES // 1_000_000} MB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _refuse(f"line {line}: byte {error.start} is not UTF-8")
    _check_depth(content, Budget(MAX_CONTAINERS) if budget is None else budget)
    mistakes: list[str] = []

    def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    near = made.get("name")
                    where = f" (in the object named {near!r:.80})" if isinstance(near, str) else ""
                    mistakes.append(f"the key {key!r:.80} stands twice{where}")
                seen.add(key)
        return made

    def constant(word: str) -> None:
        mistakes.append(f"{word} is not JSON")

    try:
        document = json.loads(text, object_pairs_hook=of_pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise NotJsonError((f"{where}: not JSON: {error.msg}",)) from None
    except ValueError as error:
        # A whole number of thousands of digits is refused by Python itself.
        _refuse(str(error))
    check_storable(document, mistakes)
    return document


def check_storable(document: object, mistakes: Sequence[str] = ()) -> None:
    """Refuse texts that PostgreSQL or a process can't be given, with the mistakes so far."""
    found = [f"{where}: {bad}" for where, bad in _unstorable(document, "")]
    if mistakes or found:
        raise InvalidDefinitionError((*mistakes, *found))


def _check_depth(content: bytes, budget: Budget) -> None:
    """Check before parsing: the parser recurses and needs 100 bytes per object or list."""
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(content):
        sign = token.group()
        if sign in (b"[", b"{"):
            depth += 1
            budget.containers -= 1
            if budget.containers < 0:
                _refuse(f"has more than {MAX_CONTAINERS:,} objects and lists")
            if depth > MAX_DEPTH:
                line = content.count(b"\n", 0, token.start()) + 1
                _refuse(f"line {line}: nested more than {MAX_DEPTH} levels deep")
        elif sign in (b"]", b"}"):
            depth -= 1


def _unstorable(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Texts that PostgreSQL or a process can't be given, and where they stand."""
    if isinstance(value, str):
        if "\0" in value:
            yield where or "the text", "has a NUL character"
        elif any("\ud800" <= character <= "\udfff" for character in value):
            yield where or "the text", "has half of a surrogate pair, which is no character"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unstorable(item, f"{where}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{where}.{key!s:.80}" if where else f"{key!s:.80}"
            yield from _unstorable(key, f"the key {key!r:.80}")
            yield from _unstorable(item, inner)


def _refuse(mistake: str) -> NoReturn:
    raise InvalidDefinitionError((mistake,))
