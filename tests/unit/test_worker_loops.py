"""The worker's loops on the store and the registry in memory, with attempts that a test ends by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from common.config import WorkerConfig
from common.errors import ServiceUnreachableError
from common.host import HostLoad
from common.model.cluster import KillEntry, Node, QueueEntry, ip_number
from common.model.failures import FailureReason
from common.model.states import TaskState
from common.registry.protocol import RegistryUnavailableError
from common.runtime import metrics
from common.runtime.admission import Admission
from common.store.worker.ports import AttemptEnd, AttemptFolders, ClaimedTask, DataSource
from master.identity import Identity
from master.loops.queue_loop import QueueLoop
from tests.memory.registry import MemoryRegistry, MemoryZooKeeper
from tests.memory.store import MemoryDatabase, MemoryRunStore, MemoryTaskStore
from tests.simulation.virtual_clock import VirtualClock
from worker.assembly import Worker
from worker.attempts import Ended

ADDRESS = "w:1"


@dataclass
class HandAttempts:
    """Attempts whose processes run until the test ends them."""

    ended: Ended
    clock: VirtualClock
    started: list[int] = field(default_factory=list)
    tasks: dict[int, ClaimedTask] = field(default_factory=dict)
    live: dict[int, None] = field(default_factory=dict)
    killed: list[int] = field(default_factory=list)
    adopted: list[int] = field(default_factory=list)
    left: tuple[int, ...] = ()
    forgotten: list[int] = field(default_factory=list)
    obstinate: bool = False
    complements: set[int] = field(default_factory=set)

    def start(self, task: ClaimedTask) -> None:
        self.started.append(task.id)
        if task.complement:
            self.complements.add(task.id)
        self.tasks[task.id] = task
        self.live[task.id] = None

    def kill(self, task_instance_id: int) -> None:
        self.killed.append(task_instance_id)

    def kill_all(self) -> None:
        if not self.obstinate:
            for task_instance_id in list(self.live):
                self.end(task_instance_id, TaskState.NEED_FAULT_TOLERANCE)

    def running(self) -> frozenset[int]:
        return frozenset(self.live)

    def yielding(self) -> frozenset[int]:
        return frozenset(task for task in self.live if task in self.complements)

    def facts_files(self) -> Mapping[int, Path]:
        return {}

    def leftovers(self) -> tuple[int, ...]:
        return self.left

    def adopt(self, adopted: Collection[int]) -> None:
        for task_instance_id in sorted(adopted):
            self.adopted.append(task_instance_id)
            self.live[task_instance_id] = None

    def forget(self, ends: Iterable[AttemptEnd]) -> None:
        self.forgotten += [end.task_instance_id for end in ends]

    def end(self, task_instance_id: int, state: TaskState = TaskState.SUCCESS) -> None:
        del self.live[task_instance_id]
        self.ended(
            AttemptEnd(
                task_instance_id=task_instance_id,
                state=state,
                end_time=self.clock.now(),
                exit_code=0 if state is TaskState.SUCCESS else 1,
            )
        )


class Place:
    """One worker with its store, registry and attempts."""

    def __init__(
        self,
        *,
        slots: int = 4,
        batch: int = 4,
        group_ids: tuple[int, ...] = (),
        complement_slots: int = 0,
    ) -> None:
        self.clock = VirtualClock()
        self.database = MemoryDatabase()
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(seconds=6))
        self.registry: MemoryRegistry = self.zookeeper.registry()
        self.store = MemoryTaskStore(self.database)
        self.attempts: HandAttempts
        self.worker = Worker(
            WorkerConfig(
                host="w",
                port=1,
                exec_threads=slots,
                complement_threads=complement_slots,
                fetch_task_num=batch,
            ),
            clock=self.clock,
            registry=self.registry,
            store=self.store,
            make_attempts=self._make_attempts,
            folders=AttemptFolders(work="/t", logs="/t/logs"),
            heartbeat_text=lambda: "w,1,0,0,0,2026-01-01 00:00:00,2026-01-01 00:00:00",
            group_ids=lambda: group_ids,
        )
        definition = self.database.insert(
            self.database.definitions, name="d", process_definition_json="{}"
        )
        self.process = self._run(definition)
        self.complement = self._run(definition, history_cmd="COMPLEMENT_DATA")

    def _run(self, definition: int, **columns: object) -> int:
        return self.database.insert(
            self.database.processes,
            name="run",
            process_definition_id=definition,
            state=1,
            host="m:1",
            owner_incarnation=1,
            command_type=0,
            process_instance_json="{}",
            executor_id=1,
            **columns,
        )

    def _make_attempts(self, ended: Ended, _started: object) -> HandAttempts:
        self.attempts = HandAttempts(ended, self.clock)
        return self.attempts

    def join(self) -> Node:
        """The worker's first pass."""
        self.worker.heartbeat.run_once()
        self.zookeeper.deliver()
        return self.node

    @property
    def node(self) -> Node:
        node = self.worker.identity.node
        assert node is not None
        return node

    def row(self, **columns: object) -> int:
        """An attempt in the tables."""
        return self.database.insert(
            self.database.tasks,
            name=f"t{len(self.database.tasks)}",
            task_type="SHELL",
            process_definition_id=1,
            task_json="{}",
            **{"process_instance_id": self.process, **columns},
        )

    def submit(self, *, group: int = -1, priority: int = 2, complement: bool = False) -> int:
        """A submitted attempt, in the tables and in the queue."""
        run = self.complement if complement else self.process
        task = self.row(process_instance_id=run)
        entry = replace(self.entry(task, group=group, priority=priority), yields=complement)
        self.registry.task_queue.offer([replace(entry, process_instance_id=run)])
        self.zookeeper.deliver()
        return task

    def submit_complement(self, count: int) -> list[int]:
        return [self.submit(complement=True) for _ in range(count)]

    def claim(self) -> list[int]:
        """Let the worker claim until it rests; return all attempts started since its start."""
        while self.worker.claims.run_once() < timedelta(seconds=1):
            pass
        return self.attempts.started

    def entry(self, task: int, *, group: int = -1, priority: int = 2) -> QueueEntry:
        return QueueEntry(
            process_priority=priority,
            process_instance_id=self.process,
            task_priority=2,
            task_instance_id=task,
            worker_group_id=group,
        )

    def state(self, task: int) -> TaskState:
        row = self.database.tasks.get(task)
        assert row is not None
        return TaskState(row.state)

    def pass_time(self, seconds: float) -> None:
        self.clock.move_to(self.clock.elapsed + timedelta(seconds=seconds))
        self.registry.pulse()
        self.zookeeper.deliver()

    def no_answer(self, to: str, moment: Literal["before", "after"]) -> None:
        """Lose the connection around the next commit of a store's method."""

        def hook(name: str, when: Literal["before", "after"]) -> None:
            if name == to and when == moment:
                self.database.commit_hook = lambda *_: None
                raise ServiceUnreachableError("no answer")

        self.database.commit_hook = hook


