"""A stream's task asks its worker for work and orders, and reports, against PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from common.model.states import TaskState
from common.model.streams.tasks import OrderKind, Orders, Sequence, TaskReport, TaskStatus
from common.store.listen import Notifications, hint_channel
from orcaflow import stream_orders
from orcaflow.datasets import (
    Allocation,
    AttemptEndedError,
    DatasetError,
    Outcome,
    Range,
    publish,
)
from tests.integration.dataset_desk import Desk, an_attempt, desk
from tests.integration.store_races.racing import WORKER
from tests.integration.store_races.stream_stage import Stage
from worker.loops.hint_loop import HintLoop


@pytest.fixture
def server(tmp_path: Path, here: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with desk(tmp_path, here, monkeypatch) as made:
        yield made


def told(report: TaskReport | None = None) -> Orders:
    return Orders.of(stream_orders.orders(None if report is None else report.document()))


def advance(ds: str, stream_range: Range) -> Outcome:
    place = Allocation(dataset=ds, path=Path(), write="0" * 16)
    return publish(place, [], sequence="s_0", stream_range=stream_range)


def test_a_task_is_given_its_work_obeys_and_reports(here: Engine, server: Desk, url: str) -> None:
    stage = Stage(here)
    loop = stage.master()
    stage.passes(loop)
    (task,) = stage.tasks
    attempt = stage.run(task)
    server.enter(attempt)
    work = stream_orders.work()
    assert (work.name, work.supervisor, work.version) == (task.name, stage.name, 1)
    assert (work.assignment["starts"], work.spec) == ({"0": 0, "1": 0}, stage.document)
    report = TaskReport(
        state=TaskStatus.READING,
        began=stage.clock.now(),
        current={0: 40, 1: 50},
        sequences=(Sequence(id=0, start={0: 0, 1: 0}),),
        counts={"processed": 90},
        errors={"parse": [{"value": "a\0b \ud800"}], "rate": float("nan")},
    )
    assert told(report) == Orders()
    stage.passes(loop, times=2)
    (shown,) = stage.tasks
    assert shown.status is not None
    assert (shown.status["current"], shown.status["counts"]) == (
        {"0": 40, "1": 50},
        {"processed": 90},
    )
    assert shown.status["errors"]["parse"] == [{"value": "a\N{REPLACEMENT CHARACTER}b ?"}]
    with Notifications(url, (hint_channel(WORKER.address),)) as source:
        hints = HintLoop(source, hinted=lambda _: None, ordered=server.orders.look)
        hints.run_once()
        # The hand-over is due.
        stage.passes(loop, after=3601)
        assert told() == Orders()
        hints.run_once()
    pause = told()
    assert pause.command is OrderKind.PAUSE
    paused = TaskReport(
        state=TaskStatus.PAUSED,
        obeyed=pause.version,
        current={0: 45, 1: 50},
        sequences=report.sequences,
    )
    told(paused)
    stage.passes(loop)
    server.orders.look()
    end = told(paused)
    assert (end.command, end.end, end.finish) == (OrderKind.END, {0: 45, 1: 50}, True)
    stage.end(attempt, TaskState.KILL)
    with pytest.raises(AttemptEndedError):
        stream_orders.work()
    with pytest.raises(AttemptEndedError, match="does not run it any more"):
        told(TaskReport(state=TaskStatus.PUBLISHING, obeyed=end.version))


def test_a_task_is_given_the_variables_that_its_specification_names_and_no_others(
    here: Engine, server: Desk
) -> None:
    stage = Stage(
        here,
        consumerProperties={
            "bootstrap.servers": "b:1",
            **{
                f"sasl.{each}": {"type": "environment", "variable": f"STREAM_{each.upper()}"}
                for each in ("username", "password")
            },
        },
    )
    server.variables["STREAM_PASSWORD"] = "hunter2"
    stage.passes(stage.master())
    server.enter(stage.run(stage.tasks[0]))
    assert stream_orders.work().secrets == {"STREAM_PASSWORD": "hunter2"}


def test_a_range_without_rows_is_passed_over_by_the_stream_s_own_task_alone(
    here: Engine, server: Desk
) -> None:
    stage = Stage(here)
    stage.passes(stage.master())
    (task,) = stage.tasks
    attempt = stage.run(task)
    server.enter(an_attempt(here))
    passed = Range(stream="events", starts={0: 0, 1: 0}, ends={0: 7, 1: 0})
    with pytest.raises(DatasetError, match="is no task of"):
        advance(stage.name, passed)
    with pytest.raises(AttemptEndedError):
        stream_orders.orders()
    server.enter(attempt)
    assert advance(stage.name, passed).again is False
    assert stage.stored == {0: 7, 1: 0}
    advance(stage.name, passed)
    assert stage.stored == {0: 7, 1: 0}
    with pytest.raises(DatasetError, match="is no task of"):
        advance("another", passed)


def test_a_report_that_is_too_long_is_refused_with_its_cure(here: Engine, server: Desk) -> None:
    stage = Stage(here)
    stage.passes(stage.master())
    server.enter(stage.run(stage.tasks[0]))
    errors = {"parse": ["x" * 2_000_000]}
    with pytest.raises(DatasetError, match="1,048,576 bytes; keep fewer errors"):
        told(TaskReport(state=TaskStatus.READING, errors=errors))
