"""The shipped configuration files and the code say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.config import FILES, Config, default_conf_dir, documented_settings, effective, rendered

CONF = Path(__file__).resolve().parents[2] / "conf"


def test_the_shipped_files_are_those_of_the_checkout() -> None:
    assert default_conf_dir() == CONF
    assert sorted(path.name for path in CONF.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("file", FILES)
def test_a_shipped_file_is_what_the_code_renders(file: str) -> None:
    hint = "render it anew: python -m common.config conf"
    assert (CONF / file).read_text(encoding="utf-8") == rendered(file), hint


def test_every_setting_has_its_one_line_of_why_in_exactly_one_file() -> None:
    documented = [
        f"{section}.{name}" if section else name
        for sections in FILES.values()
        for section in sections
        for name, _, why in documented_settings(section)
        if why and "\n" not in why
    ]
    assert sorted(documented) == sorted(key for key, _, _ in effective(Config()))
