"""`docs/reliability.md` has the whole matrix of faults, and every test that it names exists.

Paths are checked by `test_documents`, like those of every page.
"""

from __future__ import annotations

import re

from tests.house.tree import ROOT, modules

PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| T(\d+) \| (.+?) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)


def test_the_matrix_is_whole_and_each_row_names_a_test_or_says_that_there_is_none() -> None:
    rows = _ROW.findall(PAGE)
    assert [int(number) for number, *_ in rows] == list(range(1, 43))
    assert [
        number for number, _, shown, _ in rows if ("`tests/" in shown) == (shown == "not tested")
    ] == []


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    texts = (path.read_text(encoding="utf-8") for path in modules("tests"))
    defined = {
        name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)
    }
    assert named
    assert named - defined == set()


def test_the_rules_and_definitions_are_counted_right() -> None:
    from tests.faults.checker import RULES
    from tests.faults.workload import workload

    assert f"{len(RULES)} rules (`tests/faults/checker.py`)" in PAGE
    assert f"runs of {len(workload(''))}\ndefinitions" in PAGE
