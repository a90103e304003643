"""Reads the paths of a `flattenSpec`: JsonPath, jq, and the nodes of a tree.

Pure. A path leads from a field of a record to one value in it, or with `[*]` to a list of values.
Functions, filters, slices, recursive descent and counting from the end are refused, each with what
to write instead. `worker.spark.streaming.nested` follows the paths.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

MAX_LENGTH: Final = 1_000
MAX_STEPS: Final = 50

Path: TypeAlias = tuple[str | int | None, ...]
"""Names of fields, indexes of lists, and None for each item of a list; a name comes first."""

_JSON_PATH: Final = re.compile(
    r"\.(?P<name>[^.\[\]()*?'\"\s,]++)(?!\()"
    r"|\.?\[\s*'(?P<single>(?:[^'\\]|\\.)*)'\s*\]"
    r'|\.?\[\s*"(?P<double>(?:[^"\\]|\\.)*)"\s*\]'
    r"|\.?\[\s*(?P<index>[0-9]{1,9})\s*\]"
    r"|(?P<each>\.?\[\s*\*\s*\])"
)
_JQ: Final = re.compile(
    r"(?:\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r'|\.?"(?P<quoted>(?:[^"\\]|\\.)*)"'
    r'|\.?\[\s*"(?P<double>(?:[^"\\]|\\.)*)"\s*\]'
    r"|\.?\[\s*(?P<index>[0-9]{1,9})\s*\])\??"
)
_JSON_PATH_REASONS: Final = (
    (r"\.\.", "`..` finds fields at any depth; name the way to the field"),
    (r"\.[A-Za-z]+\(", "functions are not supported; use an expression of transformSpec"),
    (r"(\.\*|\[\s*'?\*)", "`.*` takes all fields; name one of them"),
    (r"\[\s*\?", "filters are not supported; name an index, or [*] for all items"),
    (r"\[\s*-", "counting from the end is not supported; name an index from 0 on"),
    (r"\[[^\]]*[:,]", "slices and unions are not supported; write a field for each part"),
)
_JQ_REASONS: Final = (
    (r"\.?\[\s*\]", "`[]` makes several results, of which Druid keeps the first; write [0]"),
    (r"\.?\[\s*-", "counting from the end is not supported; name an index from 0 on"),
    (r"\.?\[[^\]]*:", "slices are not supported; write a field for each part"),
    (r"\.\.", "`..` finds values at any depth; name the way to the field"),
)


class PathError(ValueError):
    """A path that can't be followed; the message says why and what to write instead."""


def read_json_path(text: str) -> Path:
    """Read a JsonPath such as `$.user.tags[0]`; as in Druid, `$.` may be missing."""
    rest = text.strip()
    if rest.startswith("$"):
        rest = rest[1:]
    elif not rest.startswith("["):
        rest = f".{rest}"
    return _steps(text, rest, _JSON_PATH, _JSON_PATH_REASONS, "$.user.name")


def read_jq(text: str) -> Path:
    """Read the part of jq that names one value: `.user.tags[0]`, `.["a b"]?`, `.user | .name`."""
    parts = [each.strip() for each in text.split("|")] if '"' not in text else [text.strip()]
    for part in parts:
        if not part.startswith("."):
            raise PathError(f"{part[:20]!r} is no path; write as in .user.name, without functions")
    rest = "".join(each for each in parts if each != ".")
    return _steps(text, rest, _JQ, _JQ_REASONS, ".user.name")


def read_tree(nodes: tuple[str, ...]) -> Path:
    """Read the nodes of a tree: the names of fields, from the root on."""
    return _checked(nodes)


def _steps(
    text: str,
    rest: str,
    form: re.Pattern[str],
    reasons: tuple[tuple[str, str], ...],
    example: str,
) -> Path:
    if len(text) > MAX_LENGTH:
        raise PathError(f"a path has at most {MAX_LENGTH} characters")
    found: list[str | int | None] = []
    place = 0
    while place < len(rest):
        step = form.match(rest, place)
        if step is None or step.end() == place:
            for pattern, reason in reasons:
                if re.match(pattern, rest[place:]):
                    raise PathError(reason)
            raise PathError(f"{rest[place : place + 20]!r} can't be read; write as in {example}")
        found.append(_step(step))
        place = step.end()
    return _checked(tuple(found))


def _step(found: re.Match[str]) -> str | int | None:
    for name, text in found.groupdict().items():
        if text is None:
            continue
        if name == "each":
            return None
        if name == "index":
            return int(text)
        return text if name == "name" else re.sub(r"\\(.)", r"\1", text)
    raise AssertionError("a form without a group")


def _checked(path: Path) -> Path:
    while path and path[-1] is None:
        # All items of a list are the list itself.
        path = path[:-1]
    if not path or not isinstance(path[0], str):
        raise PathError("it must begin with a field of the record, because a record is an object")
    if len(path) > MAX_STEPS:
        raise PathError(f"it has more than {MAX_STEPS} steps")
    for name in path[1:]:
        if isinstance(name, str) and (
            not name or "'" in name or "?" in name or name != name.strip()
        ):
            raise PathError(
                f"{name!r}: below the first field, a name must not be empty, nor have quotes,"
                " question marks or spaces around it; read the field above it"
            )
    return path