@pytest.fixture
def place() -> Place:
    return Place()


def test_what_is_submitted_is_claimed_started_and_released(place: Place) -> None:
    place.join()
    tasks = [place.submit(), place.submit()]
    place.worker.claims.run_once()
    assert place.attempts.started == tasks
    assert place.store.running(place.node) == dict.fromkeys(tasks, False)
    # The claims are released by the next pass, when the processes have been started.
    place.worker.claims.run_once()
    assert place.registry.task_queue.entries() == ()
    assert place.registry.task_queue.claimed() == frozenset()


def test_nothing_is_claimed_before_the_worker_has_joined(place: Place) -> None:
    place.submit()
    place.worker.claims.run_once()
    assert place.attempts.started == []


def test_failures_are_counted_by_their_reason_once_they_stand_in_the_tables(place: Place) -> None:
    place.join()
    task = place.submit()
    place.claim()
    end = AttemptEnd(
        task_instance_id=task,
        state=TaskState.FAILURE,
        end_time=place.clock.now(),
        failure=FailureReason.FETCH_FAILED,
    )
    labels = {"reason": "FETCH_FAILED"}
    before = metrics.REGISTRY.get_sample_value("ds_task_failures_total", labels) or 0
    for _ in range(2):
        # The tables refuse the second one, because the attempt has ended.
        place.worker.reporter.ended(end)
        place.worker.reporter.run_once()
    assert metrics.REGISTRY.get_sample_value("ds_task_failures_total", labels) == before + 1


