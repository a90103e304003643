"""A supervisor's verdict on the worker of a topology, from rows and times alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from common.model.states import TaskState
from common.model.topologies import ComponentReport, Wanted
from common.model.topology_verdicts import Judgement, Verdict, WorkerFacts, judge, shape_of
from tests.builders import NOON
from tests.topology_files import GRAPH, REPORT

WANTED = Wanted(number=1)
FACTS = WorkerFacts(
    attempt=7,
    state=TaskState.RUNNING,
    started_at=NOON,
    lost=False,
    holder=7,
    reported_at=NOON + timedelta(seconds=60),
    report=REPORT,
)


def verdict(facts: WorkerFacts, *, seconds: float, wanted: Wanted = WANTED) -> Judgement:
    found = judge(facts, wanted, GRAPH, now=NOON + timedelta(seconds=seconds))
    assert found is not None
    return found


def test_a_worker_whose_report_is_fresh_is_valid_and_after_thirty_seconds_timed_out() -> None:
    assert verdict(FACTS, seconds=61) == Judgement(verdict=Verdict.VALID)
    assert verdict(FACTS, seconds=90).verdict is Verdict.VALID
    late = verdict(FACTS, seconds=91)
    assert (late.verdict, late.reason) == (Verdict.TIMED_OUT, "its last report is 31 s old")


@pytest.mark.parametrize(
    "silent",
    [
        replace(FACTS, holder=None, reported_at=None, report=None),
        replace(FACTS, holder=6),  # The report is the former attempt's.
        replace(FACTS, reported_at=NOON - timedelta(seconds=1)),
    ],
)
def test_a_worker_has_two_minutes_for_its_first_report(silent: WorkerFacts) -> None:
    assert verdict(silent, seconds=120).verdict is Verdict.NOT_STARTED
    assert verdict(silent, seconds=121).verdict is Verdict.TIMED_OUT


def test_an_attempt_that_no_worker_runs_has_not_started() -> None:
    waiting = replace(FACTS, state=TaskState.SUBMITTED, holder=None, report=None)
    assert verdict(waiting, seconds=500).verdict is Verdict.NOT_STARTED


@pytest.mark.parametrize("state", [TaskState.SUCCESS, TaskState.KILL, 77])
def test_of_an_attempt_that_has_ended_there_is_no_verdict(state: int) -> None:
    assert judge(replace(FACTS, state=state), WANTED, GRAPH, now=NOON) is None


def test_a_worker_that_is_missing_is_timed_out_whatever_it_has_reported() -> None:
    assert verdict(replace(FACTS, lost=True), seconds=61).verdict is Verdict.TIMED_OUT


def test_an_attempt_whose_place_another_has_is_disallowed() -> None:
    found = verdict(replace(FACTS, holder=8), seconds=61)
    assert (found.verdict, found.reason) == (
        Verdict.DISALLOWED,
        "attempt 8 holds the topology",
    )


def test_another_shape_than_the_one_wanted_is_disallowed_once_the_order_is_obeyed() -> None:
    wanted = Wanted(number=2, rebalanced=2, executors={"split": 3})
    assert verdict(FACTS, seconds=61, wanted=wanted).verdict is Verdict.VALID
    obeyed = replace(FACTS, report=replace(REPORT, obeyed=2))
    found = verdict(obeyed, seconds=61, wanted=wanted)
    assert found.verdict is Verdict.DISALLOWED
    assert found.reason == "'split' has 2 executors and 3 tasks, and 3 and 3 are wanted"
    foreign = ComponentReport(id="other", kind="bolt", executors=1, tasks=1)
    with_foreign = replace(FACTS, report=replace(REPORT, components=(foreign,)))
    assert "none of the topology's" in verdict(with_foreign, seconds=61).reason


def test_the_shape_wanted_is_that_of_the_graph_but_for_what_rebalances_have_set() -> None:
    wanted = Wanted(executors={"split": 3}, tasks={"count": 8})
    assert shape_of(wanted, GRAPH) == {"lines": (1, 2), "split": (3, 3), "count": (1, 8)}
