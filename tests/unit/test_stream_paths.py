"""Paths of a `flattenSpec`: JsonPath and jq become the same steps, and the rest is refused."""

from __future__ import annotations

import pytest

from common.model.streams.paths import Path, PathError, read_jq, read_json_path, read_tree


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$.a", ("a",)),
        ("$.a.b.c", ("a", "b", "c")),
        ("a.b", ("a", "b")),
        ("$['a']['b c']", ("a", "b c")),
        ('$["a.b"][0].c', ("a.b", 0, "c")),
        ("$.a[ 12 ]", ("a", 12)),
        ("$.a[*].b", ("a", None, "b")),
        ("$.a[*]", ("a",)),
        ("$.a.['b'].[0].[*].c", ("a", "b", 0, None, "c")),
        ("$.@type.$ref", ("@type", "$ref")),
        ("$.a-b.ü", ("a-b", "ü")),
        (r"$['it\'s']", ("it's",)),
    ],
)
def test_a_json_path_is_names_and_indexes(text: str, path: Path) -> None:
    assert read_json_path(text) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (".a", ("a",)),
        (".a.b?", ("a", "b")),
        (".a[1].b", ("a", 1, "b")),
        ('.["a b"]["c"]', ("a b", "c")),
        ('."a b".c', ("a b", "c")),
        (".a | .b | .[0]", ("a", "b", 0)),
        (". | .a", ("a",)),
    ],
)
def test_jq_names_one_value(text: str, path: Path) -> None:
    assert read_jq(text) == path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("$", "must begin with a field"),
        ("$[0]", "must begin with a field"),
        ("$..a", "at any depth"),
        ("$.a.length()", "functions are not supported"),
        ("$.a.*", "name one of them"),
        ("$.a[?(@.b == 1)]", "filters are not supported"),
        ("$.a[-1]", "from the end"),
        ("$.a[0:2]", "slices and unions"),
        ("$.a['b','c']", "slices and unions"),
        ("$.a['it\\'s']", "must not be empty, nor have quotes"),
        ("$.a b", "can't be read"),
        ("$.a.", "can't be read"),
        ("$." + "a." * 60 + "a", "more than 50 steps"),
        ("$." + "a" * 2_000, "at most 1000 characters"),
    ],
)
def test_a_json_path_that_can_not_be_followed_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PathError, match=problem):
        read_json_path(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", "is no path"),
        (".", "must begin with a field"),
        (".a[]", "keeps the first"),
        (".a[-1]", "from the end"),
        (".a[1:]", "slices"),
        (".a | tostring", "without functions"),
        (".a + .b", "can't be read"),
        ('"a"', "is no path"),
        ("..", "at any depth"),
    ],
)
def test_jq_beyond_one_value_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PathError, match=problem):
        read_jq(text)


def test_a_tree_is_names() -> None:
    assert read_tree(("a", "b")) == ("a", "b")
    with pytest.raises(PathError):
        read_tree(())
