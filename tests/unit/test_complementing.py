"""The dates of a complement, and the definitions that follow it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common import complementing
from common.business_dates import business_date, slots_of
from common.complementing import (
    complement_dates,
    downstream_of,
    plan_complements,
    read_request,
)
from common.cron import merged
from common.errors import BadCommandError
from common.model.command_param import CommandParam
from common.model.commands import Command, CommandType
from common.model.complement_states import Downstream, OnFailure, Reprocess, RunOrder
from common.model.complements import ComplementRequest, NewComplement
from common.model.definitions import ProcessGraph, read_process_json
from common.model.plans import DefinitionSnapshot, DependentDefinition
from common.model.reach import Target
from common.model.schedules import Schedule
from common.model.states import ReleaseState
from common.task_types import known_task_types

NEW_YORK = ZoneInfo("America/New_York")
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
START, END = "complementStartDate", "complementEndDate"


def a_command(schedule_time: datetime | None = None, **param: str) -> Command:
    return Command(
        id=1,
        command_type=CommandType.COMPLEMENT_DATA,
        process_definition_id=3,
        param=CommandParam(param),
        schedule_time=schedule_time,
        start_time=NOW,
    )


def a_range(first: str, last: str, **param: str) -> ComplementRequest:
    return read_request(a_command(**{START: first, END: last}, **param), zone=NEW_YORK)


def a_schedule(crontab: str, **columns: Any) -> Schedule:
    values: dict[str, Any] = {
        "id": 1,
        "process_definition_id": 3,
        "definition_name": "flights",
        "definition_is_online": True,
        "crontab": crontab,
        "timezone_id": "America/New_York",
        "missing_time": "shift",
        "repeated_time": "first",
        "start_time": datetime(2026, 1, 1, tzinfo=UTC),
        "end_time": datetime(2030, 1, 1, tzinfo=UTC),
    }
    return Schedule(**values | columns)


def dates_of(request: ComplementRequest, *schedules: Schedule) -> list[str]:
    """Times as the clock of New York shows them."""
    dates, _ = complement_dates(request, schedules, zone=NEW_YORK)
    return [f"{moment.astimezone(NEW_YORK):%m-%d %H:%M}" for moment in dates]


def test_a_day_that_a_zone_skips_is_no_second_date_at_the_same_instant() -> None:
    apia = ZoneInfo("Pacific/Apia")
    given = a_range("2011-12-28 00:00:00", "2012-01-01 23:59:59", schedule_timezone=apia.key)
    dates, _ = complement_dates(given, (), zone=NEW_YORK)
    days = [moment.astimezone(apia).day for moment in dates]
    assert days == [28, 29, 31, 1]


def test_two_wall_times_of_one_instant_are_the_same_date_twice() -> None:
    listed = "2011-12-30 12:00:00,2011-12-31 12:00:00"
    command = a_command(complementScheduleDateList=listed, schedule_timezone="Pacific/Apia")
    with pytest.raises(BadCommandError, match=r"date 2 .* is date 1 again"):
        read_request(command, zone=NEW_YORK)


def test_t31_without_a_schedule_there_is_one_date_a_day_with_both_ends() -> None:
    january = a_range("2013-01-01 00:00:00", "2013-01-31 00:00:00")
    assert dates_of(january) == [f"01-{day:02} 00:00" for day in range(1, 32)]


def test_t31_fire_times_at_both_ends_of_the_range_count() -> None:
    nights = a_range("2013-01-01 03:00:00", "2013-01-03 03:00:00")
    found = dates_of(nights, a_schedule("0 0 3 * * ?"))
    assert found == ["01-01 03:00", "01-02 03:00", "01-03 03:00"]


def test_t31_the_dates_of_several_schedules_are_sorted_and_each_is_there_once() -> None:
    day = a_range("2013-01-01 00:00:00", "2013-01-01 23:59:59")
    found = dates_of(day, a_schedule("0 0 9,3 * * ?"), a_schedule("0 0 3,6 * * ?"))
    assert found == ["01-01 03:00", "01-01 06:00", "01-01 09:00"]


def test_t31_a_date_that_is_listed_twice_is_there_once() -> None:
    twice = ComplementRequest(process_definition_id=3, dates=(NOW, NOW))
    assert complement_dates(twice, (), zone=NEW_YORK)[0] == (NOW,)


def test_a_schedule_s_window_does_not_bound_what_may_be_complemented() -> None:
    recent = a_schedule("0 0 3 * * ?", start_time=datetime(2026, 1, 1, tzinfo=UTC))
    assert dates_of(a_range("2013-01-01 00:00:00", "2013-01-01 12:00:00"), recent)


def test_t93_daily_dates_keep_their_time_of_day_after_a_day_whose_clock_skips_it() -> None:
    spring = a_range("2026-03-07 02:30:00", "2026-03-10 02:30:00")
    assert dates_of(spring) == ["03-07 02:30", "03-08 03:30", "03-09 02:30", "03-10 02:30"]


def test_the_latest_date_comes_first_if_asked_for() -> None:
    days = a_range("2013-01-01 00:00:00", "2013-01-03 00:00:00", executionOrder="DESC_ORDER")
    assert dates_of(days) == ["01-03 00:00", "01-02 00:00", "01-01 00:00"]


def test_a_list_is_sorted_and_its_dates_need_no_schedule_that_fires_then() -> None:
    request = read_request(
        a_command(complementScheduleDateList="2013-01-05 10:00:00, 2013-01-02 00:00:00"),
        zone=NEW_YORK,
    )
    assert dates_of(request, a_schedule("0 0 3 * * ?")) == ["01-02 00:00", "01-05 10:00"]


def test_one_moment_is_a_date_even_if_no_schedule_fires_then() -> None:
    request = a_range("2013-01-01 10:00:00", "2013-01-01 10:00:00")
    assert dates_of(request, a_schedule("0 0 3 * * ?")) == ["01-01 10:00"]


def test_the_dates_are_read_in_the_zone_that_the_row_names() -> None:
    request = a_range("2013-01-01 00:00:00", "2013-01-02 00:00:00", schedule_timezone="Asia/Tokyo")
    dates, zone_name = complement_dates(request, (), zone=NEW_YORK)
    assert dates[0] == datetime(2012, 12, 31, 15, tzinfo=UTC)
    assert zone_name == "Asia/Tokyo"


def test_runs_read_their_dates_in_the_zone_of_the_schedule_or_else_of_the_cluster() -> None:
    request = a_range("2013-01-01 00:00:00", "2013-01-02 00:00:00")
    berlin = a_schedule("0 0 3 * * ?", timezone_id="Europe/Berlin")
    assert complement_dates(request, (berlin,), zone=NEW_YORK)[1] == "Europe/Berlin"
    assert complement_dates(request, (), zone=NEW_YORK)[1] == "America/New_York"


def test_a_request_is_read_from_the_keys_of_the_original() -> None:
    request = a_range(
        "2013-01-01 00:00:00",
        "2013-01-02 00:00:00",
        expectedParallelismNumber="8",
        executionOrder="DESC_ORDER",
        complementDependentMode="ALL_DEPENDENT",
        allLevelDependent="true",
        onFailure="continue",
        reprocess="missing",
        StartNodeNameList="a, b",
        StartParams='{"x": "1"}',
        environmentCode=str(2**40),
    )
    assert request.settings.environment_code == 2**40
    assert request.parallelism == 8
    assert request.order is RunOrder.DESCENDING
    assert request.downstream is Downstream.ALL
    assert request.on_failure is OnFailure.CONTINUE
    assert request.reprocess is Reprocess.MISSING
    assert request.settings.start_node_names == ("a", "b")
    assert request.settings.start_params == '{"x": "1"}'


def test_a_row_without_dates_is_about_its_schedule_time() -> None:
    assert read_request(a_command(schedule_time=NOW), zone=NEW_YORK).dates == (NOW,)


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ({}, "needs its dates"),
        ({START: "2013-01-01", END: "2013-01-02 00:00:00"}, "complementStartDate must be written"),
        ({START: "2013-02-30 00:00:00"}, "complementStartDate must be written"),
        ({"complementScheduleDateList": ""}, "date 1 must be written"),
        (
            {"complementScheduleDateList": "2013-01-01 00:00:00,tomorrow"},
            "date 2 must be written as 2020-01-31 00:00:00, not 'tomorrow'",
        ),
        (
            {"complementScheduleDateList": ",".join(["2013-01-01 00:00:00"] * 2)},
            r"date 2 \(2013-01-01 00:00:00\) is date 1 again",
        ),
        (
            {"complementScheduleDateList": "2013-01-01 00:00:00", START: "2013-01-01 00:00:00"},
            "one or the other",
        ),
        ({START: "2013-01-01 00:00:00", "schedule_timezone": "Mars"}, "schedule_timezone: 'Mars'"),
        ({START: "2013-01-01 00:00:00", "expectedParallelismNumber": "0"}, "from 1 to 1000"),
        ({START: "2013-01-01 00:00:00", "expectedParallelismNumber": "9" * 5000}, "from 1 to"),
        ({START: "2013-01-01 00:00:00", "executionOrder": "UP"}, "ASC_ORDER, DESC_ORDER"),
        ({START: "2013-01-01 00:00:00", "reprocess": "some"}, "missing, failed, all"),
        ({START: "2013-01-01 00:00:00", "onFailure": "panic"}, "stop, continue"),
        ({START: "2013-01-01 00:00:00", "confirmed": "yes"}, "true, false"),
    ],
)
def test_t73_a_mistake_in_a_row_is_reported_with_its_key_and_place(
    param: dict[str, str], message: str
) -> None:
    with pytest.raises(BadCommandError, match=message) as raised:
        read_request(a_command(**param), zone=NEW_YORK)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize(
    ("refused", "nearest"),
    [
        ("0001-01-01 00:00:00", "0001-01-03 00:00:00"),
        ("9999-12-31 00:00:00", "9999-12-29 23:59:59"),
    ],
)
def test_a_date_whose_run_would_leave_the_calendar_is_refused(
    refused: str, nearest: str, zone: str
) -> None:
    daily = a_schedule("0 0 3 * * ?")

    def complement(date: str) -> NewComplement:
        command = a_command(complementScheduleDateList=date, schedule_timezone=zone)
        (new,) = plan_complements(
            read_request(command, zone=NEW_YORK),
            FLIGHTS,
            schedules=[daily],
            dependents=(),
            zone=NEW_YORK,
            graph=graph,
        )
        return new

    with pytest.raises(BadCommandError, match="before or after a date"):
        complement(refused)
    new = complement(nearest)
    (slot,) = slots_of(new)
    assert slot.start <= new.dates[0] < slot.end
    assert str(business_date(new.dates[0], ZoneInfo(zone))) in ("0001-01-02", "9999-12-28")


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(BadCommandError, match="ends before it starts"):
        dates_of(a_range("2013-01-02 00:00:00", "2013-01-01 00:00:00"))


def test_a_range_in_which_no_schedule_fires_is_refused_with_the_lines() -> None:
    weekend = a_range("2013-01-05 00:00:00", "2013-01-06 23:00:00")
    with pytest.raises(BadCommandError, match=r"'0 0 3 [?] [*] 2-6'"):
        dates_of(weekend, a_schedule("0 0 3 ? * 2-6"))


def test_a_schedule_that_can_t_be_read_is_no_reason_for_other_dates() -> None:
    with pytest.raises(BadCommandError, match="schedule 1 can't say which dates"):
        dates_of(a_range("2013-01-01 00:00:00", "2013-01-02 00:00:00"), a_schedule("0 0 3 * *"))


def test_a_minute_of_each_of_a_hundred_years_has_to_be_confirmed() -> None:
    minutely = a_schedule("0 * * * * ?")
    long = ("1900-01-01 00:00:00", "2000-01-01 00:00:00")
    with pytest.raises(BadCommandError, match="more than 10,000 dates; if that is meant"):
        dates_of(a_range(*long), minutely)
    with pytest.raises(BadCommandError, match="more than 1,000,000 dates; split it"):
        dates_of(a_range(*long, confirmed="true"), minutely)
    fortnight = ("2013-01-01 00:00:00", "2013-01-15 00:00:00")
    assert len(dates_of(a_range(*fortnight, confirmed="true"), minutely)) == 14 * 24 * 60 + 1


# Downstream


NAMED = tuple(
    Target(id=number, project_id=0, name=name)
    for number, name in ((3, "flights"), *((each, f"n{each}") for each in range(4, 10)))
)


def waits_for(definition_id: int, *names: str | int) -> DependentDefinition:
    items = [
        {
            ("definitionName" if isinstance(name, str) else "definitionId"): name,
            "depTasks": "ALL",
            "cycle": "day",
            "dateValue": "today",
        }
        for name in names
    ]
    node = {
        "name": "wait",
        "type": "DEPENDENT",
        "params": {},
        "dependence": {
            "relation": "AND",
            "dependTaskList": [{"relation": "AND", "dependItemList": items}],
        },
    }
    return DependentDefinition(
        id=definition_id,
        name=f"n{definition_id}",
        process_definition_json=json.dumps({"tasks": [node]}),
        named=NAMED,
    )


def graph(text: str) -> ProcessGraph:
    return read_process_json(text, task_types=known_task_types())


FLIGHTS = DefinitionSnapshot(
    id=3,
    name="flights",
    version=1,
    release_state=ReleaseState.ONLINE,
    usable=True,
    process_definition_json="{}",
    global_params=None,
    timeout_minutes=0,
    tenant_id=-1,
)
ALL = (
    waits_for(9, "flights"),
    waits_for(4, 9, 5),
    waits_for(5, 3),
    waits_for(6, "something else"),
    DependentDefinition(id=7, name="n7", process_definition_json="spoilt"),
)


def test_a_definition_that_waits_by_id_or_by_name_is_downstream() -> None:
    found = downstream_of(FLIGHTS, ALL, graph=graph, all_levels=False)
    assert sorted(each.id for each in found) == [5, 9]


def test_x44_downstream_of_a_definition_are_those_that_reach_it() -> None:
    flights = replace(FLIGHTS, project_id=1)
    mine = Target(id=3, project_id=1, name="flights", project_name="prod")
    theirs = Target(id=77, project_id=2, name="flights", project_name="dev")
    dependents = (
        replace(waits_for(4, 3), project_id=1),
        # Definitions of another project that wait by id, without and with a share.
        replace(waits_for(5, 3), project_id=2),
        replace(waits_for(6, 3), project_id=2, shared=frozenset({3})),
        # Definitions that wait by name. The definition of the same project goes first.
        replace(waits_for(7, "flights"), project_id=1, named=(mine,)),
        replace(waits_for(8, "flights"), project_id=2, shared=frozenset({3}), named=(mine, theirs)),
        replace(waits_for(9, "flights"), project_id=2, shared=frozenset({3}), named=(mine,)),
    )
    found = downstream_of(flights, dependents, graph=graph, all_levels=False)
    assert sorted(each.id for each in found) == [4, 6, 7, 9]
    ring = (replace(waits_for(4, 3, 6), project_id=1), replace(waits_for(6, 4), project_id=2))
    ring = (ring[0], replace(ring[1], shared=frozenset({4})))
    ring = (replace(ring[0], shared=frozenset({6})), ring[1])
    with pytest.raises(BadCommandError, match="in a ring") as refused:
        downstream_of(flights, ring, graph=graph, all_levels=True)
    assert "6" not in str(refused.value)


def test_of_all_levels_each_comes_after_what_it_waits_for() -> None:
    found = [each.id for each in downstream_of(FLIGHTS, ALL, graph=graph, all_levels=True)]
    assert sorted(found) == [4, 5, 9]
    assert found[-1] == 4


def test_a_ring_of_waits_is_refused() -> None:
    ring = (waits_for(4, 3, 5), waits_for(5, 4))
    with pytest.raises(BadCommandError, match="ring"):
        downstream_of(FLIGHTS, ring, graph=graph, all_levels=True)


def planned(*schedules: Schedule, **param: str) -> tuple[NewComplement, ...]:
    return plan_complements(
        a_range("2013-01-01 00:00:00", "2013-01-03 00:00:00", **param),
        FLIGHTS,
        schedules=schedules,
        dependents=ALL,
        zone=NEW_YORK,
        graph=graph,
    )


def test_a_complement_alone_follows_nothing() -> None:
    (found,) = planned(StartNodeNameList="a", expectedParallelismNumber="2")
    assert (found.process_definition_id, found.after, len(found.dates)) == (3, None, 3)
    assert found.settings.start_node_names == ("a",)
    assert (found.parallelism, found.timezone_id) == (2, "America/New_York")


def test_those_downstream_follow_in_turn_and_with_all_of_their_own_nodes() -> None:
    found = planned(
        complementDependentMode="ALL_DEPENDENT", allLevelDependent="true", StartNodeNameList="a"
    )
    assert [each.after for each in found] == [None, 0, 1, 2]
    assert {each.process_definition_id for each in found[1:]} == {4, 5, 9}
    assert all(each.settings.start_node_names == () for each in found[1:])
    assert all(each.dates == found[0].dates for each in found)


def test_a_request_counts_for_a_complement_and_for_those_downstream() -> None:
    found = planned(
        complementDependentMode="ALL_DEPENDENT",
        expectedParallelismNumber="2",
        executionOrder="DESC_ORDER",
        onFailure="continue",
        reprocess="missing",
        environmentCode="7",
    )
    assert [each.settings.environment_code for each in found] == [7] * 3
    asked = (2, RunOrder.DESCENDING, OnFailure.CONTINUE, Reprocess.MISSING)
    settings = [(each.parallelism, each.order, each.on_failure, each.reprocess) for each in found]
    assert settings == [asked] * 3


def with_one_below(crontab: str, **param: str) -> tuple[NewComplement, ...]:
    below = replace(waits_for(9, 3), schedules=(a_schedule(crontab),))
    asked = {"complementDependentMode": "ALL_DEPENDENT", **param}
    return plan_complements(
        a_range("2013-01-01 00:00:00", "2013-01-03 00:00:00", **asked),
        FLIGHTS,
        schedules=(),
        dependents=(below,),
        zone=NEW_YORK,
        graph=graph,
    )


def test_one_downstream_with_a_schedule_has_its_own_dates_within_the_same_span() -> None:
    found = with_one_below("0 0 */12 * * ?")
    assert len(found[1].dates) == 5
    assert all(one < other for one, other in pairwise(found[1].dates))


def test_one_downstream_with_a_schedule_begins_with_its_latest_date_too() -> None:
    found = with_one_below("0 0 */12 * * ?", executionOrder="DESC_ORDER")
    assert len(found[1].dates) == 5
    assert all(one > other for one, other in pairwise(found[1].dates))


def test_one_downstream_that_fires_later_in_the_day_has_all_days_of_the_range() -> None:
    below = replace(waits_for(9, 3), schedules=(a_schedule("0 0 3 * * ?"),))
    found = plan_complements(
        a_range(
            "2013-01-01 00:00:00", "2013-01-03 23:59:59", complementDependentMode="ALL_DEPENDENT"
        ),
        FLIGHTS,
        schedules=(a_schedule("0 0 1 * * ?"),),
        dependents=(below,),
        zone=NEW_YORK,
        graph=graph,
    )
    assert [len(each.dates) for each in found] == [3, 3]


def test_one_downstream_reads_its_dates_in_the_zone_of_its_own_schedule() -> None:
    tokyo = a_schedule("0 0 3 * * ?", timezone_id="Asia/Tokyo")
    found = plan_complements(
        a_range(
            "2013-01-01 00:00:00", "2013-01-03 23:59:59", complementDependentMode="ALL_DEPENDENT"
        ),
        FLIGHTS,
        schedules=(a_schedule("0 0 1 * * ?"),),
        dependents=(replace(waits_for(9, 3), schedules=(tokyo,)), waits_for(5, 3)),
        zone=NEW_YORK,
        graph=graph,
    )
    zones = {each.process_definition_id: each.timezone_id for each in found}
    assert zones == {3: "America/New_York", 9: "Asia/Tokyo", 5: "America/New_York"}


def test_one_downstream_that_does_not_fire_in_the_span_is_left_out() -> None:
    assert [each.process_definition_id for each in with_one_below("0 0 0 20 * ?")] == [3]


def test_a_list_is_followed_by_the_fires_of_its_days_downstream_and_no_others() -> None:
    below = replace(waits_for(9, 3), schedules=(a_schedule("0 0 3 * * ?"),))
    found = plan_complements(
        read_request(
            a_command(
                complementScheduleDateList="2013-01-05 00:00:00,2013-02-05 10:00:00",
                complementDependentMode="ALL_DEPENDENT",
            ),
            zone=NEW_YORK,
        ),
        FLIGHTS,
        schedules=(),
        dependents=(below,),
        zone=NEW_YORK,
        graph=graph,
    )
    shown = [f"{date.astimezone(NEW_YORK):%m-%d %H:%M}" for date in found[1].dates]
    assert shown == ["01-05 03:00", "02-05 03:00"]


def test_all_complements_together_have_a_bounded_number_of_dates_x66(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = 0

    def counted(timetables: Any, first: datetime, last: datetime) -> Iterator[datetime]:
        nonlocal taken
        for each in merged(timetables, first, last):
            taken += 1
            yield each

    monkeypatch.setattr(complementing, "merged", counted)
    each_second = replace(waits_for(4, 3), schedules=(a_schedule("* * * * * ?"),))
    days = a_range(
        "2013-01-01 00:00:00", "2013-01-03 00:00:00", complementDependentMode="ALL_DEPENDENT"
    )
    with pytest.raises(BadCommandError, match="if that is meant"):
        _planned(days, each_second)
    assert taken <= 10_001
    hourly = [
        replace(waits_for(4 + at, 3), schedules=(a_schedule("0 0 * * * ?"),)) for at in (0, 1)
    ]
    taken = 0
    with pytest.raises(BadCommandError, match="more than 60 dates in all"):
        _planned(days, *hourly, utmost=60)
    assert taken <= 62
    assert len(_planned(days, *hourly, utmost=200)) == 3
    list_of_days = ",".join(f"2013-01-{day:02} 00:00:00" for day in range(1, 31))
    listed = read_request(
        a_command(complementScheduleDateList=list_of_days, complementDependentMode="ALL_DEPENDENT"),
        zone=NEW_YORK,
    )
    never = [replace(each, schedules=(a_schedule("0 0 0 1 1 ? 2199"),)) for each in hourly]
    with pytest.raises(BadCommandError, match="more than 80 dates in all"):
        _planned(listed, *never, utmost=80)


def _planned(
    request: ComplementRequest, *dependents: DependentDefinition, utmost: int = 1_000_000
) -> tuple[NewComplement, ...]:
    return plan_complements(
        request,
        FLIGHTS,
        schedules=(),
        dependents=dependents,
        zone=NEW_YORK,
        graph=graph,
        utmost=utmost,
    )
