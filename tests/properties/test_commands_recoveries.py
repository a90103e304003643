"""A recovered run ends well.

The real run worker has brought it to some end on tables in memory, which a recovery must bring to a
good one if all goes well from there (traps T70, T71, T72).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from common.model.commands import RESTARTING_COMMANDS, CommandType
from common.model.states import FailureStrategy, ProcessState, TaskDependType, TaskState
from common.store.worker.ports import AttemptEnd
from tests.builders import a_definition_json
from tests.memory.store import TaskRecord
from tests.one_master import WORKER, OneMaster

NAMES = "abcdef"
KINDS = ("end", "end", "fail", "fail", "kill", "stop", "pause", "wait", "look")
LOOK = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A DAG, the options of its author and its command, and the events of its run."""

    upstream: dict[str, list[str]]
    forbidden: str
    retries: dict[str, int]
    strategy: FailureStrategy
    start: str
    mode: TaskDependType
    happenings: list[tuple[str, int]]
    text: str | None = None

    def definition(self) -> str:
        if self.text is not None:
            return self.text
        tasks = [
            {
                "name": name,
                "type": "SHELL",
                "preTasks": above,
                "maxRetryTimes": self.retries[name],
                "retryInterval": 1,
                "runFlag": "FORBIDDEN" if name in self.forbidden else "NORMAL",
            }
            for name, above in self.upstream.items()
        ]
        return json.dumps({"tasks": tasks})

    def selected(self) -> list[str]:
        """Return the selection of the first command, by a model of its own to compare with."""
        if not self.start:
            return list(self.upstream)
        chosen = [self.start]
        if self.mode is TaskDependType.TASK_PRE:
            for name in reversed(self.upstream):
                if name in chosen:
                    chosen += self.upstream[name]
        elif self.mode is TaskDependType.TASK_POST:
            for name, above in self.upstream.items():
                if any(other in chosen for other in above):
                    chosen.append(name)
        return [name for name in self.upstream if name in chosen]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    bits = draw(st.integers(0, 2**15 - 1)) & draw(st.integers(0, 2**15 - 1))
    upstream = {
        name: [
            other
            for place, other in enumerate(names[:index])
            if bits >> (index * (index - 1) // 2 + place) & 1
        ]
        for index, name in enumerate(names)
    }
    mode = draw(st.sampled_from(TaskDependType))
    start = draw(st.sampled_from(("", "", *names)))
    return Story(
        upstream=upstream,
        forbidden=draw(st.sampled_from(("", "", "a", "bc"))),
        retries={name: draw(st.sampled_from((0, 0, 1))) for name in names},
        strategy=draw(st.sampled_from(FailureStrategy)),
        start=start,
        mode=mode if start else TaskDependType.TASK_POST,
        happenings=draw(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), max_size=8)),
    )


class Ended:
    """A run that has ended somehow, and that a person recovers."""

    def __init__(self, story: Story, *last: str) -> None:
        self.story = story
        self.master = OneMaster()
        definition = self.master.database.insert(
            self.master.database.definitions,
            name="story",
            release_state=1,
            process_definition_json=story.definition(),
        )
        param = json.dumps({"StartNodeNameList": story.start} if story.start else {})
        ownership = self.master.command(
            CommandType.START_PROCESS,
            process_definition_id=definition,
            command_param=param,
            task_depend_type=int(story.mode),
            failure_strategy=int(story.strategy),
        )
        assert ownership is not None
        self.run = ownership.process_instance_id
        self.master.runs.open([ownership])
        self.master.step()
        for what, number in (*story.happenings, *((what, 0) for what in last)):
            self.happen(what, number)
        self.end_well()

    def state(self) -> ProcessState:
        return self.master.state(self.run)

    @property
    def rows(self) -> list[TaskRecord]:
        return self.master.attempts(self.run)

    def valid(self) -> dict[str, TaskRecord]:
        return {task.name: task for task in self.rows if task.flag == 1}

    def happen(self, what: str, number: int) -> None:
        live = [task for task in self.rows if not TaskState(task.state).is_finished]
        one = live[number % len(live) :][:1] if live else []
        match what:
            case "end":
                self.end(one, TaskState.SUCCESS)
            case "fail":
                self.end(one, TaskState.FAILURE)
            case "kill":
                self.end(one, TaskState.KILL)
            case "wait":
                self.master.later(timedelta(seconds=30 * number))
            case "stop" | "pause":
                if number < 2 and not self.state().is_terminal:
                    wanted = CommandType.STOP if what == "stop" else CommandType.PAUSE
                    self.command(wanted)
                    self.master.runs.check_tables()
        self.master.step()

    def command(
        self,
        command_type: CommandType,
        *names: str,
        version: str | None = None,
        **columns: Any,
    ) -> None:
        param: dict[str, Any] = {"ProcessInstanceId": self.run}
        if version is not None:
            param["definitionVersion"] = version
        if names:
            param["StartNodeNameList"] = ",".join(names)
        ownership = self.master.command(command_type, command_param=json.dumps(param), **columns)
        if ownership is not None:
            self.master.runs.open([ownership])

    def end(self, tasks: Sequence[TaskRecord], state: TaskState) -> None:
        now = self.master.clock.now()
        for task in tasks:
            if task.state == TaskState.SUBMITTED:
                self.master.claim(self.run, task.name)
            end = AttemptEnd(task_instance_id=task.id, state=state, end_time=now)
            self.master.tasks.report(WORKER, [end])
        self.master.deliver_notifications()

    def end_well(self) -> None:
        """Let every attempt succeed that is not to be killed, until the run has ended."""
        for _ in range(60):
            if self.state().is_terminal:
                return
            for task in self.rows:
                if not TaskState(task.state).is_finished:
                    killed = task.wanted_state == TaskState.KILL
                    self.end([task], TaskState.KILL if killed else TaskState.SUCCESS)
            self.master.later(timedelta(seconds=61))
        raise AssertionError(f"no end: {self.rows}")

    def recover(self, command_type: CommandType, *names: str, **columns: Any) -> list[TaskRecord]:
        """Recover it and let every attempt succeed; return the attempts that this made."""
        before = len(self.rows)
        self.command(command_type, *names, **columns)
        assert not self.state().is_terminal, self.master.database.error_commands
        self.end_well()
        return self.rows[before:]

    def good(self) -> list[int]:
        """The ids of the attempts with a good result."""
        return [task.id for task in self.valid().values() if task.state == TaskState.SUCCESS]

    def check_success(self) -> None:
        """Every selected task is done, once, and no other task (T71)."""
        assert self.state() is ProcessState.SUCCESS, self.master.process(self.run).state_reason
        valid = self.valid()
        for name in self.story.selected():
            if name not in self.story.forbidden:
                assert TaskState(valid[name].state) is TaskState.SUCCESS
        assert all(name in self.story.selected() for name in valid)


RUNS = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@RUNS
@given(story=stories())
def test_rerunning_what_failed_ends_well_and_leaves_good_results_alone(story: Story) -> None:
    ended = Ended(story, "fail", "wait", "fail")
    if ended.state() is not ProcessState.FAILURE:
        return
    event("failed")
    good = ended.good()
    made = ended.recover(CommandType.START_FAILURE_TASK_PROCESS)
    ended.check_success()
    assert all(task.id in ended.good() for task in ended.rows if task.id in good)
    assert sorted(ended.good()) == sorted([*good, *(task.id for task in made)])


@RUNS
@given(story=stories(), last=st.sampled_from(("pause", "stop")))
def test_going_on_ends_as_well_as_the_failures_before_it_allow(story: Story, last: str) -> None:
    ended = Ended(story, last)
    if ended.state() not in (ProcessState.PAUSE, ProcessState.STOP):
        return
    good = ended.good()
    failed = [
        name
        for name, task in ended.valid().items()
        if (
            task.state == TaskState.FAILURE
            or (task.state == TaskState.KILL and not task.wanted_state)
        )
        and task.retry_at is None
    ]
    event(f"{ended.state().name}, failures: {bool(failed)}")
    ended.recover(CommandType.RECOVER_SUSPENDED_PROCESS)
    assert all(number in ended.good() for number in good)
    if failed:
        assert ended.state() is ProcessState.FAILURE
        ended.recover(CommandType.START_FAILURE_TASK_PROCESS)
        assert all(number in ended.good() for number in good)
    ended.check_success()


@RUNS
@given(story=stories())
def test_repeating_runs_every_selected_task_anew(story: Story) -> None:
    ended = Ended(story)
    made = ended.recover(CommandType.REPEAT_RUNNING)
    ended.check_success()
    names = [task.name for task in made]
    wanted = [name for name in ended.story.selected() if name not in ended.story.forbidden]
    assert sorted(names) == sorted(wanted)


@RUNS
@given(story=stories(), number=st.integers(0, 5), mode=st.sampled_from(TaskDependType))
def test_chosen_tasks_run_alone_and_whatever_they_leave_can_be_recovered(
    story: Story, number: int, mode: TaskDependType
) -> None:
    ended = Ended(story)
    selected = ended.story.selected()
    name = selected[number % len(selected)]
    made = [
        task.name
        for task in ended.recover(CommandType.EXECUTE_TASK, name, task_depend_type=int(mode))
    ]
    chosen = replace(ended.story, start=name, mode=mode).selected()
    allowed = [one for one in chosen if one in selected and one not in ended.story.forbidden]
    assert made == [one for one in made if one in allowed]
    assert len(made) == len(dict.fromkeys(made))
    if name not in ended.story.forbidden:
        assert TaskState(ended.valid()[name].state) is TaskState.SUCCESS
    if ended.state() is not ProcessState.SUCCESS:
        assert ended.state() is ProcessState.FAILURE
        ended.recover(CommandType.START_FAILURE_TASK_PROCESS)
    ended.check_success()


# The latest version of the definition


def _nodes(document: str) -> dict[str, dict[str, Any]]:
    nodes = {node["name"]: node for node in json.loads(document)["tasks"]}
    return {name: node | {"preTasks": sorted(node["preTasks"])} for name, node in nodes.items()}


def _stale(before: str, after: str) -> set[str]:
    """Return what can't keep its result, by a model of its own to compare with."""
    old, new = _nodes(before), _nodes(after)
    stale = {name for name, node in new.items() if old.get(name) != node}
    # Names are in topological order.
    for name, node in new.items():
        if stale.intersection(node["preTasks"]):
            stale.add(name)
    return stale


@RUNS
@given(story=stories(), later=stories(), is_same=st.booleans(), edited=st.sampled_from(NAMES))
def test_the_latest_version_ends_well_and_keeps_what_is_still_valid(
    story: Story, later: Story, is_same: bool, edited: str
) -> None:
    story = replace(story, start="", mode=TaskDependType.TASK_POST)
    later = replace(story if is_same else later, start="", mode=TaskDependType.TASK_POST)
    text = json.loads(later.definition())
    for node in text["tasks"]:
        if node["name"] == edited:
            node["params"] = {"rawScript": "another"}
    document = json.dumps(text)
    ended = Ended(story, "fail", "wait", "fail")
    good = {
        task.name: task.id for task in ended.valid().values() if task.state == TaskState.SUCCESS
    }
    (definition,) = ended.master.database.definitions
    ended.master.database.update(
        ended.master.database.definitions,
        definition.id,
        version=definition.version + 1,
        process_definition_json=document,
    )
    kinds = {
        ProcessState.FAILURE: CommandType.START_FAILURE_TASK_PROCESS,
        ProcessState.SUCCESS: CommandType.REPEAT_RUNNING,
    }
    kind = kinds.get(ended.state(), CommandType.RECOVER_SUSPENDED_PROCESS)
    event(kind.name)
    ended.command(kind, version="latest")
    assert not ended.state().is_terminal, ended.master.database.error_commands
    ended.end_well()
    ended.story = later
    if ended.state() is ProcessState.FAILURE:
        assert kind is CommandType.RECOVER_SUSPENDED_PROCESS
        ended.recover(CommandType.START_FAILURE_TASK_PROCESS)
    ended.check_success()
    stale = _stale(story.definition(), document)
    kept = {name for name in good if name in later.upstream and name not in stale}
    for name, task in ended.valid().items():
        is_kept = name in kept and kind is not CommandType.REPEAT_RUNNING
        assert (task.id == good.get(name)) is is_kept, name
    assert ended.master.process(ended.run).process_instance_json == document


# Runs with branches

LOOKS_AT_A = {
    "relation": "AND",
    "dependTaskList": [
        {"relation": "AND", "dependItemList": [{"depTasks": "a", "status": "SUCCESS"}]}
    ],
}


def _branching(*, kept: bool) -> str:
    """`a` is checked by a CONDITIONS with two branches that join; `kept` needs `a` to succeed."""
    choose = {
        "type": "CONDITIONS",
        "dependence": LOOKS_AT_A,
        "conditionResult": {"successNode": ["good"], "failedNode": ["cure"]},
    }
    shape = "a >> choose >> good cure >> join"
    return a_definition_json(f"{shape}; a >> kept" if kept else shape, choose=choose)


RECOVERIES = st.lists(
    st.tuples(
        st.sampled_from((*RESTARTING_COMMANDS, CommandType.START_FAILURE_TASK_PROCESS)),
        st.sampled_from(("a", "good", "cure", "join")),
        st.sampled_from(("", "fail", "pause", "stop")),
    ),
    max_size=3,
)


@RUNS
@given(story=stories(), kept=st.booleans(), recoveries=RECOVERIES)
def test_a_run_with_branches_can_be_brought_to_a_good_end_whatever_was_recovered_before(
    story: Story, kept: bool, recoveries: list[tuple[CommandType, str, str]]
) -> None:
    ended = Ended(
        replace(story, text=_branching(kept=kept), start="", mode=TaskDependType.TASK_POST)
    )
    for command_type, name, then in recoveries:
        ended.command(command_type, name)
        ended.master.step()
        if then:
            ended.happen(then, 0)
        ended.end_well()
    if ended.state() in (ProcessState.PAUSE, ProcessState.STOP):
        ended.recover(CommandType.RECOVER_SUSPENDED_PROCESS)
    if ended.state() is ProcessState.FAILURE:
        good = ended.good()
        ended.recover(CommandType.START_FAILURE_TASK_PROCESS)
        assert all(number in ended.good() for number in good)
    assert ended.state() is ProcessState.SUCCESS, ended.master.process(ended.run).state_reason
    assert TaskState(ended.valid()["join"].state) is TaskState.SUCCESS
