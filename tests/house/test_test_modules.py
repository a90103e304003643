"""A module of tests is imported by no other: what several share stands in a module beside them.

An import would tie two subjects together, and hide where a helper lives.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import ROOT, modules, place, tree


def imports_of_test_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines in which a module imports a module of tests, with its name."""
    for node in ast.walk(tree(path)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            # The names of a package may be its modules.
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        for name in names:
            file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if file.name.startswith("test_") and file.is_file():
                yield node.lineno, name


def test_no_module_imports_a_module_of_tests() -> None:
    found = {
        place(path, line): name
        for path in modules("tests")
        for line, name in imports_of_test_modules(path)
    }
    assert found == {}


def test_the_rule_sees_imports_of_every_kind(tmp_path: Path) -> None:
    name = "tests.house.test_test_modules"
    source = tmp_path / "module.py"
    source.write_text(
        f"import {name}\nfrom {name} import ROOT\nfrom tests.house import test_test_modules\n"
        "from tests.house.tree import ROOT\nfrom tests import house\n",
        encoding="utf-8",
    )
    assert list(imports_of_test_modules(source)) == [(line, name) for line in (1, 2, 3)]
