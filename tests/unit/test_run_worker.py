"""The loop that owns runs, on tables in memory: it opens, saves, forgets and gives up runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.commands import Command, CommandType
from common.model.failures import FailureReason
from common.model.instances import Ownership, TaskReport
from common.model.plans import Complement, Handled, Plan, Snapshot
from common.model.states import FailureStrategy, ProcessState, TaskState
from common.store.listen import Channel, read_task_report
from common.store.master.ports import Intent, LoadedRun, Saved
from common.store.transaction import StoreConflictError
from common.store.worker.ports import AttemptEnd, AttemptFolders
from master.commands import plan
from master.commands.origin import Origin
from master.graphs import GraphCache
from master.identity import Identity
from master.logic.complement import step
from master.loops.run_worker import RunWorker, RunWorkerConfig
from tests.builders import NOON, a_definition_json
from tests.memory.registry import MemoryZooKeeper
from tests.memory.store import (
    MemoryCommandStore,
    MemoryComplementStore,
    MemoryDatabase,
    MemoryFailoverStore,
    MemoryRunStore,
    MemoryTaskStore,
    MemoryTimeoutStore,
    ProcessRecord,
    TaskRecord,
)
from tests.simulation.virtual_clock import VirtualClock

MASTER = Node(address="m1:5678", incarnation=7)
OTHER_MASTER = Node(address="m2:5678", incarnation=8)
WORKER = Node(address="w1:1234", incarnation=9)
UTC_ZONE = ZoneInfo("UTC")
MINUTE = timedelta(minutes=1)


class LineThatBreaks(MemoryRunStore):
    """Tables that can be unreachable: `broken` names the queries that get no answer."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.broken: tuple[str, ...] = ()
        self.asked: list[str] = []
        self.loads: list[int] = []

    def load(self, ownerships: Sequence[Ownership]) -> tuple[LoadedRun, ...]:
        self._answers("load")
        self.loads.append(len(ownerships))
        return super().load(ownerships)

    def owned(self, node: Node) -> frozenset[Ownership]:
        self._answers("owned")
        return super().owned(node)

    def reports(self, node: Node) -> tuple[TaskReport, ...]:
        self._answers("reports")
        return super().reports(node)

    def wanted(self, node: Node) -> dict[Ownership, Intent]:
        self._answers("wanted")
        return super().wanted(node)

    def propagate_intents(self, node: Node) -> int:
        self._answers("propagate_intents")
        return super().propagate_intents(node)

    def _answers(self, question: str) -> None:
        self.asked.append(question)
        if question in self.broken:
            raise ServiceUnreachableError(f"no answer to {question}")


