"""Operations are functions: they print nothing, read no terminal and never sleep."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT, modules

_BUILT_IN = frozenset({"print", "input", "breakpoint"})
_OF_SYSTEM = frozenset({"stdout", "stderr", "stdin", "argv", "exit"})


def dialogues(source: str) -> Iterator[str]:
    """Yield the lines at which a module talks to a terminal, or sleeps."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _BUILT_IN:
                yield f"{node.lineno}: {name}"
            case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name in _OF_SYSTEM:
                yield f"{node.lineno}: sys.{name}"
            case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                yield f"{node.lineno}: time.sleep"
            case ast.ImportFrom(module="time" | "sys"):
                yield f"{node.lineno}: from {node.module}"


@pytest.mark.parametrize(
    "path", modules("operations"), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_an_operation_talks_to_no_terminal_and_never_sleeps(path: Path) -> None:
    assert list(dialogues(path.read_text(encoding="utf-8"))) == []


def test_the_rule_sees_prints_sleeps_and_streams() -> None:
    source = (
        "import sys, time\nfrom time import sleep\nprint(1)\nsys.stdout.write('')\ntime.sleep(1)\n"
    )
    found = sorted(dialogues(source))
    assert found == ["2: from time", "3: print", "4: sys.stdout", "5: time.sleep"]


@pytest.mark.parametrize(
    "path", modules("orcaflow"), ids=lambda path: path.relative_to(ROOT).as_posix()
)
def test_the_command_line_opens_no_transaction_of_its_own(path: Path) -> None:
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    assert [
        node for node in found if isinstance(node, ast.Attribute) and node.attr == "engine"
    ] == []
