"""Patterns of Joda-Time: accepted patterns, and the reasons of refusals."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

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

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last millisecond that Python's times can have."""


@pytest.mark.parametrize("pattern", joda_times.PATTERNS)
def test_a_pattern_of_the_table_is_read(pattern: str) -> None:
    reader = reader_of(pattern)
    assert reader.fields


@pytest.mark.parametrize("pattern", joda_times.PATTERNS)
def test_an_expression_accepts_the_texts_that_joda_reads(pattern: str) -> None:
    expression = re.compile(reader_of(pattern).expression)
    read = {text: expression.fullmatch(stripped(text)) for text in joda_times.PATTERNS[pattern]}
    assert [text for text, match in read.items() if match is None] == []


def milliseconds(rewritten: str) -> int | None:
    """Return the time of a rewritten text and an offset, as Spark's cast reads it."""
    moment, offset = rewritten.split(";")
    parts = re.fullmatch("([0-9]{4,6})-(..?)-(..?)T(..?):(..?):(..?)[.]([0-9]{1,3})", moment)
    if parts is None:
        return None
    year, month, day, hour, minute, second = map(int, parts.groups()[:6])
    try:
        found = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    digits = re.sub("[-+:.,]", "", offset).ljust(9, "0")
    hours, minutes, seconds = (int(digits[at : at + 2]) for at in (0, 2, 4))
    moved = timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=int(digits[6:]))
    found += timedelta(milliseconds=int(parts[7].ljust(3, "0")))
    since = found - EPOCH
    return (since + moved if offset.startswith("-") else since - moved) // timedelta(milliseconds=1)


def stripped(text: str) -> str:
    """Return a text without the spaces and quotes that Druid removes before Joda reads it."""
    spaces = "".join(map(chr, range(33)))
    found = text.strip(spaces)
    if len(found) > 1 and found[0] == found[-1] == '"':
        found = found[1:-1].strip(spaces)
    return found


@pytest.mark.parametrize("pattern", joda_times.PATTERNS)
def test_a_rewritten_text_is_the_time_that_joda_reads(pattern: str) -> None:
    reader = reader_of(pattern)
    if reader.date or reader.zone:
        pytest.skip("Spark moves the date; tests/integration/test_joda_times.py")
    window = "1920:56789----:4:6789------:" if reader.has_window else ""
    assert joda_times.YEAR == 2026
    table = f"?{window}{reader.table}"
    whole = re.compile(rf"\?()(?:{reader.expression}){reader.lookups}.{{{len(table)}}}")
    form = re.sub(r"\$([0-9]+)", r"\\g<\1>", f"{reader.moment};{reader.offset}")
    found = {}
    for text in joda_times.TEXTS:
        match = whole.fullmatch(f"?{stripped(text)}{table}")
        if match is not None:
            found[text] = milliseconds(match.expand(form))
    known = {text: millis for text, millis in found.items() if millis is not None}
    assert known == {
        text: millis
        for text, millis in joda_times.PATTERNS[pattern].items()
        if FIRST <= millis <= LAST or text in known
    }


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
