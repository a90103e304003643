"""A supervisor's verdict on the worker of a topology, in Storm's words. Pure.

Storm's supervisor reads the beats of its workers and calls each *disallowed*, *not started*, *timed
out* or *valid*. Here the beats are the reports of the attempt, and a master decides about the
attempt by other facts (its worker's session): the verdict changes nothing, and is for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from common.model.states import TaskState
from common.model.topologies import Report, Wanted
from common.model.topology_graphs import TopologyGraph

TIME_OUT: Final = timedelta(seconds=30)
"""Storm's `supervisor.worker.timeout.secs`."""
START_TIME_OUT: Final = timedelta(seconds=120)
"""Storm's `supervisor.worker.start.timeout.secs`."""


class Verdict(StrEnum):
    """Storm's four states of a worker."""

    DISALLOWED = "disallowed"
    """It runs what it should not: another has its place, or its shape is not the one wanted."""
    NOT_STARTED = "not started"
    TIMED_OUT = "timed out"
    VALID = "valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """An attempt and its last report, as the tables have them.

    `holder` is the attempt that holds the topology, `reported_at` the time of its last report.
    `lost`: a master misses the attempt's worker.
    """

    attempt: int
    state: int
    started_at: datetime | None
    lost: bool
    holder: int | None
    reported_at: datetime | None
    report: Report | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict and its reason, for people; the reason of a valid worker is empty."""

    verdict: Verdict
    reason: str = ""


def judge(
    facts: WorkerFacts, wanted: Wanted, graph: TopologyGraph, *, now: datetime
) -> Judgement | None:
    """Return the verdict on an attempt; None for one that has ended."""
    if facts.state not in set(TaskState) or TaskState(facts.state).is_finished:
        return None
    if facts.state != TaskState.RUNNING:
        return Judgement(verdict=Verdict.NOT_STARTED, reason="no worker runs the attempt yet")
    if facts.lost:
        return Judgement(verdict=Verdict.TIMED_OUT, reason="its worker is missing")
    started = facts.started_at or now
    if facts.holder is not None and facts.holder > facts.attempt:
        return Judgement(
            verdict=Verdict.DISALLOWED, reason=f"attempt {facts.holder} holds the topology"
        )
    reported = facts.reported_at
    if facts.holder != facts.attempt or facts.report is None or reported is None:
        return _before_the_first_report(started, now)
    if reported < started:
        return _before_the_first_report(started, now)
    if now - reported > TIME_OUT:
        age = int((now - reported).total_seconds())
        return Judgement(verdict=Verdict.TIMED_OUT, reason=f"its last report is {age} s old")
    wrong = _other_shape(facts.report, wanted, graph)
    if wrong:
        return Judgement(verdict=Verdict.DISALLOWED, reason=wrong)
    return Judgement(verdict=Verdict.VALID)


def shape_of(wanted: Wanted, graph: TopologyGraph) -> dict[str, tuple[int, int]]:
    """Return the executors and tasks that each component is to have, by its id."""
    return {
        part.id: (
            wanted.executors.get(part.id, part.executors),
            wanted.tasks.get(part.id, part.tasks),
        )
        for part in graph.parts
    }


def _before_the_first_report(started: datetime, now: datetime) -> Judgement:
    if now - started > START_TIME_OUT:
        seconds = int(START_TIME_OUT.total_seconds())
        return Judgement(
            verdict=Verdict.TIMED_OUT, reason=f"it has not reported in the first {seconds} s"
        )
    return Judgement(verdict=Verdict.NOT_STARTED, reason="it has not reported yet")


def _other_shape(report: Report, wanted: Wanted, graph: TopologyGraph) -> str:
    """Name the first component that runs in another shape than is wanted of it.

    That of a rebalance which is not carried out yet, or of another version, is no offence.
    """
    if report.obeyed < wanted.number or not report.components:
        return ""
    shape = shape_of(wanted, graph)
    for each in report.components:
        if each.id not in shape:
            return f"it runs a component {each.id!r:.120}, which is none of the topology's"
        executors, tasks = shape[each.id]
        if (each.executors, each.tasks) != (executors, tasks):
            return (
                f"{each.id!r} has {each.executors} executors and {each.tasks} tasks, and"
                f" {executors} and {tasks} are wanted"
            )
    return ""
