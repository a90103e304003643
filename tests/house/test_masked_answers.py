"""Fields of answers that can hold a document declare its kind of content."""

from __future__ import annotations

import ast

from tests.house.tree import ROOT, place, tree

_ALIASES = ("Value", "Document", "Figures", "Rows")


def test_every_open_field_of_an_answer_says_what_may_be_in_it() -> None:
    # An answer would send a bare `Any` unmasked. `Document` and `Value` mask secrets.
    found = []
    for path in sorted((ROOT / "api").glob("*answers.py")):
        for each in ast.walk(tree(path)):
            # Requests are not masked.
            if not isinstance(each, ast.ClassDef) or "Shape" in map(ast.unparse, each.bases):
                continue
            found += [
                place(path, field.lineno)
                for field in each.body
                if isinstance(field, ast.AnnAssign) and "Any" in ast.unparse(field.annotation)
            ]
    assert found == []


def test_the_aliases_of_open_fields_are_in_use() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "api").glob("*answers.py")]
    assert [name for name in _ALIASES if not any(f": {name}" in each for each in texts)] == []
