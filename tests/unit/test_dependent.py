"""DEPENDENT: the intervals of every date value, and the result of the upstream runs in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.model.control import DATE_VALUES, Dependent, DependGroup, DependItem, Relation
from common.model.states import ProcessState, TaskState
from common.model.upstream import Question, UpstreamRun, UpstreamTask
from master.logic.dependent import Absence, Answer, DependResult, Verdict, evaluate, questions
from master.logic.intervals import DATE_VALUES_CUT, intervals

AND, OR = Relation.AND, Relation.OR
SUCCESS, WAITING, FAILED = DependResult.SUCCESS, DependResult.WAITING, DependResult.FAILED
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
APIA = ZoneInfo("Pacific/Apia")
ST_JOHNS = ZoneInfo("America/St_Johns")
SAO_PAULO = ZoneInfo("America/Sao_Paulo")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
UTC_ZONE = ZoneInfo("UTC")
# A Wednesday.
NOON = datetime(2020, 3, 11, 12, 34, 56, 789, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def an_item(date_value: str = "today", **changes: Any) -> DependItem:
    cycle = next((name for name, values in DATE_VALUES.items() if date_value in values), "day")
    fields: dict[str, Any] = {
        "definition_id": 9,
        "definition_name": None,
        "project_id": 1,
        "task": None,
        "cycle": cycle,
        "date_value": date_value,
    }
    return DependItem(**fields | changes)


def waits_for(*items: DependItem, relation: Relation = AND) -> Dependent:
    return Dependent(relation=AND, groups=(DependGroup(relation=relation, items=items),))


def a_run(state: ProcessState = ProcessState.SUCCESS, **changes: Any) -> UpstreamRun:
    fields: dict[str, Any] = {
        "id": 5,
        "state": state,
        "schedule_time": None,
        "start_time": NOON,
        "end_time": None,
    }
    return UpstreamRun(**fields | changes)


def an_attempt(state: TaskState, *, retry_pending: bool = False) -> UpstreamTask:
    return UpstreamTask(id=77, state=state, retry_pending=retry_pending, end_time=NOON)


def verdict(
    dependent: Dependent,
    answer: Answer | Callable[[Question], Answer],
    *,
    at: datetime = NOON,
    zone: ZoneInfo = UTC_ZONE,
    apart_from: int = 0,
) -> Verdict:
    asked = questions(dependent, at, zone, apart_from=apart_from)
    answers = {question: answer(question) if callable(answer) else answer for question in asked}
    return evaluate(dependent, at, zone, answers, apart_from=apart_from)


def result_of(item: DependItem, answer: Answer) -> DependResult:
    return verdict(waits_for(item), answer).result


def by_definition(**answers: Answer) -> Callable[[Question], Answer]:
    """Return an answer by the name of the definition, as `d1=`, …"""
    return lambda question: answers[f"d{question.definition_id}"]


def spans(date_value: str, at: str, zone: ZoneInfo = UTC_ZONE, fold: int = 0) -> list[str]:
    """The intervals as the zone's clock shows them, `from/to`."""
    moment = datetime.fromisoformat(at).replace(tzinfo=zone, fold=fold)
    return [
        "/".join(
            end.astimezone(zone).strftime("%m-%d %H:%M") for end in (interval.start, interval.end)
        )
        for interval in intervals(an_item(date_value), moment, zone)
    ]


def days(first: str, last: str) -> list[str]:
    """One span for each day of 2020 from the first to the last."""
    one, until = date.fromisoformat(f"2020-{first}"), date.fromisoformat(f"2020-{last}")
    return [
        f"{day:%m-%d} 00:00/{day + timedelta(days=1):%m-%d} 00:00"
        for number in range((until - one).days + 1)
        for day in [one + timedelta(days=number)]
    ]


# Intervals (contract §10.2)


