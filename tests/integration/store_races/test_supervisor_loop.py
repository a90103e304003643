"""Keepers of supervisors at a real database: the stream is a value, and the test is the worker."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, update

from common.errors import ServiceUnreachableError
from common.model.cluster import Node, NodeKind
from common.model.segments import Publication, Published, StreamRange
from common.model.states import TaskState
from common.model.streams.requests import RequestKind
from common.model.streams.spec import SupervisorSpec
from common.model.streams.tasks import OrderKind, Orders, Sequence, TaskReport, TaskStatus
from common.store import tables as t
from common.store.master.supervisor_ports import Lease, LeaseLostError, SupervisorStep
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.people.supervisors import (
    StreamTaskView,
    SupervisorView,
    add_version,
    make_supervisor,
    open_tasks,
    put_request,
    supervisor_named,
    versions,
)
from common.store.streams.publication import publish
from common.store.worker.ports import AttemptEnd
from common.store.worker.stream_tasks import PostgresStreamTasks
from common.store.worker.tasks import PostgresTaskStore
from master.identity import Identity
from master.loops.supervisor_loop import SupervisorConfig, SupervisorLoop
from master.supervisors.view import StreamFailure, StreamSnapshot
from tests.builders import NOON
from tests.integration.store_races.racing import MASTER, WORKER, claim, submit, take
from tests.memory.registry import MemoryZooKeeper
from tests.simulation.virtual_clock import VirtualClock
from tests.unit.stream_specs import SMALL

CONFIG = SupervisorConfig(
    claim_interval=timedelta(), lease=timedelta(hours=1), claimed_at_once=1000
)


@dataclass
class FixedStreams:
    """Streams that say what the test has set; of any other supervisor nothing is known."""

    answers: dict[str, StreamSnapshot | StreamFailure] = field(default_factory=dict)

    def look(self, spec: SupervisorSpec) -> StreamSnapshot | StreamFailure | None:
        return self.answers.get(spec.id)

    def forget(self, supervisor: str) -> None:
        pass


class Stage:
    """One supervisor, the masters that may keep it, and a worker that does as the test says."""

    def __init__(self, made: Engine, **io: Any) -> None:
        self.made = made
        self.clock = VirtualClock()
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(days=1))
        self.name = f"ds-{uuid.uuid4().hex[:8]}"
        self.document = copy.deepcopy(SMALL)
        self.document["spec"]["dataSchema"]["dataSource"] = self.name
        self.document["spec"]["ioConfig"] |= {"useEarliestOffset": True, "startDelay": "PT0S"} | io
        self.streams = FixedStreams()
        self.offsets({0: 100, 1: 100})
        with made.begin() as db:
            assert make_supervisor(db, self.name, project_id=1, process_definition_id=1)
        self.submit(version=1)

    def submit(self, *, version: int, document: Mapping[str, Any] | None = None) -> None:
        with self.made.begin() as db:
            add_version(
                db,
                self.name,
                version=version,
                document=document or self.document,
                suspended=False,
                user_id=1,
            )

    def offsets(self, latest: dict[int, int]) -> None:
        self.streams.answers[self.name] = StreamSnapshot(
            earliest=dict.fromkeys(latest, 0), latest=latest
        )

    def master(self, number: int = 1, store: Any = None) -> SupervisorLoop:
        registry = self.zookeeper.registry()
        identity = Identity(registry.membership)
        identity.become(registry.membership.join(NodeKind.MASTER, f"m{number}:5678", ""))
        return SupervisorLoop(
            store or PostgresSupervisorStore(self.made),
            streams=self.streams,
            identity=identity,
            clock=self.clock,
            config=CONFIG,
        )

    def passes(self, loop: SupervisorLoop, *, after: float = 2, times: int = 1) -> None:
        for _ in range(times):
            self.clock.move_to(self.clock.elapsed + timedelta(seconds=after))
            loop.run_once()

    def lose_lease(self) -> None:
        with self.made.begin() as db:
            db.execute(
                update(t.supervisor_runtime)
                .where(t.supervisor_runtime.c.id == self.name)
                .values(lease_until=func.now())
            )

    @property
    def tasks(self) -> list[StreamTaskView]:
        with self.made.connect() as db:
            return open_tasks(db, self.name)

    @property
    def view(self) -> SupervisorView:
        with self.made.connect() as db:
            found = supervisor_named(db, self.name)
        assert found is not None
        return found

    def run(self, task: StreamTaskView) -> int:
        """Have a worker run a task that was started; returns its attempt."""
        with self.made.connect() as db:
            command_id = db.scalar(
                select(t.stream_task.c.command_id).where(t.stream_task.c.name == task.name)
            )
        owned = take(self.made, MASTER)[command_id]
        assert owned is not None
        (attempt,) = ids = submit(self.made, owned, "read")
        assert claim(self.made, WORKER, ids) == ids
        with self.made.begin() as db:
            # The clock of this test is not that of the claims.
            db.execute(
                update(t.task_instance)
                .where(t.task_instance.c.id == attempt)
                .values(start_time=self.clock.now())
            )
        return attempt

    def report(
        self,
        attempt: int,
        state: TaskStatus,
        current: Mapping[int, int],
        *,
        obeyed: int = 0,
        **more: Any,
    ) -> None:
        report = TaskReport(
            state=state,
            obeyed=obeyed,
            current=current,
            sequences=(Sequence(id=0, start=dict.fromkeys(current, 0)),),
        )
        report = TaskReport(**{**{f: getattr(report, f) for f in report.__slots__}, **more})
        assert PostgresStreamTasks(self.made).report(WORKER, attempt, report)

    def orders(self, attempt: int) -> Orders:
        return PostgresStreamTasks(self.made).orders([attempt])[attempt]

    def publish(self, attempt: int, starts: Mapping[int, int], ends: Mapping[int, int]) -> Any:
        return publish(
            self.made,
            Publication(
                dataset=self.name,
                task_id=attempt,
                segments=(),
                sequence=f"{self.name}_{sorted(starts.items())}",
                range=StreamRange(
                    stream="events",
                    starts=starts,
                    ends=ends,
                    max_event_times=dict.fromkeys(starts, NOON),
                ),
            ),
        )

    def end(self, attempt: int, state: TaskState) -> None:
        ended = AttemptEnd(
            task_instance_id=attempt, state=state, end_time=NOON, exit_code=0, reason=None
        )
        assert PostgresTaskStore(self.made).report(WORKER, [ended]) == {attempt}

    @property
    def stored(self) -> dict[int, int]:
        with self.made.connect() as db:
            rows = db.execute(
                select(t.dataset_offsets.c.partition, t.dataset_offsets.c.offset).where(
                    t.dataset_offsets.c.dataset == self.name
                )
            )
            return {row.partition: row.offset for row in rows}


class Hooked(PostgresSupervisorStore):
    """A store that lets something happen before or after a step is written."""

    before: Callable[[], None] = staticmethod(lambda: None)
    after: Callable[[], None] = staticmethod(lambda: None)

    def apply(self, node: Node, lease: Lease, step: SupervisorStep, **more: Any) -> None:
        self.before()
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


def test_nothing_is_written_by_a_master_whose_lease_went_to_another(here: Engine) -> None:
    stage = Stage(here)
    other = stage.master(2)
    store = Hooked(here)

    def take_over() -> None:
        store.before = lambda: None
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
