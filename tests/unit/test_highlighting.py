"""Scripts in pieces by their parts of speech."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from api.console.highlighting import highlighted

TYPES = ("SHELL", "PYTHON", "PYSPARK", "SQL", "SPARK_SQL", "HTTP", "spark_sql")


@pytest.mark.parametrize(
    ("task_type", "script", "kind", "text"),
    [
        ("SHELL", "if true; then echo 'x'; fi # end", "keyword", "if"),
        ("SHELL", "true # end", "comment", "# end"),
        ("PYSPARK", "def f():\n    return 'x'\n", "string", "'x'"),
        ("SPARK_SQL", "SELECT carrier FROM j", "keyword", "FROM"),
        ("sql", "SELECT 1 -- one", "comment", "-- one"),
    ],
)
def test_parts_of_speech_are_found(task_type: str, script: str, kind: str, text: str) -> None:
    assert (kind, text) in highlighted(script, task_type)


@given(some.sampled_from(TYPES), some.text(alphabet="ab '\"\\#-\n\t$({;é", max_size=60))
def test_pieces_are_the_script_whatever_it_is(task_type: str, script: str) -> None:
    assert "".join(text for _, text in highlighted(script, task_type)) == script


def test_what_has_no_language_or_is_very_long_is_one_piece() -> None:
    assert highlighted("if", "HTTP") == [("", "if")]
    long = "if " * 100_000
    assert highlighted(long, "SHELL") == [("", long)]