@pytest.mark.parametrize(
    ("date_value", "expected"),
    [
        ("currentHour", ["03-11 12:00/03-11 13:00"]),
        ("last1Hour", ["03-11 11:00/03-11 12:00"]),
        ("last2Hours", ["03-11 10:00/03-11 11:00", "03-11 11:00/03-11 12:00"]),
        (
            "last3Hours",
            ["03-11 09:00/03-11 10:00", "03-11 10:00/03-11 11:00", "03-11 11:00/03-11 12:00"],
        ),
        ("today", days("03-11", "03-11")),
        ("last1Days", days("03-10", "03-10")),
        ("last2Days", days("03-09", "03-10")),
        ("last3Days", days("03-08", "03-10")),
        ("last7Days", days("03-04", "03-10")),
        ("thisWeek", days("03-09", "03-11")),
        ("lastWeek", days("03-02", "03-08")),
        ("lastMonday", days("03-02", "03-02")),
        ("lastTuesday", days("03-03", "03-03")),
        ("lastWednesday", days("03-04", "03-04")),
        ("lastThursday", days("03-05", "03-05")),
        ("lastFriday", days("03-06", "03-06")),
        ("lastSaturday", days("03-07", "03-07")),
        ("lastSunday", days("03-08", "03-08")),
        ("thisMonth", days("03-01", "03-11")),
        ("thisMonthBegin", days("03-01", "03-01")),
        ("thisMonthEnd", days("03-31", "03-31")),
        ("lastMonth", days("02-01", "02-29")),
        ("lastMonthBegin", days("02-01", "02-01")),
        ("lastMonthEnd", days("02-29", "02-29")),
    ],
)
def test_a_date_value_means_these_intervals(date_value: str, expected: list[str]) -> None:
    assert spans(date_value, "2020-03-11 12:34:56.789") == expected


def test_every_date_value_that_can_be_written_has_its_intervals() -> None:
    written = [(cycle, value) for cycle, values in DATE_VALUES.items() for value in values]
    assert list(DATE_VALUES_CUT) == written


def test_t88_last_24_hours_is_aligned_to_the_day_and_not_to_the_moment() -> None:
    expected = [
        *(f"03-10 {hour:02}:00/03-10 {hour + 1:02}:00" for hour in range(1, 23)),
        "03-10 23:00/03-11 00:00",
        "03-11 00:00/03-11 01:00",
    ]
    assert len(expected) == 24
    for clock in ("00:00:00", "12:34:56", "23:59:59"):
        assert spans("last24Hours", f"2020-03-11 {clock}") == expected


@pytest.mark.parametrize(
    ("day", "last"), [("2020-02-03", "02-29"), ("2020-12-31", "12-31"), ("2020-04-30", "04-30")]
)
def test_t44_the_end_of_this_month_is_its_last_day(day: str, last: str) -> None:
    (span,) = spans("thisMonthEnd", f"{day} 10:00")
    assert span.startswith(last)


def test_a_sunday_belongs_to_the_week_that_began_six_days_before() -> None:
    assert spans("thisWeek", "2020-03-15 23:59:59.999999") == days("03-09", "03-15")
    assert spans("lastSunday", "2020-03-15 00:00") == days("03-08", "03-08")
    assert spans("thisWeek", "2020-03-16 00:00") == days("03-16", "03-16")


def test_an_interval_holds_its_start_and_not_its_end() -> None:
    (today,) = intervals(an_item("today"), NOON, UTC_ZONE)
    assert today.contains(today.start)
    assert today.contains(today.end - timedelta(microseconds=1))
    assert not today.contains(today.end)


def test_t45_a_day_of_a_change_of_the_clock_has_23_or_25_hours() -> None:
    for clock, hours in (("2020-03-29 12:00", 23), ("2020-10-25 12:00", 25)):
        moment = datetime.fromisoformat(clock).replace(tzinfo=BERLIN)
        (today,) = intervals(an_item("today"), moment, BERLIN)
        assert today.end - today.start == timedelta(hours=hours)


@pytest.mark.parametrize("fold", [0, 1])
def test_t45_the_doubled_hour_is_one_interval(fold: int) -> None:
    moment = datetime(2019, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=fold)
    (hour,) = intervals(an_item("currentHour"), moment, NEW_YORK)
    assert hour.start == datetime(2019, 11, 3, 5, tzinfo=UTC)
    assert hour.end == datetime(2019, 11, 3, 7, tzinfo=UTC)
    assert spans("last1Hour", "2019-11-03 02:10", NEW_YORK) == ["11-03 01:00/11-03 02:00"]


