"""Patterns of Joda-Time: accepted patterns, and the reasons of refusals."""

from __future__ import annotations

import re

import pytest

from common.model.streams.joda import (
    MAX_LENGTH,
    Part,
    PatternError,
    printed_parts,
    read_pattern,
    reader_of,
)
from common.model.streams.zones import JODA_ZONES
from tests.reference import joda_times


@pytest.mark.parametrize("pattern", joda_times.PATTERNS)
def test_a_pattern_of_the_table_is_read(pattern: str) -> None:
    reader = reader_of(pattern)
    assert reader.fields


@pytest.mark.parametrize("pattern", joda_times.PATTERNS)
def test_an_expression_accepts_the_texts_that_joda_reads(pattern: str) -> None:
    expression = re.compile(reader_of(pattern).expression)
    read = {text: expression.fullmatch(stripped(text)) for text in joda_times.PATTERNS[pattern]}
    assert [text for text, match in read.items() if match is None] == []


def stripped(text: str) -> str:
    """Return a text without the spaces and quotes that Druid removes before Joda reads it."""
    spaces = "".join(map(chr, range(33)))
    found = text.strip(spaces)
    if len(found) > 1 and found[0] == found[-1] == '"':
        found = found[1:-1].strip(spaces)
    return found


@pytest.mark.parametrize("pattern", joda_times.ODD)
def test_a_pattern_that_joda_or_its_author_would_not_mean_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        reader_of(pattern)


@pytest.mark.parametrize(
    ("pattern", "mistake"),
    [
        ("", "an empty pattern"),
        ("y" * (MAX_LENGTH + 1), "at most 200 characters"),
        ("yyyy-MM-dd\tHH", "control characters"),
        ("yyyy-MM-ddTHH", "the letter T means nothing in a pattern of Joda; write 'T' in quotes"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "the letter X .* write ZZ for an offset"),
        ("uuuu-MM-dd", "the letter u .* write yyyy"),
        ("q", "the letter q .* in single quotes"),
        ("yyyy-'W'ww", "write xxxx in place of the year"),
        ("xxxx-MM-dd", "x, the year of a week, goes with w and e alone; write y"),
        ("yyyy-MM-DD", "D is the day of the year; write d"),
        ("EEE HH:mm", "a day of the week needs a whole date"),
        ("HH hh", "HH and hh both read the hour"),
        ("MM MMM", "MM and MMM both read the month"),
        ("CCyy", "C, the century, can't be read; write yyyy"),
        ("G", "write at least a date"),
        ("G MM", "G, the era, needs a year"),
        ("yyyy zzzz", "Joda prints zzzz but can't read it; write z or ZZZ"),
        ("ZZZyyyy", "ZZZ needs a space"),
        ("'text'", "no part of a time"),
    ],
)
def test_a_refusal_has_a_reason_and_a_cure(pattern: str, mistake: str) -> None:
    with pytest.raises(PatternError, match=mistake):
        reader_of(pattern)


def test_quotes_are_read_as_joda_reads_them() -> None:
    year = Part(letter="y", count=4)
    assert read_pattern("yyyy''MM") == (year, Part(text="'"), Part(letter="M", count=2))
    assert read_pattern("'o''clock' yyyy") == (Part(text="o'clock "), year)
    assert read_pattern("yyyy'") == (year, Part(text=""))
    assert read_pattern("[yyyy]") == (Part(text="["), year, Part(text="]"))


def test_a_printed_fraction_has_nine_digits_at_most() -> None:
    with pytest.raises(PatternError, match="at most 9 S"):
        printed_parts("S" * 10)


def test_zones_are_those_of_joda() -> None:
    assert list(JODA_ZONES) == joda_times.JODA_ZONES