class OneMaster:
    """A master's run worker; the test plays the worker on the tables."""

    def __init__(
        self,
        *,
        config: RunWorkerConfig | None = None,
        store: Callable[[MemoryDatabase], LineThatBreaks] = LineThatBreaks,
    ) -> None:
        self.config = config
        self.clock = VirtualClock()
        self.database = MemoryDatabase()
        self.store = store(self.database)
        self.database.now = self.clock.now
        self.tasks = MemoryTaskStore(self.database)
        self.timeouts = MemoryTimeoutStore(self.database)
        self.failover = MemoryFailoverStore(self.database)
        self.graphs = GraphCache()
        registry = MemoryZooKeeper(
            clock=self.clock, session_timeout=timedelta(seconds=6)
        ).registry()
        self.identity = Identity(registry.membership)
        self.identity.become(MASTER)
        self.saved: list[Saved] = []
        self.ends = 0
        self.wakes = 0
        self._numbers = count(1)
        self.runs = self.start()

    def start(self) -> RunWorker:
        """A run worker with an empty memory, as after a restart."""
        self.runs = RunWorker(
            self.store,
            identity=self.identity,
            graphs=self.graphs,
            clock=self.clock,
            saved=self.saved.append,
            ended=self._ended,
            wake=self._woken,
            config=self.config,
        )
        return self.runs

    def command(self, command_type: CommandType, **columns: Any) -> Ownership | None:
        """Insert a command and take it; return the run if it is this master's now."""
        self.database.insert(
            self.database.commands,
            command_type=int(command_type),
            **{"start_time": self.clock.now(), "update_time": self.clock.now(), **columns},
        )
        handled = self._take(room=1)
        if isinstance(handled.plan, Complement):
            # Its only date begins by a command of its own.
            MemoryComplementStore(self.database).advance(
                decide=step, now=self.clock.now(), thorough=False
            )
            handled = self._take(room=1)
        return handled.ownership

    def _take(self, *, room: int) -> Handled:
        (handled,) = MemoryCommandStore(self.database).take(
            node=MASTER,
            limit=1,
            room=room,
            spare=room,
            live_masters=frozenset({MASTER}),
            planner=self._plan,
            now=self.clock.now(),
        )
        return handled

    def begin(
        self,
        shape: str,
        *,
        strategy: FailureStrategy = FailureStrategy.CONTINUE,
        of_task: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> int:
        """Begin a run of this DAG and open it in the run worker; return its id."""
        definition = self.database.insert(
            self.database.definitions,
            name=f"d{next(self._numbers)}",
            release_state=1,
            process_definition_json=a_definition_json(shape, **(of_task or {})),
        )
        ownership = self.command(
            CommandType.START_PROCESS,
            process_definition_id=definition,
            failure_strategy=int(strategy),
        )
        assert ownership is not None
        self.runs.open([ownership])
        return ownership.process_instance_id

    def stop(self, run_id: int) -> None:
        """Request a stop of a run, as a person does."""
        self.command(CommandType.STOP, command_param=json.dumps({"ProcessInstanceId": run_id}))

    def pause(self, run_id: int) -> None:
        """Request a pause of a run, as a person does."""
        self.command(CommandType.PAUSE, command_param=json.dumps({"ProcessInstanceId": run_id}))

    def take_child(self) -> int:
        """Take the command that a SUB_PROCESS task has put, open its run and return the id."""
        handled = self._take(room=0)
        assert handled.ownership is not None, handled.plan
        self.runs.open([handled.ownership])
        return handled.ownership.process_instance_id

    def claim(self, run_id: int, name: str) -> int:
        """Claim the task as the worker; return the attempt's id."""
        task = self.valid(run_id, name)
        self.tasks.claim(
            WORKER,
            [task.id],
            folders=AttemptFolders(work="/t", logs="/t/logs"),
            now=self.clock.now(),
        )
        return task.id

    def end(
        self,
        run_id: int,
        name: str,
        state: TaskState = TaskState.SUCCESS,
        var_pool: str | None = None,
        failure: FailureReason | None = None,
    ) -> int:
        """Run the task to its end, and notify the master of it; return the attempt's id."""
        task_id = self.claim(run_id, name)
        end = AttemptEnd(
            task_instance_id=task_id,
            state=state,
            end_time=self.clock.now(),
            var_pool=var_pool,
            failure=failure,
        )
        self.tasks.report(WORKER, [end])
        self.deliver_notifications()
        return task_id

    def deliver_notifications(self) -> None:
        """Deliver the notifications of the triggers to the master."""
        for channel, payload in self.database.drain_notifications():
            if channel == Channel.TASK:
                self.runs.reported(read_task_report(payload))

    def step(self) -> timedelta:
        return self.runs.run_once()

    def later(self, passed: timedelta) -> timedelta:
        """Advance the clock, then step."""
        self.clock.move_to(self.clock.elapsed + passed)
        return self.step()

    def process(self, run_id: int) -> ProcessRecord:
        process = self.database.processes.get(run_id)
        assert process is not None
        return process

    def state(self, run_id: int) -> ProcessState:
        return ProcessState(self.process(run_id).state)

    def attempts(self, run_id: int) -> list[TaskRecord]:
        return [task for task in self.database.tasks if task.process_instance_id == run_id]

    def valid(self, run_id: int, name: str) -> TaskRecord:
        (task,) = [one for one in self.attempts(run_id) if one.name == name and one.flag == 1]
        return task

    def names(self, run_id: int) -> list[str]:
        """The names of all attempts, in the order in which they were submitted."""
        return [task.name for task in self.attempts(run_id)]

    def spoil(self, run_id: int) -> None:
        """Change a row behind its owner's back, so that its next step conflicts."""
        self.database.update(
            self.database.tasks, self.attempts(run_id)[0].id, settled=True, retry_at=None
        )

    def _plan(self, command: Command, snapshot: Snapshot) -> Plan:
        origin = Origin(zone=UTC_ZONE, graph=self.graphs.graph)
        return plan(command, snapshot, now=self.clock.now(), origin=origin)

    def _ended(self) -> None:
        self.ends += 1

    def _woken(self) -> None:
        self.wakes += 1


@pytest.fixture
def master() -> OneMaster:
    return OneMaster()


def test_a_run_goes_from_its_opening_to_its_end_without_a_comparison(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")
    master.step()
    master.end(run, "b")
    master.step()
    assert master.state(run) is ProcessState.SUCCESS
    assert master.names(run) == ["a", "b"]
    assert (master.runs.active, master.ends) == (0, 1)


def test_what_was_submitted_is_offered_once_the_rows_stand(master: OneMaster) -> None:
    run = master.begin("a b")
    master.step()
    (saved,) = master.saved
    assert [entry.task_instance_id for entry in saved.offers] == [
        task.id for task in master.attempts(run)
    ]


def test_runs_of_one_pass_share_one_save(master: OneMaster) -> None:
    for _ in range(3):
        master.begin("a")
    master.step()
    assert len(master.saved) == 1


def test_a_refused_step_does_not_hold_up_the_others_of_its_batch(master: OneMaster) -> None:
    good, bad, other = (master.begin("a >> b") for _ in range(3))
    master.step()
    for run in (good, bad, other):
        master.end(run, "a")
    # Between the reading of the report and the save, as a person with a client would.
    master.database.begin_hook = lambda name: _once(master, name, lambda: master.spoil(bad))
    master.step()
    assert master.names(good) == master.names(other) == ["a", "b"]
    assert master.names(bad) == ["a"]
    for run in (good, other):
        master.end(run, "b")
    master.later(MINUTE)
    master.later(MINUTE)
    assert master.state(good) is master.state(other) is ProcessState.SUCCESS


def test_runs_that_are_saved_apart_from_a_refused_step_end_and_stay_like_others(
    master: OneMaster, caplog: pytest.LogCaptureFixture
) -> None:
    ending, bad, staying = master.begin("a"), master.begin("a >> b"), master.begin("a >> b")
    master.step()
    for run in (ending, bad, staying):
        master.end(run, "a")
    master.database.begin_hook = lambda name: _once(master, name, lambda: master.spoil(bad))
    with caplog.at_level("INFO"):
        master.step()
    ended = [one for one in caplog.records if one.getMessage() == "process instance ended"]
    assert [vars(one)["process_instance_id"] for one in ended] == [ending]
    master.end(staying, "b")
    master.step()
    assert master.state(staying) is ProcessState.SUCCESS
    # Only the run whose step was refused was loaded again.
    assert master.store.loads == [3, 1]


def _once(master: OneMaster, name: str, act: Any) -> None:
    if name == "save":
        master.database.begin_hook = lambda _: None
        act()


def test_a_run_that_can_t_be_ends_as_failure_and_says_why(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.claim(run, "a")
    # No master runs an instance in this state, so its opening is impossible.
    master.database.update(master.database.processes, run, state=int(ProcessState.WAITING_THREAD))
    master.runs.forget_all()
    for _ in range(2):
        master.later(MINUTE)
        assert master.state(run) is ProcessState.WAITING_THREAD
    master.later(MINUTE)
    assert master.state(run) is ProcessState.FAILURE
    assert "WAITING_THREAD" in str(master.process(run).state_reason)


def test_a_run_that_is_given_up_leaves_no_live_task(master: OneMaster) -> None:
    run = master.begin("a b")
    master.step()
    running = master.claim(run, "a")
    master.database.update(master.database.processes, run, state=int(ProcessState.READY_PAUSE))
    master.runs.forget_all()
    for _ in range(3):
        master.later(MINUTE)
    assert master.valid(run, "b").state == TaskState.KILL
    assert master.valid(run, "a").wanted_state == TaskState.KILL
    assert [kill.task_instance_id for kill in master.saved[-1].kills] == [running]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"process_instance_json": "{"}, "not JSON"),
        ({"process_instance_json": a_definition_json("a >> b; b >> a")}, "cycle"),
        ({"process_instance_json": a_definition_json("x")}, "'a', which was not selected"),
        ({"command_param": "{"}, "command_param"),
        ({"task_depend_type": 9}, "9 is not a valid TaskDependType"),
        ({"timezone_id": "Mars/Base"}, "the run's time zone: 'Mars/Base' is no zone"),
        ({"timezone_id": ""}, "the run's time zone: '' is no zone"),
    ],
)
def test_a_row_that_makes_no_run_ends_as_failure_and_the_others_go_on(
    master: OneMaster, columns: dict[str, Any], why: str
) -> None:
    bad, good = master.begin("a >> b"), master.begin("a")
    master.step()
    master.database.update(master.database.processes, bad, **columns)
    master.start()
    for _ in range(3):
        master.later(MINUTE)
    master.end(good, "a")
    master.step()
    assert master.state(bad) is ProcessState.FAILURE
    assert why in str(master.process(bad).state_reason)
    assert master.state(good) is ProcessState.SUCCESS


