"""The Python files of the repository, parsed, for the rules that check all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "master", "worker", "operations", "api", "orcaflow", "sql")
"""The packages that are installed."""


def modules(*folders: str) -> tuple[Path, ...]:
    """Return the Python files below these folders, in order."""
    return tuple(sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def place(path: Path, line: int) -> str:
    """Return a place as editors open it."""
    return f"{path.relative_to(ROOT).as_posix()}:{line}"


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield all strings that document a module, class, function, field or constant."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                if (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                ):
                    yield statement.lineno, statement.value.value.strip()
