"""COMPLEMENT_DATA: a row of complements, or the run of one date."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.model.plans import Begin, Complement, Plan, Snapshot
from common.model.schedules import Schedule
from common.model.states import ExecutionType
from master.commands import plan
from tests.builders import NOON
from tests.unit.commands.planning import (
    OF_TASK_45,
    ORIGIN,
    a_definition,
    begun_child,
    globals_of,
    planned,
    read,
    why,
)

JANUARY = '{"complementStartDate": "%s", "complementEndDate": "%s"}'
FIRST = "2020-01-01 00:00:00"


def complement(param: str | None = None, **columns: Any) -> Plan:
    return planned(read(param, command_type=5, **columns), a_definition())


def dates(found: Plan) -> list[datetime]:
    assert isinstance(found, Complement)
    assert len(found.complements) == 1
    return list(found.complements[0].dates)


def test_a_complement_run_is_for_the_one_date_of_its_command_in_the_zone() -> None:
    assert dates(complement(JANUARY % (FIRST, FIRST))) == [datetime(2020, 1, 1, 5, tzinfo=UTC)]


def test_one_date_is_enough_for_a_complement_run() -> None:
    found = complement(f'{{"complementStartDate": "{FIRST}"}}')
    assert dates(found) == [datetime(2020, 1, 1, 5, tzinfo=UTC)]


def test_the_dates_of_a_complement_are_read_in_the_zone_of_the_definition_s_schedule() -> None:
    tokyo = Schedule(
        id=1,
        process_definition_id=3,
        definition_name="flights",
        definition_is_online=True,
        crontab="0 0 0 * * ?",
        timezone_id="Asia/Tokyo",
        missing_time="shift",
        repeated_time="first",
        start_time=NOON,
        end_time=NOON + timedelta(days=1),
    )
    found = plan(
        read(JANUARY % (FIRST, FIRST), command_type=5),
        Snapshot(definition=a_definition(), schedules=(tokyo,)),
        now=NOON,
        origin=ORIGIN,
    )
    assert dates(found) == [datetime(2019, 12, 31, 15, tzinfo=UTC)]


@pytest.mark.parametrize("own", list(ExecutionType))
@pytest.mark.parametrize("of_definition", [ExecutionType.PARALLEL, ExecutionType.SERIAL_DISCARD])
def test_the_execution_type_of_a_schedule_goes_before_that_of_the_definition(
    own: ExecutionType, of_definition: ExecutionType
) -> None:
    found = planned(
        read(f'{{"executionType": "{own.name}"}}', command_type=6),
        a_definition(execution_type=of_definition),
    )
    assert isinstance(found, Begin)
    assert (found.execution_type, found.is_serial_by_schedule) == (own, True)


def test_a_complement_of_which_no_date_could_begin_is_rejected_as_a_whole() -> None:
    text = (
        f'{{"complementStartDate": "{FIRST}", "complementEndDate": "{FIRST}", "StartParams": %s}}'
    )
    for params in ('"[1, 2]"', '"{spoilt"'):
        assert "StartParams" in why(complement(text % params))


def test_the_schedule_time_of_a_complement_command_without_others_is_its_date() -> None:
    assert dates(complement(schedule_time=NOON)) == [NOON]


def test_t33_the_run_of_each_date_is_a_new_instance_of_its_own() -> None:
    found = complement(schedule_time=NOON, complement_date_id=7)
    assert isinstance(found, Begin)
    assert (found.schedule_time, found.complement_date_id) == (NOON, 7)


def test_a_complement_run_without_a_date_is_refused_with_an_example() -> None:
    reason = why(complement())
    assert "COMPLEMENT_DATA needs its dates" in reason
    assert '"complementStartDate": "2020-01-01 00:00:00"' in reason


@pytest.mark.parametrize("date", ["", "2020-01-01", "2020-02-30 00:00:00", "x" * 900, "1"])
def test_a_date_that_can_t_be_read_is_refused_by_its_key(date: str) -> None:
    reason = why(complement(JANUARY % (FIRST, date)))
    assert reason.startswith("command_param: complementEndDate must be written as")
    assert len(reason) < 200


def test_a_sub_process_of_a_complement_run_is_for_its_parent_s_date() -> None:
    command = read(
        JANUARY % (FIRST, "2020-01-31 00:00:00"),
        command_type=5,
        schedule_time=NOON,
        **OF_TASK_45,
    )
    assert begun_child(command=command).schedule_time == NOON


def test_a_complement_run_s_parameters_are_worked_out_for_its_date() -> None:
    midnight = datetime(2020, 1, 1, 5, tzinfo=UTC)
    found = planned(
        read(None, command_type=5, schedule_time=midnight, complement_date_id=7),
        globals_of('[{"prop": "day", "value": "${system.biz.date}"}]'),
    )
    assert isinstance(found, Begin)
    # As of a schedule's run, the business date is the day before (contract §9.2).
    assert json.loads(found.global_params)[0]["value"] == "20191231"
