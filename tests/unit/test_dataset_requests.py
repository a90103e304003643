"""Requests of tasks about datasets: whatever they say is read, or refused with its mistake."""

from __future__ import annotations

from typing import Any

import pytest

from common.model.intervals import read_interval
from common.model.locks import LockType
from common.model.streams.tasks import TaskReport, TaskStatus
from common.model.topologies import Report, RunState
from worker.datasets.requests import (
    AskLock,
    AskOrders,
    AskPublish,
    AskTopology,
    AskWanted,
    AskWatch,
    AskWork,
    DatasetRequestError,
    read_ask,
)

DAY = "2026-11-20/P1D"


def a_publication(**changes: Any) -> dict[str, Any]:
    part = {"interval": DAY, "files": ["a.parquet"], "rows": 1}
    values = {"ask": "publish", "dataset": "ds", "write": "0" * 16, "segments": [part], "key": "k"}
    return values | changes


def a_part(**changes: Any) -> list[dict[str, Any]]:
    return [{"interval": DAY, "files": ["a.parquet"], "rows": 1} | changes]


def a_range(**changes: Any) -> dict[str, Any]:
    given = {"stream": "s", "starts": {"0": 1}, "ends": {"0": 2}} | changes
    return a_publication(key=None, sequence="s_0", range=given)


def test_a_publication_is_read() -> None:
    found = read_ask(a_range(max_event_times={"0": "2026-11-20T04:00"}))
    assert isinstance(found, AskPublish)
    assert found.range is not None
    assert (found.range.starts, found.range.ends) == ({0: 1}, {0: 2})
    assert found.segments[0].interval == read_interval(DAY)


def test_a_lock_of_a_stream_has_its_priority() -> None:
    asked = {"ask": "lock", "dataset": "ds", "interval": DAY, "type": "APPEND", "stream": True}
    assert read_ask(asked) == AskLock(
        dataset="ds",
        interval=read_interval(DAY),
        type=LockType.APPEND,
        priority=75,
        of_stream=True,
    )


def a_report(**changes: Any) -> dict[str, Any]:
    return {"ask": "orders", "report": {"state": "READING"} | changes}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"": value}
    return value


def test_a_stream_s_task_asks_for_its_work_and_its_orders() -> None:
    assert read_ask({"ask": "work"}) == AskWork()
    assert read_ask({"ask": "orders"}) == AskOrders(report=None)
    report = TaskReport(
        state=TaskStatus.PAUSED,
        obeyed=3,
        current={0: 2**63 - 1},
        full={0: 4},
        counts={"processed": 5},
        errors={"trouble": "no answer"},
    )
    assert read_ask({"ask": "orders", "report": report.document()}) == AskOrders(report=report)


def test_a_topology_s_task_asks_for_its_work_and_tells_how_far_it_has_come() -> None:
    assert read_ask({"ask": "topology"}) == AskTopology()
    assert read_ask({"ask": "topology_report"}) == AskWanted(report=None)
    assert read_ask({"ask": "topology_watch", "number": 3}) == AskWatch(number=3)
    report = Report(state=RunState.RUNNING, obeyed=3, batch=7, lag={"lines": 2**63 - 1})
    asked = {"ask": "topology_report", "report": report.document()}
    assert read_ask(asked) == AskWanted(report=report)


def a_topology_report(**changes: Any) -> dict[str, Any]:
    return {"ask": "topology_report", "report": Report().document() | changes}


