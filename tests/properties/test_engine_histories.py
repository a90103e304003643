"""The pure engine ends, and ends correctly, for all DAGs, outcomes and commands.

A *history* is a list of events of a run that is kept in rows: workers begin, end, are lost and
report again, people pause, stop, recover, rerun and choose nodes, time passes, memory goes.
The engine is compared with a few lines that know rows and the DAG alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.model.control import Outcome, Relation
from common.model.definitions import TaskNode
from common.model.failures import FailureReason
from common.model.instances import TaskRow
from common.model.retry_policy import MemoryRetry, RetryPolicy
from common.model.states import (
    UNSTARTED_TASK_STATES,
    FailureStrategy,
    ProcessState,
    TaskState,
)
from master.engine.events import (
    DeadlinePassed,
    Event,
    PauseRequested,
    RunOpened,
    TaskEvent,
    TimerFired,
)
from tests.builders import NOON, KeptRun, conditions, put_out, stop, switch, time_out

NAMES = "abcdefg"
PAIRS = len(NAMES) * (len(NAMES) - 1) // 2
ENDS = (
    *(TaskState.SUCCESS, TaskState.SUCCESS, TaskState.SUCCESS, TaskState.FAILURE),
    *(TaskState.FAILURE, TaskState.KILL, TaskState.NEED_FAULT_TOLERANCE, TaskState.PAUSE),
)
GRACE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A DAG with the options of its author and its command; `upstream` is in the DAG's order."""

    upstream: Mapping[str, tuple[str, ...]]
    of_node: Mapping[str, Mapping[str, Any]]
    strategy: FailureStrategy
    task_limit: int = 0

    def text(self) -> str:
        chains = [f"{' '.join(above)} >> {name}" for name, above in self.upstream.items() if above]
        return "; ".join([" ".join(self.upstream), *chains])

    def is_forbidden(self, name: str) -> bool:
        return bool(self.of_node[name].get("forbidden"))

    def looks_at_ends(self, name: str) -> bool:
        return self.of_node[name].get("task_type") == "CONDITIONS" and not self.is_forbidden(name)

    def is_looked_at(self, name: str) -> bool:
        return any(
            name in above and self.looks_at_ends(below) for below, above in self.upstream.items()
        )


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    # One bit for each pair; about a third of them set.
    bits = draw(st.integers(0, 2**PAIRS - 1)) & draw(st.integers(0, 2**PAIRS - 1))
    upstream: dict[str, tuple[str, ...]] = {}
    for index, name in enumerate(names):
        upstream[name] = tuple(
            other
            for place, other in enumerate(names[:index])
            if bits >> (index * (index - 1) // 2 + place) & 1
        )
    of_node = {name: draw(_nodes(name, upstream)) for name in names}
    return Shape(
        upstream=upstream,
        of_node=of_node,
        strategy=draw(st.sampled_from(FailureStrategy)),
        task_limit=draw(st.sampled_from((0, 0, 1, 2))),
    )


_REASONS = (
    *(FailureReason.OUT_OF_MEMORY, FailureReason.EXIT_CODE),
    *(FailureReason.KILLED, FailureReason.FETCH_FAILED),
)
_POLICIES = st.builds(
    RetryPolicy,
    retry_on=st.sampled_from(((), (), _REASONS[:1], _REASONS[:2], _REASONS[2:])),
    no_retry_on=st.sampled_from(((), (), _REASONS[:1], _REASONS[3:])),
    memory=st.sampled_from((None, MemoryRetry(factor=1.5, ceiling_mb=4096))),
)


@st.composite
def _nodes(draw: st.DrawFn, name: str, upstream: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    below = [other for other, above in upstream.items() if name in above]
    number = draw(st.integers(0, 63))
    node: dict[str, Any] = {
        "forbidden": number % 8 == 7,
        "max_retry_times": number // 8 % 3,
        "retry_interval": timedelta(minutes=number % 3),
        "delay": timedelta(minutes=number // 32),
        "retry_policy": draw(_POLICIES),
    }
    kind = draw(st.sampled_from(("plain", "conditions", "switch"))) if below else "plain"
    if kind == "plain":
        return node
    side = draw(st.integers(0, 2 ** len(below) - 1))
    first = " ".join(other for index, other in enumerate(below) if side >> index & 1)
    second = " ".join(other for index, other in enumerate(below) if not side >> index & 1)
    if kind == "switch":
        return (
            node | {"max_retry_times": 0} | switch(("${x} == 1", first), default=second or below[0])
        )
    wanted = {above: draw(st.sampled_from(list(Outcome)[:2])) for above in upstream[name]}
    relation = draw(st.sampled_from(Relation))
    return node | {"max_retry_times": 0} | conditions(first, second, relation=relation, **wanted)


_KINDS = (
    *("claim", "end", "end", "end", "both", "both", "both", "hear", "wait", "wait"),
    *("forget", "repeat", "pause", "stop", "time-out", "deadline", "recover", "recover"),
)
HAPPENINGS = st.lists(
    st.tuples(st.sampled_from(_KINDS), st.integers(0, 127)), min_size=10, max_size=45
)

# The reference model: rows and the DAG, and no part of the engine.


def failed(row: TaskRow) -> bool:
    lost = row.state in (TaskState.KILL, TaskState.NEED_FAULT_TOLERANCE) and not row.kill_requested
    return row.retry_at is None and (lost or row.state is TaskState.FAILURE)


def ways(
    shape: Shape, rows: Mapping[str, TaskRow], fates: Mapping[str, str], name: str
) -> list[bool | None]:
    """Return for each edge to a task whether it was taken (None: open); one from outside was."""
    found: list[bool | None] = []
    for above in shape.upstream[name]:
        fate, row = fates.get(above, "good"), rows.get(above)
        if fate == "open" or (fate == "bad" and not shape.looks_at_ends(name)):
            found.append(None)
        else:
            branch = row.branch if row is not None and above in fates else None
            found.append(fate != "skipped" and (branch is None or name in branch))
    return found


def leads(shape: Shape, start: Iterable[str], goal: str) -> bool:
    """Return whether a path leads from one of these tasks to another."""
    return goal in start or any(leads(shape, start, above) for above in shape.upstream[goal])


def chose_against(
    shape: Shape, rows: Mapping[str, TaskRow], fates: Mapping[str, str], above: str, name: str
) -> list[str]:
    """Return the tasks whose choice keeps an edge from being taken."""
    if fates.get(above) == "skipped":
        return [
            one
            for other in shape.upstream[above]
            for one in chose_against(shape, rows, fates, other, above)
        ]
    row = rows.get(above) if above in fates else None
    return [above] if row is not None and row.branch is not None and name not in row.branch else []


def is_refused(
    shape: Shape,
    rows: Mapping[str, TaskRow],
    fates: Mapping[str, str],
    names: Iterable[str],
    name: str,
) -> bool:
    """Return whether a task above chose another branch, and no branch that was taken leads here."""
    chosen = tuple(names)
    has_outside = any(above not in chosen for above in shape.upstream[name])
    for above in shape.upstream[name]:
        against = chose_against(shape, rows, fates, above, name)
        branches = [rows[one].branch or () for one in against]
        if not against or not shape.of_node[above].get("control") or shape.is_forbidden(above):
            continue
        taken = branches[0] if against == [above] else ()
        if has_outside and taken and not any(target in chosen for target in taken):
            continue
        if not any(leads(shape, branch, name) for branch in branches):
            return all(fates.get(other) != "open" for other in shape.upstream[name])
    return False


def is_worth_a_retry(node: TaskNode, row: TaskRow) -> bool:
    """True if its author wants a retry after such an end."""
    plain = FailureReason.KILLED if row.state is TaskState.KILL else FailureReason.EXIT_CODE
    policy, reason = node.retry_policy, row.failure or plain
    return reason not in policy.no_retry_on and reason in (policy.retry_on or [reason])


def memory_factor(node: TaskNode, row: TaskRow, earlier: list[TaskRow]) -> float:
    """Return the factor for the memory of a new attempt."""
    if row.retry_times == 0:
        return 1.0
    former = earlier[-1]
    raised = (
        node.retry_policy.memory is not None
        and former.failure is FailureReason.OUT_OF_MEMORY
        and former.state is not TaskState.NEED_FAULT_TOLERANCE
    )
    return former.memory_factor * (1.5 if raised else 1.0)


def fates(
    shape: Shape,
    rows: Mapping[str, TaskRow],
    names: Iterable[str],
    known: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the fate of each of these tasks: good, bad, skipped, or open; some may be known."""
    found: dict[str, str] = {}
    names = tuple(names)
    for name in names:
        if known is not None and name in known:
            found[name] = known[name]
            continue
        edges, row = ways(shape, rows, found, name), rows.get(name)
        refused = is_refused(shape, rows, found, names, name)
        if row is not None and (row.state.is_success or row.branch is not None):
            found[name] = "good"
        elif row is not None and failed(row) and shape.is_looked_at(name):
            found[name] = "bad"
        elif (row is None or row.retry_at is not None) and (
            refused or (edges and set(edges) == {False})
        ):
            # A promised retry of a task that a person chose is dropped once no branch leads to it.
            found[name] = "skipped"
        else:
            passed = row is None and None not in edges and shape.is_forbidden(name)
            found[name] = "good" if passed else "open"
    return found


def may_begin(shape: Shape, rows: Mapping[str, TaskRow], names: tuple[str, ...], name: str) -> bool:
    known = fates(shape, rows, names)
    edges = ways(shape, rows, known, name)
    if is_refused(shape, rows, known, names, name):
        return False
    return None not in edges and (True in edges or not edges) and not shape.is_forbidden(name)


def must_end_as(
    shape: Shape, rows: Mapping[str, TaskRow], chosen: tuple[str, ...], last: tuple[Any, Any]
) -> ProcessState:
    """Return the end that a run must have, given its last live state and intent."""
    of_chosen = fates(shape, rows, chosen)
    if "open" not in fates(shape, rows, shape.upstream, of_chosen).values():
        return ProcessState.SUCCESS
    if last[0] is ProcessState.READY_STOP:
        return ProcessState(last[1])
    own = {name: rows[name] for name in chosen if name in rows}
    if shape.strategy is FailureStrategy.END and any(
        failed(row) and row.branch is None and not shape.is_looked_at(name)
        for name, row in own.items()
    ):
        return ProcessState.FAILURE
    begun = {name for name, row in rows.items() if row.retry_at is None}
    waits = any(row.state is TaskState.PAUSE for row in own.values()) or any(
        name not in begun and may_begin(shape, rows, chosen, name) for name in chosen
    )
    return ProcessState.PAUSE if waits else ProcessState.FAILURE


class History:
    """One run, its events, and the assertions after each step."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.now = NOON
        self.kept = KeptRun(
            shape.text(),
            of_node=shape.of_node,
            strategy=shape.strategy,
            task_limit=shape.task_limit,
        )
        self.delivered: list[TaskEvent] = []
        self.seen = 0
        self.last: tuple[Any, Any] = (ProcessState.RUNNING, None)

    @property
    def chosen(self) -> tuple[str, ...]:
        return tuple(self.kept.run.dag.names)

    def happen(self, what: str, number: int) -> None:
        over = self.kept.run.is_over
        match what:
            case "claim":
                self.claim(number)
            case "end":
                self.end(number)
            case "both":
                self.claim(number)
                self.end(number)
                self.deliver(*self.kept.reports())
            case "hear":
                self.deliver(*self.kept.reports())
            case "wait":
                self.wait(timedelta(seconds=number))
            case "forget" if not over:
                self.kept.run = self.kept.load()
                self.deliver(RunOpened())
            case "repeat" if self.delivered:
                self.repeat(self.delivered[number % len(self.delivered)])
            case "pause" if number % 2:
                self.deliver(PauseRequested())
            case "stop" if number % 4 == 3:
                self.deliver(stop(self.now + GRACE))
            case "time-out" if number % 8 == 7:
                self.deliver(time_out(self.now + GRACE))
            case "deadline":
                self.pass_deadline()
            case "recover" if over:
                self.recover(number)
            case _:
                self.deliver(RunOpened())

    def deliver(self, *events: Event) -> None:
        for event in events:
            if isinstance(event, TaskEvent) and not isinstance(event, TimerFired):
                self.delivered.append(event)
            if not self.kept.run.is_over:
                # A stop and its purpose become visible before the run ends in the same step.
                self.last = self._wanted(event)
            self.kept.deliver(event, now=self.now)
            self.check()

    def _wanted(self, event: Event) -> tuple[Any, Any]:
        state, stopping = self.kept.state(), ProcessState.READY_STOP
        if state is not stopping and event == stop(self.now + GRACE):
            return stopping, ProcessState.STOP
        if state is not stopping and event == time_out(self.now + GRACE):
            return stopping, ProcessState.FAILURE
        return state, self.kept.process.wanted_state

    def repeat(self, event: TaskEvent) -> None:
        """A report that was processed before changes nothing, however much has happened since."""
        assert self.kept.deliver(event, now=self.now) == []

    def claim(self, number: int) -> None:
        waiting = [row for row in self.live() if row.state in UNSTARTED_TASK_STATES]
        if waiting:
            self.kept.claim(waiting[number % len(waiting)].name)

    def end(self, number: int) -> None:
        running = [row for row in self.live() if row.state is TaskState.RUNNING]
        if running:
            row = running[number % len(running)]
            state = ENDS[number // 4 % len(ENDS)]
            values = put_out(x=str(number % 2)) if number % 3 else None
            failure = (*_REASONS, None)[number % 5]
            if state not in (TaskState.FAILURE, TaskState.KILL) or row.kill_requested:
                failure = None
            self.kept.end(row.name, state, at=self.now, var_pool=values, failure=failure)

    def wait(self, passed: timedelta) -> None:
        self.now += passed
        run = self.kept.run
        due = [(name, at) for name, at in run.retries.items() if at <= self.now]
        for name, _ in due:
            self.deliver(TimerFired(name=name, attempt=run.tasks[name].attempt))
        if self.is_overdue():
            self.pass_deadline()

    def pass_deadline(self) -> None:
        # A loop that reads the clock reads the reports first.
        self.deliver(*self.kept.reports(), DeadlinePassed())
        assert self.kept.state() is not ProcessState.READY_STOP

    def is_overdue(self) -> bool:
        run = self.kept.run
        return (
            run.state is ProcessState.READY_STOP
            and run.deadline is not None
            and self.now >= run.deadline
        )

    def recover(self, number: int) -> None:
        """Make the ended run live again by one of the commands that people give."""
        states = self.kept.states()
        kind, mask = number % 5, number // 5
        scope = None
        if kind == 0:
            reset = [
                name for name, state in states.items() if state in (TaskState.PAUSE, TaskState.KILL)
            ]
        elif kind == 1:
            reset = [name for name, state in states.items() if not state.is_success]
        elif kind == 2:
            reset = list(states)
        else:
            scope = [name for index, name in enumerate(self.shape.upstream) if mask >> index & 1]
            reset = scope
            if not scope:
                return
        self.delivered = [
            event for event in self.delivered if event.name not in self.force(kind, mask, reset)
        ]
        self.last = (ProcessState.RUNNING, None)
        self.kept.restart(reset, scope=scope, now=self.now)
        self.check()

    def force(self, kind: int, mask: int, reset: list[str]) -> list[str]:
        """Sometimes force a failed attempt that is kept to success."""
        if kind != 0:
            return []
        forced = [
            row.name
            for row in self.kept.rows
            if row.valid and row.state is TaskState.FAILURE and row.branch is None and mask % 3 == 0
        ]
        for name in forced:
            self.kept._change(self.kept.row(name), state=TaskState.FORCED_SUCCESS)
        return forced

    def drain(self) -> None:
        """Let every attempt succeed except those to be killed, until the run has ended."""
        for _ in range(60):
            if self.kept.run.is_over:
                return
            for row in self.live():
                if row.state in UNSTARTED_TASK_STATES:
                    self.kept.claim(row.name)
                state = TaskState.KILL if row.kill_requested else TaskState.SUCCESS
                self.kept.end(row.name, state, at=self.now, var_pool=put_out(x="1"))
            self.deliver(*self.kept.reports())
            self.wait(timedelta(minutes=3))
        raise AssertionError(f"no end: {self.kept.run.story()}")

    def live(self) -> list[TaskRow]:
        return [row for row in self.kept.rows if not row.state.is_finished]

    # Assertions

    def settled(self) -> dict[str, TaskRow]:
        return {row.name: row for row in self.kept.rows if row.valid and row.settled}

    def check(self) -> None:
        rows, settled = self.kept.rows, self.settled()
        valid = [row.name for row in rows if row.valid]
        assert len(valid) == len(dict.fromkeys(valid))
        for row in rows[self.seen :]:
            above = {name: one for name, one in settled.items() if name != row.name}
            assert may_begin(self.shape, above, self.chosen, row.name)
            assert row.retry_times <= self.kept.nodes[row.name].max_retry_times
            earlier = [one for one in rows[: row.id - 1] if one.name == row.name]
            assert row.attempt == 1 + len(earlier)
            assert row.memory_factor == memory_factor(self.kept.nodes[row.name], row, earlier)
        self.seen = len(rows)
        for name, row in settled.items():
            if row.retry_at is not None and row.state is not TaskState.NEED_FAULT_TOLERANCE:
                assert is_worth_a_retry(self.kept.nodes[name], row)
        if self.kept.run.is_over:
            assert not self.live()
            assert self.kept.state() is must_end_as(self.shape, settled, self.chosen, self.last)


@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
@given(shape=shapes(), happenings=HAPPENINGS)
def test_whatever_happens_the_engine_ends_and_ends_as_the_rows_and_the_dag_say(
    shape: Shape, happenings: list[tuple[str, int]]
) -> None:
    history = History(shape)
    history.deliver(RunOpened())
    for what, number in happenings:
        history.happen(what, number)
    history.drain()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes())
def test_if_all_goes_well_each_task_runs_once_or_is_skipped(shape: Shape) -> None:
    history = History(shape)
    history.deliver(RunOpened())
    history.drain()
    rows = history.kept.rows
    assert all(row.attempt == 1 for row in rows)
    # A SWITCH fails if its parameter was not put out above it, and so does the run, unless a
    # CONDITIONS checks the SWITCH.
    assert history.kept.state() is ProcessState.FAILURE or all(
        row.state is TaskState.SUCCESS
        or row.branch is not None
        or shape.of_node[row.name].get("task_type") == "SWITCH"
        for row in rows
    )
