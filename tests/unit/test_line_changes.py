"""Differences between lines, found in a bounded number of steps."""

from __future__ import annotations

import difflib
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from common.definition_diff import difference
from common.line_changes import Steps, changed_lines, replaced_lines

_LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30)


@given(old=_LINES, new=_LINES)
def test_lines_are_shown_as_diff_shows_them(old: list[str], new: list[str]) -> None:
    expected = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    assert list(changed_lines(old, new, Steps(100_000))) == expected


def test_without_enough_steps_all_lines_are_replaced_x66() -> None:
    old, new = ["a"] * 150, [*["a"] * 75, "b", *["a"] * 75]
    steps = Steps(10_000)
    assert changed_lines(old, new, steps) == replaced_lines(old, new)
    assert steps.left == 10_000


def _document(texts: list[str], name: str = "t") -> dict[str, Any]:
    tasks = [
        {"name": f"{name}{number}", "type": "SHELL", "params": {"rawScript": text}}
        for number, text in enumerate(texts)
    ]
    return {"processDefinitionJson": {"tasks": tasks}}


def _shuffled(shuffle: random.Random) -> str:
    lines = ["a", "b"] * 99
    shuffle.shuffle(lines)
    return "\n".join(lines)


def test_all_texts_of_a_comparison_share_the_steps_x66() -> None:
    shuffle = random.Random(1)
    before, after = ([_shuffled(shuffle) for _ in range(90)] for _ in range(2))
    found = difference(_document(before), _document(after)).changed
    replaced = [
        each
        for each, old, new in zip(found, before, after, strict=True)
        if each.changes[0].lines == replaced_lines(old.splitlines(), new.splitlines())
    ]
    assert len(replaced) >= 10


def test_tasks_with_too_many_words_are_not_compared_for_new_names_x66() -> None:
    words = " ".join(f"w{number}" for number in range(1_000))
    before = _document([f"{words} a{number}" for number in range(40)], "a")
    after = _document([f"{words} b{number}" for number in range(40)], "b")
    assert len(difference(before, after).added) == 40
    few = difference(_document([f"{words} a"], "a"), _document([f"{words} b"], "b"))
    assert few.changed[0].is_renamed
