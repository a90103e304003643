"""Fields of short JSON records that the source reads, and the records that it leaves to Spark."""

from __future__ import annotations

import json

import pytest

from worker.spark.streaming.json_fields import LONGEST, is_readable, read_fields

NAMES = ("a", "b")


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (b'{"a": "x", "b": "y", "c": {"deep": [1]}}', ["x", "y"]),
        (b'{"a": "x"}', ["x", None]),
        (b'{"b": null}', [None, None]),
        (b"{}", [None, None]),
        (b'{"a": 1.50, "b": -0}', ["1.5", "0"]),
        (b'{"a": 1e3, "b": 12345678901234567890123}', ["1000.0", "12345678901234567890123"]),
        (b'{"a": 0.001, "b": -0.0}', ["0.001", "-0.0"]),
        (b'{"a": true, "b": false}', ["true", "false"]),
        (b'{"a": 1, "a": 2}', ["2", None]),
        (b' {"a": "x"} \r\n', ["x", None]),
        (b'{"a": "\\uD83D\\uDE00"}', ["😀", None]),
        ('{"a": "ü", "b": "\\u00fc"}'.encode(), ["ü", "ü"]),
    ],
)
def test_fields_are_the_texts_that_spark_would_read(value: bytes, texts: list[str | None]) -> None:
    read = read_fields([value], NAMES)
    assert ([each[0] for each in read.columns], read.left) == (texts, [False])


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"17",
        b'"a"',
        b'[{"a": 1}]',
        b'{"a": 1}{"a": 2}',
        b'{"a": 1} behind',
        b'{"a": 1}\x0b',
        b'{"a": [1]}',
        b'{"b": {"c": 1}}',
        b'{"a": 1e7}',
        b'{"b": 0.0001}',
        b'{"b": -1E400}',
        b'{"a": NaN}',
        b'{"c": -Infinity}',
        b"{'a': 1}",
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}",
        json.dumps({"a": "x" * LONGEST}).encode(),
    ],
)
def test_what_spark_might_read_otherwise_is_left_to_it(value: bytes | None) -> None:
    good = b'{"a": "x", "b": "y"}'
    read = read_fields([good, value, good], NAMES)
    assert (read.columns, read.left) == (
        [["x", None, "x"], ["y", None, "y"]],
        [False, True, False],
    )


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "\0"])
def test_a_name_that_json_escapes_is_left_to_spark(name: str) -> None:
    assert not is_readable(name)


@pytest.mark.parametrize(
    "name", ["", " ", "a.b", "a'b", "a/b", "ü", "😀", "\x7f", "field0", "from"]
)
def test_any_other_name_is_read(name: str) -> None:
    assert is_readable(name)
    read = read_fields([json.dumps({name: "x"}, ensure_ascii=False).encode()], [name])
    assert (read.columns, read.left) == ([["x"]], [False])
