"""A module that calls itself pure is held to it by an import contract, however long the way."""

from __future__ import annotations

import ast
import re
import tomllib
from typing import Any

import pytest

from tests.house.tree import PACKAGES, ROOT, modules, tree

WAITING = ("sqlalchemy", "psycopg2", "kazoo", "psutil", "threading", "subprocess", "socket")
DRAWING = ("time", "random")


def _contracts() -> list[dict[str, Any]]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return [each for each in found if each["type"] == "forbidden" and "pure" in each["name"]]


def _pure_modules() -> list[str]:
    found = []
    for path in modules(*PACKAGES):
        # Every process of a run collects this: it parses only the modules that may say so.
        if "Pure" not in path.read_text(encoding="utf-8"):
            continue
        if re.search(r"\bPure\b", ast.get_docstring(tree(path)) or ""):
            name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            found.append(name.removesuffix(".__init__"))
    return found


@pytest.mark.parametrize("module", _pure_modules())
def test_a_module_that_says_so_is_pure_by_contract(module: str) -> None:
    held = {source for contract in _contracts() for source in contract["source_modules"]}
    assert any(module == each or module.startswith(f"{each}.") for each in held)


@pytest.mark.parametrize("contract", _contracts(), ids=lambda contract: contract["name"])
def test_a_contract_of_purity_forbids_all_that_waits_or_draws(contract: dict[str, Any]) -> None:
    assert not contract.get("allow_indirect_imports")
    assert not contract.get("ignore_imports")
    assert {*WAITING, *DRAWING} <= set(contract["forbidden_modules"])
