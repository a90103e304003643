"""No file names a folder of one computer."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.tree import ROOT

FOLDERS = (
    *(".ci", "bin", "common", "conf", "docs", "examples", "master", "operations", "orcaflow"),
    *("sql", "tests", "worker"),
)
TEXTS = frozenset({"", ".md", ".mako", ".py", ".sh", ".sql", ".toml", ".txt", ".json"})
HOME = re.compile(r"(?<![\w.}])/(?:root|work|home/[a-z][\w-]*|Users/\w+)/")


def _texts() -> list[Path]:
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    files += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path for path in files if path.suffix in TEXTS and path != Path(__file__)]


def test_no_file_names_a_folder_of_one_computer() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sorted(_texts())
        for match in HOME.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []
