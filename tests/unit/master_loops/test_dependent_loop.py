"""The loop that decides waiting DEPENDENT tasks: news, rests, decisions and mistakes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event, Thread

import pytest

from common.clock import SystemClock
from common.errors import ServiceUnreachableError
from common.model.failures import FailureReason
from common.model.instances import Ownership
from common.model.states import ProcessState, TaskState
from common.runtime.service import LoopThread
from common.runtime.wakes import Wakes
from master.loops.dependent_loop import DependentConfig, DependentLoop
from tests.builders import NOON
from tests.unit.master_loops.dependents import (
    UPSTREAM,
    Dependents,
    Waiter,
    a_dependent,
    a_wait_for_dataset,
)
from tests.unit.master_loops.place import MILLISECOND, SECOND, UTC_ZONE, Place


@pytest.mark.parametrize(
    ("upstream", "state"),
    [
        (ProcessState.SUCCESS, TaskState.SUCCESS),
        (ProcessState.FAILURE, TaskState.FAILURE),
        (ProcessState.STOP, TaskState.FAILURE),
    ],
)
def test_a_task_is_decided_by_the_run_that_it_waits_for(
    waiter: Waiter, upstream: ProcessState, state: TaskState
) -> None:
    waiter.store.add(a_dependent())
    waiter.store.upstream[1] = upstream
    waiter.loop.run_once()
    decided, reason = waiter.store.decided[1]
    assert decided is state
    assert (reason is None) == (state is TaskState.SUCCESS)
    is_failed = state is TaskState.FAILURE
    assert waiter.store.failures[1] == (FailureReason.UPSTREAM_FAILED if is_failed else None)


def test_a_task_waits_as_long_as_what_it_waits_for_goes_on(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.store.upstream[1] = ProcessState.RUNNING
    assert waiter.loop.run_once() == 5 * SECOND
    assert waiter.store.decided == {}
    assert json.loads(waiter.store.rows[1].evidence or "")[0]["run"]["id"] == UPSTREAM


def test_t45_a_task_waits_for_the_day_of_its_run_s_own_zone(waiter: Waiter) -> None:
    # Half past eleven in the evening of the day of 25 hours.
    evening = datetime(2019, 11, 4, 4, 30, tzinfo=UTC)
    waiter.store.add(a_dependent(moment=evening, timezone_id="America/New_York"))
    waiter.loop.run_once()
    (looked,) = json.loads(waiter.store.rows[1].evidence or "")
    day = datetime(2019, 11, 3, 4, tzinfo=UTC)
    assert [datetime.fromisoformat(looked[end]) for end in ("from", "to")] == [
        day,
        day + timedelta(hours=25),
    ]


def test_a_task_of_a_run_in_a_zone_that_there_is_not_fails_and_the_others_are_decided(
    waiter: Waiter,
) -> None:
    waiter.store.add(a_dependent(1, timezone_id="Mars/Base"), a_dependent(2))
    waiter.store.upstream[2] = ProcessState.SUCCESS
    waiter.loop.run_once()
    decided, reason = waiter.store.decided[1]
    assert decided is TaskState.FAILURE
    assert "the run's time zone: 'Mars/Base' is no zone" in str(reason)
    assert waiter.store.failures[1] is FailureReason.CONFIGURATION
    assert waiter.store.decided[2] == (TaskState.SUCCESS, None)


def test_evidence_is_written_once_and_not_with_every_check(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    for _ in range(4):
        waiter.later(5 * SECOND)
    assert (waiter.store.looks, waiter.store.writes) == (4, 1)


def test_an_end_anywhere_has_waiting_tasks_checked_at_once(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.later(SECOND)
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.pass_by(SECOND)
    waiter.loop.on_end()
    assert waiter.wakes == 1
    waiter.loop.run_once()
    assert waiter.store.decided[1] == (TaskState.SUCCESS, None)


def test_a_publication_has_those_asked_about_alone_that_wait_for_the_dataset(
    waiter: Waiter,
) -> None:
    waiter.store.add(a_wait_for_dataset(1, "flights"), a_wait_for_dataset(2, "trains"))
    waiter.later(SECOND)
    waiter.store.published = {"flights": NOON, "trains": NOON}
    waiter.store.asked_about.clear()
    waiter.place.pass_by(SECOND)
    for dataset in ("flights", "ships", "flights"):
        waiter.loop.on_dataset(dataset)
    assert waiter.wakes == 1
    waiter.loop.run_once()
    assert waiter.store.asked_about == ["flights"]
    assert waiter.store.decided == {1: (TaskState.SUCCESS, None)}
    assert (waiter.store.looks, waiter.store.pages) == (1, 1)


def test_a_publication_without_a_notification_is_found_at_the_interval(waiter: Waiter) -> None:
    waiter.store.add(a_wait_for_dataset(1, "flights"))
    waiter.loop.run_once()
    waiter.store.published = {"flights": NOON}
    waiter.later(5 * SECOND)
    assert 1 in waiter.store.decided


def test_a_publication_concerns_nobody_where_nothing_waits(waiter: Waiter) -> None:
    waiter.loop.run_once()
    waiter.loop.on_dataset("flights")
    assert waiter.wakes == 0


def test_an_end_without_a_notification_is_found_at_the_interval(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    waiter.store.upstream[1] = ProcessState.SUCCESS
    assert waiter.later(3 * SECOND) == 2 * SECOND
    assert waiter.store.decided == {}
    waiter.later(2 * SECOND)
    assert 1 in waiter.store.decided


def test_the_end_of_a_run_has_those_asked_about_alone_that_wait_for_it(waiter: Waiter) -> None:
    waiter.store.add(*(a_dependent(number) for number in (1, 2, 3)))
    waiter.store.definitions = {UPSTREAM: 2, UPSTREAM + 1: 7}
    waiter.loop.run_once()
    waiter.store.upstream = dict.fromkeys((1, 2, 3), ProcessState.SUCCESS)
    waiter.store.asked.clear()
    for run in (UPSTREAM, UPSTREAM + 1, UPSTREAM + 2):
        waiter.loop.on_end(run)
    assert waiter.wakes == 1
    waiter.later(SECOND)
    assert (waiter.store.asked, list(waiter.store.decided)) == ([[2]], [2])
    assert (waiter.store.looks, waiter.store.pages) == (1, 1)
    assert waiter.later(SECOND) == 3 * SECOND
    waiter.later(3 * SECOND)
    assert sorted(waiter.store.decided) == [1, 2, 3]


def test_the_end_of_a_task_is_no_news_for_those_who_wait_for_the_whole_run(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.store.definitions = {UPSTREAM: 1}
    waiter.loop.run_once()
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.loop.on_end(UPSTREAM, "a")
    waiter.later(SECOND)
    assert waiter.store.decided == {}
    waiter.loop.on_end(UPSTREAM)
    waiter.later(SECOND)
    assert 1 in waiter.store.decided


def test_a_row_is_read_once_however_often_its_question_is_asked(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    for _ in range(4):
        waiter.later(5 * SECOND)
    assert (waiter.store.pages, waiter.store.asked) == (1, [[1]] * 4)


def test_a_run_of_another_epoch_is_read_anew(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    again = Ownership(process_instance_id=1, host="m1:5678", epoch=2)
    waiter.store.add(a_dependent(ownership=again))
    waiter.later(5 * SECOND)
    assert waiter.store.pages == 2
    assert waiter.store.rows[1].evidence is not None


def test_what_is_over_is_asked_about_no_more(waiter: Waiter) -> None:
    waiter.store.add(a_dependent(1), a_dependent(2))
    waiter.loop.run_once()
    del waiter.store.rows[1]
    waiter.later(5 * SECOND)
    assert waiter.store.asked == [[1, 2], [2]]


def test_a_master_that_joins_again_decides_nothing_of_what_it_owned_before(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.store.definitions = {UPSTREAM: 1}
    waiter.loop.run_once()
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.identity.become(replace(waiter.place.node, incarnation=99))
    waiter.store.rows.clear()
    writes = waiter.store.writes
    waiter.loop.on_end(UPSTREAM)
    waiter.later(SECOND)
    assert (waiter.store.writes, waiter.store.decided) == (writes, {})


def test_a_burst_of_ends_shares_one_check(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    for _ in range(100):
        waiter.loop.on_end()
    assert waiter.wakes == 1
    assert waiter.later(20 * MILLISECOND) == 30 * MILLISECOND
    assert waiter.later(30 * MILLISECOND) == 5 * SECOND
    assert waiter.store.looks == 2


def test_ends_elsewhere_are_no_news_while_nothing_waits(waiter: Waiter) -> None:
    waiter.loop.run_once()
    for _ in range(3):
        waiter.loop.on_end()
    assert waiter.wakes == 0
    assert waiter.later(SECOND) == 4 * SECOND


def test_a_task_that_begins_to_wait_is_checked_though_nothing_waited(waiter: Waiter) -> None:
    waiter.loop.run_once()
    waiter.store.add(a_dependent())
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.pass_by(SECOND)
    waiter.loop.on_new_wait()
    assert waiter.wakes == 1
    waiter.loop.run_once()
    assert 1 in waiter.store.decided


def test_a_task_that_was_taken_over_is_found_and_ends_are_news_again(waiter: Waiter) -> None:
    waiter.loop.run_once()
    waiter.store.add(a_dependent())
    waiter.later(5 * SECOND)
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.pass_by(SECOND)
    waiter.loop.on_end()
    waiter.loop.run_once()
    assert 1 in waiter.store.decided


@pytest.mark.parametrize("method", ["on_end", "on_new_wait"])
def test_a_notification_while_rows_are_read_causes_another_check(
    waiter: Waiter, method: str
) -> None:
    def notify() -> None:
        waiter.store.read = lambda: None
        waiter.store.add(a_dependent())
        waiter.store.upstream[1] = ProcessState.SUCCESS
        getattr(waiter.loop, method)()

    # The rows were read before this change, and lack it.
    waiter.store.read = notify
    assert waiter.loop.run_once() == 50 * MILLISECOND
    assert waiter.store.decided == {}
    assert waiter.wakes == 1
    waiter.later(50 * MILLISECOND)
    assert 1 in waiter.store.decided


def test_a_check_that_takes_long_leaves_as_much_time_to_others(waiter: Waiter) -> None:
    def take_long() -> None:
        waiter.place.pass_by(SECOND)
        waiter.loop.on_end()

    waiter.store.add(a_dependent())
    waiter.store.read = take_long
    assert [waiter.loop.run_once(), waiter.loop.run_once()] == [SECOND, SECOND]
    assert waiter.store.looks == 1


@pytest.mark.parametrize("question", ["undecided", "waiting", "look_up", "decide"])
def test_a_check_without_an_answer_is_repeated_without_a_notification(
    waiter: Waiter, question: str
) -> None:
    waiter.store.add(a_dependent())
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.store.broken = (question,)
    with pytest.raises(ServiceUnreachableError):
        waiter.loop.run_once()
    waiter.store.broken = ()
    waiter.later(50 * MILLISECOND)
    assert 1 in waiter.store.decided


def test_t98_a_master_that_stops_or_is_lost_leaves_what_waits_as_it_is(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    waiting, writes = dict(waiter.store.rows), waiter.store.writes
    waiter.place.identity.become(None)
    waiter.later(timedelta(minutes=1))
    assert (waiter.store.rows, waiter.store.writes) == (waiting, writes)
    assert waiter.store.decided == {}


def test_a_master_that_is_not_trusted_decides_nothing_and_forgets_no_news(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.identity.become(None)
    waiter.loop.on_end()
    assert waiter.later(SECOND) == 5 * SECOND
    assert waiter.store.looks == 1
    waiter.place.identity.become(waiter.place.node)
    waiter.loop.run_once()
    assert 1 in waiter.store.decided


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "can't be read"),
        ("[]", "no object"),
        ("[" * 100_000, "can't be read"),
        ("{}", "dependence"),
        ('{"dependence": {"relation": "XOR", "dependTaskList": []}}', "relation"),
    ],
)
def test_a_task_that_can_t_be_read_fails_with_the_place_and_the_others_go_on(
    waiter: Waiter, text: str, cause: str
) -> None:
    waiter.store.add(a_dependent(1, task_json=text), a_dependent(2))
    waiter.store.upstream[2] = ProcessState.SUCCESS
    waiter.loop.run_once()
    state, reason = waiter.store.decided[1]
    assert state is TaskState.FAILURE
    assert cause in str(reason)
    assert waiter.store.decided[2] == (TaskState.SUCCESS, None)


def test_a_mistake_of_ours_about_one_task_holds_up_no_other_and_ends(waiter: Waiter) -> None:
    waiter.store.add(*(a_dependent(number) for number in (1, 2, 3)))
    waiter.store.upstream = dict.fromkeys((1, 2, 3), ProcessState.SUCCESS)
    waiter.store.poisoned = (2,)
    waiter.loop.run_once()
    assert list(waiter.store.decided) == [1, 3]
    waiter.later(5 * SECOND)
    assert 2 not in waiter.store.decided
    waiter.later(5 * SECOND)
    state, reason = waiter.store.decided[2]
    assert (state, reason) == (
        TaskState.FAILURE,
        "it could not be decided: ValueError: a mistake of ours",
    )


def test_a_mistake_that_has_passed_is_forgotten(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    for poisoned in ((1,), (1,), (), (1,), (1,)):
        waiter.store.poisoned = poisoned
        waiter.later(5 * SECOND)
    assert waiter.store.decided == {}


def test_a_decision_that_can_t_be_written_ends_no_loop(waiter: Waiter) -> None:
    waiter.store.add(a_dependent(1), a_dependent(2), a_dependent(3, task_json="{"))
    waiter.store.upstream = dict.fromkeys((1, 2), ProcessState.SUCCESS)
    waiter.store.unwritable = (1, 3)
    for _ in range(4):
        assert waiter.later(5 * SECOND) > timedelta()
    assert list(waiter.store.decided) == [2]
    waiter.store.unwritable = ()
    waiter.later(5 * SECOND)
    assert sorted(waiter.store.decided) == [1, 2, 3]


def test_no_wake_up_is_lost_between_threads(place: Place) -> None:
    """Without a single slow pass: a lost wake would cost an hour."""
    store = Dependents()
    numbers = range(1, 301)
    store.expected = len(numbers)
    wakes = Wakes()
    loop = DependentLoop(
        store,
        identity=place.identity,
        clock=SystemClock(),
        zone=UTC_ZONE,
        wake=partial(wakes.wake, DependentLoop.name),
        config=DependentConfig(interval=timedelta(hours=1), breath=MILLISECOND),
    )
    died: list[BaseException] = []
    thread = LoopThread(loop, clock=SystemClock(), on_death=lambda _, error: died.append(error))
    wakes.by_name[loop.name] = thread.wake
    begun = {number: Event() for number in numbers}

    def begin() -> None:
        for number in numbers:
            store.add(a_dependent(number))
            loop.on_new_wait()
            begun[number].set()

    def end(part: int) -> None:
        for number in numbers[part::2]:
            begun[number].wait(120)
            store.upstream[number] = ProcessState.SUCCESS
            loop.on_end()

    others = [Thread(target=begin), Thread(target=end, args=(0,)), Thread(target=end, args=(1,))]
    thread.start()
    try:
        for other in others:
            other.start()
        for other in others:
            other.join(120)
        assert store.all_decided.wait(120), (died, len(store.decided))
    finally:
        thread.ask_to_stop()
        assert thread.join(timedelta(seconds=120))
    assert died == []


def test_more_tasks_than_a_page_holds_are_all_decided_in_one_check(waiter: Waiter) -> None:
    waiter.store.add(*(a_dependent(number) for number in range(1, 6)))
    for number in range(1, 6):
        waiter.store.upstream[number] = ProcessState.SUCCESS
    waiter.made(page=2).run_once()
    assert sorted(waiter.store.decided) == [1, 2, 3, 4, 5]
    assert waiter.store.pages == 3