def test_no_more_is_claimed_than_there_are_slots() -> None:
    place = Place(slots=2, batch=10)
    place.join()
    tasks = [place.submit() for _ in range(3)]
    place.worker.claims.run_once()
    place.worker.claims.run_once()
    assert place.attempts.started == tasks[:2]
    place.attempts.end(tasks[0])
    place.worker.claims.run_once()
    assert place.attempts.started == tasks


def test_the_more_urgent_is_claimed_first() -> None:
    place = Place(slots=1)
    place.join()
    place.submit(priority=3)
    urgent = place.submit(priority=0)
    place.worker.claims.run_once()
    assert place.attempts.started == [urgent]


def test_a_complement_fills_all_the_slots_that_are_empty() -> None:
    place = Place(slots=3)
    place.join()
    live = place.submit()
    complement = place.submit_complement(4)
    assert place.claim() == [live, *complement[:2]]
    place.attempts.end(complement[0])
    assert place.claim() == [live, *complement[:3]]


def test_a_live_task_takes_a_slot_as_if_no_complement_were_there() -> None:
    place = Place(slots=2)
    place.join()
    complement = place.submit_complement(3)
    assert place.claim() == complement[:2]
    live = [place.submit() for _ in range(3)]
    assert place.claim() == [*complement[:2], *live[:2]]
    # Neither of them ran into a slot that it may have: those of live tasks are all taken.
    place.attempts.end(complement[0])
    assert place.claim() == [*complement[:2], *live[:2]]
    place.attempts.end(live[0])
    assert place.claim() == [*complement[:2], *live]


def test_a_complement_goes_on_only_when_nothing_holds_the_slot() -> None:
    place = Place(slots=2)
    place.join()
    complement = place.submit_complement(3)
    place.claim()
    live = place.submit()
    place.claim()
    place.attempts.end(complement[0])
    assert place.claim() == [*complement[:2], live]
    place.attempts.end(complement[1])
    assert place.claim() == [*complement[:2], live, complement[2]]


def test_a_complement_takes_no_more_slots_than_are_meant_for_it() -> None:
    place = Place(slots=4, complement_slots=1)
    place.join()
    complement = place.submit_complement(2)
    live = [place.submit() for _ in range(2)]
    assert place.claim() == [*live, complement[0]]
    place.attempts.end(complement[0])
    assert place.claim() == [*live, *complement]


def test_an_urgent_complement_goes_first_and_keeps_nobody_out() -> None:
    place = Place(slots=1)
    place.join()
    urgent = place.submit(complement=True, priority=0)
    live = place.submit()
    assert place.claim() == [urgent, live]


def test_a_complement_s_task_that_was_adopted_counts_as_one() -> None:
    place = Place(slots=1)
    adopted = place.row(
        process_instance_id=place.complement, state=1, host="w:1", worker_incarnation=7
    )
    place.attempts.left = (adopted,)
    place.attempts.complements.add(adopted)
    place.join()
    waits = place.submit(complement=True)
    live = place.submit()
    assert place.claim() == [live]
    place.attempts.end(live)
    place.attempts.end(adopted)
    assert place.claim() == [live, waits]


def test_a_task_bound_to_a_group_is_left_to_workers_of_that_group() -> None:
    place = Place(group_ids=(7,))
    place.join()
    place.submit(group=8)
    ours = place.submit(group=7)
    place.worker.claims.run_once()
    assert place.attempts.started == [ours]