def test_t45_an_hour_that_the_clock_leaves_out_is_passed_over() -> None:
    assert spans("last2Hours", "2020-03-29 03:10", BERLIN) == [
        "03-29 00:00/03-29 01:00",
        "03-29 01:00/03-29 03:00",
    ]
    assert len(spans("last24Hours", "2020-03-30 08:00", BERLIN)) == 23


def test_t45_a_change_of_half_an_hour_makes_a_short_and_a_long_hour() -> None:
    spring = datetime(2020, 10, 4, 2, 45, tzinfo=LORD_HOWE)
    (hour,) = intervals(an_item("currentHour"), spring, LORD_HOWE)
    assert hour.end - hour.start == timedelta(minutes=30)
    autumn = datetime(2020, 4, 5, 1, 45, tzinfo=LORD_HOWE, fold=1)
    (hour,) = intervals(an_item("currentHour"), autumn, LORD_HOWE)
    assert hour.end - hour.start == timedelta(minutes=90)


def test_a_day_may_begin_at_one_o_clock() -> None:
    assert spans("today", "2018-11-04 12:00", SAO_PAULO) == ["11-04 01:00/11-05 00:00"]
    hours = spans("last24Hours", "2018-11-04 12:00", SAO_PAULO)
    assert (len(hours), hours[-1]) == (23, "11-03 23:00/11-04 01:00")


def test_minutes_that_are_set_back_across_midnight_belong_to_the_day_that_has_begun() -> None:
    # At 00:01 the clock went back to 23:01 of the day before.
    moment = datetime(2010, 11, 7, 2, 40, tzinfo=UTC)
    assert f"{moment.astimezone(ST_JOHNS):%d %H:%M}" == "06 23:10"
    (today,) = intervals(an_item("today"), moment, ST_JOHNS)
    assert today.start == datetime(2010, 11, 7, 2, 30, tzinfo=UTC)
    (hour,) = intervals(an_item("currentHour"), moment, ST_JOHNS)
    assert (hour.start, hour.end) == (today.start, today.start + timedelta(hours=2))


def test_a_day_that_the_zone_left_out_is_passed_over() -> None:
    assert spans("last2Days", "2011-12-31 09:00", APIA) == [
        "12-28 00:00/12-29 00:00",
        "12-29 00:00/12-31 00:00",
    ]
    assert spans("lastFriday", "2012-01-04 09:00", APIA) == []
    hours = spans("last24Hours", "2011-12-31 09:00", APIA)
    assert (len(hours), hours[0], hours[-2:]) == (
        24,
        "12-29 01:00/12-29 02:00",
        ["12-29 23:00/12-31 00:00", "12-31 00:00/12-31 01:00"],
    )


def test_t93_days_begin_at_midnight_wherever_the_counting_began() -> None:
    # Counted from 02:30 in steps of a day, the days behind the change would begin an hour late.
    moment = datetime(2020, 4, 1, 2, 30, tzinfo=BERLIN)
    for interval in intervals(an_item("last7Days"), moment, BERLIN):
        assert f"{interval.start.astimezone(BERLIN):%H:%M}" == "00:00"


def test_t46_the_zone_decides_which_day_a_moment_is_in() -> None:
    moment = datetime(2020, 3, 11, 2, 0, tzinfo=UTC)
    (here,) = intervals(an_item("today"), moment, NEW_YORK)
    assert here.contains(datetime(2020, 3, 10, 5, tzinfo=UTC))
    same = moment.astimezone(timezone(timedelta(hours=9)))
    assert intervals(an_item("today"), same, NEW_YORK) == (here,)


def test_t46_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no zone"):
        intervals(an_item(), NOON.replace(tzinfo=None), UTC_ZONE)


