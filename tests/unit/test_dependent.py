"""DEPENDENT: the result of the upstream runs, of intervals and of relations, with the evidence."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from common.model.control import Dependent, DependGroup, Relation
from common.model.states import ProcessState, TaskState
from common.model.upstream import Question, UpstreamRun
from master.logic.dependent import Absence, Answer, DependResult, evaluate, questions
from tests.unit.dependences import (
    AND,
    BERLIN,
    FAILED,
    NOON,
    OR,
    SUCCESS,
    UTC_ZONE,
    WAITING,
    a_run,
    an_attempt,
    an_item,
    by_definition,
    result_of,
    verdict,
    waits_for,
)

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
    assert looked.evidence[0]["why"] == Absence.NO_DEFINITION.value


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
            "businessDate": "2020-03-10",
            "from": "2020-03-11T00:00:00+01:00",
            "to": "2020-03-12T00:00:00+01:00",
            "run": {
                "id": 5,
                "state": "SUCCESS",
                "scheduleTime": "2020-03-11T13:34:56.000789+01:00",
                "businessDate": "2020-03-10",
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
            "businessDate": "2020-03-10",
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
