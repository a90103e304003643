"""The shipped configuration files agree with the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from common.config import FILES, Config, default_conf_dir, effective
from common.config.rendering import documented_settings, rendered

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"


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


@pytest.mark.parametrize(
    ("file", "called"),
    [
        ("master/server.py", "Master"),
        ("master/assembly.py", "Origin"),
        ("master/commands/complement_data.py", "plan_complements"),
        ("operations/complementing.py", "plan_complements"),
    ],
)
def test_the_rule_of_complements_is_handed_on_to_all_that_work_out_dates(
    file: str, called: str
) -> None:
    # All of these have a default: a missing key would follow that, and not the file.
    setting = "date_rule"
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == called
    ]
    given = [
        ast.unparse(keyword.value).rstrip(")").rpartition(".")[2]
        for call in calls
        for keyword in call.keywords
        if keyword.arg == setting
    ]
    assert given in ([setting], ["complement_date_rule"])
