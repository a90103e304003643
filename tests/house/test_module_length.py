"""A module has one subject, and so at most 600 lines; tables may be longer."""

from __future__ import annotations

from tests.house.tree import PACKAGES, ROOT, modules

LIMIT = 600
LONGER = {
    "common/model/spark_settings.py": "the tables of Spark's settings, name by name",
}
"""Modules that can't be parted, each with the reason."""


def lengths() -> dict[str, int]:
    return {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules(*PACKAGES, "tests")
    }


def test_no_module_is_too_long() -> None:
    found = {name: lines for name, lines in lengths().items() if lines > LIMIT}
    assert {name: lines for name, lines in found.items() if name not in LONGER} == {}


def test_every_exception_is_needed() -> None:
    found = lengths()
    assert [name for name in LONGER if found.get(name, 0) <= LIMIT] == []
