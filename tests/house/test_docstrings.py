"""Every module and every public class has a docstring, and so has every long public function.

A short function may speak by its name and its types; `main` and `work`, the entry points of
programs, by their module's docstring.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, modules, place, tree

LONG = 10
"""The number of lines from which on a public function of a module needs a docstring."""

_ENTRY_POINTS = frozenset({"main", "work", "upgrade", "downgrade"})


def undocumented(path: Path) -> Iterator[str]:
    """Yield the public parts of a module that need a docstring and have none."""
    module = tree(path)
    if not ast.get_docstring(module) and module.body:
        yield place(path, 1)
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            needed = not node.name.startswith("_")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            public = not node.name.startswith("_") and node.name not in _ENTRY_POINTS
            needed = public and lines >= LONG
        else:
            continue
        if needed and not ast.get_docstring(node):
            yield f"{place(path, node.lineno)}: {node.name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_public_is_documented(package: str) -> None:
    assert [each for path in modules(package) for each in undocumented(path)] == []
