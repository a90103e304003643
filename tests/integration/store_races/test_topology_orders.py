"""A topology's task asks its worker for code and orders, and reports, against PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from common.model.states import TaskState
from common.model.topologies import (
    ComponentError,
    ComponentReport,
    Figures,
    Report,
    RunState,
    Wanted,
)
from common.store.listen import Notifications, hint_channel
from common.store.people import topologies as people
from common.store.worker.topologies import (
    HeldByAnother,
    HeldTopology,
    PostgresTopologies,
    TopologyWork,
)
from orcaflow import topology_orders
from orcaflow.datasets import AttemptEndedError, DatasetError
from tests.builders import NOON
from tests.integration.dataset_desk import CLUSTER, Desk, an_attempt, desk
from tests.integration.store_races.racing import OTHER_WORKER, WORKER, until_blocked
from tests.integration.store_races.topology_stage import CODE, TopologyStage
from worker.loops.hint_loop import HintLoop

REPORT = Report(
    state=RunState.RUNNING,
    obeyed=0,
    version=1,
    began=NOON,
    batch=3,
    cores=2,
    lag={"lines": 40},
    components=(
        ComponentReport(
            id="lines",
            kind="spout",
            executors=1,
            tasks=2,
            windows={"600": Figures(emitted={"default": 7}, latency_ms=1.5)},
            by_task=(3, 4),
        ),
    ),
    errors=(ComponentError(component="split", task=1, time=NOON, error="a\0b"),),
)


@pytest.fixture
def server(tmp_path: Path, here: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with desk(tmp_path, here, monkeypatch) as made:
        yield made


def test_a_task_is_given_code_and_orders_and_its_reports_are_kept(
    here: Engine, server: Desk, tmp_path: Path
) -> None:
    stage = TopologyStage(here)
    attempt = stage.run()
    server.enter(attempt)
    work = topology_orders.work()
    assert (work.name, work.version, work.generation) == (stage.name, 1, 1)
    assert (work.code, work.wanted, work.report) == (CODE, Wanted(), None)
    assert work.folder == tmp_path / "topologies" / f"{CLUSTER}-{stage.name}-1"
    assert work.folder.is_dir()
    assert topology_orders.tell(REPORT) == Wanted()
    shown = stage.view
    kept = replace(REPORT, errors=(replace(REPORT.errors[0], error="a\N{REPLACEMENT CHARACTER}b"),))
    assert (shown.report, shown.holder) == (kept, attempt)
    assert topology_orders.work().report == kept
    wanted = Wanted(number=1, active=False)
    assert stage.want(wanted, before=0)
    server.topologies.look()
    assert topology_orders.tell(None) == wanted
    newer = replace(CODE, files={"words.py": "topology = 2\n"})
    assert stage.add_version(2, newer)
    assert (topology_orders.work().version, topology_orders.work().code) == (2, newer)
    stage.end(attempt, TaskState.SUCCESS)
    with pytest.raises(AttemptEndedError):
        topology_orders.work()
    with pytest.raises(AttemptEndedError, match="does not run it any more"):
        topology_orders.tell(replace(REPORT, batch=4, state=RunState.PAUSED))
    assert stage.view.report == kept


def test_a_watch_is_answered_as_soon_as_people_want_something_else(
    here: Engine, server: Desk, url: str
) -> None:
    stage = TopologyStage(here)
    attempt = stage.run()
    server.enter(attempt)
    topology_orders.work()
    assert topology_orders.watch(7) == 0
    with (
        Notifications(url, (hint_channel(WORKER.address),)) as source,
        ThreadPoolExecutor(1) as pool,
    ):
        hints = HintLoop(source, hinted=lambda _: None, ordered=server.topologies.look)
        hints.run_once()
        watching = pool.submit(topology_orders.watch, 0)
        # Whoever waits is in nobody's way.
        assert topology_orders.tell(REPORT) == Wanted()
        assert stage.want(Wanted(number=1, active=False), before=0)
        hints.run_once()
        assert watching.result() == 1
        assert topology_orders.tell(REPORT) == Wanted(number=1, active=False)
        watching = pool.submit(topology_orders.watch, 1)
        stage.end(attempt, TaskState.SUCCESS)
        server.topologies.look()
        with pytest.raises(AttemptEndedError, match="does not run it any more"):
            watching.result()


def test_what_is_no_topology_s_attempt_is_told_so(here: Engine, server: Desk) -> None:
    server.enter(an_attempt(here))
    with pytest.raises(AttemptEndedError, match="no task of a topology"):
        topology_orders.work()
    with pytest.raises(AttemptEndedError):
        topology_orders.tell(None)


def test_of_two_runs_of_a_topology_one_holds_it_until_its_attempt_has_ended(
    here: Engine, server: Desk
) -> None:
    stage = TopologyStage(here)
    first, second = stage.run(), stage.run()
    server.enter(first)
    topology_orders.work()
    server.enter(second)
    with pytest.raises(DatasetError, match=f"attempt {first} runs this topology already"):
        topology_orders.work()
    with pytest.raises(AttemptEndedError):
        topology_orders.tell(REPORT)
    stage.end(first)
    assert topology_orders.work().name == stage.name
    assert topology_orders.tell(REPORT) == Wanted()
    assert stage.view.holder == second


def test_of_two_attempts_that_ask_at_once_one_holds_the_topology(
    here: Engine, there: Engine
) -> None:
    stage = TopologyStage(here)
    attempts = [stage.run(), stage.run()]
    with ThreadPoolExecutor(2) as pool:
        with here.begin() as db:
            people.topology_named(db, stage.name, lock=True)
            asked = [pool.submit(PostgresTopologies(there).work, WORKER, each) for each in attempts]
            until_blocked(here, "there")
        found = [each.result() for each in asked]
    (held,) = [
        attempt
        for attempt, each in zip(attempts, found, strict=True)
        if isinstance(each, TopologyWork)
    ]
    assert HeldByAnother(task_instance_id=held) in found
    assert stage.view.holder == held


def test_another_worker_is_told_nothing_and_reports_nothing(here: Engine) -> None:
    stage = TopologyStage(here)
    attempt = stage.run()
    store = PostgresTopologies(here)
    assert store.work(OTHER_WORKER, attempt) is None
    assert store.work(replace(WORKER, incarnation=99), attempt) is None
    assert stage.view.holder is None
    work = store.work(WORKER, attempt)
    assert not isinstance(work, HeldByAnother)
    assert work is not None
    assert not store.report(OTHER_WORKER, attempt, REPORT)
    assert store.held(OTHER_WORKER, [attempt]) == {}
    assert store.held(replace(WORKER, incarnation=99), [attempt]) == {}
    assert store.held(WORKER, [attempt, attempt + 1]) == {
        attempt: HeldTopology(name=stage.name, wanted=Wanted())
    }
    assert stage.view.report is None


def test_a_topology_that_is_begun_anew_has_a_folder_of_its_own_and_no_former_attempt(
    here: Engine, server: Desk
) -> None:
    stage = TopologyStage(here)
    former = stage.run()
    server.enter(former)
    before = topology_orders.work().folder
    topology_orders.tell(REPORT)
    with here.begin() as db:
        anew = Wanted(number=1)
        assert people.begin_anew(db, stage.name, anew, before=0, generation=1)
        assert not people.begin_anew(db, stage.name, anew, before=0, generation=1)
    server.topologies.look()
    with pytest.raises(AttemptEndedError):
        topology_orders.tell(REPORT)
    stage.end(former)
    server.enter(stage.run())
    work = topology_orders.work()
    assert (work.generation, work.report, work.wanted) == (2, None, anew)
    assert work.folder != before
    assert work.folder.name.endswith("-2")


def test_of_two_changes_of_the_same_orders_one_is_refused(here: Engine) -> None:
    stage = TopologyStage(here)
    assert stage.want(Wanted(number=1, active=False), before=0)
    assert not stage.want(Wanted(number=1, killed=True), before=0)
    assert stage.view.wanted == Wanted(number=1, active=False)
    assert not stage.add_version(1)
    assert not stage.add_version(3)
    assert stage.view.version == 1


def test_a_report_that_is_too_long_is_refused_with_its_cure(here: Engine, server: Desk) -> None:
    stage = TopologyStage(here)
    server.enter(stage.run())
    topology_orders.work()
    with pytest.raises(DatasetError, match="1,048,576 bytes; keep fewer errors"):
        topology_orders.tell(replace(REPORT, trouble="x" * 1_100_000))


def test_a_name_that_leads_out_of_the_folder_is_refused(here: Engine, server: Desk) -> None:
    stage = TopologyStage(here, name="../../elsewhere")
    server.enter(stage.run())
    with pytest.raises(DatasetError, match="is no name of a topology"):
        topology_orders.work()


def test_the_newest_run_and_its_newest_attempt_are_shown(here: Engine) -> None:
    stage = TopologyStage(here)
    assert (stage.view.run, stage.view.attempt) == (None, None)
    stage.run()
    second = stage.run()
    shown = stage.view
    assert shown.attempt is not None
    assert (shown.attempt.id, shown.attempt.state) == (second, TaskState.RUNNING)
    assert shown.attempt.host == WORKER.address
    stage.end(second)
    shown = stage.view
    assert shown.attempt is not None
    assert (shown.attempt.state, shown.attempt.reason) == (TaskState.FAILURE, "it broke")
    assert not shown.starting