@pytest.mark.parametrize(
    ("group", "hosts"), [(8, "-1"), (8, "167772164"), (-1, "167772164"), (-1, "not an address")]
)
def test_t05_a_worker_rests_while_the_queue_holds_only_the_tasks_of_others(
    monkeypatch: pytest.MonkeyPatch, group: int, hosts: str
) -> None:
    place = Place(group_ids=(7,))
    place.join()
    others = replace(place.entry(place.row(), group=group), hosts=hosts)
    place.registry.task_queue.offer([others])
    place.zookeeper.deliver()
    looks: list[None] = []
    entries = place.registry.task_queue.entries

    def counted() -> tuple[QueueEntry, ...]:
        looks.append(None)
        return entries()

    monkeypatch.setattr(place.registry.task_queue, "entries", counted)
    assert place.worker.claims.run_once() >= timedelta(seconds=1)
    assert place.worker.claims.run_once() >= timedelta(seconds=1)
    assert len(looks) == 1
    assert place.attempts.started == []


def a_queue_loop(place: Place) -> QueueLoop:
    """The queue of the master that owns this place's run."""
    registry = place.zookeeper.registry()
    identity = Identity(registry.membership)
    identity.become(Node(address="m:1", incarnation=1))
    return QueueLoop(
        MemoryRunStore(place.database),
        tasks=registry.task_queue,
        kills=registry.kill_queue,
        identity=identity,
        clock=place.clock,
    )


def test_t03_an_entry_whose_row_is_not_visible_yet_is_not_lost(place: Place) -> None:
    queue = a_queue_loop(place)
    place.join()
    seen = place.submit()
    unseen = seen + 1
    place.registry.task_queue.offer([place.entry(unseen)])
    place.zookeeper.deliver()
    place.worker.claims.run_once()
    place.worker.claims.run_once()
    # One adopted attempt does not imply that the next one is adopted.
    assert place.attempts.started == [seen]
    assert place.registry.task_queue.claimed() == frozenset()
    assert place.row(submit_time=place.clock.now()) == unseen
    place.pass_time(5)
    queue.run_once()
    place.zookeeper.deliver()
    place.worker.claims.run_once()
    assert place.attempts.started == [seen, unseen]


def test_t51_an_offer_that_the_registry_did_not_take_is_made_again(place: Place) -> None:
    queue = a_queue_loop(place)
    place.join()
    task = place.row(submit_time=place.clock.now())
    place.zookeeper.freeze()
    queue.offer([place.entry(task)])
    with pytest.raises(RegistryUnavailableError):
        queue.run_once()
    place.zookeeper.thaw()
    place.pass_time(5)
    queue.run_once()
    place.zookeeper.deliver()
    place.worker.claims.run_once()
    assert place.attempts.started == [task]


def test_t08_an_entry_is_found_by_its_attempt_whatever_its_name_was(place: Place) -> None:
    queue = a_queue_loop(place)
    group = place.database.insert(place.database.worker_groups, name="spark", ip_list="10.0.0.9")
    task = place.row(submit_time=place.clock.now(), worker_group_id=group)
    now = replace(place.entry(task, group=group), hosts=str(ip_number("10.0.0.9")))
    before = replace(now, process_priority=4, hosts=str(ip_number("10.0.0.8")))
    place.registry.task_queue.offer([before])
    for _ in range(2):
        place.pass_time(5)
        queue.run_once()
        # Neither left where no worker may claim it, nor twice in the queue.
        assert place.registry.task_queue.entries() == (now,)


def test_a_row_that_somebody_else_has_claimed_is_not_started(place: Place) -> None:
    place.join()
    task = place.row(state=1, host="other:1", worker_incarnation=5)
    place.registry.task_queue.offer([place.entry(task)])
    place.worker.claims.run_once()
    place.worker.claims.run_once()
    assert place.attempts.started == []
    assert place.registry.task_queue.claimed() == frozenset()


def test_while_the_session_is_in_doubt_nothing_is_claimed(place: Place) -> None:
    place.join()
    place.submit()
    place.registry.cut_off()
    place.pass_time(2)
    place.worker.claims.run_once()
    assert place.attempts.started == []


