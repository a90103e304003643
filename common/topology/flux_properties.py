"""The placeholders `${name}` and `${ENV-NAME}` in the YAML of a topology, as in Flux. Pure.

The submitter gives every value: properties, and variables by name. This module never reads the
environment of a process. As in Flux, text is replaced before YAML is read, so `tasks: ${n}` is a
number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\$(\$?)\{([^{}\n]*)\}")
_LIST_ITEM: Final = re.compile(r"(.+)\[([0-9]{1,4})\]")
_ENV: Final = "ENV-"
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|\Z)", re.DOTALL)
_ESCAPED: Final[Mapping[str, str]] = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


class _UnresolvedError(Exception):
    """A placeholder lacks a usable value; the text has the reason and the remedy."""


def substituted(
    text: str, properties: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Return the text with values in place of placeholders, and the mistakes with their lines.

    `$${name}` becomes the text `${name}`. Comment lines are not changed.
    """
    mistakes = []

    def replaced(line: str, number: int) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1]:
                return found[0][1:]
            try:
                return _value(found[2], properties, environment)
            except _UnresolvedError as error:
                mistakes.append(f"line {number}: ${{{found[2]:.100}}} {error}")
                return found[0]

        return line if line.lstrip().startswith("#") else _PLACEHOLDER.sub(value, line)

    lines = text.split("\n")
    return "\n".join(replaced(line, number) for number, line in enumerate(lines, 1)), mistakes


def read_properties(text: str) -> dict[str, str]:
    """Return the pairs of a Java properties file: `key=value` or `key: value`."""
    found = {}
    for line in _logical_lines(text):
        pair = _KEY.fullmatch(line)
        assert pair is not None  # Every text matches.
        found[_unescaped(pair[1])] = _unescaped(pair[2])
    return found


def _value(name: str, properties: Mapping[str, str], environment: Mapping[str, str]) -> str:
    if name.startswith(_ENV):
        variable = name.removeprefix(_ENV)
        if variable not in environment:
            raise _UnresolvedError(
                f"is not given; add --env {variable} to the submission, or write $${{{name}}} for"
                " the text itself"
            )
        return _one_line(environment[variable])
    if name in properties:
        return _one_line(properties[name])
    item = _LIST_ITEM.fullmatch(name)
    if item is not None and item[1] in properties:
        return _item(_one_line(properties[item[1]]), int(item[2]))
    raise _UnresolvedError(
        "has no value; give it in a properties file with --filter, or write"
        f" $${{{name}}} for the text itself"
    )


def _item(value: str, index: int) -> str:
    inner = value.strip()
    if not (inner.startswith("[") and inner.endswith("]")):
        raise _UnresolvedError('must be the item of a list; write it as ["a", "b"]')
    items = [each.strip() for each in inner[1:-1].split(",")]
    if index >= len(items):
        raise _UnresolvedError(f"names item {index} of a list with {len(items)} items")
    item = items[index]
    is_quoted = len(item) > 1 and item[0] == item[-1] and item[0] in "\"'"
    return item[1:-1] if is_quoted else item


def _one_line(value: str) -> str:
    if not value.isprintable():
        raise _UnresolvedError("has a value with a line break or another control character")
    return value


def _logical_lines(text: str) -> list[str]:
    """Return the lines of a properties file without comments, with continuations joined."""
    lines: list[str] = []
    before = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(" \t\f")
        if not before and (not stripped or stripped[0] in "#!"):
            continue
        whole = before + stripped
        backslashes = len(whole) - len(whole.rstrip("\\"))
        if backslashes % 2:
            before = whole[:-1]
            continue
        lines.append(whole)
        before = ""
    return [*lines, before] if before else lines


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        name = found[1]
        if len(name) == 5:
            return chr(int(name[1:], 16))
        return _ESCAPED.get(name, name)

    return _ESCAPE.sub(character, text)
