"""Spark's texts shortened for people, and tracebacks from the author's script on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from worker.spark.diagnosis import texts
from worker.spark.diagnosis.tracebacks import shown

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "spark"
ERRORS: dict[str, dict[str, dict[str, Any]]] = json.loads((GOLDEN / "errors.json").read_text())


def golden(piece: str, kind: str) -> str:
    return str(ERRORS[piece][kind]["text"])


@pytest.mark.parametrize(
    ("piece", "kind"), [(piece, kind) for piece, kinds in ERRORS.items() for kind in kinds]
)
def test_a_text_is_short_and_has_no_stack_of_javas(piece: str, kind: str) -> None:
    short = texts.shortened(golden(piece, kind))
    assert "\tat " not in short
    assert len(short.splitlines()) <= 41
    assert "pyspark/worker.py" not in short


def test_a_plan_is_left_out_and_what_spark_advises_is_not() -> None:
    short = texts.shortened(golden("table_missing", "connect"))
    assert "UnresolvedRelation" not in short
    assert "DROP TABLE IF EXISTS" in short


def test_the_place_in_a_statement_is_kept() -> None:
    short = texts.shortened(golden("parse_error", "classic"))
    assert short.splitlines()[-2:] == ["SELEC 1 FROM", "^^^"]


def test_a_udfs_traceback_begins_in_the_authors_code() -> None:
    short = texts.shortened(golden("rdd_task_raises", "classic"))
    frames = [line for line in short.splitlines() if line.startswith("  File")]
    assert frames == ['  File "/jobs/collect.py", line 93, in <lambda>']


def test_very_long_texts_lose_their_middle() -> None:
    short = texts.shortened("\n".join(f"line {n}" for n in range(1000))).splitlines()
    assert (short[0], short[-1]) == ("line 0", "line 999")
    assert "… 960 more lines …" in short


def test_the_last_error_of_a_log_is_the_one_it_ended_with() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "a.py", line 1, in <module>\n'
        "KeyError: 'x'\n"
        "\nThe above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 3, in <module>\n'
        "ValueError: no x\n"
        "26/01/02 03:04:05 INFO SparkContext: Invoking stop() from shutdown hook\n"
    )
    assert texts.last_error(log) == "ValueError: no x"


def test_a_log_of_nothing_but_brackets_and_colons_is_read_quickly() -> None:
    for text in ("[" * 100_000, "a." * 100_000, "Caused by: " * 20_000, "A_" * 100_000):
        texts.headline(text)
        texts.shortened(text)
        texts.last_error(text)


def script(tmp_path: Path, text: str) -> BaseException:
    path = tmp_path / "job.py"
    path.write_text(text)
    try:
        exec(compile(text, str(path), "exec"), {})
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("it was to fail")


def test_a_traceback_begins_in_the_script(tmp_path: Path) -> None:
    error = script(tmp_path, "def f():\n    return {}['day']\nf()\n")
    assert shown(error, script=str(tmp_path / "job.py")).splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/job.py", line 3, in <module>',
        "    f()",
        f'  File "{tmp_path}/job.py", line 2, in f',
        "    return {}['day']",
        "           ~~^^^^^^^",
        "KeyError: 'day'",
    ]


def test_what_led_to_an_error_is_told_before_it(tmp_path: Path) -> None:
    text = "try:\n    {}['day']\nexcept KeyError as e:\n    raise ValueError('no day') from e\n"
    lines = shown(script(tmp_path, text), script=str(tmp_path / "job.py")).splitlines()
    assert "KeyError: 'day'" in lines
    assert "The above exception was the direct cause of the following exception:" in lines
    assert lines[-1] == "ValueError: no day"


def test_an_error_that_causes_itself_comes_to_an_end(tmp_path: Path) -> None:
    error = script(tmp_path, "raise ValueError('a')")
    other = ValueError("b")
    error.__context__, other.__context__ = other, error
    assert shown(error).count("ValueError: a") == 1


def test_a_syntax_error_has_its_line_and_no_frames(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    try:
        compile("def f(\n", str(path), "exec")
    except SyntaxError as error:
        lines = shown(error, script=str(path)).splitlines()
    assert lines[0].strip().startswith(f'File "{path}", line 1')
    assert lines[-1] == "SyntaxError: '(' was never closed"


def test_an_error_of_sparks_shows_the_authors_call_and_no_frame_of_the_library(
    tmp_path: Path,
) -> None:
    text = "from pyspark.sql import types\ndef f():\n    types.StructType()[object()]\nf()\n"
    error = script(tmp_path, text)
    lines = shown(error, script=str(tmp_path / "job.py")).splitlines()
    assert sum(line.startswith("  File") for line in lines) == 2
    assert not any("site-packages" in line for line in lines)
