"""The comparison of a PYSPARK task with `spark-submit`, and the list of the scripts that are compared."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.parity import expected
from tests.parity.differences import DIFFERENCES, Difference, verdict
from tests.parity.outcomes import Kind, Outcome, files_below, kind_of_difference, logged, printed
from tests.parity.scripts import SAMPLE, scripts

GOOD = Outcome(exit_code=0, printed=("= 1",), files={"out/part.csv": ("1",)})


def test_lines_of_the_script_are_marked_and_others_are_ignored() -> None:
    output = (
        "WARN Utils: no such thing\n= 1 2\n+---+\n| id|\n+---+\nroot\n |-- id: long\n"
        "+- Range (0, 3)\n== SQL ==\n! INFO job started\n-------\n"
    )
    assert printed(output) == ("= 1 2", "+---+", "| id|", "+---+", "root", " |-- id: long")
    assert logged(output) == ("! INFO job started",)


@pytest.mark.parametrize(
    ("found", "is_refusal", "kind"),
    [
        (GOOD, False, None),
        (replace(GOOD, printed=("= 2",)), False, Kind.OTHER_ROWS),
        (replace(GOOD, files={}), False, Kind.OTHER_FILES),
        (replace(GOOD, exit_code=1, printed=()), False, Kind.FAILS),
        (replace(GOOD, exit_code=1, printed=()), True, Kind.REFUSED),
    ],
)
def test_the_worst_difference_counts(found: Outcome, is_refusal: bool, kind: Kind | None) -> None:
    assert kind_of_difference(GOOD, found, is_refusal=is_refusal) is kind


def test_a_success_is_no_match_for_a_failure() -> None:
    assert kind_of_difference(replace(GOOD, exit_code=3), GOOD) is Kind.OTHER_EXIT
    assert (
        kind_of_difference(replace(GOOD, exit_code=3), replace(GOOD, exit_code=1))
        is Kind.OTHER_EXIT
    )


def test_the_parts_of_a_data_set_are_one_file_without_drawn_names(tmp_path: Path) -> None:
    drawn = "8f9b2c7d-0a1b-4c2d-9e3f-0123456789ab"
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"part-00000-{drawn}-c000.csv").write_text("2\n", encoding="utf-8")
    (tmp_path / "out" / f"part-00001-{drawn}-c000.csv").write_text("1\n", encoding="utf-8")
    (tmp_path / "out" / f"part-00000-{drawn}.c000.snappy.parquet").write_bytes(b"PAR1")
    (tmp_path / "out" / "_SUCCESS").touch()
    (tmp_path / "out" / ".part.crc").touch()
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("v1", encoding="utf-8")
    (tmp_path / "spark-warehouse").mkdir()
    (tmp_path / "spark-warehouse" / "t").touch()
    assert files_below(tmp_path, re.compile("out/_S.*")) == {
        "checkpoint": None,
        "out/part.csv": ("1", "2"),
        "out/part.snappy.parquet": None,
    }


@pytest.mark.parametrize(
    ("recorded", "kind", "fault"),
    [
        (None, None, ""),
        (None, Kind.FAILS, "fails, which is not recorded"),
        (Kind.FAILS, Kind.FAILS, ""),
        (Kind.FAILS, Kind.OTHER_ROWS, "other rows, but recorded is: fails"),
        (Kind.FAILS, None, "no difference: delete its entry (fails) in differences.py"),
    ],
)
def test_a_difference_has_to_be_the_recorded_one(
    monkeypatch: pytest.MonkeyPatch, recorded: Kind | None, kind: Kind | None, fault: str
) -> None:
    table = {} if recorded is None else {"views/a": Difference(recorded, "a reason")}
    monkeypatch.setattr("tests.parity.differences.DIFFERENCES", table)
    assert verdict("views/a", kind) == fault


def test_the_lists_name_scripts_that_exist() -> None:
    known = {script.name: script for script in scripts()}
    assert len(known) >= 150
    assert set(DIFFERENCES) <= set(known)
    assert set(SAMPLE) <= set(known)
    assert set(SAMPLE) <= set(expected.read()) <= set(known)


def test_a_script_has_its_directives_and_a_module_is_not_a_script() -> None:
    (given,) = scripts(["program/arguments"])
    assert given.arguments == ("--day", "2026-01-02", "--limit", "2", "north", "south")
    (shipped,) = scripts(["modules/py_files"])
    assert [path.name for path in shipped.py_files] == ["letters.py"]
    (packed,) = scripts(["jdbc/postgresql"])
    assert packed.package.startswith("org.postgresql:")
    assert packed.given("jdbc:x") == ("jdbc:x",)
    assert scripts(["modules/letters", "modules/shop/*"]) == ()