def test_t46_runs_are_compared_as_instants_whatever_zone_they_are_written_in() -> None:
    midnight = datetime(2020, 3, 11, tzinfo=UTC)
    for hours in (-11, 0, 9):
        inside = midnight.astimezone(timezone(timedelta(hours=hours)))
        outside = inside - timedelta(microseconds=1)
        assert result_of(an_item(), a_run(schedule_time=inside)) is SUCCESS
        assert result_of(an_item(), a_run(schedule_time=outside)) is WAITING


@pytest.mark.parametrize("date_value", list(DATE_VALUES_CUT.keys()))
def test_the_ends_of_the_calendar_have_intervals_or_none(date_value: tuple[str, str]) -> None:
    for moment in (FIRST, LAST):
        for zone in (UTC_ZONE, APIA, NEW_YORK):
            intervals(an_item(date_value[1]), moment, zone)


def test_an_unknown_date_value_means_no_interval_and_fails() -> None:
    looked = verdict(waits_for(an_item("yesterday")), None)
    assert looked.result is FAILED
    assert looked.evidence[0]["why"] == "the date value means no interval at this moment"


# The result of a run (contract §10.4, DO)


def test_t43_an_upstream_that_has_not_started_is_awaited() -> None:
    assert result_of(an_item(), None) is WAITING
    assert result_of(an_item(), Absence.NO_RUN) is WAITING
    assert evaluate(waits_for(an_item()), NOON, UTC_ZONE, {}).result is WAITING


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ProcessState.SUBMITTED, WAITING),
        (ProcessState.RUNNING, WAITING),
        (ProcessState.READY_PAUSE, WAITING),
        (ProcessState.PAUSE, WAITING),
        (ProcessState.READY_STOP, WAITING),
        (ProcessState.STOP, FAILED),
        (ProcessState.FAILURE, FAILED),
        (ProcessState.SUCCESS, SUCCESS),
        (ProcessState.WAITING_THREAD, WAITING),
        (ProcessState.SERIAL_WAIT, WAITING),
    ],
)
def test_t43c_only_a_run_that_ended_badly_fails(
    state: ProcessState, expected: DependResult
) -> None:
    assert result_of(an_item(), a_run(state)) is expected


def test_every_state_of_a_run_amounts_to_something() -> None:
    for state in ProcessState:
        assert result_of(an_item(), a_run(state)) in DependResult
        assert result_of(an_item(task="load"), a_run(state)) in DependResult


@pytest.mark.parametrize("running", [ProcessState.RUNNING, ProcessState.READY_PAUSE])
@pytest.mark.parametrize(
    ("state", "live", "over"),
    [
        (TaskState.SUCCESS, SUCCESS, SUCCESS),
        (TaskState.FORCED_SUCCESS, SUCCESS, SUCCESS),
        (TaskState.FAILURE, WAITING, FAILED),
        (TaskState.KILL, WAITING, FAILED),
        (TaskState.NEED_FAULT_TOLERANCE, WAITING, FAILED),
        (TaskState.PAUSE, WAITING, FAILED),
        (TaskState.RUNNING, WAITING, WAITING),
        (TaskState.SUBMITTED, WAITING, WAITING),
        (TaskState.WAITING_DEPEND, WAITING, WAITING),
        (TaskState.DELAY_EXECUTION, WAITING, WAITING),
    ],
)
def test_t43c_one_task_fails_only_when_its_run_is_over(
    running: ProcessState, state: TaskState, live: DependResult, over: DependResult
) -> None:
    item = an_item(task="load")
    assert result_of(item, a_run(running, task=an_attempt(state))) is live
    assert result_of(item, a_run(ProcessState.FAILURE, task=an_attempt(state))) is over
    assert result_of(item, a_run(ProcessState.PAUSE, task=an_attempt(state))) is live


@pytest.mark.parametrize("state", [ProcessState.RUNNING, ProcessState.FAILURE])
def test_t43c_a_failed_task_with_retries_left_is_awaited(state: ProcessState) -> None:
    attempt = an_attempt(TaskState.FAILURE, retry_pending=True)
    assert result_of(an_item(task="load"), a_run(state, task=attempt)) is WAITING


