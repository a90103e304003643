"""YAML is read as the values of JSON, within limits, and what is written is read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidDefinitionError
from common.strict_yaml import strict_yaml, yaml_text

STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | STORABLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STORABLE, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    assert strict_yaml(yaml_text(value).encode()) == value


def test_a_script_stands_as_it_is() -> None:
    assert yaml_text({"a": "one\ntwo\n"}) == "a: |\n  one\n  two\n"


def test_values_are_those_of_json() -> None:
    text = (
        "{a: 2013-01-01, b: yes, c: on, d: 010, e: 1_000, f: 12:30:00, g: .inf, h: 1.5,"
        " i: true, j: ~, k: , l: 7, m: '7', n: 0x1f, o: 0 0 3 * * ? *, <<: {x: 1}}"
    )
    assert strict_yaml(text.encode()) == {
        "a": "2013-01-01",
        "b": "yes",
        "c": "on",
        "d": "010",
        "e": "1_000",
        "f": "12:30:00",
        "g": ".inf",
        "h": 1.5,
        "i": True,
        "j": None,
        "k": None,
        "l": 7,
        "m": "7",
        "n": "0x1f",
        "o": "0 0 3 * * ? *",
        "<<": {"x": 1},
    }


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 25)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!python/object/apply:os.system [id]", "the tag 'tag:yaml.org,2002:python"),
        ("a: !secret x", "the tag '!secret'"),
        ("a: 1\nb: 2\na: 3", "line 3: the key 'a' stands twice"),
        ("[a]: 1", "a key must be a text"),
        ("a: &x [1, *x]", "stands for nothing above it"),
        ("a: *x", "line 1 column|stands for nothing"),
        ("a: 1\n---\nb: 2", "one document"),
        ("[" * 70, "more than 64 levels"),
        ("a: [", "not YAML"),
        ('a: "\\0"', "has a NUL character"),
        ("\x01", "not YAML"),
        (LAUGHS, "more than 1,000,000 values"),
        ("a: &a 1\nb: [" + "*a, " * 101 + "]", "more than 100 aliases"),
    ],
)
def test_what_is_no_plain_value_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidDefinitionError) as refused:
        strict_yaml(text.encode())
    assert any(each in str(refused.value) for each in said.split("|"))


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidDefinitionError, match="line 2: byte 3 is not UTF-8"):
        strict_yaml(b"a:\n\xff")
