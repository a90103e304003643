"""A run ends, ends correctly, and equals its loaded rows, for all DAGs and histories.

The real run worker runs on tables in memory. A *history* is a list of events: workers claim,
report once and again, and are lost, people stop, time passes, saves get no answer, memory goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.instances import TaskReport
from common.model.states import FailureStrategy, ProcessState, TaskState
from common.store.listen import Channel, read_task_report
from common.store.worker.ports import AttemptEnd, AttemptFolders
from master.engine.invariants import check
from tests.memory.store import MemoryDatabase, MemoryRunStore, ProcessRecord, TaskRecord
from tests.one_master import WORKER, LineThatBreaks, OneMaster
from tests.simulation.fingerprint import differences
from tests.simulation.world import watched

NAMES = "abcdef"
ENDS = (TaskState.SUCCESS, TaskState.SUCCESS, TaskState.FAILURE, TaskState.KILL)
LOOK = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A DAG with the options of its author and its command."""

    upstream: Mapping[str, tuple[str, ...]]
    forbidden: tuple[str, ...]
    retries: Mapping[str, int]
    minutes: Mapping[str, int]
    strategy: FailureStrategy

    def text(self) -> str:
        lone = [name for name, above in self.upstream.items() if not above]
        chains = [f"{' '.join(above)} >> {name}" for name, above in self.upstream.items() if above]
        return "; ".join([*lone, *chains])

    def of_task(self) -> dict[str, dict[str, Any]]:
        return {
            name: {
                "maxRetryTimes": self.retries[name],
                "retryInterval": self.minutes[name],
                "runFlag": "FORBIDDEN" if name in self.forbidden else "NORMAL",
            }
            for name in self.upstream
        }

    def done(self, succeeded: Collection[str]) -> list[str]:
        """The names whose downstream may start, if these have succeeded."""
        done: list[str] = []
        for name, above in self.upstream.items():
            passed = name in self.forbidden and all(other in done for other in above)
            if name in succeeded or passed:
                done.append(name)
        return done


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    # One bit for each pair; few of them set, so that there are several heads and branches.
    bits = draw(st.integers(0, 2**15 - 1)) & draw(st.integers(0, 2**15 - 1))
    upstream: dict[str, tuple[str, ...]] = {}
    for index, name in enumerate(names):
        upstream[name] = tuple(
            other
            for place, other in enumerate(names[:index])
            if bits >> (index * (index - 1) // 2 + place) & 1
        )
    numbers = st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names))
    return Shape(
        upstream=upstream,
        forbidden=tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True))),
        retries=dict(zip(names, draw(numbers), strict=True)),
        minutes=dict(zip(names, draw(numbers), strict=True)),
        strategy=draw(st.sampled_from(FailureStrategy)),
    )


_KINDS = (
    *("claim", "both", "both", "end", "end", "end", "wait", "step"),
    *(
        "look",
        "lose",
        "repeat",
        "again",
        "stop",
        "pause",
        "restart",
        "forget",
        "unsaved",
        "unheard",
    ),
)
HAPPENINGS = st.lists(
    st.tuples(st.sampled_from(_KINDS), st.integers(0, 7)), min_size=15, max_size=50
)


class Forgetful(LineThatBreaks):
    """Returns reports that were read before once more, on request."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.earlier: list[TaskReport] = []
        self.again = False

    def reports(self, node: Node, **page: Any) -> tuple[TaskReport, ...]:
        reports = super().reports(node, **page)
        repeated = tuple(self.earlier) if self.again else ()
        self.earlier += reports
        return repeated + reports


@dataclass(slots=True)
class History:
    """One run, its events, and the assertions after each step."""

    shape: Shape
    master: OneMaster = field(default_factory=lambda: OneMaster(store=Forgetful))
    worker: Node = WORKER
    violations: list[str] = field(default_factory=list)
    said: list[tuple[Node, AttemptEnd]] = field(default_factory=list)
    notified: list[TaskReport] = field(default_factory=list)
    seen: int = 0
    run: int = 0

    def begin(self) -> None:
        watched(self.master.runs, self.master.database, self.violations)
        self.run = self.master.begin(
            self.shape.text(), strategy=self.shape.strategy, of_task=self.shape.of_task()
        )

    @property
    def process(self) -> ProcessRecord:
        return self.master.process(self.run)

    def attempts(self, *states: TaskState) -> list[TaskRecord]:
        return [task for task in self.master.attempts(self.run) if task.state in states]

    def happen(self, what: str, number: int) -> None:
        match what:
            case "claim":
                self._claim(self.attempts(TaskState.SUBMITTED)[number:][:1])
            case "both":
                self._claim(self.attempts(TaskState.SUBMITTED))
                self._end(self.attempts(TaskState.RUNNING)[:2], ENDS[number % len(ENDS)])
            case "end":
                running = self.attempts(TaskState.RUNNING)[number // 4 :][:1]
                self._end(running, ENDS[number % len(ENDS)])
            case "lose":
                self.master.failover.mark_lost(self.worker, now=self.master.clock.now())
                self.master.failover.fail_tasks_over(self.worker, now=self.master.clock.now())
                self.worker = Node(
                    address=self.worker.address, incarnation=self.worker.incarnation + 1
                )
            case "repeat":
                # Workers that repeat their reports, whoever owns the attempt by now.
                for node, end in self.said:
                    self.master.tasks.report(node, [end])
                for report in self.notified:
                    self.master.runs.reported(report)
            case "again":
                store = self.master.store
                assert isinstance(store, Forgetful)
                store.again = number % 2 == 0
            case "wait":
                self.step(timedelta(seconds=20 * number))
            case "look":
                self.master.runs.check_tables()
            case "stop":
                if number == 7:
                    self.master.stop(self.run)
            case "pause":
                if number == 7:
                    self.master.pause(self.run)
            case "restart":
                watched(self.master.start(), self.master.database, self.violations)
            case "forget":
                self.master.runs.forget_all()
            case "unsaved":
                self._step_without_answer("before" if number % 2 else "after")
            case "unheard":
                self.master.store.broken = (("load", "owned", "reports", "wanted")[number % 4],)
                self.step(LOOK)
                self.master.store.broken = ()
            case _:
                self.step(timedelta(milliseconds=number))

    def step(self, passed: timedelta) -> None:
        with suppress(ServiceUnreachableError):
            self.master.later(passed)
        self.check()

    def drain(self) -> None:
        """Let every attempt succeed except those to be killed, until the run has ended."""
        for _ in range(80):
            if ProcessState(self.process.state).is_terminal:
                return
            self._claim(self.attempts(TaskState.SUBMITTED))
            for task in self.attempts(TaskState.RUNNING):
                killed = task.wanted_state == TaskState.KILL
                self._end([task], TaskState.KILL if killed else TaskState.SUCCESS)
            self.step(timedelta(seconds=30))
        raise AssertionError(f"no end: {self.master.attempts(self.run)}")

    # Assertions

    def check(self) -> None:
        assert self.violations == []
        for run in self.master.runs._runs.values():
            check(run)
        assert differences(self.master.runs, MemoryRunStore(self.master.database)) == []
        rows = self.master.attempts(self.run)
        valid = [task.name for task in rows if task.flag == 1]
        assert len(valid) == len(dict.fromkeys(valid))
        done = self.shape.done(self._succeeded())
        for task in rows[self.seen :]:
            assert task.name not in self.shape.forbidden
            assert all(above in done for above in self.shape.upstream[task.name])
        self.seen = len(rows)

    def check_end(self) -> None:
        rows = self.master.attempts(self.run)
        for name in self.shape.upstream:
            own = [task for task in rows if task.name == name]
            assert [task.attempt for task in own] == list(range(1, len(own) + 1))
            assert all(task.retry_times <= self.shape.retries[name] for task in own)
        assert not self.attempts(TaskState.SUBMITTED, TaskState.RUNNING)
        assert ProcessState(self.process.state) is self.expected()
        if self.process.state == ProcessState.FAILURE:
            self._check_failure([task for task in rows if task.flag == 1])

    def expected(self) -> ProcessState:
        """The reference model: the end that a run with these rows must have."""
        if len(self.shape.done(self._succeeded())) == len(self.shape.upstream):
            return ProcessState.SUCCESS
        if any(process.state == ProcessState.READY_STOP for process in self._processes()):
            return ProcessState.STOP
        valid = [task for task in self.master.attempts(self.run) if task.flag == 1]
        is_end = self.shape.strategy is FailureStrategy.END
        if is_end and any(_failed_for_good(task) for task in valid):
            return ProcessState.FAILURE
        return ProcessState.PAUSE if self._waits(valid) else ProcessState.FAILURE

    def _waits(self, valid: Sequence[TaskRecord]) -> bool:
        """True if a recovery would have tasks to resume."""
        done, begun = self.shape.done(self._succeeded()), [task.name for task in valid]
        return any(
            task.state == TaskState.PAUSE or task.retry_at is not None for task in valid
        ) or any(
            name not in (*begun, *done) and all(other in done for other in above)
            for name, above in self.shape.upstream.items()
        )

    def _check_failure(self, valid: Sequence[TaskRecord]) -> None:
        done = self.shape.done(self._succeeded())
        if self.shape.strategy is FailureStrategy.CONTINUE:
            for name, above in self.shape.upstream.items():
                # Every task that could run has run.
                if all(other in done for other in above) and name not in done:
                    (last,) = [task for task in valid if task.name == name]
                    assert last.retry_times == self.shape.retries[name]
        else:
            self._check_end_strategy()

    def _check_end_strategy(self) -> None:
        """After the first final failure no attempt is submitted."""
        failed = False
        for change in self.master.database.changes:
            if isinstance(change.new, TaskRecord):
                assert not (failed and change.old is None)
                failed = failed or _failed_for_good(change.new)

    # Helpers

    def _succeeded(self) -> list[str]:
        rows = self.master.attempts(self.run)
        return [task.name for task in rows if task.settled and task.state == TaskState.SUCCESS]

    def _processes(self) -> list[ProcessRecord]:
        changes = self.master.database.changes
        return [change.new for change in changes if isinstance(change.new, ProcessRecord)]

    def _claim(self, tasks: Sequence[TaskRecord]) -> None:
        self.master.tasks.claim(
            self.worker,
            [task.id for task in tasks],
            folders=AttemptFolders(work="/t", logs="/t/logs"),
            now=self.master.clock.now(),
        )

    def _end(self, tasks: Sequence[TaskRecord], state: TaskState) -> None:
        for task in tasks:
            now = self.master.clock.now()
            end = AttemptEnd(task_instance_id=task.id, state=state, end_time=now)
            self.said.append((self.worker, end))
            self.master.tasks.report(self.worker, [end])
            for channel, payload in self.master.database.drain_notifications():
                if channel == Channel.TASK:
                    self.notified.append(read_task_report(payload))
                    self.master.runs.reported(self.notified[-1])

    def _step_without_answer(self, moment: str) -> None:
        def hook(_: str, when: str) -> None:
            if when == moment:
                raise ServiceUnreachableError(f"no answer {moment} the commit")

        kept = self.master.database.commit_hook
        self.master.database.commit_hook = hook
        try:
            self.step(LOOK)
        finally:
            self.master.database.commit_hook = kept


def _failed_for_good(task: TaskRecord) -> bool:
    return (
        task.settled
        and task.flag == 1
        and task.retry_at is None
        and (
            task.state == TaskState.FAILURE
            or (task.state == TaskState.KILL and task.wanted_state is None)
        )
    )


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
@given(shape=shapes(), happenings=HAPPENINGS)
def test_whatever_happens_to_a_run_it_ends_and_ends_right(
    shape: Shape, happenings: list[tuple[str, int]]
) -> None:
    history = History(shape)
    history.begin()
    for what, number in happenings:
        history.happen(what, number)
        if number % 3:
            history.step(timedelta(milliseconds=number))
    history.drain()
    history.check_end()
    # Events after the end change nothing.
    end = history.process
    history.happen("repeat", 0)
    history.step(LOOK)
    assert history.process == end


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes())
def test_if_all_goes_well_each_task_runs_once_in_an_order_of_the_dag(shape: Shape) -> None:
    history = History(shape)
    history.begin()
    history.drain()
    history.check_end()
    assert history.process.state == ProcessState.SUCCESS
    names = history.master.names(history.run)
    assert sorted(names) == sorted(n for n in shape.upstream if n not in shape.forbidden)
