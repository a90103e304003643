"""`task render` reads an attempt's dates as the worker that runs it does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.config import Config
from common.store.people.runs import TaskDocument
from common.zones import UnknownZoneError
from operations.rendering import Rendered, rendered

# Half past eleven in the evening of New York's day of 25 hours, 2019-11-03.
LATE = datetime(2019, 11, 4, 4, 30, tzinfo=UTC)
SCRIPT = "$[yyyyMMdd HHmm] $[yyyyMMdd-1] ${system.biz.date}"


def shown(**columns: Any) -> Rendered:
    document: dict[str, Any] = {
        "task_json": json.dumps({"params": {"rawScript": SCRIPT}}),
        "global_params": None,
        "moment": LATE,
        "input_pool": None,
        "var_pool": None,
        "command_param": None,
    }
    return rendered(
        TaskDocument(**{**document, **columns}),
        config=Config(time_zone="UTC"),
        now=LATE,
    )


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        (None, "20191104 0430 20191103 20191103"),
        ("America/New_York", "20191103 2330 20191102 20191102"),
    ],
)
def test_t45_dates_are_shown_in_the_zone_of_the_run(zone: str | None, said: str) -> None:
    assert shown(timezone_id=zone).params["rawScript"] == said


def test_an_output_that_repeats_a_secret_is_masked_under_every_name() -> None:
    secret = {"prop": "db_password", "value": "hunter2-p@ss"}
    copies = [
        {"prop": "copy", "value": "hunter2-p@ss"},
        {"prop": "url", "value": "x?a=hunter2-p@ss"},
        {"prop": "marked", "value": "hunter3-p@ss", "secret": True},
        {"prop": "day", "value": "2013-01-01"},
    ]
    put_out = shown(global_params=json.dumps([secret]), var_pool=json.dumps(copies)).put_out
    assert put_out == {
        "copy": "******",
        "url": "x?a=******",
        "marked": "******",
        "day": "2013-01-01",
    }
    # In a later task only the mark identifies the secret.
    script = {"params": {"rawScript": "echo ${marked} ${day}"}}
    later = shown(task_json=json.dumps(script), input_pool=json.dumps(copies[2:]))
    assert later.params == {"rawScript": "echo ****** 2013-01-01"}
    assert (later.parameters["marked"], later.parameters["day"]) == ("******", "2013-01-01")


def test_the_business_date_is_that_of_the_run_s_moment() -> None:
    result = shown(moment=LATE + timedelta(days=1), timezone_id="America/New_York")
    assert result.parameters["system.biz.date"] == "20191103"


def test_a_zone_that_there_is_not_is_named() -> None:
    with pytest.raises(UnknownZoneError, match="'Mars/Base' is no zone"):
        shown(timezone_id="Mars/Base")


def a_named(node: dict[str, Any], **values: str) -> Mapping[str, Any]:
    given = [{"prop": name, "value": value} for name, value in values.items()]
    return shown(task_json=json.dumps(node), global_params=json.dumps(given)).params


def test_names_are_put_into_the_statements_of_sql_as_in_the_attempt() -> None:
    sql = {
        "type": "SQL",
        "params": {
            "sql": "select * from !{tab} where d = ${day} and x = '$[yyyyMMdd]'",
            "preStatements": ["truncate !{tab}_$[yyyy]"],
            "title": "!{tab}",
        },
    }
    assert a_named(sql, tab="dw.sales", day="7") == {
        "sql": "select * from dw.sales where d = 7 and x = '20191104'",
        "preStatements": ["truncate dw.sales_2019"],
        "title": "!{tab}",
    }
    quality = {
        "type": "DATA_QUALITY",
        "params": {"rules": [{"rule": "sql", "sql": "select 1 from !{tab}", "name": "!{tab}"}]},
    }
    assert a_named(quality, tab="t") == {
        "rules": [{"rule": "sql", "sql": "select 1 from t", "name": "!{tab}"}]
    }
    assert a_named({"type": "SPARK_SQL", "params": {"rawScript": "from !{tab}"}}, tab="t") == {
        "rawScript": "from t"
    }
    assert a_named({"type": "SHELL", "params": {"rawScript": "echo !{tab}"}}, tab="t") == {
        "rawScript": "echo !{tab}"
    }


@pytest.mark.parametrize("values", [{}, {"tab": "a; drop"}])
def test_a_name_by_which_the_attempt_fails_is_shown_as_it_is_written(
    values: dict[str, str],
) -> None:
    sql = {"type": "SQL", "params": {"sql": "select * from !{tab}"}}
    assert a_named(sql, **values) == {"sql": "select * from !{tab}"}
