"""The business date of a run, for every command type that computes one, in the run's own zone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.model.command_param import CommandParam
from common.model.commands import Command, CommandType
from common.model.date_rules import DateRule
from common.model.instances import TaskRow
from common.model.plans import (
    Begin,
    DefinitionSnapshot,
    InstanceSnapshot,
    ParentSnapshot,
    Reject,
    Restart,
    Snapshot,
)
from common.model.states import ProcessState, ReleaseState, TaskState
from master.commands import plan
from master.commands.origin import Origin
from tests.builders import NOON, a_definition_json, read_graph

NEW_YORK = "America/New_York"
NIGHT = datetime(2020, 3, 10, 2, 30, tzinfo=ZoneInfo(NEW_YORK))
# 00:30 on 10 March in Tokyo, and still 9 March in New York.
TOKYO_NIGHT = datetime(2020, 3, 9, 15, 30, tzinfo=UTC)
DAY = json.dumps([{"prop": "day", "value": "${system.biz.date}"}])
DEFINITION = DefinitionSnapshot(
    id=3,
    name="flights",
    version=1,
    release_state=ReleaseState.ONLINE,
    usable=True,
    process_definition_json=a_definition_json("a"),
    global_params=DAY,
    timeout_minutes=0,
    tenant_id=-1,
)


def planned(
    command_type: CommandType,
    schedule_time: datetime | None = NIGHT,
    *,
    param: dict[str, str] | None = None,
    instance: InstanceSnapshot | None = None,
    parent: ParentSnapshot | None = None,
    rule: DateRule = DateRule.BUSINESS_DATE,
    of_definition: DateRule | None = None,
    **columns: Any,
) -> Begin | Restart:
    found = plan(
        Command(
            id=1,
            command_type=command_type,
            process_definition_id=3,
            param=CommandParam(param or {}),
            schedule_time=schedule_time,
            start_time=NOON,
            **columns,
        ),
        Snapshot(
            definition=replace(DEFINITION, date_rule=of_definition),
            instance=instance,
            parent=parent,
        ),
        now=NOON,
        origin=Origin(zone=ZoneInfo(NEW_YORK), graph=read_graph, date_rule=rule),
    )
    assert isinstance(found, Begin | Restart), found
    return found


def day_of(found: Begin | Restart) -> str:
    """The value of a global parameter that is the business date."""
    return str(json.loads(found.global_params or "[]")[0]["value"])


def business_date(*row: Any, **more: Any) -> str:
    """The business date of the run that a command of this type and schedule time begins."""
    return day_of(planned(*row, **more))


def ended(*history: str, timezone_id: str | None = None) -> InstanceSnapshot:
    return InstanceSnapshot(
        id=12,
        state=ProcessState.FAILURE,
        owner=None,
        owner_epoch=1,
        process_definition_id=3,
        process_instance_json=a_definition_json("a"),
        global_params="[]",
        history=history,
        schedule_time=NIGHT if timezone_id is None else TOKYO_NIGHT,
        timezone_id=timezone_id,
        tasks=(
            TaskRow(
                id=1,
                name="a",
                attempt=1,
                state=TaskState.FAILURE,
                retry_times=0,
                valid=True,
                settled=True,
                end_time=NOON,
                retry_at=None,
                kill_requested=False,
            ),
        ),
    )


@pytest.mark.parametrize(
    "command_type",
    [CommandType.START_PROCESS, CommandType.START_CURRENT_TASK_PROCESS, CommandType.SCHEDULER],
)
def test_a_normal_run_is_about_the_day_before(command_type: CommandType) -> None:
    assert business_date(command_type, param={"StartNodeNameList": "a"}) == "20200309"


def test_a_run_without_a_schedule_time_is_about_the_day_before_it_began() -> None:
    assert business_date(CommandType.START_PROCESS, None) == f"{NOON:%Y%m}{NOON.day - 1:02}"


def test_a_run_of_a_complement_is_about_the_chosen_date() -> None:
    assert business_date(CommandType.COMPLEMENT_DATA, complement_date_id=7) == "20200310"


@pytest.mark.parametrize(
    ("of_command", "of_definition", "of_cluster", "date"),
    [
        (None, None, "schedule_time", "20200309"),
        (None, None, "business_date", "20200310"),
        (None, "business_date", "schedule_time", "20200310"),
        (None, "schedule_time", "business_date", "20200309"),
        ("schedule_time", "business_date", "business_date", "20200309"),
        ("business_date", "schedule_time", "schedule_time", "20200310"),
    ],
)
def test_the_rule_is_that_of_the_command_else_of_the_definition_else_of_the_cluster(
    of_command: str | None, of_definition: str | None, of_cluster: str, date: str
) -> None:
    found = planned(
        CommandType.COMPLEMENT_DATA,
        param={} if of_command is None else {"complementDateRule": of_command},
        of_definition=None if of_definition is None else DateRule(of_definition),
        rule=DateRule(of_cluster),
        complement_date_id=7,
    )
    assert isinstance(found, Begin)
    assert (day_of(found), found.schedule_time) == (date, NIGHT)
    later = datetime(2020, 3, 11, 2, 30, tzinfo=ZoneInfo(NEW_YORK))
    assert found.business_time == (later if date == "20200310" else None)


def test_an_unknown_rule_is_refused_by_its_key() -> None:
    found = plan(
        Command(
            id=1,
            command_type=CommandType.COMPLEMENT_DATA,
            process_definition_id=3,
            param=CommandParam({"complementDateRule": "tomorrow"}),
            schedule_time=NIGHT,
            start_time=NOON,
            complement_date_id=7,
        ),
        Snapshot(definition=DEFINITION),
        now=NOON,
        origin=Origin(zone=ZoneInfo(NEW_YORK), graph=read_graph),
    )
    assert isinstance(found, Reject)
    assert "complementDateRule must be one of schedule_time, business_date" in found.reason


@pytest.mark.parametrize(
    ("history", "business_time", "date"),
    [
        (("START_PROCESS",), None, "20200309"),
        (("SCHEDULER", "START_FAILURE_TASK_PROCESS"), None, "20200309"),
        (("COMPLEMENT_DATA",), None, "20200309"),
        (("COMPLEMENT_DATA",), NIGHT + timedelta(days=1), "20200310"),
        (
            ("COMPLEMENT_DATA", "RECOVER_TOLERANCE_FAULT_PROCESS"),
            NIGHT + timedelta(days=1),
            "20200310",
        ),
    ],
)
@pytest.mark.parametrize(
    "command_type", [CommandType.REPEAT_RUNNING, CommandType.START_FAILURE_TASK_PROCESS]
)
def test_a_recovery_keeps_the_rule_that_the_run_began_with(
    command_type: CommandType,
    history: tuple[str, ...],
    business_time: datetime | None,
    date: str,
) -> None:
    # New start parameters, so that the globals are computed again whatever the command.
    param = {"ProcessInstanceId": "12", "StartParams": '{"other": "1"}'}
    instance = replace(ended(*history), business_time=business_time)
    for rule in DateRule:
        found = business_date(command_type, None, param=param, instance=instance, rule=rule)
        assert found == date


@pytest.mark.parametrize(
    ("command_type", "date"),
    [
        (CommandType.START_FAILURE_TASK_PROCESS, "20200228"),
        (CommandType.REPEAT_RUNNING, f"{NOON:%Y%m}{NOON.day - 1:02}"),
    ],
)
def test_a_recovery_of_a_run_without_a_schedule_time_keeps_the_day_of_its_start(
    command_type: CommandType, date: str
) -> None:
    began = datetime(2020, 2, 29, 12, tzinfo=UTC)
    instance = replace(ended("START_PROCESS"), schedule_time=None, start_time=began)
    param = {"ProcessInstanceId": "12", "StartParams": '{"other": "1"}'}
    assert business_date(command_type, None, param=param, instance=instance) == date


def test_t46_a_run_reads_its_date_in_the_zone_of_its_schedule() -> None:
    scheduler = CommandType.SCHEDULER
    assert business_date(scheduler, TOKYO_NIGHT) == "20200308"
    tokyo = {"schedule_timezone": "Asia/Tokyo"}
    assert business_date(scheduler, TOKYO_NIGHT, param=tokyo) == "20200309"


def test_t46_a_run_keeps_the_zone_of_its_schedule_for_its_tasks() -> None:
    tokyo = {"schedule_timezone": "Asia/Tokyo"}
    zones = [
        found.timezone_id
        for param in (tokyo, {"schedule_timezone": " "}, {})
        if isinstance(found := planned(CommandType.SCHEDULER, param=param), Begin)
    ]
    assert zones == ["Asia/Tokyo", None, None]


def test_t46_a_rerun_reads_it_in_the_zone_that_the_run_began_with() -> None:
    found = business_date(
        CommandType.REPEAT_RUNNING,
        None,
        param={"ProcessInstanceId": "12"},
        instance=ended("SCHEDULER", timezone_id="Asia/Tokyo"),
    )
    assert found == "20200309"


def a_parent(task_json: str = "{}") -> ParentSnapshot:
    """A run of a complement that waits for its sub process."""
    return ParentSnapshot(
        process_instance_id=2,
        task_instance_id=45,
        task_name="sub",
        task_json=task_json,
        input_pool=None,
        waits=True,
        root_id=2,
        history=("COMPLEMENT_DATA",),
        global_params="[]",
        schedule_time=TOKYO_NIGHT,
        ancestors=(1,),
        timezone_id="Asia/Tokyo",
        business_time=TOKYO_NIGHT + timedelta(days=1),
    )


def test_a_sub_process_has_the_date_the_rule_and_the_zone_of_its_parent() -> None:
    found = planned(
        CommandType.COMPLEMENT_DATA, TOKYO_NIGHT, parent=a_parent(), parent_task_instance_id=45
    )
    assert day_of(found) == "20200310"
    assert isinstance(found, Begin)
    assert found.timezone_id == "Asia/Tokyo"


def test_t46_a_sub_process_that_is_run_again_reads_it_in_the_zone_of_its_parent() -> None:
    child = replace(
        ended("COMPLEMENT_DATA"),
        schedule_time=TOKYO_NIGHT,
        business_time=TOKYO_NIGHT + timedelta(days=1),
        root_id=2,
    )
    found = business_date(
        CommandType.REPEAT_RUNNING,
        None,
        param={"ProcessInstanceId": "12"},
        instance=child,
        parent=a_parent(),
        parent_task_instance_id=45,
    )
    assert found == "20200310"


@pytest.mark.parametrize(("business_days", "date"), [(1, "20200310"), (0, "20200309")])
def test_what_a_complement_hands_down_to_a_sub_process_has_the_date_of_the_parent(
    business_days: int, date: str
) -> None:
    local = [{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "${system.biz.date}"}]
    found = business_date(
        CommandType.COMPLEMENT_DATA,
        TOKYO_NIGHT,
        parent=replace(
            a_parent(json.dumps({"params": {"localParams": local}})),
            business_time=TOKYO_NIGHT + timedelta(days=1) if business_days else None,
        ),
        parent_task_instance_id=45,
    )
    assert found == date


def test_a_zone_that_there_is_not_is_refused_by_its_key() -> None:
    found = plan(
        Command(
            id=1,
            command_type=CommandType.SCHEDULER,
            process_definition_id=3,
            param=CommandParam({"schedule_timezone": "Mars/Olympus"}),
            start_time=NOON,
        ),
        Snapshot(definition=DEFINITION),
        now=NOON,
        origin=Origin(zone=ZoneInfo(NEW_YORK), graph=read_graph),
    )
    assert isinstance(found, Reject)
    assert "schedule_timezone" in found.reason
    assert "'Mars/Olympus' is no zone" in found.reason
