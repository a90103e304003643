"""Placeholders of Flux, and the properties files that give their values."""

from __future__ import annotations

import pytest

from common.topology.flux_properties import read_properties, substituted

PROPERTIES = {
    "topic": "events",
    "n": "4",
    "hosts": "[\"a:1\", 'b:2', c]",
    "hosts[9]": "exact",
    "lines": "a\nb",
    "nested": "${topic}",
}
VARIABLES = {"TIER": "dev", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topic: ${topic}", "topic: events"),
        ("a: ${topic}-${n} # ${topic}", "a: events-4 # events"),
        ("a: ${ENV-TIER}/${ENV-EMPTY}", "a: dev/"),
        ("${hosts[0]} ${hosts[1]} ${hosts[2]}", "a:1 b:2 c"),
        ("${hosts[9]}", "exact"),
        ("a: $${topic} $$${n} $topic {n} $ {n}", "a: ${topic} $${n} $topic {n} $ {n}"),
        # Placeholders within a value are not replaced.
        ("a: ${nested}", "a: ${topic}"),
        ("  # ${unknown}\na: 1", "  # ${unknown}\na: 1"),
    ],
)
def test_a_placeholder_is_replaced(text: str, expected: str) -> None:
    assert substituted(text, PROPERTIES, VARIABLES) == (expected, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a: 1\nb: ${no}",
            "line 2: ${no} has no value; give it in a properties file with --filter",
        ),
        ("${no}", "or write $${no} for the text itself"),
        ("${ENV-NO}", "line 1: ${ENV-NO} is not given; add --env NO to the submission"),
        ("${ENV-topic}", "add --env topic"),
        ("${TIER}", "has no value"),
        ("${}", "has no value"),
        ("${topic[0]}", 'must be the item of a list; write it as ["a", "b"]'),
        ("${hosts[3]}", "names item 3 of a list with 3 items"),
        ("${lines}", "has a value with a line break"),
    ],
)
def test_a_placeholder_without_a_value_is_reported_with_its_line(text: str, said: str) -> None:
    found, mistakes = substituted(text, PROPERTIES, VARIABLES)
    assert found == text
    assert len(mistakes) == 1
    assert said in mistakes[0]


def test_all_missing_values_are_reported_at_once() -> None:
    _, mistakes = substituted("${a} ${b}\n${c}", {}, {})
    assert [each[:12] for each in mistakes] == ["line 1: ${a}", "line 1: ${b}", "line 2: ${c}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb: 2\nc 3\nd\n", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("# no\n! no\n\n  a = b = c  ", {"a": "b = c  "}),
        ("a=1\\\n   2\\\n\t3\nb=4", {"a": "123", "b": "4"}),
        ("a\\ b\\=c=\\u00e9\\n\\t\\\\", {"a b=c": "é\n\t\\"}),
        ("a=x#y!z", {"a": "x#y!z"}),
        ("a=1\r\na=2\rb=3", {"a": "2", "b": "3"}),
        ("a=end\\", {"a": "end"}),
        ("=v", {"": "v"}),
        ("", {}),
    ],
)
def test_a_properties_file_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected
