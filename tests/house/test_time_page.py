"""`docs/time.md` agrees with the code: each of its tables is recomputed."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.business_dates import business_date, moment_of_date
from common.complementing import complement_dates
from common.config import Config
from common.cron import Cron, MissingTime, RepeatedTime, Timetable
from common.firing import plan_fires
from common.model.complements import ComplementRequest
from common.model.date_rules import DateRule
from common.model.schedules import FireOutcome, MisfirePolicy, Schedule
from common.params import format_moment, parse_moment, substitute, system_parameters
from common.store.tables import schedule
from operations.lint_keys import FILE_KEYS

PAGE = Path(__file__).parents[2] / "docs" / "time.md"
NEW_YORK = ZoneInfo("America/New_York")


def table(first_column: str, *, second: str = "") -> list[dict[str, str]]:
    """The rows of the table on the page whose head begins with these columns, by column."""
    head = f"| {first_column} | {second}"
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith(head))
    names, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[start:]
        if line.startswith("|") or not line
    )
    found = []
    for cells in rows:
        if len(cells) != len(names):
            break
        found.append(dict(zip(names, cells, strict=True)))
    assert found, f"the table {head!r} is empty"
    return found


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def a_schedule(crontab: str, **columns: Any) -> Schedule:
    values: dict[str, Any] = {
        "id": 1,
        "process_definition_id": 3,
        "definition_name": "flights",
        "definition_is_online": True,
        "crontab": crontab,
        "timezone_id": None,
        "missing_time": "shift",
        "repeated_time": "first",
        "start_time": datetime(2000, 1, 1, tzinfo=UTC),
        "end_time": datetime(2100, 1, 1, tzinfo=UTC),
    }
    return Schedule(**values | columns)


@pytest.mark.parametrize(
    "row", table("cron line", second="fires"), ids=lambda row: row["cron line"]
)
def test_a_cron_line_fires_as_the_page_says(row: dict[str, str]) -> None:
    (text,) = codes(row["cron line"])
    timetable = Timetable(cron=Cron.parse(text), zone=ZoneInfo("UTC"))
    first = timetable.next(datetime(2026, 11, 20, tzinfo=UTC))
    assert row["fires"] == timetable.cron.describe()
    assert first is not None
    assert row["first after 2026-11-20 00:00"] == f"{first:%Y-%m-%d %H:%M:%S}"


@pytest.mark.parametrize("row", table("cron line", second="policy"), ids=str)
def test_a_clock_change_has_the_fires_that_the_page_says(row: dict[str, str]) -> None:
    (text,), (word,) = codes(row["cron line"]), codes(row["policy"])
    policy: dict[str, Any] = (
        {"missing": MissingTime(word)}
        if row["policy"].startswith("missing")
        else {"repeated": RepeatedTime(word)}
    )
    day = datetime.fromisoformat(row["day"]).replace(tzinfo=NEW_YORK)
    timetable = Timetable(cron=Cron.parse(text), zone=NEW_YORK, **policy)
    fires = [
        f"{fire.astimezone(NEW_YORK):%H:%M %z}"
        for fire in timetable.between(day, day + timedelta(days=1) - timedelta(seconds=1))
    ]
    shown = [f"{fire[:-2]}:{fire[-2:]}" for fire in fires]
    assert row["fires"] == (", ".join(shown) or "none")


def test_the_policies_that_the_page_calls_defaults_are_those_of_the_table() -> None:
    defaults = {
        name: str(schedule.c[name].server_default.arg).strip("'")
        for name in ("missing_time", "repeated_time", "misfire_policy", "misfire_limit")
    }
    documented = {
        word
        for row in (*table("cron line", second="policy"), *table("policy"))
        if "(default)" in row["policy"]
        for word in codes(row["policy"])
    }
    assert documented == {"shift", "first", "fire_once", "fire_all"}
    assert defaults["missing_time"] == "shift"
    assert defaults["repeated_time"] == "first"
    assert defaults["misfire_policy"] == "fire_once"
    assert defaults["misfire_limit"] == "10"


@pytest.mark.parametrize("row", table("policy"), ids=lambda row: row["policy"])
def test_misfires_come_to_what_the_page_says(row: dict[str, str]) -> None:
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    limit, deadline = (re.search(rf"{word} (\d+)", row["policy"]) for word in ("limit", "deadline"))
    hourly = a_schedule(
        "0 0 * * * ?",
        misfire_policy=MisfirePolicy(codes(row["policy"])[0]),
        misfire_limit=int(limit[1]) if limit else 10,
        deadline=timedelta(minutes=int(deadline[1])) if deadline else None,
        next_fire_time=noon,
    )
    found = plan_fires(hourly, now=noon + timedelta(hours=3, seconds=30), zone=ZoneInfo("UTC"))
    outcomes = {f"{fire.fire_time:%H:%M}": fire.outcome.value for fire in found.fires}
    assert {name: cell for name, cell in row.items() if name != "policy"} == outcomes


def test_the_ledger_knows_the_outcomes_of_the_page_and_no_others() -> None:
    documented = [codes(row["outcome in the ledger"])[0] for row in table("outcome in the ledger")]
    assert documented == [outcome.value for outcome in FireOutcome]


@pytest.mark.parametrize("row", table("range"), ids=lambda row: row["range"])
def test_a_complement_has_the_dates_that_the_page_says(row: dict[str, str]) -> None:
    first, last = (parse_moment(text, NEW_YORK) for text in row["range"].split(" to "))
    request = ComplementRequest(process_definition_id=3, first=first, last=last)
    schedules = [a_schedule(text) for text in codes(row["online schedules"])]
    dates, _ = complement_dates(request, schedules, zone=NEW_YORK)
    shown = [f"{date.astimezone(NEW_YORK):%Y-%m-%d %H:%M:%S}" for date in islice(dates, 10)]
    assert row["dates"] == ", ".join(shown)


@pytest.mark.parametrize("row", table("run", second="for"), ids=lambda row: row["run"])
def test_business_dates_are_those_of_the_page(row: dict[str, str]) -> None:
    named = parse_moment(row["for"].removeprefix("its start, "), NEW_YORK)
    assert named is not None
    rule = DateRule.BUSINESS_DATE if "business_date" in row["run"] else DateRule.SCHEDULE_TIME
    moment = moment_of_date(named, rule, NEW_YORK)
    assert row["moment"] == format_moment(moment, NEW_YORK)
    found = system_parameters(moment=moment, zone=NEW_YORK)
    for name, value in found.items():
        assert codes(row[f"`{name}`"]) == [value]
    in_script = substitute("$[yyyyMMdd]", found, moment=moment, zone=NEW_YORK)
    assert codes(row["`$[yyyyMMdd]`"]) == [in_script]
    today = row["DEPENDENT `today`"].removeprefix("runs with the business date ")
    assert today == business_date(moment, NEW_YORK).isoformat()


def test_the_page_names_the_settings_of_the_rule() -> None:
    (definition,) = (row["key"] for row in table("where") if "definition" in row["where"])
    (cluster,) = (row["key"] for row in table("where") if "cluster" in row["where"])
    key, _, rule = codes(definition)[0].partition(": ")
    assert json.loads(key) in FILE_KEYS
    assert json.loads(rule) in set(DateRule)
    setting, _, value = codes(cluster)[0].partition(" = ")
    assert setting in {each.name for each in fields(Config)}
    assert json.loads(value) in set(DateRule)
