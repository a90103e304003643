"""The helper for task code works inside a task, and by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from orcaflow.task import datasource, metrics, output, params


@pytest.fixture(autouse=True)
def _no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCAFLOW_PARAMS", "ORCAFLOW_OUTPUT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process look like one that runs a PYSPARK script."""
    module = types.ModuleType("__main__")
    module.__dict__["__orcaflow__"] = {
        "params": {"day": date(2026, 1, 2)},
        "datasource": {"shop": {"url": "jdbc:x"}}.__getitem__,
    }
    monkeypatch.setitem(sys.modules, "__main__", module)


def test_by_hand_there_are_no_parameters_and_outputs_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dict(params) == {}
    output("rows", 5)
    with pytest.raises(KeyError, match=r"in params\.datasources of a PYTHON or PYSPARK task"):
        datasource("shop")
    assert "shop" not in params


def test_parameters_are_those_of_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "params.json"
    path.write_text('{"day": "2026-01-02", "password": "hunter2"}')
    monkeypatch.setenv("ORCAFLOW_PARAMS", str(path))
    assert params["day"] == "2026-01-02"
    assert "hunter2" not in repr(params)


@pytest.mark.usefixtures("script")
def test_a_pyspark_script_has_typed_parameters_and_data_sources() -> None:
    assert dict(params) == {"day": date(2026, 1, 2)}
    assert datasource("shop") == {"url": "jdbc:x"}


@pytest.mark.parametrize(
    ("value", "put_out"),
    [
        (5, 5),
        ("ä", "ä"),
        ([1, "a"], [1, "a"]),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime.fromisoformat("2026-01-02T03:04:05"), "2026-01-02 03:04:05"),
        (Decimal("1.50"), "1.50"),
        (float("nan"), "nan"),
        (None, None),
    ],
)
def test_what_is_put_out_is_a_line_that_the_worker_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: object, put_out: object
) -> None:
    path = tmp_path / "output.jsonl"
    monkeypatch.setenv("ORCAFLOW_OUTPUT", str(path))
    output("x", value)
    output("y", 1)
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"x": put_out},
        {"y": 1},
    ]


def test_the_log_and_figures_are_printed_among_what_the_script_prints() -> None:
    code = (
        "from orcaflow.task import log, metrics\n"
        "print('one'); log.info('two %d', 2); metrics(rows=5, seconds=1.5); print('three')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    one, two, figures, three = done.stdout.splitlines()
    assert (one, three) == ("one", "three")
    assert two.endswith(" INFO two 2")
    assert figures.endswith(" INFO metrics rows=5 seconds=1.5")
    assert done.stderr == ""


def test_the_helper_needs_nothing_of_orcaflow_s_daemons() -> None:
    code = (
        "import orcaflow.task, sys;"
        "print([n for n in sys.modules if n.partition('.')[0] in"
        " ('common', 'worker', 'master', 'typer', 'sqlalchemy', 'pyspark', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_figures_are_reported_by_name(caplog: pytest.LogCaptureFixture) -> None:
    metrics(rows=5)
    assert "metrics rows=5" in caplog.text
