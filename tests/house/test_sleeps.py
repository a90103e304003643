"""Tests don't sleep: a test waits for an event, or polls in a loop until it is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import ROOT, modules, place, tree

SLEEPERS = {
    "tests/bench": "measures over windows of time",
    "tests/faults": "kills and freezes daemons for times that a seed has drawn",
    "tests/integration/managers": "programs that take as long as real ones",
    "tests/system/test_failover.py": "kills daemons at random moments",
    "tests/system/test_races.py": "lets two actions meet at chosen moments",
    "tests/system/test_time_kills.py": "kills daemons at random moments",
}
"""Places that have to sleep, each with the reason."""


def sleeps(node: ast.AST, *, polling: bool = False) -> Iterator[int]:
    """Yield the lines that call `time.sleep` outside of a loop."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep"):
        if not polling:
            yield node.lineno
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        # A body that a loop merely defines is not run by it.
        polling = False
    elif isinstance(node, ast.While | ast.For):
        polling = True
    for child in ast.iter_child_nodes(node):
        yield from sleeps(child, polling=polling)


def _is_excepted(path: Path) -> bool:
    return path.relative_to(ROOT).as_posix().startswith(tuple(SLEEPERS))


def test_no_test_sleeps() -> None:
    found = [
        place(path, line)
        for path in modules("tests")
        if not _is_excepted(path)
        for line in sleeps(tree(path))
    ]
    assert found == []


def test_every_exception_is_needed() -> None:
    used = [
        path.relative_to(ROOT).as_posix()
        for path in modules("tests")
        if _is_excepted(path) and "sleep(" in path.read_text(encoding="utf-8")
    ]
    assert [each for each in SLEEPERS if not any(path.startswith(each) for path in used)] == []


def test_a_loop_that_asks_again_may_rest() -> None:
    code = "while not done():\n    time.sleep(1)\ntime.sleep(2)\n"
    assert list(sleeps(ast.parse(code))) == [3]
