"""Intervals as datasets and locks name them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from common.model.intervals import Interval, IntervalError, instant_text, read_interval


def day(number: int, hour: int = 0) -> datetime:
    return datetime(2026, 11, number, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-11-20/P1D", day(20), day(21)),
        ("2026-11-20/2026-11-22", day(20), day(22)),
        ("2026-11-20T04:00/PT1H", day(20, 4), day(20, 5)),
        ("2026-11-20T04:00:00.000Z/2026-11-20T05:00:00Z", day(20, 4), day(20, 5)),
        ("2026-11-20T04:00+02:00/PT1H", day(20, 2), day(20, 3)),
        ("PT1H/2026-11-20T05:00", day(20, 4), day(20, 5)),
        (" 2026-11-20 / P1W ", day(20), day(27)),
        ("2024-01-31/P1M", datetime(2024, 1, 31, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC)),
        ("2024-02-29/P1Y", datetime(2024, 2, 29, tzinfo=UTC), datetime(2025, 2, 28, tzinfo=UTC)),
        ("P1M/2026-01-01", datetime(2025, 12, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_interval_is_a_start_with_an_end_or_a_period(
    text: str, start: datetime, end: datetime
) -> None:
    assert read_interval(text) == Interval(start, end)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("2026-11-20", "write a start and an end or a period"),
        ("", "write a start"),
        ("2026-11-20/P1D/P1D", "write a start"),
        ("2026-11-20/P", "is no period"),
        ("2026-11-20/PT", "is no period"),
        ("2026-11-20/P1H", "is no period"),
        ("2026-11-20/P0D", "is empty"),
        ("2026-11-20/2026-11-20", "is empty"),
        ("2026-11-21/2026-11-20", "is empty"),
        ("2026-13-20/P1D", "is no time"),
        ("P1D/P1D", "is no time"),
        ("9999-12-31/P1D", "the years from 1 to 9999"),
        ("9999-12-01/P1M", "the years from 1 to 9999"),
        ("2026-11-20/P99999M", "the years from 1 to 9999"),
        ("P1D/0001-01-01", "the years from 1 to 9999"),
        ("0001-01-01T00:00+14:00/P1D", "the years from 1 to 9999"),
        ("2026-11-20/P" + "9" * 200 + "D", "write a start"),
    ],
)
def test_a_text_that_is_no_interval_is_refused_with_its_mistake(text: str, mistake: str) -> None:
    with pytest.raises(IntervalError, match=mistake):
        read_interval(text)


def test_an_interval_holds_its_start_and_not_its_end() -> None:
    first, second = read_interval("2026-11-20/P1D"), read_interval("2026-11-21/P1D")
    assert not first.overlaps(second)
    assert first.overlaps(read_interval("2026-11-20T23:00/PT2H"))
    assert read_interval("2026-11-20/P2D").contains(second)
    assert not second.contains(read_interval("2026-11-20/P2D"))


def test_texts_of_instants_sort_as_their_times_do() -> None:
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(999, 2, 3, tzinfo=UTC), day(20), day(20, 4)]
    texts = [instant_text(moment) for moment in moments]
    assert texts == sorted(texts)
    assert texts[-1] == "2026-11-20T04:00:00.000Z"