def a_component(**changes: Any) -> dict[str, Any]:
    part = {"id": "split", "kind": "bolt", "executors": 1, "tasks": 1} | changes
    return a_topology_report(components=[part])


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"ask": "topology_report", "report": []}, "report must be an object"),
        ({"ask": "topology_watch", "number": "3"}, "number"),
        (a_topology_report(state="DANCING"), "report: 'DANCING' is not a valid RunState"),
        (a_topology_report(state=[]), r"report: \[\] is not a valid RunState"),
        (a_topology_report(obeyed=-2), "report: -2 is no count"),
        (a_topology_report(batch=2**63), "is no count"),
        (a_topology_report(batch=True), "True is no count"),
        (a_topology_report(began="noon"), "report: Invalid isoformat"),
        (a_topology_report(began="2026-11-27T12:00:00"), "a time without its zone"),
        (a_topology_report(lag=[1]), "an object is missing"),
        (a_topology_report(lag={"lines": -1}), "-1 is no count"),
        (a_topology_report(trouble=deep(12)), "nested deeper than 10"),
        (a_topology_report(components={}), "a list is missing"),
        (a_topology_report(components=[5]), "an object is missing"),
        (a_component(executors=None), "None is no count"),
        (a_component(windows={"600": {"latencyMs": float("nan")}}), "no number that can be kept"),
        (a_component(windows={"600": {"capacity": 10**400}}), "no number that can be kept"),
        (a_component(windows={"600": {"acked": {"a": 1.5}}}), "1.5 is no count"),
        (a_component(byTask=[-1]), "-1 is no count"),
        (a_topology_report(errors=[{"component": 7}]), "7 is no text"),
    ],
)
def test_a_mistake_in_a_topology_s_report_is_named(document: object, problem: str) -> None:
    with pytest.raises(DatasetRequestError, match=problem):
        read_ask(document)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (None, "a JSON object"),
        ({"ask": "drop", "dataset": "ds"}, "there is no request 'drop'"),
        ({"ask": "folder", "dataset": "../ds"}, "dataset '../ds' is no name"),
        ({"ask": "folder", "dataset": 5}, "dataset 5 is no name"),
        ({"ask": "segments", "dataset": "ds", "interval": "today"}, "'today' is no interval"),
        ({"ask": "lock", "dataset": "ds", "interval": DAY, "type": "X"}, "type must be one of"),
        (
            {"ask": "lock", "dataset": "ds", "interval": DAY, "priority": 101},
            "priority must be a whole number from 0 to 100",
        ),
        (a_publication(write="../../x"), "write must be"),
        (a_publication(key=None), "one of key, replaces and sequence"),
        (a_publication(replaces=DAY), "one of key, replaces and sequence"),
        (a_publication(key="k" * 201), "200 characters"),
        (a_publication(key="a\nb"), "key must be a text"),
        (a_publication(key=None, sequence="run 1 task a append k"), "must not begin with 'run '"),
        (a_publication(range={}), "a range belongs to"),
        (a_publication(segments={}), "segments must be a list"),
        (a_publication(segments=[5]), r"segments\[0\] must have"),
        (a_publication(segments=a_part(files=[])), r"segments\[0\] has no file"),
        (a_publication(segments=a_part(rows=-1)), r"segments\[0\].rows must be a whole"),
        (a_publication(segments=a_part(rows=True)), r"segments\[0\].rows must be a whole"),
        (a_publication(segments=a_part() + a_part()), "named twice"),
        (a_publication(segments=a_part() * 5_001), "5,000"),
        (a_range(starts={"0": "x"}), "range.starts must be a whole"),
        (a_range(starts={"-1": 0}), "must have partitions as keys"),
        (a_range(stream=""), "no name of a stream"),
        (a_range(max_event_times={"0": "noon"}), "range.max_event_times"),
        ({"ask": "orders", "report": 5}, "report must be an object"),
        ({"ask": "orders", "report": {}}, "report: .*'state'"),
        (a_report(state="DANCING"), "report: 'DANCING' is not a valid TaskStatus"),
        (a_report(obeyed="x"), "report: invalid literal"),
        (a_report(current={"0": -1}), "report: offsets are not negative"),
        (a_report(current={"0": 2**63}), "no greater than Kafka's"),
        (a_report(current={str(2**31): 0}), "report: '2147483648' is not a partition"),
        (a_report(current={"0": float("inf")}), "report: .*can't be read"),
        (a_report(current=[1]), "report: .*can't be read"),
        (a_report(sequences=[{"id": 0}]), "report: .*'start'"),
        (a_report(counts={"processed": None}), "report: .*can't be read"),
        (a_report(errors=deep(12)), "nested deeper than 10"),
        (a_report(sequences=[{"id": 0, "start": {}}] * 10_001), "10,000 sequences"),
        (a_report(lag={str(each): 0 for each in range(10_001)}), "10,000 partitions"),
    ],
)
def test_a_mistake_is_named(document: object, problem: str) -> None:
    with pytest.raises(DatasetRequestError, match=problem):
        read_ask(document)
