"""The changes of a run against the last good one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from api.console.since import factor_text, since
from common.model.spark import Progress
from common.run_changes import (
    RunFacts,
    TaskFacts,
    TaskNote,
    Usual,
    changes,
    slow_tasks,
)


def a_task(seconds: float | None = 10.0, **values: Any) -> TaskFacts:
    span = None if seconds is None else timedelta(seconds=seconds)
    given = {"attempt": 1, "host": "w1", "has_ended": True, "is_good": True} | values
    return TaskFacts(span=span, **given)


def a_run(tasks: Mapping[str, TaskFacts] | None = None, **values: Any) -> RunFacts:
    given: dict[str, Any] = {
        "version": 7,
        "definition": {},
        "surroundings": {},
        "parameters": {},
        "tasks": tasks or {},
    }
    return RunFacts(**(given | values))


def notes(before: TaskFacts, now: TaskFacts) -> tuple[TaskNote, ...]:
    return changes(a_run({"a": before}), a_run({"a": now})).tasks


def test_runs_that_are_alike_have_no_changes() -> None:
    run = a_run({"a": a_task()}, parameters={"day": "1"}, surroundings={"tenant": "etl"})
    found = changes(run, run)
    assert found.is_none
    assert since(6, found).is_none


def test_parameters_and_surroundings_that_differ_are_told_with_both_values() -> None:
    before = a_run(parameters={"day": "1", "gone": "x"}, surroundings={"environment": None})
    now = a_run(parameters={"day": "2", "new": ""}, surroundings={"environment": "spark4"})
    found = changes(before, now)
    told = [(each.key, each.before, each.after) for each in found.parameters]
    assert told == [("day", "1", "2"), ("gone", "x", None), ("new", None, "")]
    assert [(each.key, each.after) for each in found.surroundings] == [("environment", "spark4")]
    assert not found.is_none


def test_versions_are_told_if_both_are_known_and_differ() -> None:
    assert changes(a_run(version=6), a_run()).versions == (6, 7)
    assert changes(a_run(version=None), a_run()).versions is None
    assert changes(a_run(), a_run()).versions is None


def test_a_definition_is_compared_by_the_runs_own_copies_whatever_their_versions_say() -> None:
    def document(script: str) -> dict[str, Any]:
        task = {"name": "a", "type": "SHELL", "params": {"rawScript": script}}
        return {"processDefinitionJson": {"tasks": [task]}}

    found = changes(a_run(definition=document("true")), a_run(definition=document("false")))
    assert found.versions is None
    assert [each.name for each in found.definition.changed] == ["a"]
    assert not found.is_none


def test_a_duration_stands_out_from_twice_as_long_and_two_seconds_on() -> None:
    cases = {
        (10.0, 20.0): 2.0,
        (10.0, 19.9): None,
        (0.5, 2.4): None,
        (0.5, 2.5): 5.0,
        (0.0, 2.0): 2000.0,
        (10.0, 5.0): 0.5,
        (10.0, 5.1): None,
        (3.0, 1.5): None,
    }
    for (before, now), factor in cases.items():
        found = [each.factor for each in notes(a_task(before), a_task(now))]
        assert found == ([] if factor is None else [factor]), (before, now)


def test_a_task_that_runs_or_has_failed_is_too_long_but_never_too_short() -> None:
    for state in ({"has_ended": False, "is_good": False}, {"is_good": False}):
        assert [each.factor for each in notes(a_task(), a_task(24.0, **state))] == [2.4]
        assert notes(a_task(), a_task(1.0, **state)) == ()
    assert notes(a_task(), a_task(None, has_ended=False, is_good=False)) == ()
    # One that failed and was tolerated says nothing about how long it takes.
    assert notes(a_task(1.0, is_good=False), a_task(24.0)) == ()


def test_a_task_that_took_no_longer_than_usual_is_not_slow_after_a_run_that_was_fast() -> None:
    before = a_run({"a": a_task(10.0), "b": a_task(10.0), "c": a_task(30.0)})
    now = a_run({"a": a_task(24.0), "b": a_task(11.0), "c": a_task(10.0)})
    # One that was faster than before needs no look at what is usual.
    assert slow_tasks(before, now) == ("a",)

    def factors(seconds: float, runs: int) -> dict[str, float | None]:
        usual = {"a": Usual(p90=timedelta(seconds=seconds), runs=runs)}
        return {each.name: each.factor for each in changes(before, now, usual).tasks}

    assert factors(24.0, 20) == {"c": 1 / 3}
    assert factors(23.9, 20) == {"a": 2.4, "c": 1 / 3}
    # Of so few runs the 90th percentile is the slowest one.
    assert factors(24.0, 4) == {"a": 2.4, "c": 1 / 3}
    (_, note) = changes(before, now, {"a": Usual(p90=timedelta(seconds=12), runs=9)}).tasks
    assert note.usual == Usual(p90=timedelta(seconds=12), runs=9)


def test_data_stands_out_if_it_is_twice_as_much_or_half_or_gone() -> None:
    cases: dict[tuple[int, int], bool] = {
        (1000, 2000): True,
        (1000, 1999): False,
        (0, 100): True,
        (0, 99): False,
        (90, 180): False,
        (1000, 500): True,
        (1000, 501): False,
        (150, 60): False,
        (7, 0): True,
        (0, 0): False,
    }
    for (old, new), stands_out in cases.items():
        found = notes(
            a_task(progress=Progress(rows_in=old)), a_task(progress=Progress(rows_in=new))
        )
        told = [(each.key, each.before, each.now) for note in found for each in note.volumes]
        assert told == ([("rows_in", old, new)] if stands_out else []), (old, new)
    mib = 1 << 20
    (note,) = notes(
        a_task(progress=Progress(bytes_in=mib, bytes_out=10 * mib)),
        a_task(progress=Progress(bytes_in=2 * mib, bytes_out=10 * mib, spill_bytes=5 * mib)),
    )
    assert [each.key for each in note.volumes] == ["bytes_in", "spill_bytes"]


def test_an_attempt_that_runs_or_has_failed_may_have_moved_more_but_never_less() -> None:
    before = a_task(progress=Progress(rows_out=1000))
    for state in ({"has_ended": False, "is_good": False}, {"is_good": False}):
        assert notes(before, a_task(progress=Progress(), **state)) == ()
        (note,) = notes(before, a_task(progress=Progress(rows_out=5000), **state))
        assert [each.now for each in note.volumes] == [5000]
    failed = a_task(progress=Progress(rows_out=10), is_good=False)
    assert notes(failed, a_task(progress=Progress(rows_out=1000))) == ()
    # What is no Spark application has no such figures, and is not said to have moved nothing.
    assert notes(before, a_task()) == ()
    assert notes(a_task(), before) == ()


def test_another_worker_is_told_of_a_task_about_which_there_is_news() -> None:
    assert notes(a_task(), a_task(host="w2")) == ()
    (failed,) = notes(a_task(), a_task(host="w2", is_good=False))
    assert (failed.hosts, failed.factor) == (("w1", "w2"), None)
    (slow,) = notes(a_task(), a_task(30.0, host="w2"))
    assert slow.hosts == ("w1", "w2")
    assert notes(a_task(), a_task(is_good=False)) == ()
    assert notes(a_task(host=None), a_task(host="w2", is_good=False)) == ()


def test_more_attempts_than_before_are_told_and_fewer_are_not() -> None:
    assert [each.attempts for each in notes(a_task(), a_task(attempt=3))] == [(1, 3)]
    assert notes(a_task(attempt=3), a_task()) == ()


def test_the_longest_comes_first_and_tasks_of_one_run_alone_are_left_to_the_definition() -> None:
    before = a_run({name: a_task() for name in "abc"} | {"gone": a_task()})
    now = a_run(
        {"a": a_task(attempt=2), "b": a_task(40.0), "c": a_task(400.0), "new": a_task(4000.0)}
    )
    assert [each.name for each in changes(before, now).tasks] == ["c", "b", "a"]


def test_a_page_shows_twenty_tasks_and_counts_the_others() -> None:
    names = [f"t{each}" for each in range(25)]
    found = changes(
        a_run({name: a_task() for name in names}), a_run({name: a_task(30.0) for name in names})
    )
    told = since(6, found)
    assert (len(told.tasks), told.left_out) == (20, 5)
    assert {each.factor for each in told.tasks} == {"3.0 ×"}


def test_factors_are_round_where_they_are_large() -> None:
    assert [factor_text(each) for each in (24.4, 2.44, 0.254)] == ["24 ×", "2.4 ×", "0.25 ×"]
