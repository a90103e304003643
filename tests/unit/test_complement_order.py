"""Complements in which dates wait for later dates are found before they are created."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.complement_order import own_waits, stuck_date
from common.model.complement_states import OnFailure, Reprocess, RunOrder
from common.model.complements import NewComplement, RunSettings
from common.model.date_rules import DateRule
from common.model.definitions import read_process_json
from common.task_types import known_task_types

OWN = {3: "nightly"}


def an_item(value: str = "last1Days", cycle: str = "day", **keys: Any) -> dict[str, Any]:
    found = {"definitionId": 3, "depTasks": "ALL", "cycle": cycle, "dateValue": value}
    return {**found, **keys}


def stuck(
    *items: dict[str, Any],
    days: int = 4,
    parallelism: int = 1,
    order: RunOrder = RunOrder.DESCENDING,
    relation: str = "AND",
    hours: int = 24,
    rule: DateRule = DateRule.SCHEDULE_TIME,
    skipped: Collection[int] = (),
    answered: Collection[int] = (),
    run_flag: str = "NORMAL",
) -> tuple[int, int] | None:
    first = datetime(2026, 3, 1, tzinfo=UTC)
    dates = [first + timedelta(hours=hours) * number for number in range(days)]
    if order is RunOrder.DESCENDING:
        dates.reverse()
    groups = [{"relation": relation, "dependItemList": list(items)}]
    node = {
        "name": "before",
        "type": "DEPENDENT",
        "runFlag": run_flag,
        "dependence": {"relation": "AND", "dependTaskList": groups},
    }
    graph = read_process_json(json.dumps({"tasks": [node]}), task_types=known_task_types())
    new = NewComplement(
        process_definition_id=3,
        dates=tuple(dates),
        timezone_id="UTC",
        parallelism=parallelism,
        order=order,
        on_failure=OnFailure.STOP,
        reprocess=Reprocess.ALL,
        settings=RunSettings(),
        date_rule=rule,
    )
    waits = own_waits(graph, OWN)
    found = stuck_date(new, waits, OWN, skipped=skipped, answered=answered)
    if found is None:
        return None
    assert (found.task, found.item.split("-")[0] in ("3", "nightly")) == ("before", True)
    return found.place, found.awaited


@pytest.mark.parametrize("rule", list(DateRule))
def test_a_wait_for_yesterday_never_ends_in_descending_order(rule: DateRule) -> None:
    assert stuck(an_item(), rule=rule) == (0, 1)
    assert stuck(an_item(), order=RunOrder.ASCENDING, rule=rule) is None


def test_an_item_that_gives_its_definition_by_name_is_about_the_same_runs() -> None:
    by_name = an_item(definitionId=None, definitionName="nightly")
    assert stuck(by_name) == (0, 1)
    assert stuck(by_name | {"projectName": "elsewhere"}) is None
    assert stuck(an_item(definitionId=4)) is None


def test_as_many_runs_at_the_same_time_as_dates_let_all_of_them_end() -> None:
    assert stuck(an_item(), parallelism=3) == (2, 3)
    assert stuck(an_item(), parallelism=4) is None
    assert stuck(an_item(), parallelism=200, days=400) == (199, 200)


def test_a_wait_over_several_days_needs_all_of_them_or_any() -> None:
    assert stuck(an_item("last3Days")) == (0, 3)
    assert stuck(an_item("last3Days", intervals="ANY")) == (0, 3)
    assert stuck(an_item("last3Days"), days=3) == (0, 2)
    # A run of the day before these dates would be enough.
    assert stuck(an_item("last3Days", intervals="ANY"), days=3) is None
    assert stuck(an_item("thisMonthEnd", cycle="month"), order=RunOrder.ASCENDING) is None


def test_a_wait_for_a_later_date_never_ends_in_ascending_order() -> None:
    month_end = an_item("thisMonthEnd", cycle="month")
    assert stuck(month_end, days=31, order=RunOrder.ASCENDING) == (0, 30)


def test_what_may_be_answered_otherwise_is_not_reported() -> None:
    elsewhere = an_item(definitionId=4)
    assert stuck(an_item(), elsewhere, relation="OR") is None
    assert stuck(an_item(), elsewhere, relation="AND") == (0, 1)
    assert stuck(an_item(), run_flag="FORBIDDEN") is None
    assert stuck(an_item("last2Days"), hours=72) is None


def test_dates_that_have_runs_or_do_not_run_answer_a_wait() -> None:
    assert stuck(an_item(), answered=[0, 1, 2, 3]) is None
    assert stuck(an_item(), answered=[1]) == (1, 2)
    assert stuck(an_item(), skipped=[1, 3]) is None
    assert stuck(an_item(), skipped=[0, 1]) == (2, 3)


def test_a_wait_for_a_task_ends_before_the_run_of_the_task() -> None:
    assert stuck(an_item(depTasks="load")) == (0, 1)
    assert stuck(an_item(depTasks="load"), parallelism=2) is None


def test_many_dates_are_searched_in_bounded_time() -> None:
    assert stuck(an_item("last7Days"), days=20_000, parallelism=50, hours=1) is not None
