"""Regular expressions and patterns of LIKE are checked where they are submitted."""

from __future__ import annotations

import pytest

from common.model.streams.regexes import RegexError, like_pattern, read_regex
from tests.unit.stream_regexes import BAD, GOOD


@pytest.mark.parametrize(("text", "groups"), GOOD.items())
def test_an_expression_of_java_has_its_groups_counted(text: str, groups: int) -> None:
    assert read_regex(text) == groups


@pytest.mark.parametrize(("text", "reason"), BAD.items(), ids=[each[:20] for each in BAD])
def test_an_expression_that_a_task_would_fail_on_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RegexError) as caught:
        read_regex(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "escape", "pattern"),
    [
        ("a%_b", None, "a%_b"),
        (r"a\%", None, r"a\\%"),
        ("100!%", "!", r"100\%"),
        ("!!a!b", "!", "!ab"),
        (r"\%\_\\", "\\", r"\%\_\\"),
    ],
)
def test_a_pattern_of_like_has_a_backslash_for_its_escape(
    text: str, escape: str | None, pattern: str
) -> None:
    assert like_pattern(text, escape) == pattern


@pytest.mark.parametrize(("text", "escape"), [("a!", "!"), ("a", "!!"), ("a" * 3_000, None)])
def test_a_pattern_of_like_that_spark_would_refuse_is_refused(
    text: str, escape: str | None
) -> None:
    with pytest.raises(RegexError):
        like_pattern(text, escape)
