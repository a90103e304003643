"""Patterns of topics: matches, refusals, and the limit of steps."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.streams.topic_patterns import (
    MAX_LENGTH,
    PatternError,
    PatternTooSlowError,
    read_pattern,
)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("clicks.*", ["clicks", "clicks-eu"], ["aclicks", "click"]),
        ("^clicks-(eu|us)$", ["clicks-eu", "clicks-us"], ["clicks-", "clicks-eus"]),
        ("(?!__).*", ["x__"], ["__x"]),
        ("(?=.*-v2)[a-z].*", ["a-v2", "b-v2-x"], ["a-v3", "-v2"]),
        (".*(?<!-test)", ["a", "test"], ["a-test"]),
        (".*(?<=-v[0-9])", ["a-v1"], ["a-v"]),
        ("a[0-9]{2,3}", ["a12", "a123"], ["a1", "a1234"]),
        ("a{2}b{1,}?", ["aab", "aabb"], ["ab", "aa"]),
        (r"\Qa.b\E[^-]*", ["a.b", "a.bc"], ["axb", "a.b-"]),
        (r"[\w.]+|\d+", ["a_1.x"], ["a-b"]),
        (r"\p{Alpha}\P{Alpha}+", ["a1-2"], ["1a", "aa"]),
        (r"\bweb\b.*", ["web-1", "web"], ["web_1", "web1"]),
        (r"(?<name>ab)+(?:c|)", ["abab", "ababc"], ["abc1"]),
        ("[a-c.-]+", ["a.b-c"], ["d"]),
        (r"\Aa\.b\z", ["a.b"], ["axb"]),
        ("a||b", ["a", "b"], ["ab"]),
    ],
)
def test_a_whole_name_has_to_match(pattern: str, matching: list[str], others: list[str]) -> None:
    read = read_pattern(pattern)
    assert [name for name in [*matching, *others] if read.matches(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "is empty"),
        ("a" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH}"),
        ("a\nb", "can't be printed"),
        ("(?i)clicks", r"write \[Aa\]"),
        (r"(a)\1", "not supported"),
        ("a++", "possessive"),
        ("(?>a)b", "atomic"),
        ("[a-z&&[^b]]", "combines classes"),
        ("[[a]b]", "combines classes"),
        ("[]a]", "empty class"),
        ("[^]", "empty class"),
        ("[b-a]", "not a range"),
        ("[a", "does not end"),
        ("(a", "does not end"),
        ("a)", "closes no group"),
        ("*a", "repeats nothing"),
        ("{2}", "repeats nothing"),
        ("a{2", "not a repetition"),
        ("a{3,2}", "limit below its minimum"),
        ("a{9999999}", "not a repetition"),
        ("a**", "repeats a repetition"),
        ("^*", "repeats a place"),
        ("(?<=a*)b", "Java refuses"),
        (r"\p{Greek}", "known are"),
        (r"\x61", "not supported"),
        ("a\\", "escapes nothing"),
        ("(?P<a>b)", "not a group of Java"),
        ("(?<>b)", "lacks the name"),
        ("(" * 50 + ")" * 50, "nested more than"),
    ],
)
def test_what_is_not_read_as_java_reads_it_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(PatternError, match=problem):
        read_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*b",
        "((a|aa)+)+b",
        "(((.*a)*.)*a)*b",
        "(.*.*.*.*.*.*.*.*)*b",
        "(?=(.*a)*b).*",
        "(a?){1000}a{1000}",
    ],
)
def test_a_hostile_pattern_takes_few_steps(pattern: str) -> None:
    assert not read_pattern(pattern).matches("a" * 249)


def test_a_pattern_of_too_many_steps_is_given_up() -> None:
    with pytest.raises(PatternTooSlowError):
        read_pattern("(((){1000}){1000}){1000}").matches("a")


ATOMS = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", r"\.", r"\w", r"\d", "(?!b)", "(?=a)"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"]))
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=2).map(lambda found: f"(?:{'|'.join(found)})"),
        repeated.map(lambda found: f"(?:{found[0]}){found[1]}"),
    )


@given(
    pattern=st.recursive(ATOMS, _grown, max_leaves=6),
    name=st.text("ab-._1", min_size=0, max_size=6),
)
def test_the_common_language_is_read_as_by_a_backtracking_engine(pattern: str, name: str) -> None:
    wanted = re.compile(pattern, re.ASCII).fullmatch(name) is not None
    assert read_pattern(pattern).matches(name) is wanted
