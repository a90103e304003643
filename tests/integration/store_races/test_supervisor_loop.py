"""Keepers of supervisors at a real database: the stream is a value, and the test is the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.segments import Published
from common.model.states import TaskState
from common.model.streams.requests import RequestKind
from common.model.streams.tasks import OrderKind, Orders, Sequence, TaskStatus
from common.store.master.supervisor_ports import Lease, LeaseLostError, SupervisorStep
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.people.supervisors import (
    add_version,
    put_request,
    versions,
)
from master.supervisors.view import StreamFailure, StreamSnapshot
from tests.builders import NOON
from tests.integration.store_races.racing import MASTER
from tests.integration.store_races.stream_stage import Stage
from tests.reference.java_consumer import HOSTILE
from tests.unit.stream_specs import SMALL, changed


class Hooked(PostgresSupervisorStore):
    """A store that lets something happen before or after a step is written."""

    before: Callable[[Lease], None] = staticmethod(lambda _: None)
    after: Callable[[], None] = staticmethod(lambda: None)

    def apply(self, node: Node, lease: Lease, step: SupervisorStep, **more: Any) -> None:
        self.before(lease)
        super().apply(node, lease, step, **more)
        self.after()


def test_a_task_is_handed_over_published_and_followed_by_the_next(here: Engine) -> None:
    stage = Stage(here)
    loop = stage.master()
    stage.passes(loop)
    assert stage.stored == {0: 0, 1: 0}
    (task,) = stage.tasks
    attempt = stage.run(task)
    stage.report(attempt, TaskStatus.READING, {0: 40, 1: 50})
    stage.passes(loop, times=2)
    assert stage.orders(attempt) == Orders()
    assert stage.view.state == "RUNNING"
    assert stage.view.status["aggregateLag"] == 110
    stage.passes(loop, after=3601)
    pause = stage.orders(attempt)
    assert pause.command is OrderKind.PAUSE
    stage.report(attempt, TaskStatus.PAUSED, {0: 45, 1: 50}, obeyed=pause.version)
    stage.passes(loop)
    end = stage.orders(attempt)
    assert (end.command, end.end, end.finish) == (OrderKind.END, {0: 45, 1: 50}, True)
    stage.report(attempt, TaskStatus.PUBLISHING, {0: 45, 1: 50}, obeyed=end.version)
    stage.passes(loop)
    (_, following) = stage.tasks
    assert following.assignment["starts"] == {"0": 45, "1": 50}
    assert isinstance(stage.publish(attempt, {0: 0, 1: 0}, {0: 45, 1: 50}), Published)
    stage.end(attempt, TaskState.SUCCESS)
    stage.passes(loop)
    assert [each.name for each in stage.tasks] == [following.name]
    assert (stage.stored, stage.view.healthy) == ({0: 45, 1: 50}, True)
    assert len(stage.view.status["activeTasks"]) == 1


def test_an_expired_offset_that_moves_while_it_is_reset_stays(here: Engine) -> None:
    stage = Stage(here)
    stage.document["spec"]["tuningConfig"] = {"resetOffsetAutomatically": True}
    stage.submit(version=2)
    stage.streams.answers[stage.name] = StreamSnapshot(earliest={0: 20}, latest={0: 100})
    stage.store({0: 5})
    store = Hooked(here)

    def publish(_: Lease) -> None:
        store.before = lambda _: None
        stage.store({0: 90})

    store.before = publish
    loop = stage.master(1, store)
    stage.passes(loop)
    assert (stage.stored, stage.tasks) == ({0: 90}, [])
    stage.passes(loop)
    assert stage.tasks[0].assignment["starts"] == {"0": 90}


def test_nothing_is_written_by_a_master_whose_lease_went_to_another(here: Engine) -> None:
    stage = Stage(here)
    other = stage.master(2)
    store = Hooked(here)

    def take_over(_: Lease) -> None:
        store.before = lambda _: None
        stage.lose_lease()
        stage.passes(other)

    store.before = take_over
    loop = stage.master(1, store)
    stage.passes(loop)
    assert stage.name not in loop.kept
    assert stage.name in other.kept
    (task,) = stage.tasks
    assert task.name.endswith("_2_1")
    assert stage.view.owner == "m2:5678"
    stage.passes(loop)
    stage.passes(other)
    assert [each.name for each in stage.tasks] == [task.name]


def test_a_new_owner_goes_on_with_the_tasks_and_the_conversation_of_the_former(
    here: Engine,
) -> None:
    stage = Stage(here)
    first, second = stage.master(1), stage.master(2)
    stage.passes(first)
    (task,) = stage.tasks
    attempt = stage.run(task)
    stage.report(attempt, TaskStatus.READING, {0: 40, 1: 50})
    stage.passes(first, after=3601)
    pause = stage.orders(attempt)
    stage.report(attempt, TaskStatus.PAUSED, {0: 40, 1: 50}, obeyed=pause.version)
    stage.lose_lease()
    stage.passes(second)
    stage.passes(first)
    assert stage.name not in first.kept
    resumed = stage.orders(attempt)
    assert (resumed.command, len(stage.tasks)) == (OrderKind.PAUSE, 1)
    assert resumed.version > pause.version
    stage.report(attempt, TaskStatus.PAUSED, {0: 40, 1: 50}, obeyed=resumed.version)
    stage.passes(second)
    assert stage.orders(attempt).end == {0: 40, 1: 50}


def test_a_step_of_unknown_outcome_is_found_in_the_tables(here: Engine) -> None:
    stage = Stage(here)
    store = Hooked(here)

    def break_off() -> None:
        store.after = lambda: None
        raise ServiceUnreachableError("the connection broke")

    store.after = break_off
    loop = stage.master(1, store)
    with pytest.raises(ServiceUnreachableError):
        stage.passes(loop)
    (task,) = stage.tasks
    stage.passes(loop, times=3)
    assert [each.name for each in stage.tasks] == [task.name]
    assert (stage.view.epoch, stage.view.owner) == (2, "m1:5678")


def test_a_worker_s_loss_has_the_range_read_again(here: Engine) -> None:
    stage = Stage(here)
    loop = stage.master()
    stage.passes(loop)
    (task,) = stage.tasks
    attempt = stage.run(task)
    stage.report(attempt, TaskStatus.READING, {0: 40, 1: 50})
    stage.passes(loop)
    stage.end(attempt, TaskState.FAILURE)
    stage.passes(loop, times=2)
    (again,) = stage.tasks
    assert again.name != task.name
    assert again.assignment == task.assignment


def test_requests_of_people_are_carried_out_once(here: Engine) -> None:
    stage = Stage(here)
    loop = stage.master()
    stage.passes(loop)
    (task,) = stage.tasks
    with here.begin() as db:
        put_request(db, stage.name, RequestKind.HAND_OVER, {"groups": ["?"]}, user_id=1)
        put_request(
            db, stage.name, RequestKind.RESET_OFFSETS, {"offsets": {"0": 7, "1": 8}}, user_id=1
        )
    stage.passes(loop, times=3)
    (again,) = stage.tasks
    assert again.name != task.name
    assert (again.assignment["starts"], stage.stored) == ({"0": 7, "1": 8}, {0: 7, 1: 8})


def test_a_full_sequence_is_closed_for_all_and_read_on(here: Engine) -> None:
    stage = Stage(here)
    loop = stage.master()
    stage.passes(loop)
    attempt = stage.run(stage.tasks[0])
    at = {0: 30, 1: 30}
    stage.report(attempt, TaskStatus.PAUSED, at, full={0: 0, 1: 0})
    stage.passes(loop, times=2)
    pause = stage.orders(attempt)
    assert pause.command is OrderKind.PAUSE
    stage.report(attempt, TaskStatus.PAUSED, at, obeyed=pause.version, full={0: 0, 1: 0})
    stage.passes(loop)
    end = stage.orders(attempt)
    assert (end.end, end.sequence, end.finish) == (at, 0, False)


def test_a_task_that_is_full_again_while_its_replica_still_agrees_is_not_forgotten(
    here: Engine,
) -> None:
    stage = Stage(here, replicas=2)
    loop = stage.master()
    stage.passes(loop)
    quick, slow = map(stage.run, stage.tasks)
    at = {0: 30, 1: 30}
    for attempt in (quick, slow):
        stage.report(attempt, TaskStatus.PAUSED, at, full={0: 0, 1: 0})
    stage.passes(loop, times=2)
    pause = stage.orders(quick)
    for attempt in (quick, slow):
        stage.report(attempt, TaskStatus.PAUSED, at, obeyed=pause.version, full={0: 0, 1: 0})
    stage.passes(loop)
    end = stage.orders(quick)
    assert end.command is OrderKind.END
    both = (Sequence(id=0, start={0: 0, 1: 0}, end=at), Sequence(id=1, start=at))
    news: dict[str, Any] = {"obeyed": end.version, "sequences": both}
    stage.report(quick, TaskStatus.PAUSED, {0: 60, 1: 60}, full=at, **news)
    stage.passes(loop, times=2)
    assert stage.orders(quick) == end
    stage.report(slow, TaskStatus.READING, at, **news)
    stage.passes(loop, times=3)
    assert stage.orders(quick).command is OrderKind.PAUSE


def test_a_terminated_supervisor_ends_after_its_tasks_and_may_be_submitted_again(
    here: Engine,
) -> None:
    stage = Stage(here)
    loop = stage.master()
    stage.passes(loop)
    with here.begin() as db:
        add_version(db, stage.name, version=2, document=None, suspended=False, user_id=1)
    stage.passes(loop, times=4)
    assert (stage.view.active, stage.view.state) == (False, "STOPPING")
    (ended,) = stage.tasks
    assert ended.ending_reason is not None
    stage.submit(version=3)
    stage.passes(loop, times=3)
    assert (stage.view.active, stage.view.state) == (True, "RUNNING")
    (task,) = stage.tasks
    assert task.name != ended.name


def test_a_stream_that_is_away_makes_a_supervisor_unhealthy_and_harms_no_other(
    here: Engine,
) -> None:
    bad, good = Stage(here), Stage(here)
    bad.streams.answers |= good.streams.answers
    bad.streams.answers[bad.name] = StreamFailure(reason="no broker answers")
    loop = bad.master()
    bad.passes(loop, after=31, times=4)
    assert (bad.view.detailed_state, bad.view.healthy) == ("UNABLE_TO_CONNECT_TO_STREAM", False)
    assert bad.view.recent_errors[0]["message"] == "no broker answers"
    assert (bad.tasks, good.view.healthy, len(good.tasks)) == ([], True, 1)


def test_a_supervisor_begins_after_its_start_delay_and_runs_each_period(here: Engine) -> None:
    stage = Stage(here, startDelay="PT10S", period="PT20S")
    loop = stage.master()
    stage.passes(loop, after=0)
    stage.passes(loop, after=9)
    assert (stage.tasks, stage.view.state) == ([], "PENDING")
    stage.passes(loop, after=1)
    assert (len(stage.tasks), stage.view.status["latestOffsets"]) == (1, {"0": 100, "1": 100})
    # It looks after the tasks that it has started, once more.
    stage.passes(loop, after=1)
    stage.passes(loop, after=4)
    # The rows stay as they are, so the period alone has it run again.
    stage.offsets({0: 150, 1: 100})
    stage.passes(loop, after=19)
    assert stage.view.status["latestOffsets"] == {"0": 100, "1": 100}
    stage.passes(loop, after=1)
    assert stage.view.status["latestOffsets"] == {"0": 150, "1": 100}


def test_an_unexpected_error_parks_its_supervisor_alone(here: Engine) -> None:
    bad, good = Stage(here), Stage(here)
    bad.streams.answers |= good.streams.answers
    store = Hooked(here)
    failed: list[str] = []

    def fail(lease: Lease) -> None:
        if lease.supervisor == bad.name and not failed:
            failed.append(bad.name)
            raise ZeroDivisionError

    store.before = fail
    loop = bad.master(1, store)
    bad.passes(loop)
    bad.passes(loop, times=2)
    assert (failed, bad.tasks, len(good.tasks)) == ([bad.name], [], 1)
    bad.passes(loop, after=10, times=2)
    assert (len(bad.tasks), bad.view.epoch, bad.view.state) == (1, 2, "RUNNING")


def test_a_specification_that_nobody_can_read_is_told_and_waited_for(here: Engine) -> None:
    stage = Stage(here)
    loop = stage.master()
    with here.begin() as db:
        add_version(
            db, stage.name, version=2, document={"type": "kafka"}, suspended=False, user_id=1
        )
    stage.passes(loop, times=2)
    assert "version 2 can't be read" in stage.view.recent_errors[0]["message"]
    stage.submit(version=3)
    stage.passes(loop, times=2)
    assert (len(stage.tasks), stage.view.healthy) == (1, True)


@pytest.mark.parametrize("name", ["plugin.library.paths", "sasl.oauthbearer.assertion.file"])
def test_a_hostile_row_that_somebody_has_typed_is_told_and_asks_no_broker_x31(
    here: Engine, name: str
) -> None:
    stage = Stage(here)
    loop = stage.master()
    place = "spec.ioConfig.consumerProperties"
    document = changed(SMALL, place, {"bootstrap.servers": "b:1", name: HOSTILE[name]})
    with here.begin() as db:
        add_version(db, stage.name, version=2, document=document, suspended=False, user_id=1)
    stage.passes(loop, times=2)
    assert f"{place}.{name}: is not allowed" in stage.view.recent_errors[0]["message"]
    assert (stage.view.state, stage.tasks) == ("UNHEALTHY_SUPERVISOR", [])


def test_the_lag_changes_the_number_of_groups(here: Engine) -> None:
    stage = Stage(
        here,
        autoScalerConfig={
            "enableTaskAutoScaler": True,
            "taskCountMin": 1,
            "taskCountMax": 2,
            "lagCollectionIntervalMillis": 1000,
            "lagCollectionRangeMillis": 60_000,
            "scaleActionStartDelayMillis": 1000,
            "scaleActionPeriodMillis": 1000,
            "scaleOutThreshold": 50,
            "scaleInThreshold": 0,
            "triggerScaleOutFractionThreshold": 0.1,
        },
    )
    loop = stage.master()
    stage.passes(loop, after=31, times=5)
    with here.connect() as db:
        newest = versions(db, stage.name)[0]
    assert newest.document is not None
    assert (newest.version, newest.document["spec"]["ioConfig"]["taskCount"]) == (2, 2)
    assert sorted(each.group_id for each in stage.tasks) == [0, 1]


def test_a_master_that_ends_leaves_its_supervisors_to_others_at_once(here: Engine) -> None:
    stage = Stage(here)
    first, second = stage.master(1), stage.master(2)
    stage.passes(first)
    first.stop()
    stage.passes(second)
    assert stage.view.owner == "m2:5678"
    with pytest.raises(LeaseLostError):
        PostgresSupervisorStore(here).apply(
            MASTER,
            Lease(supervisor=stage.name, epoch=2),
            SupervisorStep(version=1, stream="events"),
            now=NOON,
        )
