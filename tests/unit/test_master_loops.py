"""The loops that release, time out and decide: their timing, their rests and their errors.

The conformance suite covers the tables; here stores of a few lines stand for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event, Lock, Thread
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.clock import SystemClock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node, NodeKind, QueueEntry
from common.model.commands import CommandType
from common.model.instances import Ownership
from common.model.plans import Drop, Handled, Plan, Reject, Resume, SetIntent
from common.model.schedules import FireOutcome, FirePlan, FirePlanner, MisfirePolicy, Schedule
from common.model.states import ProcessState, TaskState
from common.model.upstream import Answer, Question, UpstreamRun
from common.runtime import metrics
from common.runtime.service import LoopThread
from common.runtime.wakes import Wakes
from common.store.listen import Channel, Notification
from common.store.master.ports import Fired, Planner, Released, WaitingDependent
from common.store.worker.ports import AttemptEnd
from master.commands.origin import Origin
from master.graphs import GraphCache
from master.identity import Identity
from master.loops.command_loop import MUTEX, CommandConfig, CommandLoop
from master.loops.dependent_loop import DependentConfig, DependentLoop
from master.loops.hold_loop import HoldConfig, HoldLoop
from master.loops.notice_loop import NoticeLoop
from master.loops.queue_loop import QueueLoop
from master.loops.schedule_loop import ScheduleConfig, ScheduleLoop
from master.loops.timeout_loop import TimeoutConfig, TimeoutLoop
from tests.builders import NOON
from tests.memory.registry import MemoryZooKeeper
from tests.memory.store import MemoryDatabase, MemoryRunStore
from tests.simulation.virtual_clock import VirtualClock
from tests.unit.test_run_worker import WORKER, OneMaster

UTC_ZONE = ZoneInfo("UTC")
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
UPSTREAM = 1_000


class Place:
    """A master that has joined its cluster, at a time that the test sets."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.zookeeper = MemoryZooKeeper(clock=self.clock, session_timeout=timedelta(days=1))
        self.registry = self.zookeeper.registry()
        self.identity = Identity(self.registry.membership)
        self.node = self.registry.membership.join(NodeKind.MASTER, "m1:5678", "")
        self.identity.become(self.node)

    def pass_by(self, passed: timedelta) -> None:
        self.clock.move_to(self.clock.elapsed + passed)


@pytest.fixture
def place() -> Place:
    return Place()


# HoldLoop


class Holds:
    """Returns the test's answers, each once; then empty ones."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.answers: list[Released] = []
        self.calls: list[datetime] = []
        self.takes = timedelta()

    def release(self, *, now: datetime) -> Released:
        self.calls.append(now)
        self.place.pass_by(self.takes)
        if self.answers:
            return self.answers.pop(0)
        return Released(offers=(), instances=0, next_due=None)


def a_hold_loop(place: Place, store: Holds) -> tuple[HoldLoop, QueueLoop]:
    queue = QueueLoop(
        MemoryRunStore(MemoryDatabase()),
        tasks=place.registry.task_queue,
        kills=place.registry.kill_queue,
        identity=place.identity,
        clock=place.clock,
    )
    config = HoldConfig(interval=2 * SECOND, breath=50 * MILLISECOND)
    loop = HoldLoop(store, identity=place.identity, clock=place.clock, queue=queue, config=config)
    return loop, queue


def test_what_is_let_go_is_offered_to_the_workers(place: Place) -> None:
    store = Holds(place)
    loop, queue = a_hold_loop(place, store)
    entry = QueueEntry(
        process_priority=2,
        process_instance_id=1,
        task_priority=2,
        task_instance_id=5,
        worker_group_id=-1,
    )
    store.answers = [Released(offers=(entry,), instances=0, next_due=None)]
    loop.run_once()
    queue.run_once()
    assert place.registry.task_queue.entries() == (entry,)


@pytest.mark.parametrize(
    ("due_in", "rest"),
    [
        (None, 2 * SECOND),
        (SECOND, SECOND),
        (timedelta(hours=3), 2 * SECOND),
        (MILLISECOND, 50 * MILLISECOND),
        (timedelta(), 50 * MILLISECOND),
        (-timedelta(hours=3), 50 * MILLISECOND),
    ],
)
def test_the_hold_loop_rests_until_the_next_is_due_and_is_never_busy(
    place: Place, due_in: timedelta | None, rest: timedelta
) -> None:
    store = Holds(place)
    loop, _ = a_hold_loop(place, store)
    due = None if due_in is None else place.clock.now() + due_in
    store.answers = [Released(offers=(), instances=0, next_due=due)]
    assert loop.run_once() == rest


def test_a_release_that_takes_long_does_not_make_the_next_one_late(place: Place) -> None:
    store = Holds(place)
    loop, _ = a_hold_loop(place, store)
    store.takes = SECOND
    due = place.clock.now() + 1.5 * SECOND
    store.answers = [Released(offers=(), instances=0, next_due=due)]
    assert loop.run_once() == 0.5 * SECOND


def test_between_two_releases_others_have_their_turn(place: Place) -> None:
    store = Holds(place)
    loop, _ = a_hold_loop(place, store)
    store.takes = 80 * MILLISECOND
    loop.run_once()
    # As one that every end of a task with a pool wakes.
    assert loop.run_once() == 80 * MILLISECOND
    assert len(store.calls) == 1
    place.pass_by(80 * MILLISECOND)
    loop.run_once()
    assert len(store.calls) == 2


def test_a_master_that_is_not_trusted_lets_nothing_go(place: Place) -> None:
    store = Holds(place)
    loop, _ = a_hold_loop(place, store)
    place.identity.become(None)
    assert loop.run_once() == 2 * SECOND
    assert store.calls == []


# TimeoutLoop


class Timeouts:
    def __init__(self) -> None:
        self.calls: list[datetime] = []

    def time_out(self, *, now: datetime) -> int:
        self.calls.append(now)
        return 3


def test_time_outs_are_checked_at_the_interval(place: Place) -> None:
    store = Timeouts()
    loop = TimeoutLoop(
        store, identity=place.identity, clock=place.clock, config=TimeoutConfig(interval=SECOND)
    )
    assert loop.run_once() == SECOND
    assert store.calls == [place.clock.now()]


def test_a_master_that_is_not_trusted_ends_nothing_for_taking_too_long(place: Place) -> None:
    store = Timeouts()
    place.identity.become(None)
    loop = TimeoutLoop(store, identity=place.identity, clock=place.clock)
    assert loop.run_once() == SECOND
    assert store.calls == []


# ScheduleLoop


class Schedules:
    """Plans one schedule in every pass, and returns the test's answer."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plans: list[FirePlan] = []
        self.next_due: datetime | None = None

    def fire(self, *, planner: FirePlanner, now: datetime, limit: int) -> Fired:
        plan = planner(self.schedule)
        self.plans.append(plan)
        return Fired(commands=len(plan.fires), fires=len(plan.fires), next_due=self.next_due)


def a_schedule_loop(
    place: Place, *, crontab: str = "0 0 * * * ?", due: timedelta = timedelta()
) -> tuple[ScheduleLoop, Schedules]:
    """A loop in New York with a misfire threshold of ten seconds, and a schedule without a zone."""
    now = place.clock.now()
    store = Schedules(
        Schedule(
            id=1,
            process_definition_id=3,
            definition_name="flights",
            definition_is_online=True,
            crontab=crontab,
            timezone_id=None,
            missing_time="shift",
            repeated_time="first",
            start_time=now - timedelta(days=1),
            end_time=now + timedelta(days=2),
            misfire_policy=MisfirePolicy.SKIP,
            next_fire_time=now + due,
        )
    )
    loop = ScheduleLoop(
        store,
        identity=place.identity,
        clock=place.clock,
        zone=ZoneInfo("America/New_York"),
        config=ScheduleConfig(misfire_threshold=10 * SECOND),
    )
    return loop, store


@pytest.mark.parametrize(("late", "outcome"), [(10, FireOutcome.FIRED), (11, FireOutcome.SKIPPED)])
def test_what_is_a_misfire_is_said_by_the_configuration(
    place: Place, late: int, outcome: FireOutcome
) -> None:
    loop, store = a_schedule_loop(place, crontab="* * * * * ?")
    place.pass_by(late * SECOND)
    loop.run_once()
    assert store.plans[0].fires[0].outcome is outcome


def test_t46_a_schedule_without_a_zone_fires_by_the_clock_of_the_cluster(place: Place) -> None:
    loop, store = a_schedule_loop(place, crontab="0 0 3 * * ?", due=timedelta(days=-1))
    loop.run_once()
    fires = [
        fire.fire_time.astimezone(ZoneInfo("America/New_York")) for fire in store.plans[0].fires
    ]
    assert [fire.hour for fire in fires] == [3]


def test_after_fires_further_due_ones_are_checked_at_once_and_else_it_rests_until_then(
    place: Place,
) -> None:
    loop, store = a_schedule_loop(place, crontab="* * * * * ?")
    store.next_due = place.clock.now()
    assert loop.run_once() == timedelta()
    store.next_due = place.clock.now() + 2 * SECOND
    assert loop.run_once() == 2 * SECOND
    store.next_due = place.clock.now() + timedelta(days=1)
    assert loop.run_once() == ScheduleConfig().interval


def test_what_stays_due_that_another_master_works_on_is_not_asked_for_without_rest(
    place: Place,
) -> None:
    loop, store = a_schedule_loop(place, due=timedelta(hours=1))
    store.next_due = place.clock.now() - SECOND
    assert loop.run_once() == ScheduleConfig().breath


def test_t91_a_master_that_is_not_trusted_fires_nothing(place: Place) -> None:
    loop, store = a_schedule_loop(place)
    place.identity.become(None)
    loop.run_once()
    assert store.plans == []


# DependentLoop


def a_dependent(number: int = 1, **columns: Any) -> WaitingDependent:
    """A task that waits for today's run of the definition of its own number."""
    item = {"definitionId": number, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    dependence = {
        "relation": "AND",
        "dependTaskList": [{"relation": "AND", "dependItemList": [item]}],
    }
    waiting = WaitingDependent(
        ownership=Ownership(process_instance_id=number, host="m1:5678", epoch=1),
        task_instance_id=number,
        name=f"wait{number}",
        task_json=json.dumps({"name": "wait", "type": "DEPENDENT", "dependence": dependence}),
        process_definition_id=3,
        schedule_time=NOON,
        start_time=NOON,
        evidence=None,
    )
    return replace(waiting, **columns)


def a_run(state: ProcessState) -> UpstreamRun:
    return UpstreamRun(id=UPSTREAM, state=state, schedule_time=NOON, start_time=NOON, end_time=NOON)


class Dependents:
    """Tables of a few lines, for several threads. `upstream` answers by definition id.

    So does `waited_for`, with the id of a run that goes on.
    """

    def __init__(self) -> None:
        self.rows: dict[int, WaitingDependent] = {}
        self.upstream: dict[int, ProcessState] = {}
        self.waited_for: dict[int, int] = {}
        self.decided: dict[int, tuple[TaskState, str | None]] = {}
        self.looks = 0
        self.writes = 0
        self.poisoned: tuple[int, ...] = ()
        self.unwritable: tuple[int, ...] = ()
        # Runs of other masters, runs that still move, and the arguments of every query.
        self.elsewhere: dict[int, WaitingDependent] = {}
        self.moving: tuple[int, ...] = ()
        self.followed: list[list[int]] = []
        self.broken: tuple[str, ...] = ()
        self.read: Callable[[], None] = lambda: None
        self.all_decided = Event()
        self.expected = -1
        self._lock = Lock()

    def add(self, *rows: WaitingDependent) -> None:
        with self._lock:
            self.rows |= {row.task_instance_id: row for row in rows}

    def waiting(self, node: Node) -> tuple[WaitingDependent, ...]:
        self._answers("waiting")
        with self._lock:
            self.looks += 1
            found = tuple(self.rows.values())
        self.read()
        return found

    def look_up(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        self._answers("look_up")
        ids = [question.definition_id or 0 for question in questions]
        if any(number in self.poisoned for number in ids):
            raise ValueError("a mistake of ours")
        return tuple(self._run(number) for number in ids)

    def held_up(self, process_instance_ids: Collection[int]) -> tuple[WaitingDependent, ...]:
        self._answers("held_up")
        with self._lock:
            self.followed.append(sorted(process_instance_ids))
            rows = [*self.rows.values(), *self.elsewhere.values()]
        named = set(process_instance_ids) - set(self.moving)
        return tuple(row for row in rows if row.ownership.process_instance_id in named)

    def _run(self, number: int) -> UpstreamRun | None:
        if number in self.waited_for:
            return replace(a_run(ProcessState.RUNNING), id=self.waited_for[number])
        return a_run(self.upstream[number]) if number in self.upstream else None

    def decide(
        self,
        waiting: WaitingDependent,
        *,
        state: TaskState | None,
        evidence: str,
        reason: str | None,
        now: datetime,
    ) -> bool:
        self._answers("decide")
        with self._lock:
            self.writes += 1
            number = waiting.task_instance_id
            if number in self.unwritable:
                raise ValueError("a row that can't be written")
            if number not in self.rows:
                return False
            if state is None:
                self.rows[number] = replace(self.rows[number], evidence=evidence)
                return True
            del self.rows[number]
            self.decided[number] = (state, reason)
            if len(self.decided) == self.expected:
                self.all_decided.set()
            return True

    def _answers(self, question: str) -> None:
        if question in self.broken:
            raise ServiceUnreachableError(f"no answer to {question}")


class Waiter:
    """A dependent loop that the test steps, with a count of its wakes."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.store = Dependents()
        self.wakes = 0
        self.config = DependentConfig(interval=5 * SECOND, breath=50 * MILLISECOND)
        self.loop = self.made()

    def made(self, **config: Any) -> DependentLoop:
        return DependentLoop(
            self.store,
            identity=self.place.identity,
            clock=self.place.clock,
            zone=UTC_ZONE,
            wake=self._woken,
            config=replace(self.config, **config),
        )

    def later(self, passed: timedelta) -> timedelta:
        self.place.pass_by(passed)
        return self.loop.run_once()

    def _woken(self) -> None:
        self.wakes += 1


@pytest.fixture
def waiter(place: Place) -> Waiter:
    return Waiter(place)


@pytest.mark.parametrize(
    ("upstream", "state"),
    [
        (ProcessState.SUCCESS, TaskState.SUCCESS),
        (ProcessState.FAILURE, TaskState.FAILURE),
        (ProcessState.STOP, TaskState.FAILURE),
    ],
)
def test_a_task_is_decided_by_the_run_that_it_waits_for(
    waiter: Waiter, upstream: ProcessState, state: TaskState
) -> None:
    waiter.store.add(a_dependent())
    waiter.store.upstream[1] = upstream
    waiter.loop.run_once()
    decided, reason = waiter.store.decided[1]
    assert decided is state
    assert (reason is None) == (state is TaskState.SUCCESS)


def test_a_task_waits_as_long_as_what_it_waits_for_goes_on(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.store.upstream[1] = ProcessState.RUNNING
    assert waiter.loop.run_once() == 5 * SECOND
    assert waiter.store.decided == {}
    assert json.loads(waiter.store.rows[1].evidence or "")[0]["run"]["id"] == UPSTREAM


def test_t45_a_task_waits_for_the_day_of_its_run_s_own_zone(waiter: Waiter) -> None:
    # Half past eleven in the evening of the day of 25 hours.
    evening = datetime(2019, 11, 4, 4, 30, tzinfo=UTC)
    waiter.store.add(a_dependent(schedule_time=evening, timezone_id="America/New_York"))
    waiter.loop.run_once()
    (looked,) = json.loads(waiter.store.rows[1].evidence or "")
    day = datetime(2019, 11, 3, 4, tzinfo=UTC)
    assert [datetime.fromisoformat(looked[end]) for end in ("from", "to")] == [
        day,
        day + timedelta(hours=25),
    ]


def test_a_task_of_a_run_in_a_zone_that_there_is_not_fails_and_the_others_are_decided(
    waiter: Waiter,
) -> None:
    waiter.store.add(a_dependent(1, timezone_id="Mars/Base"), a_dependent(2))
    waiter.store.upstream[2] = ProcessState.SUCCESS
    waiter.loop.run_once()
    decided, reason = waiter.store.decided[1]
    assert decided is TaskState.FAILURE
    assert "the run's time zone: 'Mars/Base' is no zone" in str(reason)
    assert waiter.store.decided[2] == (TaskState.SUCCESS, None)


def test_evidence_is_written_once_and_not_with_every_check(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    for _ in range(4):
        waiter.later(5 * SECOND)
    assert (waiter.store.looks, waiter.store.writes) == (4, 1)


def test_an_end_anywhere_has_waiting_tasks_checked_at_once(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.later(SECOND)
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.pass_by(SECOND)
    waiter.loop.on_end()
    assert waiter.wakes == 1
    waiter.loop.run_once()
    assert waiter.store.decided[1] == (TaskState.SUCCESS, None)


def test_an_end_without_a_notification_is_found_at_the_interval(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    waiter.store.upstream[1] = ProcessState.SUCCESS
    assert waiter.later(3 * SECOND) == 2 * SECOND
    assert waiter.store.decided == {}
    waiter.later(2 * SECOND)
    assert 1 in waiter.store.decided


def test_a_burst_of_ends_shares_one_check(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    for _ in range(100):
        waiter.loop.on_end()
    assert waiter.wakes == 1
    assert waiter.later(20 * MILLISECOND) == 30 * MILLISECOND
    assert waiter.later(30 * MILLISECOND) == 5 * SECOND
    assert waiter.store.looks == 2


def test_ends_elsewhere_are_no_news_while_nothing_waits(waiter: Waiter) -> None:
    waiter.loop.run_once()
    for _ in range(3):
        waiter.loop.on_end()
    assert waiter.wakes == 0
    assert waiter.later(SECOND) == 4 * SECOND


def test_a_task_that_begins_to_wait_is_checked_though_nothing_waited(waiter: Waiter) -> None:
    waiter.loop.run_once()
    waiter.store.add(a_dependent())
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.pass_by(SECOND)
    waiter.loop.on_new_wait()
    assert waiter.wakes == 1
    waiter.loop.run_once()
    assert 1 in waiter.store.decided


def test_a_task_that_was_taken_over_is_found_and_ends_are_news_again(waiter: Waiter) -> None:
    waiter.loop.run_once()
    waiter.store.add(a_dependent())
    waiter.later(5 * SECOND)
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.pass_by(SECOND)
    waiter.loop.on_end()
    waiter.loop.run_once()
    assert 1 in waiter.store.decided


@pytest.mark.parametrize("method", ["on_end", "on_new_wait"])
def test_a_notification_while_rows_are_read_causes_another_check(
    waiter: Waiter, method: str
) -> None:
    def notify() -> None:
        waiter.store.read = lambda: None
        waiter.store.add(a_dependent())
        waiter.store.upstream[1] = ProcessState.SUCCESS
        getattr(waiter.loop, method)()

    # The rows were read before this change, and lack it.
    waiter.store.read = notify
    assert waiter.loop.run_once() == 50 * MILLISECOND
    assert waiter.store.decided == {}
    assert waiter.wakes == 1
    waiter.later(50 * MILLISECOND)
    assert 1 in waiter.store.decided


def test_a_check_that_takes_long_leaves_as_much_time_to_others(waiter: Waiter) -> None:
    def take_long() -> None:
        waiter.place.pass_by(SECOND)
        waiter.loop.on_end()

    waiter.store.add(a_dependent())
    waiter.store.read = take_long
    assert [waiter.loop.run_once(), waiter.loop.run_once()] == [SECOND, SECOND]
    assert waiter.store.looks == 1


@pytest.mark.parametrize("question", ["waiting", "look_up", "decide"])
def test_a_check_without_an_answer_is_repeated_without_a_notification(
    waiter: Waiter, question: str
) -> None:
    waiter.store.add(a_dependent())
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.store.broken = (question,)
    with pytest.raises(ServiceUnreachableError):
        waiter.loop.run_once()
    waiter.store.broken = ()
    waiter.later(50 * MILLISECOND)
    assert 1 in waiter.store.decided


def test_t98_a_master_that_stops_or_is_lost_leaves_what_waits_as_it_is(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    waiting, writes = dict(waiter.store.rows), waiter.store.writes
    waiter.place.identity.become(None)
    waiter.later(timedelta(minutes=1))
    assert (waiter.store.rows, waiter.store.writes) == (waiting, writes)
    assert waiter.store.decided == {}


def test_a_master_that_is_not_trusted_decides_nothing_and_forgets_no_news(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.loop.run_once()
    waiter.store.upstream[1] = ProcessState.SUCCESS
    waiter.place.identity.become(None)
    waiter.loop.on_end()
    assert waiter.later(SECOND) == 5 * SECOND
    assert waiter.store.looks == 1
    waiter.place.identity.become(waiter.place.node)
    waiter.loop.run_once()
    assert 1 in waiter.store.decided


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "can't be read"),
        ("[]", "no object"),
        ("[" * 100_000, "can't be read"),
        ("{}", "dependence"),
        ('{"dependence": {"relation": "XOR", "dependTaskList": []}}', "relation"),
    ],
)
def test_a_task_that_can_t_be_read_fails_with_the_place_and_the_others_go_on(
    waiter: Waiter, text: str, cause: str
) -> None:
    waiter.store.add(a_dependent(1, task_json=text), a_dependent(2))
    waiter.store.upstream[2] = ProcessState.SUCCESS
    waiter.loop.run_once()
    state, reason = waiter.store.decided[1]
    assert state is TaskState.FAILURE
    assert cause in str(reason)
    assert waiter.store.decided[2] == (TaskState.SUCCESS, None)


def test_a_mistake_of_ours_about_one_task_holds_up_no_other_and_ends(waiter: Waiter) -> None:
    waiter.store.add(*(a_dependent(number) for number in (1, 2, 3)))
    waiter.store.upstream = dict.fromkeys((1, 2, 3), ProcessState.SUCCESS)
    waiter.store.poisoned = (2,)
    waiter.loop.run_once()
    assert list(waiter.store.decided) == [1, 3]
    waiter.later(5 * SECOND)
    assert 2 not in waiter.store.decided
    waiter.later(5 * SECOND)
    state, reason = waiter.store.decided[2]
    assert (state, reason) == (
        TaskState.FAILURE,
        "it could not be decided: ValueError: a mistake of ours",
    )


def test_a_mistake_that_has_passed_is_forgotten(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    for poisoned in ((1,), (1,), (), (1,), (1,)):
        waiter.store.poisoned = poisoned
        waiter.later(5 * SECOND)
    assert waiter.store.decided == {}


def test_a_decision_that_can_t_be_written_ends_no_loop(waiter: Waiter) -> None:
    waiter.store.add(a_dependent(1), a_dependent(2), a_dependent(3, task_json="{"))
    waiter.store.upstream = dict.fromkeys((1, 2), ProcessState.SUCCESS)
    waiter.store.unwritable = (1, 3)
    for _ in range(4):
        assert waiter.later(5 * SECOND) > timedelta()
    assert list(waiter.store.decided) == [2]
    waiter.store.unwritable = ()
    waiter.later(5 * SECOND)
    assert sorted(waiter.store.decided) == [1, 2, 3]


# Runs that wait for each other


def in_a_ring(waiter: Waiter, *numbers: int) -> None:
    """Each of these runs waits for the next, and the last for the first."""
    waiter.store.add(*(a_dependent(number) for number in numbers))
    waiter.store.waited_for |= dict(zip(numbers, (*numbers[1:], numbers[0]), strict=True))


def test_of_runs_that_wait_for_each_other_the_newest_fails(waiter: Waiter) -> None:
    in_a_ring(waiter, 1, 3, 2)
    waiter.loop.run_once()
    assert (waiter.store.decided, waiter.store.followed) == ({}, [])
    waiter.later(5 * SECOND)
    reason = "process instances 1 → 3 → 2 → 1 wait for each other"
    assert waiter.store.decided == {3: (TaskState.FAILURE, reason)}


def test_wait_cycles_are_sought_at_the_interval(waiter: Waiter) -> None:
    waiter.store.add(a_dependent())
    waiter.store.waited_for = {1: 7}
    for _ in range(5):
        waiter.loop.on_end()
        waiter.later(SECOND)
    assert waiter.store.followed == [[7]]
    waiter.later(5 * SECOND)
    assert waiter.store.followed == [[7], [7]]


def test_a_run_that_moves_by_itself_is_no_part_of_a_ring(waiter: Waiter) -> None:
    in_a_ring(waiter, 1, 2)
    waiter.store.moving = (1,)
    for _ in range(3):
        waiter.later(5 * SECOND)
    assert waiter.store.decided == {}
    waiter.store.moving = ()
    waiter.later(5 * SECOND)
    assert list(waiter.store.decided) == [2]


@pytest.mark.parametrize(("elsewhere", "failed"), [(1, [2]), (2, [])])
def test_each_master_ends_only_its_own_runs_of_a_ring(
    waiter: Waiter, elsewhere: int, failed: list[int]
) -> None:
    in_a_ring(waiter, 1, 2)
    waiter.store.elsewhere[elsewhere] = waiter.store.rows.pop(elsewhere)
    for _ in range(3):
        waiter.later(5 * SECOND)
    assert list(waiter.store.decided) == failed


def test_a_run_elsewhere_that_will_fail_by_itself_is_no_part_of_a_ring(waiter: Waiter) -> None:
    in_a_ring(waiter, 1, 2)
    del waiter.store.rows[1]
    waiter.store.elsewhere[1] = a_dependent(1, task_json="{")
    for _ in range(3):
        waiter.later(5 * SECOND)
    assert waiter.store.decided == {}


def test_a_ring_among_more_runs_than_can_be_followed_is_found_in_time(waiter: Waiter) -> None:
    waiter.loop = waiter.made(followed_at_most=8)
    waiter.store.add(*(a_dependent(number) for number in range(1, 41)))
    waiter.store.waited_for = {number: 100 + number for number in range(1, 41)}
    in_a_ring(waiter, 201, 202)
    for _ in range(12):
        waiter.later(5 * SECOND)
    assert list(waiter.store.decided) == [202]
    assert all(len(asked) <= 8 for asked in waiter.store.followed)


def test_a_search_that_gets_no_answer_is_made_again(waiter: Waiter) -> None:
    in_a_ring(waiter, 1, 2)
    waiter.loop.run_once()
    waiter.store.broken = ("held_up",)
    with pytest.raises(ServiceUnreachableError):
        waiter.later(5 * SECOND)
    waiter.store.broken = ()
    waiter.later(5 * SECOND)
    assert list(waiter.store.decided) == [2]


def test_no_wake_up_is_lost_between_threads(place: Place) -> None:
    """Without a single slow pass: a lost wake would cost an hour."""
    store = Dependents()
    numbers = range(1, 301)
    store.expected = len(numbers)
    wakes = Wakes()
    loop = DependentLoop(
        store,
        identity=place.identity,
        clock=SystemClock(),
        zone=UTC_ZONE,
        wake=partial(wakes.wake, DependentLoop.name),
        config=DependentConfig(interval=timedelta(hours=1), breath=MILLISECOND),
    )
    died: list[BaseException] = []
    thread = LoopThread(loop, clock=SystemClock(), on_death=lambda _, error: died.append(error))
    wakes.by_name[loop.name] = thread.wake
    begun = {number: Event() for number in numbers}

    def begin() -> None:
        for number in numbers:
            store.add(a_dependent(number))
            loop.on_new_wait()
            begun[number].set()

    def end(part: int) -> None:
        for number in numbers[part::2]:
            begun[number].wait(60)
            store.upstream[number] = ProcessState.SUCCESS
            loop.on_end()

    others = [Thread(target=begin), Thread(target=end, args=(0,)), Thread(target=end, args=(1,))]
    thread.start()
    try:
        for other in others:
            other.start()
        for other in others:
            other.join(30)
        assert store.all_decided.wait(30), (died, len(store.decided))
    finally:
        thread.ask_to_stop()
        assert thread.join(timedelta(seconds=30))
    assert died == []


# CommandLoop


class Commands:
    """A command table that hands out the test's commands, and records the room it was given."""

    def __init__(self, *handled: Handled) -> None:
        self.handled = handled
        self.rooms: list[int] = []
        self.spares: list[int] = []
        self.idle = False

    def waiting(self) -> bool:
        return not self.idle

    def take(
        self,
        *,
        node: Node,
        limit: int,
        room: int,
        spare: int,
        live_masters: frozenset[Node],
        planner: Planner,
        now: datetime,
    ) -> tuple[Handled, ...]:
        self.rooms.append(room)
        self.spares.append(spare)
        handled, self.handled = self.handled, ()
        return handled


class Commander:
    """A command loop with a run worker that has runs or none."""

    def __init__(self, place: Place, store: Commands, *, admitted: bool = True) -> None:
        self.master = OneMaster()
        self.waits = 0
        self.loop = CommandLoop(
            store,
            mutex=place.registry.mutex,
            membership=place.registry.membership,
            identity=place.identity,
            runs=self.master.runs,
            origin=Origin(zone=UTC_ZONE, graph=GraphCache().graph),
            clock=place.clock,
            admitted=lambda: admitted,
            waits=self._waits,
            config=CommandConfig(exec_threads=2),
        )

    def _waits(self) -> None:
        self.waits += 1


def test_commands_are_taken_for_the_room_that_is_left(place: Place) -> None:
    store = Commands()
    commander = Commander(place, store)
    for _ in range(3):
        commander.loop.run_once()
        commander.master.begin("a")
    assert store.rooms == [2, 1, 0]


def test_a_complement_s_runs_take_room_from_its_other_dates_only(place: Place) -> None:
    store = Commands()
    commander = Commander(place, store)
    run = commander.master.begin("a")
    commander.master.database.update(
        commander.master.database.processes, run, history_cmd="COMPLEMENT_DATA"
    )
    commander.master.step()
    commander.loop.run_once()
    assert (store.rooms, store.spares) == ([2], [1])


def test_a_loaded_host_still_takes_what_needs_no_room_and_rests_1523(place: Place) -> None:
    store = Commands()
    assert Commander(place, store, admitted=False).loop.run_once() == SECOND
    assert store.rooms == [0]


def a_handled(plan: Plan, ownership: Ownership | None = None) -> Handled:
    return Handled(command_id=1, plan=plan, ownership=ownership)


RESUMED = Resume(process_instance_id=7, epoch=1, command_type=CommandType.RECOVER_SERIAL_WAIT)
STOPPED = SetIntent(
    process_instance_id=7, command_type=CommandType.STOP, wanted_state=ProcessState.STOP
)


def test_an_instance_that_has_become_this_master_s_is_opened(place: Place) -> None:
    ownership = Ownership(process_instance_id=7, host="m1:5678", epoch=2)
    commander = Commander(place, Commands(a_handled(RESUMED, ownership)))
    assert commander.loop.run_once() == timedelta()
    assert commander.master.runs.active == 1
    assert commander.waits == 0


@pytest.mark.parametrize("plan", [STOPPED, Drop(reason="no"), Reject(reason="no")])
def test_a_command_without_an_instance_does_not_wake_the_hold_loop(
    place: Place, plan: Plan
) -> None:
    commander = Commander(place, Commands(a_handled(plan)))
    commander.loop.run_once()
    assert commander.waits == 0


def test_t40_nobody_rests_with_the_mutex_in_hand(place: Place) -> None:
    commander = Commander(place, Commands())
    mutex = place.zookeeper.registry().mutex
    assert commander.loop.run_once() == SECOND
    # The loop rests now.
    with mutex.hold(MUTEX, timeout=timedelta()) as held:
        assert held


def test_t40_without_commands_the_mutex_is_not_asked_for(place: Place) -> None:
    store = Commands()
    store.idle = True
    commander = Commander(place, store)
    with place.zookeeper.registry().mutex.hold(MUTEX, timeout=timedelta()) as held:
        assert held
        # A loop that fails to get the mutex retries at once; one that does not want it rests.
        assert commander.loop.run_once() == SECOND
    assert store.rooms == []


# NoticeLoop


class Notices:
    def __init__(self, *notifications: Notification) -> None:
        self.notifications = list(notifications)

    def wait(self, timeout: timedelta) -> list[Notification]:
        heard, self.notifications = self.notifications, []
        return heard

    def wake(self) -> None:
        """Nothing waits in a test."""


@pytest.mark.parametrize(
    ("channel", "payload", "woken"),
    [
        (Channel.COMMAND, "", ["command"]),
        (Channel.PROCESS, "", ["upstream"]),
        (Channel.HOLD, "", ["hold"]),
        (Channel.TASK, '[1,2,1,7,0,"a",false,null]', ["upstream"]),
        (Channel.TASK, "what?", ["upstream", "runs"]),
        (Channel.WANTED, "", ["runs"]),
        ("?", "", ["command", "hold", "runs", "upstream"]),
    ],
)
def test_a_notification_wakes_whom_it_concerns(
    channel: str, payload: str, woken: list[str]
) -> None:
    master = OneMaster()
    heard: list[str] = []
    loop = NoticeLoop(
        Notices(Notification(channel=channel, payload=payload)),
        runs=master.runs,
        command_waiting=lambda: heard.append("command"),
        upstream_changed=lambda: heard.append("upstream"),
        hold_changed=lambda: heard.append("hold"),
    )
    assert loop.run_once() == timedelta()
    heard += ["runs"] * master.wakes
    assert sorted(heard) == sorted(woken)


def test_a_report_wakes_the_owner_of_its_run() -> None:
    master = OneMaster()
    run_id = master.begin("a")
    master.step()
    task_id = master.claim(run_id, "a")
    end = AttemptEnd(task_instance_id=task_id, state=TaskState.SUCCESS, end_time=NOON)
    master.tasks.report(WORKER, [end])
    loop = NoticeLoop(
        Notices(
            *(
                Notification(channel=channel, payload=payload)
                for channel, payload in master.database.drain_notifications()
                if channel == Channel.TASK
            )
        ),
        runs=master.runs,
        command_waiting=lambda: None,
    )
    wakes = master.wakes
    # The rows can't be read: only the notification itself can report the end.
    master.store.broken = ("reports",)
    loop.run_once()
    assert master.wakes == wakes + 1
    master.step()
    assert master.state(run_id) is ProcessState.SUCCESS


def test_only_a_failover_counts_as_one(place: Place) -> None:
    def total() -> float:
        return metrics.REGISTRY.get_sample_value("ds_takeovers_total") or 0.0

    failover = replace(RESUMED, command_type=CommandType.RECOVER_TOLERANCE_FAULT_PROCESS)
    before = total()
    for plan in (RESUMED, failover, STOPPED):
        Commander(place, Commands(a_handled(plan))).loop.run_once()
    assert total() == before + 1