@pytest.mark.parametrize(
    ("state", "has_node", "expected"),
    [
        (ProcessState.RUNNING, True, WAITING),
        (ProcessState.RUNNING, False, WAITING),
        (ProcessState.PAUSE, True, WAITING),
        (ProcessState.SUCCESS, True, SUCCESS),
        (ProcessState.SUCCESS, False, FAILED),
        (ProcessState.FAILURE, True, FAILED),
        (ProcessState.STOP, True, FAILED),
    ],
)
def test_a_task_that_a_good_run_left_out_is_no_obstacle(
    state: ProcessState, has_node: bool, expected: DependResult
) -> None:
    assert result_of(an_item(task="load"), a_run(state, has_node=has_node)) is expected


def test_t43d_a_rerun_of_yesterdays_upstream_does_not_count_for_today() -> None:
    rerun = a_run(schedule_time=NOON - timedelta(days=1), start_time=NOON)
    assert result_of(an_item("today"), rerun) is WAITING
    assert result_of(an_item("last1Days"), rerun) is SUCCESS


def test_t43d_a_run_that_is_for_no_date_counts_by_its_start() -> None:
    assert result_of(an_item("today"), a_run(start_time=NOON)) is SUCCESS
    assert result_of(an_item("last1Days"), a_run(start_time=NOON)) is WAITING


def test_t43b_an_end_time_is_never_compared() -> None:
    for end_time in (None, NOON - timedelta(days=900)):
        assert result_of(an_item(), a_run(end_time=end_time)) is SUCCESS


def test_a_definition_that_does_not_exist_fails_with_a_reason() -> None:
    looked = verdict(waits_for(an_item()), Absence.NO_DEFINITION)
    assert looked.result is FAILED
    assert looked.evidence[0]["why"] == "there is no such definition"


def test_the_first_run_ever_does_not_wait_for_its_own_definition() -> None:
    assert result_of(an_item("last1Days"), Absence.FIRST_RUN) is SUCCESS


def test_a_run_does_not_wait_for_itself() -> None:
    dependent = waits_for(an_item())
    (question,) = questions(dependent, NOON, UTC_ZONE, apart_from=5)
    assert question.apart_from == 5
    assert verdict(dependent, a_run(id=5), apart_from=5).result is WAITING
    assert verdict(dependent, a_run(id=4), apart_from=5).result is SUCCESS


def test_the_same_question_is_asked_once() -> None:
    dependent = waits_for(an_item(), an_item(), an_item("last2Days"), an_item(task="load"))
    asked = questions(dependent, NOON, UTC_ZONE)
    assert [(question.task, question.start.day) for question in asked] == [
        (None, 11),
        (None, 9),
        (None, 10),
        ("load", 11),
    ]
    assert {question.definition_id for question in asked} == {9}


# Several intervals


def test_each_interval_must_succeed_and_the_first_that_has_not_decides() -> None:
    item = an_item("last3Days")
    good, bad = a_run(), a_run(ProcessState.FAILURE)

    def answered(*runs: UpstreamRun | None) -> DependResult:
        by_day = dict(zip((8, 9, 10), runs, strict=True))

        def answer(question: Question) -> Answer:
            run = by_day[question.start.day]
            return run and a_run(run.state, start_time=question.start)

        return verdict(waits_for(item), answer).result

    assert answered(good, good, good) is SUCCESS
    assert answered(good, None, bad) is WAITING
    assert answered(good, bad, None) is FAILED


def test_t43e_a_month_needs_a_run_on_each_day_unless_any_is_enough() -> None:
    def weekly(question: Question) -> Answer:
        return a_run(start_time=question.start) if question.start.day == 2 else None

    assert verdict(waits_for(an_item("lastWeek")), weekly).result is WAITING
    assert verdict(waits_for(an_item("lastWeek", any_interval=True)), weekly).result is SUCCESS
    assert verdict(waits_for(an_item("lastWeek", any_interval=True)), None).result is WAITING


# Relations (contract §10.1)

