"""Alerts about a supervisor: its lag, its health, its failing tasks, each told once and taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from common.model.streams.spec import AlertRule
from master.supervisors.alarms import Alarm, Alarms, watched
from master.supervisors.health import ErrorEvent, Health, State
from tests.unit.stream_world import NOON

RULE = AlertRule(lag=100, lag_for=timedelta(minutes=5))
HEALTHY = Health(state=State.RUNNING)
LOST = replace(HEALTHY, state=State.LOST_CONTACT_WITH_STREAM).with_error(
    ErrorEvent(at=NOON, text="no broker answers", of_stream=True)
)


def told(
    alarms: Alarms,
    lag: int | None = 0,
    *,
    after: float = 0,
    health: Health = HEALTHY,
    rule: AlertRule = RULE,
) -> Alarms:
    return watched(alarms, rule, health, lag, now=NOON + timedelta(minutes=after))


def test_a_lag_that_lasts_is_told_once_and_when_it_is_over() -> None:
    alarms = told(Alarms(), 101)
    for minute in (1, 4.9):
        alarms = told(alarms, 500, after=minute)
        assert (alarms.texts, alarms.raised) == ((), frozenset())
    alarms = told(alarms, 700, after=5)
    assert alarms.raised == {Alarm.LAG}
    assert alarms.texts[0].startswith(
        "it is behind by more than 100 records: 700, since 2013-01-01T12:00:00+00:00"
    )
    alarms = told(alarms, 101, after=60)
    assert (alarms.texts, alarms.raised) == ((), {Alarm.LAG})
    alarms = told(alarms, 100, after=61)
    assert alarms == Alarms()
    assert alarms.texts == ("its lag is within its limit again: 100 records",)
    assert told(alarms, 100, after=62).texts == ()


def test_a_lag_that_does_not_last_is_not_told() -> None:
    alarms = told(Alarms(), 500)
    alarms = told(alarms, 100, after=4)
    alarms = told(alarms, 500, after=6)
    assert told(alarms, 500, after=10).texts == ()
    assert len(told(alarms, 500, after=11).texts) == 1


def test_a_lag_that_nobody_knows_raises_nothing_and_ends_nothing() -> None:
    alarms = told(Alarms(), 500)
    unknown = told(alarms, None, after=30)
    assert (unknown.texts, unknown.behind_since) == ((), NOON)
    raised = told(unknown, 500, after=31)
    assert raised.raised == {Alarm.LAG}
    assert told(raised, None, after=90) == raised


def test_a_limit_that_is_taken_out_ends_its_alarm() -> None:
    raised = told(told(Alarms(), 500), 500, after=5)
    over = told(raised, None, after=6, rule=AlertRule())
    assert (over, over.texts) == (
        Alarms(),
        ("its lag is within its limit again: its limit is gone",),
    )


def test_an_unhealthy_supervisor_is_told_with_its_last_error() -> None:
    alarms = told(Alarms(), None, health=LOST)
    assert alarms.texts == ("it is unhealthy, LOST_CONTACT_WITH_STREAM: no broker answers",)
    assert told(alarms, None, after=1, health=LOST).texts == ()
    # Its tasks have an alarm of their own, and do not make it healthy.
    tasks = replace(HEALTHY, state=State.UNHEALTHY_TASKS)
    assert told(alarms, after=1, health=tasks).texts == ()
    assert told(Alarms(), health=tasks).texts == ()
    over = told(alarms, after=2)
    assert over.texts == ("it is healthy again: RUNNING",)
    unwatched = AlertRule(unhealthy=False)
    assert told(Alarms(), health=LOST, rule=unwatched).texts == ()


def test_tasks_that_fail_in_a_row_are_told_until_one_succeeds() -> None:
    health, alarms = HEALTHY, Alarms()
    texts = []
    for good in (False, False, True, False, False, False, False, True):
        health = health.after_task(good=good)
        alarms = told(alarms, health=health)
        texts += alarms.texts
    assert texts == [
        "3 of its tasks in a row have failed; each one's instance tells its reason",
        "a task of it has succeeded again",
    ]
    never = AlertRule(task_failures=0)
    assert told(Alarms(), health=replace(HEALTHY, failed_tasks=99), rule=never).texts == ()


def test_several_alarms_are_told_side_by_side() -> None:
    bad = replace(LOST, failed_tasks=3)
    alarms = told(told(Alarms(), 500), 500, after=5, health=bad)
    assert (alarms.raised, len(alarms.texts)) == (frozenset(Alarm), 3)
    assert len(told(alarms, 0, after=6).texts) == 3
