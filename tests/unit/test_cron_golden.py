"""The golden table of Quartz lines and their first fires (C1)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from common.cron import Cron, Timetable
from tests.reference import golden

LAST = datetime.max.replace(tzinfo=UTC)


def test_the_table_has_more_than_five_hundred_lines() -> None:
    rows = golden.rows()
    assert len({(row.line, row.since) for row in rows}) >= 600
    assert len([row for row in rows if row.by_hand]) >= 80


def test_every_line_of_the_table_fires_as_the_table_says() -> None:
    for row in golden.rows():
        timetable = Timetable(cron=Cron.parse(row.line), zone=ZoneInfo("UTC"))
        coming = timetable.between(row.since.replace(tzinfo=UTC), LAST)
        fires = tuple(fire.replace(tzinfo=None) for fire in islice(coming, len(row.fires)))
        assert fires == row.fires, row.line
        if row.ends:
            assert next(coming, None) is None, row.line


def test_every_line_of_the_table_has_the_same_fires_backwards() -> None:
    for row in golden.rows():
        timetable = Timetable(
            cron=Cron.parse(row.line), zone=ZoneInfo("UTC"), first=row.since.replace(tzinfo=UTC)
        )
        fires = [fire.replace(tzinfo=UTC) for fire in row.fires]
        for earlier, later in zip([None, *fires], fires, strict=False):
            assert timetable.previous(later) == earlier, row.line


def test_the_reference_finds_what_the_table_says() -> None:
    for row in golden.rows():
        assert tuple(islice(golden.derived(row.line, row.since), len(row.fires))) == row.fires


def test_the_derived_part_of_the_table_is_what_the_reference_derives() -> None:
    derived = [(row.line, row.since) for row in golden.rows() if not row.by_hand]
    assert derived == golden.derived_lines()


def test_the_reference_shares_no_code_with_what_it_checks() -> None:
    for path in Path(golden.__file__).parent.glob("*.py"):
        assert "import common" not in path.read_text(encoding="utf-8")
        assert "from common" not in path.read_text(encoding="utf-8")
