"""The modules that keep together in one lane are there, and each test belongs to one unit."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.lanes import LONGEST, unit


@pytest.mark.parametrize("file", LONGEST)
def test_a_module_that_is_begun_first_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


def test_modules_that_share_a_server_are_one_unit_and_others_are_units_of_their_own() -> None:
    warm = {
        unit(f"tests/integration/test_spark_{name}.py::test_a") for name in ("tasks", "progress")
    }
    assert len(warm) == 1
    assert unit("tests/unit/test_dag.py::test_a[x::y]") == "tests/unit/test_dag.py"


def test_the_modules_that_parse_the_repository_are_one_unit() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert unit(f"{here}::test_a") == unit("tests/house/test_traps.py::test_b")


def test_the_tests_of_a_module_are_beside_each_other(request: pytest.FixtureRequest) -> None:
    """Else its servers would start more than once in a run of one lane."""
    modules = [module for module, _ in groupby(item.path for item in request.session.items)]
    assert len(modules) == len(set(modules))


def test_the_runs_of_the_test_command_have_every_folder_once() -> None:
    command = (ROOT / "bin" / "test").read_text(encoding="utf-8")
    runs = re.findall(r'-m "\$others"(.*?)(?:>|\|\|)', command, re.DOTALL)
    named = re.findall(r"tests/(\w+)", " ".join(runs))
    tests = (ROOT / "tests").glob("*/**/test_*.py")
    assert sorted(named) == sorted({path.relative_to(ROOT / "tests").parts[0] for path in tests})