def test_a_run_that_was_given_up_is_not_opened_again(master: OneMaster) -> None:
    run, good = master.begin("a >> b"), master.begin("a")
    master.step()
    for _ in range(3):
        if master.state(run) is not ProcessState.RUNNING:
            break
        master.end(run, "a")
        master.database.update(master.database.tasks, master.attempts(run)[0].id, settled=False)
        master.database.begin_hook = lambda name: _once(master, name, lambda: master.spoil(run))
        master.later(MINUTE)
        master.database.update(master.database.tasks, master.attempts(run)[0].id, settled=False)
    assert master.state(run) is ProcessState.FAILURE
    master.later(MINUTE)
    master.end(good, "a")
    master.later(MINUTE)
    assert master.state(good) is ProcessState.SUCCESS


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_save_without_an_answer_is_looked_up_in_the_tables(
    master: OneMaster, moment: str
) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")

    def hook(name: str, when: str) -> None:
        if name == "save" and when == moment:
            raise ServiceUnreachableError("gone")

    master.database.commit_hook = hook
    with pytest.raises(ServiceUnreachableError):
        master.step()
    master.database.commit_hook = lambda *_: None
    master.later(MINUTE)
    assert master.names(run) == ["a", "b"]
    master.end(run, "b")
    master.step()
    assert master.state(run) is ProcessState.SUCCESS


@pytest.mark.parametrize("question", ["load", "owned", "reports", "wanted"])
def test_a_read_without_an_answer_costs_no_run_its_start(master: OneMaster, question: str) -> None:
    run = master.begin("a")
    master.store.broken = (question,)
    with pytest.raises(ServiceUnreachableError):
        master.step()
    master.store.broken = ()
    master.later(MINUTE)
    assert master.names(run) == ["a"]


@pytest.mark.parametrize("question", ["owned", "reports", "wanted"])
def test_a_read_without_an_answer_costs_no_task_its_retry(master: OneMaster, question: str) -> None:
    run = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 1}})
    master.step()
    master.end(run, "a", TaskState.FAILURE)
    master.step()
    master.store.broken = (question,)
    with pytest.raises(ServiceUnreachableError):
        master.later(MINUTE)
    master.store.broken = ()
    master.later(MINUTE)
    assert master.names(run) == ["a", "a"]


def test_a_notification_brings_the_reason_by_which_a_retry_is_decided(master: OneMaster) -> None:
    policy = {"maxRetryTimes": 3, "retryInterval": 1, "retryOn": ["FETCH_FAILED"]}
    run = master.begin("a", of_task={"a": policy})
    master.step()
    master.end(run, "a", TaskState.FAILURE, failure=FailureReason.FETCH_FAILED)
    master.step()
    assert master.state(run) is ProcessState.RUNNING
    master.later(MINUTE)
    master.end(run, "a", TaskState.FAILURE, failure=FailureReason.ANALYSIS_ERROR)
    master.step()
    assert master.state(run) is ProcessState.FAILURE
    assert master.names(run) == ["a", "a"]


@pytest.mark.parametrize("forgets", [False, True])
def test_the_attempt_after_too_little_memory_has_more_whoever_makes_it(
    master: OneMaster, forgets: bool
) -> None:
    policy = {"factor": 1.5, "ceiling": "8G"}
    keys = {"type": "PYSPARK", "maxRetryTimes": 3, "retryInterval": 1, "memoryRetry": policy}
    run = master.begin("a", of_task={"a": keys})
    master.step()
    for _ in range(2):
        master.end(run, "a", TaskState.FAILURE, failure=FailureReason.OUT_OF_MEMORY)
        master.step()
        if forgets:
            master.runs.forget_all()
            master.later(timedelta(seconds=1))
        master.later(MINUTE)
    assert [task.memory_factor for task in master.attempts(run)] == [1, 1.5, 2.25]


def test_a_fault_of_one_run_costs_no_other_its_start_or_its_retry(master: OneMaster) -> None:
    waiting = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 1}})
    bad = master.begin("a")
    master.step()
    master.end(waiting, "a", TaskState.FAILURE)
    master.step()
    master.database.update(master.database.processes, bad, process_instance_json="{")
    bad_again = Ownership(process_instance_id=bad, host=MASTER.address, epoch=1)
    new = master.begin("a")
    master.runs.forget_all()
    master.runs.open([bad_again])

    def hook(name: str, when: str) -> None:
        if name == "save" and when == "before":
            raise ServiceUnreachableError("gone")

    master.database.commit_hook = hook
    with pytest.raises(ServiceUnreachableError):
        master.later(MINUTE)
    master.database.commit_hook = lambda *_: None
    master.later(MINUTE)
    master.later(MINUTE)
    assert master.state(bad) is ProcessState.FAILURE
    assert master.names(new) == ["a"]
    assert master.names(waiting) == ["a", "a"]


def test_a_run_that_was_taken_over_is_forgotten_and_not_written(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")
    master.database.begin_hook = lambda name: _once(master, name, lambda: _taken_over(master, run))
    master.step()
    assert master.names(run) == ["a"]
    assert master.runs.active == 0
    master.later(MINUTE)
    assert master.names(run) == ["a"]
    assert master.store.loads == [1]


def test_a_run_that_was_taken_over_meanwhile_is_forgotten_at_the_next_comparison(
    master: OneMaster,
) -> None:
    run = master.begin("a")
    master.step()
    _taken_over(master, run)
    master.end(run, "a")
    master.later(MINUTE)
    assert master.runs.active == 0
    assert master.state(run) is ProcessState.RUNNING


def _taken_over(master: OneMaster, run: int) -> None:
    master.database.update(
        master.database.processes,
        run,
        host=OTHER_MASTER.address,
        owner_incarnation=OTHER_MASTER.incarnation,
        owner_epoch=2,
    )


def test_t01_a_master_that_is_nobody_forgets_its_runs_and_writes_nothing(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")
    master.identity.become(None)
    master.runs.forget_all()
    master.step()
    assert master.names(run) == ["a"]
    assert master.runs.active == 0


def test_a_notification_of_a_run_that_is_being_stepped_is_not_lost(master: OneMaster) -> None:
    run = master.begin("a b >> c")
    master.step()
    master.end(run, "a")
    # Read by another thread while the save of the first report is running.
    master.database.begin_hook = lambda name: _once(master, name, lambda: master.end(run, "b"))
    assert master.step() == timedelta()
    master.step()
    assert master.names(run) == ["a", "b", "c"]


def test_a_notification_of_somebody_else_s_run_is_not_read(master: OneMaster) -> None:
    run = master.begin("a")
    master.step()
    woken = master.wakes
    master.runs.reported(
        TaskReport(
            process_instance_id=run + 1,
            task_instance_id=99,
            name="a",
            attempt=1,
            state=TaskState.SUCCESS,
            end_time=NOON,
        )
    )
    assert master.wakes == woken
    assert master.step() > timedelta()


def test_a_lost_notification_costs_a_comparison_and_nothing_more(master: OneMaster) -> None:
    run = master.begin("a")
    master.step()
    task = master.claim(run, "a")
    end = AttemptEnd(task_instance_id=task, state=TaskState.SUCCESS, end_time=master.clock.now())
    master.tasks.report(WORKER, [end])
    assert master.step() <= timedelta(seconds=1)
    assert master.state(run) is ProcessState.RUNNING
    master.later(timedelta(seconds=1))
    assert master.state(run) is ProcessState.SUCCESS


def test_a_run_without_a_notification_is_found_by_comparison(master: OneMaster) -> None:
    run = master.begin("a")
    master.start()
    master.step()
    assert master.names(run) == ["a"]


def test_a_pass_opens_no_more_runs_than_its_limit() -> None:
    master = OneMaster(config=RunWorkerConfig(opened_at_once=2))
    runs = [master.begin("a") for _ in range(5)]
    rests = [master.step() for _ in range(3)]
    assert master.store.loads == [2, 2, 1]
    assert rests[:2] == [timedelta(), timedelta()]
    assert rests[2] > timedelta()
    assert all(master.names(run) == ["a"] for run in runs)


def test_runs_that_wait_to_be_opened_count_as_active() -> None:
    master = OneMaster(config=RunWorkerConfig(opened_at_once=2))
    for _ in range(5):
        master.begin("a")
    assert master.runs.active == 5
    master.step()
    assert master.runs.active == 5


def test_a_run_of_a_complement_takes_no_room_from_live_runs(master: OneMaster) -> None:
    complement, live = master.begin("a >> b"), master.begin("a")
    master.database.update(master.database.processes, complement, history_cmd="COMPLEMENT_DATA")
    # Before they are loaded, nothing tells them apart.
    assert (master.runs.active, master.runs.active_live) == (2, 2)
    master.step()
    assert (master.runs.active, master.runs.active_live) == (2, 1)
    # Its state is known, so there is room for one more.
    assert master.ends == 1
    master.end(complement, "a")
    master.end(live, "a")
    master.step()
    assert (master.runs.active, master.runs.active_live, master.ends) == (1, 0, 2)
    master.end(complement, "b")
    master.step()
    assert (master.runs.active, master.runs.active_live, master.ends) == (0, 0, 3)


def test_what_a_complement_submits_is_offered_behind_live_runs(master: OneMaster) -> None:
    complement, live = master.begin("a"), master.begin("a")
    history = "COMPLEMENT_DATA,RECOVER_TOLERANCE_FAULT_PROCESS"
    master.database.update(master.database.processes, complement, history_cmd=history)
    master.step()
    (saved,) = master.saved
    offers = sorted(saved.offers, key=lambda entry: entry.sort_key)
    assert [(entry.process_instance_id, entry.yields) for entry in offers] == [
        (live, False),
        (complement, True),
    ]


def test_a_run_that_is_announced_twice_is_opened_once(master: OneMaster) -> None:
    run = master.begin("a")
    (ownership,) = master.store.owned(MASTER)
    master.runs.open([ownership, ownership])
    master.step()
    master.runs.open([ownership])
    master.step()
    assert master.store.loads == [1]
    assert master.names(run) == ["a"]


def test_a_retry_is_submitted_when_it_is_due_and_the_loop_rests_until_then(
    master: OneMaster,
) -> None:
    run = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 1}})
    master.step()
    master.end(run, "a", TaskState.FAILURE)
    master.step()
    assert master.later(MINUTE - timedelta(milliseconds=300)) == timedelta(milliseconds=300)
    assert master.names(run) == ["a"]
    master.later(timedelta(milliseconds=300))
    assert master.names(run) == ["a", "a"]


def test_every_promised_retry_of_a_run_comes_though_one_timer_is_armed(master: OneMaster) -> None:
    again = {"maxRetryTimes": 1, "retryInterval": 1}
    run = master.begin("a b c", of_task={"a": again, "b": again, "c": again})
    master.step()
    for name in ("c", "a", "b"):
        master.end(run, name, TaskState.FAILURE)
        master.later(timedelta(seconds=10))
    for _ in range(6):
        master.later(timedelta(seconds=10))
    assert master.names(run) == ["a", "b", "c", "c", "a", "b"]


def test_a_promised_retry_survives_a_restart(master: OneMaster) -> None:
    run = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 1}})
    master.step()
    master.end(run, "a", TaskState.FAILURE)
    master.step()
    master.start()
    master.later(timedelta(seconds=59))
    assert master.names(run) == ["a"]
    master.later(timedelta(seconds=1))
    assert master.names(run) == ["a", "a"]


def test_a_far_retry_does_not_gather_a_timer_for_each_step_of_its_run(master: OneMaster) -> None:
    names = [f"t{index}" for index in range(40)]
    run = master.begin(
        f"a {' '.join(names)}", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 100}}
    )
    master.step()
    master.end(run, "a", TaskState.FAILURE)
    for name in names:
        master.step()
        master.end(run, name)
    master.step()
    assert len(master.runs._timers) == 1


def test_a_stop_that_is_wanted_is_found_by_comparison(master: OneMaster) -> None:
    run = master.begin("a b >> c")
    master.step()
    running = master.claim(run, "a")
    master.stop(run)
    master.runs.check_tables()
    master.step()
    assert master.state(run) is ProcessState.READY_STOP
    assert master.valid(run, "b").state == TaskState.KILL
    assert [kill.task_instance_id for kill in master.saved[-1].kills] == [running]
    master.end(run, "a", TaskState.KILL)
    master.later(MINUTE)
    assert master.state(run) is ProcessState.STOP


def test_a_pause_that_is_wanted_is_found_by_comparison(master: OneMaster) -> None:
    run = master.begin("a b >> c")
    master.step()
    master.claim(run, "a")
    master.pause(run)
    master.runs.check_tables()
    master.step()
    assert master.state(run) is ProcessState.READY_PAUSE
    assert master.valid(run, "b").state == TaskState.PAUSE
    master.end(run, "a")
    master.later(MINUTE)
    assert master.state(run) is ProcessState.PAUSE
    assert master.names(run) == ["a", "b"]


