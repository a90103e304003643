"""The register: docstrings open with a noun or a verb, never with a question word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, docstrings, modules, place

BANNED = re.compile(
    r"(What|Which|How|Who|Whose|Whom|Whether|Where|Why|When|If|One that|Whatever|Whoever)\b"
)


def openings(paths: tuple[Path, ...]) -> list[str]:
    """List the docstrings that open with a banned word."""
    return [
        f"{place(path, line)}: {text.splitlines()[0]}"
        for path in paths
        for line, text in docstrings(path)
        if BANNED.match(text)
    ]


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_no_docstring_opens_with_a_question_word(folder: str) -> None:
    assert openings(modules(folder)) == []


def test_the_rule_sees_docstrings_of_every_kind(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    texts = ["What it is.", "How it is.", "Who it is.", "One that is."]
    source.write_text(
        f'"""{texts[0]}"""\nclass A:\n    """{texts[1]}"""\n    x = 1\n    """{texts[2]}"""\n'
        f'    def f(self):\n        """{texts[3]}"""\nX = 1\n"""However it is named."""\n',
        encoding="utf-8",
    )
    found = sorted(text for _, text in docstrings(source))
    assert found == sorted([*texts, "However it is named."])
    assert [text for text in found if BANNED.match(text)] == sorted(texts)
