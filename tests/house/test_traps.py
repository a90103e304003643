"""The traps and sections of the contract that the code cites stand in `docs`, and tests hold the traps.

Every trap has a row in `docs/traps.md`, with a test that exists. Those of 13.1, 13.2, 13.4 and 13.5 have
a test that bears their number as a word of its name, `test_t46b_…` or `…_t46b`, or a reason; so have
the reports of 13.6, mistakes that were mended upstream (`…_7320_15594`). That each test fails when
the mistake is put back was seen once, by hand.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.house.tree import modules, tree

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
PAGE = ROOT / "docs" / "traps.md"
CONTRACT = ROOT / "docs" / "contract.md"
PACKAGES = ("common", "master", "worker", "operations", "orcaflow", "sql", "tests")

TRAPS = {
    "13.1 master loop and states": (
        "01 21 21b 23 23b 24 25 26 27 28 29 30 38 46a 46b 48 49 49b 51 51b 56 65 66 37 46c 67 68"
    ),
    "13.2 commands and recovery": (
        "33 33b 34 35 36 36b 36c 36d 36e 39 39b 40 69 70 71 72 73 31 32 32b 41 41b 74"
    ),
    "13.4 worker": (
        "03 04 05 06 07 08 08b 17 18 63 61 62 81 19 19b 20 59 82 47 53 58 60 98 83 84 85 86"
        " 52 52b 87"
    ),
    "13.5 time and dependents": (
        "42 42b 43 43b 43c 43d 43e 44 88 89 90 45 46 91 97 92 93 64 94 96 95"
    ),
}
REGRESSIONS = (
    "1246 1523 1532 1477 9509 15662 12933 7140 7320 15594 13314 14200 15287 15528"
    " 15270 10453 9906 15611 9952 15544"
)
ELSEWHERE: dict[str, str] = {}

_NUMBER = re.compile(r"\d+[a-z]?")
_ROW = re.compile(r"^\| T?(\d[\da-z, ]*?) \| (.+?) \| (.+) \|$", re.MULTILINE)
_CITED_TRAP = re.compile(r"\bT(\d\d[a-z]?)\b")
_CITED_SECTION = re.compile(r"(?:§ ?|[Cc]ontract )(\d+(?:\.\d+)*)")
_CITED_RULE = re.compile(r"\bX(\d+)\b")


@cache
def _tests() -> frozenset[str]:
    return frozenset(
        node.name.lower()
        for path in modules("tests")
        if path.name.startswith("test_")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def _words() -> set[str]:
    return {word for name in _tests() for word in name.split("_")}


def _traps() -> list[str]:
    return [number for numbers in TRAPS.values() for number in numbers.split()]


def test_every_trap_has_a_test_with_its_number_or_a_reason() -> None:
    words = _words()
    tested = {number for number in _traps() if f"t{number}" in words}
    assert [number for number in _traps() if number not in tested and number not in ELSEWHERE] == []
    # A reason stands for a missing test: a stale one would hide the loss of the test.
    assert sorted(tested & ELSEWHERE.keys()) == []


def test_every_regression_has_a_test_with_its_number_or_a_reason() -> None:
    words = _words()
    missing = [number for number in REGRESSIONS.split() if number not in words]
    assert [number for number in missing if number not in ELSEWHERE] == []


def test_no_number_is_listed_twice_or_excused_without_being_listed() -> None:
    listed = [*_traps(), *REGRESSIONS.split()]
    assert len(listed) == len(set(listed))
    assert all(_NUMBER.fullmatch(number) for number in listed)
    assert [number for number in ELSEWHERE if number not in listed] == []
    assert all(ELSEWHERE.values())


def test_every_worked_trace_is_a_test() -> None:
    text = (TESTS / "system" / "pairs" / "test_traces.py").read_text(encoding="utf-8")
    assert [n for n in range(1, 10) if f"14_{n}_" not in text] == []


def _cited(pattern: re.Pattern[str]) -> dict[str, str]:
    """Return the citations in the code, each with one place."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path == Path(__file__):
                continue
            for number in pattern.findall(path.read_text(encoding="utf-8")):
                found.setdefault(number, str(path.relative_to(ROOT)))
    return found


def test_every_trap_has_a_row_on_the_page_and_every_row_is_a_trap() -> None:
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    rows = [number for numbers, _, _ in found for number in numbers.split(", ")]
    assert len(rows) == len(set(rows))
    listed = [*_traps(), *REGRESSIONS.split()]
    wanted = [number for number in listed if number not in ELSEWHERE]
    assert [number for number in wanted if number not in rows] == []
    missing = {f"T{trap}": where for trap, where in _cited(_CITED_TRAP).items() if trap not in rows}
    assert missing == {}


def test_every_test_that_the_page_names_exists() -> None:
    names = _tests()
    for number, rule, tests in _ROW.findall(PAGE.read_text(encoding="utf-8")):
        assert rule.endswith("."), number
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, f"{number} has no test"
        assert [name for name in named if name not in names] == [], f"{number} in docs/traps.md"


def test_a_section_is_cited_as_one_of_the_contract() -> None:
    assert _cited(re.compile(r"([Ss]pecification\s+(?:# )?§\d[\d.]*)")) == {}
    # ARCHITECTURE.md has sections of the same numbers.
    assert _cited(re.compile(r"(?<!ontract )(?<!, )(?<!and )(?<!to )(§ ?\d[\d.]*)")) == {}


def test_every_section_that_the_code_cites_stands_in_the_contract() -> None:
    text = CONTRACT.read_text(encoding="utf-8")
    sections = set(re.findall(r"^#+ §(\d+(?:\.\d+)*) ", text, re.MULTILINE))
    rules = set(re.findall(r"^\| X(\d+) \|", text, re.MULTILINE))
    cited = _cited(_CITED_SECTION)
    assert {f"§{one}": where for one, where in cited.items() if one not in sections} == {}
    assert {f"X{one}": w for one, w in _cited(_CITED_RULE).items() if one not in rules} == {}


def test_every_test_that_the_page_about_security_names_exists() -> None:
    names = _tests()
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| X(\d+) \|.*\| ([^|]*) \|$", page, re.MULTILINE)
    assert len(rows) == len({number for number, _ in rows}) > 20
    for number, tests in rows:
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, f"X{number} has no test"
        assert [name for name in named if name not in names] == [], f"X{number}"
