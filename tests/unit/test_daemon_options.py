"""The options of a daemon that a restart applies again."""

from __future__ import annotations

from pathlib import Path

import pytest

from operations.daemon_options import Options, keep_options, kept_options


@pytest.mark.parametrize("reserved", [None, False, True])
def test_options_are_read_as_they_were_stored(tmp_path: Path, reserved: bool | None) -> None:
    options = Options(groups="etl", reserved=reserved, slots=4, conf_dir="/etc/own")
    keep_options(tmp_path / "run" / "worker.json", options)
    assert kept_options(tmp_path / "run" / "worker.json") == options


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"reserved": "yes", "groups": 1, "slots": "4"}'])
def test_options_that_nobody_stored_are_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "worker.json"
    assert kept_options(file) == Options()
    file.write_text(text)
    assert kept_options(file) == Options()
