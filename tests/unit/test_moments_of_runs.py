"""Dates that people give for a run."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from common.params import system_parameters
from operations.session import moment_of

ZONES = ["UTC", "America/New_York", "Pacific/Kiritimati"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31", "9999-12-31T23:59:59+00:00"])
def test_a_date_whose_run_would_leave_the_calendar_is_refused(text: str, zone: str) -> None:
    with pytest.raises(ValueError, match="too near to the ends of the calendar"):
        moment_of(text, ZoneInfo(zone))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("text", ["0001-01-04", "9999-12-28"])
def test_the_dates_of_a_run_near_the_ends_of_the_calendar_can_be_read(text: str, zone: str) -> None:
    moment = moment_of(text, ZoneInfo(zone))
    assert system_parameters(moment=moment, zone=ZoneInfo(zone))["system.biz.curdate"]


def test_a_date_is_read_in_the_zone_of_the_cluster() -> None:
    assert moment_of("2013-01-31", ZoneInfo("Asia/Tokyo")) == datetime(2013, 1, 30, 15, tzinfo=UTC)
