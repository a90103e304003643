"""The history of a run, as its page tells it: in order, with orders, and not without end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from api.console.history import Event, Ordered, Ran, Tried, history_of
from common.model.states import ProcessState, TaskState

START = datetime(2013, 1, 2, 8, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def a_run(state: ProcessState, end: float | None = None) -> Ran:
    return Ran(
        state=state,
        start_time=START,
        end_time=None if end is None else at(end),
        host="master:5678",
        note="task 'load' failed" if state is ProcessState.FAILURE else None,
    )


def tried(number: int, state: TaskState, begin: float | None, end: float | None) -> Tried:
    return Tried(
        id=number,
        name="load",
        number=number,
        state=state,
        start_time=None if begin is None else at(begin),
        end_time=None if end is None else at(end),
        host="worker:1234",
        note=None,
    )


def told(event: Event) -> tuple[str, ...]:
    what = event.look.word if event.look else event.verb or event.word or ""
    return (what, *(() if event.task is None else (f"{event.task} {event.attempt}",)))


def test_attempts_orders_and_the_end_stand_in_the_order_in_which_they_happened() -> None:
    orders = [
        Ordered(at=at(9), verb="rerun-failed", by="ada", attempt=None, note="command 7"),
        Ordered(at=at(8), verb="force-success", by="bob", attempt=1, note=None),
    ]
    attempts = [tried(2, TaskState.RUNNING, 10, None), tried(1, TaskState.FAILURE, 1, 5)]
    found = history_of(a_run(ProcessState.RUNNING), attempts, orders)
    assert [told(each) for each in found.events] == [
        ("started", "load 2"),
        ("rerun-failed",),
        ("force-success", "load 1"),
        ("failed", "load 1"),
        ("started", "load 1"),
        ("started",),
    ]
    assert [each.by for each in found.events[:3]] == ["worker:1234", "ada", "bob"]
    assert found.left_out == 0


def test_of_one_moment_the_end_of_the_run_comes_behind_its_last_attempt() -> None:
    found = history_of(
        a_run(ProcessState.FAILURE, 5), [tried(1, TaskState.FAILURE, 5, 5)], []
    ).events
    assert [told(each) for each in found] == [
        ("failed",),
        ("failed", "load 1"),
        ("started", "load 1"),
        ("started",),
    ]
    assert found[0].note == "task 'load' failed"


def test_what_has_not_begun_has_not_happened() -> None:
    waiting = [tried(1, TaskState.SUBMITTED, None, None)]
    assert [told(each) for each in history_of(a_run(ProcessState.RUNNING), waiting, []).events] == [
        ("started",)
    ]


def test_the_newest_of_many_events_are_told_and_the_others_counted() -> None:
    attempts = [tried(each, TaskState.SUCCESS, each, each + 0.5) for each in range(1, 151)]
    found = history_of(a_run(ProcessState.RUNNING), attempts, [])
    assert (len(found.events), found.left_out) == (200, 101)
    assert told(found.events[0]) == ("success", "load 150")