GOOD, BAD = a_run(), a_run(ProcessState.FAILURE)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize(
    ("relation", "one", "other", "expected"),
    [
        (AND, GOOD, GOOD, SUCCESS),
        (AND, GOOD, None, WAITING),
        (AND, GOOD, BAD, FAILED),
        (AND, None, BAD, FAILED),
        (OR, GOOD, BAD, SUCCESS),
        (OR, GOOD, None, SUCCESS),
        (OR, None, BAD, WAITING),
        (OR, BAD, BAD, FAILED),
    ],
)
def test_a_relation_is_decided_as_soon_as_its_parts_decide_it(
    outer: bool, relation: Relation, one: Answer, other: Answer, expected: DependResult
) -> None:
    first, second = an_item(definition_id=1), an_item(definition_id=2)
    dependent = (
        Dependent(
            relation=relation,
            groups=tuple(DependGroup(relation=AND, items=(item,)) for item in (first, second)),
        )
        if outer
        else waits_for(first, second, relation=relation)
    )
    answers = by_definition(d1=one, d2=other)
    assert verdict(dependent, answers).result is expected


def test_groups_of_or_are_joined_by_and() -> None:
    dependent = Dependent(
        relation=AND,
        groups=tuple(
            DependGroup(
                relation=OR, items=(an_item(definition_id=one), an_item(definition_id=one + 1))
            )
            for one in (1, 3)
        ),
    )
    assert verdict(dependent, by_definition(d1=BAD, d2=GOOD, d3=GOOD, d4=None)).result is SUCCESS
    assert verdict(dependent, by_definition(d1=BAD, d2=GOOD, d3=BAD, d4=None)).result is WAITING


def test_of_nothing_and_is_a_success_and_or_a_failure() -> None:
    for relation, expected in ((AND, SUCCESS), (OR, FAILED)):
        empty = Dependent(relation=relation, groups=())
        assert evaluate(empty, NOON, UTC_ZONE, {}).result is expected


def test_t89_a_failure_is_forgotten_when_the_upstream_is_run_again() -> None:
    dependent = waits_for(an_item(definition_id=1), an_item(definition_id=2), relation=OR)
    assert verdict(dependent, by_definition(d1=BAD, d2=None)).result is WAITING
    again = a_run(ProcessState.RUNNING, id=6)
    assert verdict(dependent, by_definition(d1=again, d2=BAD)).result is WAITING
    assert verdict(dependent, by_definition(d1=a_run(id=6), d2=BAD)).result is SUCCESS


# Evidence


def test_the_rows_that_count_are_kept_for_the_user() -> None:
    dependent = waits_for(
        an_item(task="load"), an_item("last1Hour", definition_id=None, definition_name="hourly")
    )
    run = a_run(schedule_time=NOON, task=an_attempt(TaskState.SUCCESS))

    def answer(question: Question) -> Answer:
        return run if question.task else None

    looked = verdict(dependent, answer, zone=BERLIN)
    assert json.loads(json.dumps(looked.evidence)) == [
        {
            "group": 1,
            "key": "9-load-day-today",
            "from": "2020-03-11T00:00:00+01:00",
            "to": "2020-03-12T00:00:00+01:00",
            "run": {
                "id": 5,
                "state": "SUCCESS",
                "scheduleTime": "2020-03-11T13:34:56.000789+01:00",
                "startTime": "2020-03-11T13:34:56.000789+01:00",
                "endTime": None,
            },
            "task": {
                "id": 77,
                "state": "SUCCESS",
                "endTime": "2020-03-11T13:34:56.000789+01:00",
            },
            "result": "SUCCESS",
            "why": "the task's attempt 77 in run 5 is SUCCESS",
        },
        {
            "group": 1,
            "key": "hourly-ALL-hour-last1Hour",
            "from": "2020-03-11T12:00:00+01:00",
            "to": "2020-03-11T13:00:00+01:00",
            "run": None,
            "task": None,
            "result": "WAITING",
            "why": "no run in the interval yet",
        },
    ]


def test_a_decided_item_is_logged_in_the_line_that_front_ends_read() -> None:
    looked = verdict(waits_for(an_item(), an_item("last1Days")), GOOD)
    assert [item.line for item in looked.items if item.result is not WAITING] == [
        "dependent item complete :||9-ALL-day-today,SUCCESS"
    ]