def test_a_claim_that_surely_failed_is_made_again(place: Place) -> None:
    place.join()
    task = place.submit()
    place.no_answer("claim", "before")
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.registry.task_queue.claimed() == {task}
    place.worker.claims.run_once()
    assert place.attempts.started == [task]
    assert place.registry.task_queue.claimed() == frozenset()


def test_a_claim_whose_answer_was_lost_is_given_back_unstarted(place: Place) -> None:
    place.join()
    task = place.submit()
    place.no_answer("claim", "after")
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.worker.claims.claiming() == {task}
    place.worker.claims.run_once()
    place.worker.reporter.run_once()
    assert place.attempts.started == []
    assert place.state(task) is TaskState.NEED_FAULT_TOLERANCE
    assert place.worker.claims.claiming() == frozenset()


def test_a_claim_that_takes_effect_late_is_found_and_given_back(place: Place) -> None:
    node = place.join()
    task = place.row(state=1, host=node.address, worker_incarnation=node.incarnation)
    for _ in range(2):
        assert place.state(task) is TaskState.RUNNING
        place.worker.kills.run_once()
        place.worker.reporter.run_once()
        place.pass_time(5)
    assert place.state(task) is TaskState.NEED_FAULT_TOLERANCE


def awaiting_inputs(place: Place, datasource: object = 7) -> int:
    """A submitted SQL task."""
    task = place.row()
    place.database.update(
        place.database.tasks,
        task,
        task_type="SQL",
        task_json=json.dumps({"params": json.dumps({"datasource": datasource})}),
    )
    place.registry.task_queue.offer([place.entry(task)])
    place.zookeeper.deliver()
    return task


def a_datasource(place: Place) -> None:
    place.database.insert(
        place.database.datasources, id=7, name="dw", type=1, connection_params="{}"
    )


@pytest.mark.parametrize("given", [7, "7", " 7 "])
def test_a_task_that_needs_a_data_source_is_started_with_it(place: Place, given: object) -> None:
    place.join()
    a_datasource(place)
    task, other = awaiting_inputs(place, given), place.submit()
    place.worker.claims.run_once()
    source = place.attempts.tasks[task].datasource
    assert source is not None
    assert (source.id, source.name) == (7, "dw")
    assert place.attempts.tasks[other].datasource is None
    assert place.worker.claims.claiming() == frozenset()


@pytest.mark.parametrize("given", [8, 0, "x", None])
def test_a_task_without_its_data_source_is_started_all_the_same_and_says_so_itself(
    place: Place, given: object
) -> None:
    place.join()
    a_datasource(place)
    task = awaiting_inputs(place, given)
    place.worker.claims.run_once()
    assert place.attempts.tasks[task].datasource is None


def test_a_spark_task_is_started_with_all_the_data_sources_that_it_names(place: Place) -> None:
    place.join()
    a_datasource(place)
    place.database.insert(
        place.database.datasources, id=9, name="crm", type=0, connection_params="{}"
    )
    task, plain = place.row(), place.row()
    for row, params in ((task, {"datasources": {"a": 9, "b": 7, "c": 8}}), (plain, {})):
        place.database.update(
            place.database.tasks,
            row,
            task_type="SPARK_SQL",
            task_json=json.dumps({"params": json.dumps(params)}),
        )
        place.registry.task_queue.offer([place.entry(row)])
    place.zookeeper.deliver()
    place.worker.claims.run_once()
    assert [each.id for each in place.attempts.tasks[task].datasources] == [9, 7]
    # An attempt that names none waits for none.
    assert place.attempts.started == [plain, task]
    assert place.attempts.tasks[plain].datasources == ()


