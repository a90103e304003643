"""Names that were given up for the words of the field don't come back into the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, modules, place, tree

WORDS = {
    "asker": "task proxy",
    "bell": "change-notification znode",
    "cured": "resolved",
    "hindrance": "blocker",
    "knot": "wait cycle, deadlock",
    "linger": "await group exit",
    "needy": "awaiting inputs",
    "oddity": "clock change",
    "rehearsal": "simulation",
    "rival": "other live run",
    "stranger": "stale attempt, foreign",
    "surprise": "lint warning",
    "wish": "intent",
}
"""Parts of names, each with the words to use instead."""
NAMES = frozenset({"_born", "_hold", "_tell", "_teller", "_told", "_untie", "pour"})
"""Whole names, whose parts are good elsewhere."""
OF_LIBRARIES = frozenset({"SO_LINGER"})
"""Names that others have given."""

_NAMED: dict[type[ast.AST], str] = {
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.FunctionDef: "name",
    ast.ClassDef: "name",
}
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def identifiers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every name that a module defines or uses."""
    for node in ast.walk(tree(path)):
        if (kind := type(node)) in _NAMED:
            yield node.lineno, getattr(node, _NAMED[kind])


@cache
def is_given_up(name: str) -> bool:
    """True for a name with one of the words in it, singular or plural."""
    parts = {part.lower() for part in _PART.findall(name)}
    singular = {re.sub(r"(?<=[a-z])(es|s)$", "", part) for part in parts}
    plain = {part.removesuffix("s") for part in parts}
    if name in OF_LIBRARIES:
        return False
    return name.lower() in NAMES or not WORDS.keys().isdisjoint(parts | singular | plain)


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_no_name_is_one_that_was_given_up(package: str) -> None:
    found = [
        f"{place(path, line)}: {name}"
        for path in modules(package)
        for line, name in identifiers(path)
        if is_given_up(name)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("an_asker", True),
        ("Wishes", True),
        ("_untie", True),
        ("_told", True),
        ("told", False),
        ("SO_LINGER", False),
        ("bellows", False),
    ],
)
def test_names_are_judged_by_their_parts(name: str, expected: bool) -> None:
    assert is_given_up(name) is expected