def test_a_stop_outranks_the_pause_that_was_wanted_before_it(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    running = master.claim(run, "a")
    for request in (master.pause, master.stop):
        request(run)
        master.runs.check_tables()
        master.step()
    assert master.state(run) is ProcessState.READY_STOP
    assert [kill.task_instance_id for kill in master.saved[-1].kills] == [running]


def test_a_process_that_took_too_long_ends_as_a_failure(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    running = master.claim(run, "a")
    master.database.update(master.database.processes, run, timeout=1, timeout_strategy=1)
    master.clock.move_to(MINUTE)
    assert master.timeouts.time_out(now=master.clock.now()) == 1
    master.runs.check_tables()
    master.step()
    assert master.state(run) is ProcessState.READY_STOP
    assert [kill.task_instance_id for kill in master.saved[-1].kills] == [running]
    master.end(run, "a", TaskState.KILL)
    master.step()
    assert master.state(run) is ProcessState.FAILURE
    assert "longer than its time-out" in str(master.process(run).state_reason)


def test_a_stop_is_over_by_its_deadline_whatever_workers_do() -> None:
    master = OneMaster(config=RunWorkerConfig(stop_deadline=timedelta(seconds=5)))
    run = master.begin("a >> b")
    master.step()
    master.claim(run, "a")
    master.stop(run)
    master.runs.check_tables()
    master.step()
    assert master.later(timedelta(seconds=4.7)) == timedelta(seconds=0.3)
    assert master.state(run) is ProcessState.READY_STOP
    master.later(timedelta(seconds=0.3))
    assert master.state(run) is ProcessState.STOP
    assert master.valid(run, "a").state == TaskState.KILL


def test_a_deadline_counts_from_the_intent_and_survives_a_restart() -> None:
    master = OneMaster(config=RunWorkerConfig(stop_deadline=timedelta(seconds=5)))
    run = master.begin("a")
    master.step()
    master.claim(run, "a")
    master.stop(run)
    master.clock.move_to(timedelta(seconds=3))
    master.runs.check_tables()
    master.step()
    master.start()
    master.later(timedelta(seconds=1.9))
    assert master.state(run) is ProcessState.READY_STOP
    master.later(timedelta(seconds=0.1))
    assert master.state(run) is ProcessState.STOP


def test_a_deadline_that_is_left_in_a_row_does_not_keep_the_loop_busy(master: OneMaster) -> None:
    run = master.begin("a")
    master.step()
    master.database.update(master.database.processes, run, wanted_deadline=NOON)
    master.start()
    assert master.step() == timedelta(seconds=1)
    assert not master.runs._timers


def test_a_timer_of_a_run_that_has_ended_since_changes_nothing() -> None:
    master = OneMaster(config=RunWorkerConfig(stop_deadline=timedelta(seconds=5)))
    run = master.begin("a")
    master.step()
    master.claim(run, "a")
    master.stop(run)
    master.runs.check_tables()
    master.step()
    master.end(run, "a", TaskState.KILL)
    master.step()
    ended = master.process(run)
    master.later(timedelta(seconds=9))
    assert master.process(run) == ended


OUTPUT = '[{"prop": "x", "direct": "OUT", "type": "VARCHAR", "value": "7"}]'


def test_what_a_task_put_out_is_read_from_its_row(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a", var_pool=OUTPUT)
    master.step()
    assert json.loads(master.valid(run, "b").input_pool or "") == [
        {"prop": "x", "direct": "IN", "type": "VARCHAR", "value": "7"}
    ]


def test_only_a_report_with_an_output_costs_a_query(master: OneMaster) -> None:
    run = master.begin("a >> b >> c")
    master.step()
    master.store.asked.clear()
    master.end(run, "a")
    master.step()
    assert master.store.asked == []
    master.end(run, "b", var_pool=OUTPUT)
    master.step()
    assert master.store.asked == ["reports"]
    assert master.names(run) == ["a", "b", "c"]


def test_a_report_whose_output_is_not_to_be_had_yet_is_not_acted_on(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a", var_pool=OUTPUT)
    master.store.broken = ("reports",)
    with pytest.raises(ServiceUnreachableError):
        master.step()
    assert master.names(run) == ["a"]
    master.store.broken = ()
    master.later(MINUTE)
    assert master.valid(run, "b").input_pool is not None


@pytest.mark.parametrize("state", [state for state in TaskState if not state.is_finished])
def test_a_notification_that_speaks_of_no_end_is_no_report(
    master: OneMaster, state: TaskState
) -> None:
    run = master.begin("a")
    master.step()
    report = TaskReport(
        process_instance_id=run,
        task_instance_id=1,
        name="a",
        attempt=1,
        state=state,
        end_time=NOON,
    )
    master.runs.reported(report)
    master.step()
    assert master.state(run) is ProcessState.RUNNING


def test_an_end_that_a_person_has_written_by_hand_costs_no_other_run_a_thing(
    master: OneMaster,
) -> None:
    odd, good = master.begin("a >> b"), master.begin("a")
    master.step()
    task = master.claim(odd, "a")
    forced = int(TaskState.FORCED_SUCCESS)
    master.database.update(master.database.tasks, task, state=forced, end_time=NOON)
    for _ in range(4):
        master.later(timedelta(seconds=1))
    master.end(good, "a")
    master.step()
    assert master.state(good) is ProcessState.SUCCESS
    # No decision fits the row, and a run that can't continue is ended.
    assert master.state(odd) is ProcessState.FAILURE


def test_a_paused_attempt_is_reported_as_such(master: OneMaster) -> None:
    run = master.begin("a b")
    master.step()
    master.pause(run)
    master.runs.check_tables()
    master.step()
    # A withdrawn attempt is settled by its own report, like any other.
    master.later(MINUTE)
    assert master.state(run) is ProcessState.PAUSE
    assert [task.state for task in master.attempts(run)] == [TaskState.PAUSE, TaskState.PAUSE]


def _with_child(master: OneMaster) -> tuple[int, int]:
    """A run with a running sub process; the ids of both runs."""
    master.database.insert(
        master.database.definitions,
        name="child",
        release_state=1,
        process_definition_json=a_definition_json("x"),
    )
    sub = {"type": "SUB_PROCESS", "params": {"processDefinitionName": "child"}}
    run = master.begin("sub >> b", of_task={"sub": sub})
    master.step()
    child = master.take_child()
    master.step()
    return run, child


def test_t67_tasks_that_wait_hold_up_no_other_and_take_no_thread(master: OneMaster) -> None:
    item = {"definitionId": 4711, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    group = {"relation": "AND", "dependItemList": [item]}
    dependence = {"relation": "AND", "dependTaskList": [group]}
    waiting = [f"wait{n}" for n in range(30)]
    dependent = {"type": "DEPENDENT", "dependence": dependence}
    run = master.begin(f"{' '.join(waiting)}; a >> b", of_task=dict.fromkeys(waiting, dependent))
    threads = threading.active_count()
    master.step()
    assert {task.state for task in master.attempts(run) if task.name in waiting} == {
        TaskState.RUNNING
    }
    for name in ("a", "b"):
        master.end(run, name)
        master.step()
    assert master.names(run)[-2:] == ["a", "b"]
    assert threading.active_count() == threads
    # The rest of the run only waits, so it takes no room from the runs it waits for.
    assert master.runs.active == 0


def test_a_parent_that_waits_for_its_child_takes_no_room_t36d(master: OneMaster) -> None:
    run, child = _with_child(master)
    assert master.names(child) == ["x"]
    # The parent gave its room back when only the child was left live in it.
    assert (master.runs.active, master.ends) == (1, 1)
    master.end(child, "x")
    master.step()
    assert (master.runs.active, master.ends) == (0, 2)
    master.deliver_notifications()
    master.step()
    assert master.names(run) == ["sub", "b"]
    assert master.runs.active == 1


def test_the_end_of_a_sub_process_is_a_report_to_its_parent(master: OneMaster) -> None:
    run, child = _with_child(master)
    master.end(child, "x", TaskState.FAILURE)
    master.step()
    assert master.state(child) is ProcessState.FAILURE
    master.deliver_notifications()
    master.step()
    assert master.valid(run, "sub").state == TaskState.FAILURE
    assert master.state(run) is ProcessState.FAILURE


def test_a_stop_is_passed_on_to_the_children_once_it_is_saved(master: OneMaster) -> None:
    run, child = _with_child(master)
    master.stop(run)
    master.runs.check_tables()
    master.store.asked.clear()
    master.step()
    assert master.saved[-1].intents
    assert master.process(child).wanted_state == ProcessState.STOP
    # Once for the pass before the intent, and once for the save with the intent.
    assert master.store.asked.count("propagate_intents") == 2
    master.later(MINUTE)
    master.deliver_notifications()
    master.step()
    assert master.state(child) is ProcessState.STOP
    assert master.state(run) is ProcessState.STOP


def test_an_intent_that_was_not_propagated_is_propagated_at_the_next_comparison(
    master: OneMaster,
) -> None:
    run, child = _with_child(master)
    master.stop(run)
    master.runs.check_tables()
    master.step()
    # As if this master had died in between.
    master.database.update(master.database.processes, child, wanted_state=None)
    master.step()
    assert master.process(child).wanted_state is None
    master.later(timedelta(seconds=1))
    assert master.process(child).wanted_state == ProcessState.STOP


def test_a_save_without_intents_passes_none_on(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.store.asked.clear()
    master.end(run, "a")
    master.step()
    assert master.store.asked == []


def test_an_intent_that_can_t_be_passed_on_costs_no_run_its_step(master: OneMaster) -> None:
    run, child = _with_child(master)
    master.later(timedelta(seconds=1))
    master.stop(run)
    master.runs.check_tables()
    master.store.broken = ("propagate_intents",)
    with pytest.raises(ServiceUnreachableError):
        master.step()
    master.store.broken = ()
    for _ in range(4):
        master.later(MINUTE)
        master.deliver_notifications()
    assert master.state(child) is ProcessState.STOP
    assert master.state(run) is ProcessState.STOP


def test_t36_a_run_that_only_waits_for_others_gives_its_room_back(master: OneMaster) -> None:
    master.database.insert(
        master.database.definitions,
        name="child",
        release_state=1,
        process_definition_json=a_definition_json("x"),
    )
    sub = {"type": "SUB_PROCESS", "params": {"processDefinitionName": "child"}}
    master.begin("s1 s2", of_task={"s1": sub, "s2": sub})
    master.step()
    master.take_child()
    master.take_child()
    # Runs to be opened count; the parent, which only waits, does not.
    assert (master.runs.active, master.ends) == (2, 1)
    master.step()
    assert (master.runs.active, master.ends) == (2, 1)


def test_a_run_that_can_neither_go_on_nor_be_ended_is_left_to_the_next_comparison(
    master: OneMaster,
) -> None:
    master.begin("a")

    def hook(name: str) -> None:
        if name == "save":
            raise StoreConflictError("no")

    master.database.begin_hook = hook
    rests = [master.step() for _ in range(5)]
    assert rests == [timedelta()] * 2 + [timedelta(seconds=1)] * 3
    assert master.store.loads == [1] * 4
    for _ in range(3):
        assert master.later(timedelta(seconds=1)) == timedelta(seconds=1)


def test_the_loop_rests_no_longer_than_its_check_interval(master: OneMaster) -> None:
    master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 100}})
    assert master.step() == timedelta(seconds=1)


def test_nothing_is_kept_of_runs_that_have_ended(master: OneMaster) -> None:
    for _ in range(3):
        run = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 0}})
        master.step()
        master.end(run, "a", TaskState.FAILURE)
        master.step()
        master.end(run, "a", TaskState.FAILURE)
        master.step()
    worker = master.runs
    assert not worker._runs
    assert not worker._known
    assert not worker._faults
    assert worker.active == 0


def test_a_run_that_is_announced_amid_a_comparison_does_no_harm(master: OneMaster) -> None:
    class Meddler(Ownership):
        """Has the command loop's thread report another run whenever the queue is read."""

        def __hash__(self) -> int:
            master.runs.open([Ownership(process_instance_id=98, host="m:1", epoch=1)])
            return 1

    run = master.begin("a")
    master.runs.open([Meddler(process_instance_id=99, host="m:1", epoch=1)])
    master.step()
    master.later(timedelta(seconds=2))
    assert master.names(run) == ["a"]