@pytest.fixture
def deaf(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Makes reads of data sources fail, or work again."""
    look = place.store.datasources

    def make(deaf: bool) -> None:
        def datasources(ids: Collection[int]) -> dict[int, DataSource]:
            if deaf:
                raise ServiceUnreachableError("no answer")
            return look(ids)

        monkeypatch.setattr(place.store, "datasources", datasources)

    make(True)
    return make


def test_a_look_for_data_sources_that_fails_loses_no_attempt(
    place: Place, deaf: Callable[[bool], None]
) -> None:
    place.join()
    a_datasource(place)
    task, other = awaiting_inputs(place), place.submit()
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    # The others are not held up, and the one that awaits inputs is not taken for lost.
    assert place.attempts.started == [other]
    assert place.worker.claims.claiming() == {task}
    place.worker.kills.run_once()
    place.pass_time(6)
    place.worker.kills.run_once()
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.RUNNING
    deaf(False)
    place.worker.claims.run_once()
    assert place.attempts.started == [other, task]
    assert place.attempts.tasks[task].datasource is not None
    assert place.worker.claims.claiming() == frozenset()


def test_while_a_data_source_is_looked_for_nothing_else_is_claimed(
    place: Place, deaf: Callable[[bool], None]
) -> None:
    place.join()
    awaiting_inputs(place)
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    place.submit()
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.attempts.started == []


def test_an_attempt_awaiting_inputs_of_a_lost_session_is_not_started(
    place: Place, deaf: Callable[[bool], None]
) -> None:
    place.join()
    task = awaiting_inputs(place)
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    place.zookeeper.expire(place.registry)
    place.pass_time(1)
    place.worker.heartbeat.run_once()
    deaf(False)
    place.worker.claims.run_once()
    assert place.attempts.started == []
    assert place.worker.claims.claiming() == frozenset()
    assert place.state(task) is TaskState.RUNNING


def test_an_end_and_a_start_wake_the_reporter(place: Place) -> None:
    woken: list[str] = []
    for loop in place.worker.loops:
        place.worker.wakes.by_name[loop.name] = partial(woken.append, loop.name)
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    woken.clear()
    place.worker.reporter.started(task, 17, 1.0)
    assert woken == ["report"]
    place.attempts.end(task)
    # The slot that is free again wakes the claim loop.
    assert woken == ["report", "report", "claim"]


def test_an_end_is_kept_until_the_tables_answer_1477(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.attempts.end(task)
    place.no_answer("report", "before")
    with pytest.raises(ServiceUnreachableError):
        place.worker.reporter.run_once()
    assert place.worker.reporter.unreported() == {task}
    assert place.attempts.forgotten == []
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.SUCCESS
    assert place.attempts.forgotten == [task]


def test_an_end_whose_answer_was_lost_is_told_again_and_changes_nothing(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.attempts.end(task)
    place.no_answer("report", "after")
    with pytest.raises(ServiceUnreachableError):
        place.worker.reporter.run_once()
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.SUCCESS
    assert place.attempts.forgotten == [task]


def test_an_end_of_an_attempt_that_was_given_to_others_is_dropped(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.database.update(place.database.tasks, task, worker_incarnation=99)
    place.attempts.end(task)
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.RUNNING
    assert place.worker.reporter.unreported() == frozenset()


def test_a_kill_request_stays_until_its_row_is_finished(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.registry.kill_queue.ask([KillEntry(address=ADDRESS, task_instance_id=task)])
    place.zookeeper.deliver()
    place.worker.kills.run_once()
    assert place.attempts.killed == [task]
    assert place.registry.kill_queue.asked(ADDRESS) != ()
    place.attempts.end(task, TaskState.KILL)
    place.worker.reporter.run_once()
    place.worker.kills.run_once()
    assert place.registry.kill_queue.asked(ADDRESS) == ()


def test_t63_kill_requests_to_others_are_left_alone(place: Place) -> None:
    place.join()
    place.registry.kill_queue.ask([KillEntry(address="w:12", task_instance_id=1)])
    place.worker.kills.run_once()
    assert place.attempts.killed == []
    assert place.registry.kill_queue.asked("w:12") != ()


def test_t62_a_bad_kill_request_and_a_lost_answer_cost_no_other_kill(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.join()
    first, second = place.submit(), place.submit()
    place.worker.claims.run_once()
    for nonsense in ("nonsense", f"{ADDRESS}-", f"{ADDRESS}-x", "-1", "-"):
        place.zookeeper.create("tasks_kill", nonsense, nonsense)
    place.registry.kill_queue.ask([KillEntry(address=ADDRESS, task_instance_id=2_000_000_000)])
    place.registry.kill_queue.ask([KillEntry(address=ADDRESS, task_instance_id=first)])
    place.zookeeper.deliver()
    place.worker.kills.run_once()
    assert first in place.attempts.killed

    def no_answer(_node: Node) -> dict[int, bool]:
        raise ServiceUnreachableError("no answer")

    place.registry.kill_queue.ask([KillEntry(address=ADDRESS, task_instance_id=second)])
    place.zookeeper.deliver()
    with monkeypatch.context() as patch:
        patch.setattr(place.store, "running", no_answer)
        place.pass_time(6)
        with pytest.raises(ServiceUnreachableError):
            place.worker.kills.run_once()
    # A loop whose pass failed for want of an answer passes again.
    place.worker.kills.run_once()
    assert second in place.attempts.killed


def test_a_kill_that_has_no_request_is_found_in_the_row(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.database.update(place.database.tasks, task, wanted_state=9)
    place.worker.kills.run_once()
    assert place.attempts.killed == [task]


def test_a_process_whose_row_is_not_ours_any_more_is_killed(place: Place) -> None:
    place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.database.update(place.database.tasks, task, state=8, end_time=place.clock.now())
    place.worker.kills.run_once()
    assert place.attempts.killed == [task]


def test_a_lost_session_kills_everything_before_a_new_incarnation_joins(place: Place) -> None:
    first = place.join()
    task = place.submit()
    place.worker.claims.run_once()
    place.attempts.obstinate = True
    place.zookeeper.expire(place.registry)
    place.pass_time(1)
    place.worker.heartbeat.run_once()
    assert place.worker.identity.node == first
    place.attempts.obstinate = False
    place.worker.heartbeat.run_once()
    place.worker.reporter.run_once()
    assert place.node.incarnation > first.incarnation
    assert place.state(task) is TaskState.NEED_FAULT_TOLERANCE


def test_a_claim_that_is_answered_after_the_session_was_lost_is_not_started(place: Place) -> None:
    place.join()
    task = place.submit()

    def lose_session(name: str, moment: Literal["before", "after"]) -> None:
        if (name, moment) == ("claim", "after"):
            place.zookeeper.expire(place.registry)
            place.pass_time(1)

    place.database.commit_hook = lose_session
    place.worker.claims.run_once()
    assert place.state(task) is TaskState.RUNNING
    assert place.attempts.started == []


def test_the_first_join_adopts_what_a_former_incarnation_left(place: Place) -> None:
    ours = place.row(state=1, host=ADDRESS, worker_incarnation=999)
    lost = place.row(state=8, host=ADDRESS, worker_incarnation=999, end_time=place.clock.now())
    place.attempts.left = (ours, lost)
    node = place.join()
    assert place.attempts.adopted == [ours]
    assert place.store.running(node) == {ours: False}
    assert not place.registry.membership.is_adopting(ADDRESS)


def test_a_worker_beats_while_it_is_trusted(place: Place) -> None:
    place.join()
    place.zookeeper.children("workers")[ADDRESS].text = "stale"
    place.pass_time(5)
    place.pass_time(5)
    place.worker.heartbeat.run_once()
    assert place.zookeeper.children("workers")[ADDRESS].text != "stale"


@pytest.mark.parametrize(
    ("load_average", "memory_gb", "room"),
    [(4.0, 0.5, True), (4.1, 0.5, False), (4.0, 0.4, False), (0.0, 9.0, True)],
)
def test_t53_there_is_room_up_to_the_limits_themselves(
    load_average: float, memory_gb: float, room: bool
) -> None:
    load = HostLoad(
        cpu_usage=0.0,
        memory_usage=0.0,
        load_average=load_average,
        available_memory_gb=memory_gb,
    )
    admission = Admission(
        load=lambda: load, max_load_average=4.0, reserved_memory_gb=0.5, clock=VirtualClock()
    )
    assert admission() is room
