"""Every command row has a plan, whatever the tables hold, and a recovered run ends well.

Two kinds of histories: hostile rows, for which a plan must only exist and keep its promises; and
runs that the real run worker has brought to some end on tables in memory, which a recovery must
bring to a good one if all goes well from there (traps T70, T71, T72).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from common.errors import BadCommandError
from common.model.cluster import Node
from common.model.commands import (
    RESTARTING_COMMANDS,
    Command,
    CommandRow,
    CommandType,
    read_command,
)
from common.model.instances import TaskRow
from common.model.plans import (
    Begin,
    Complement,
    DefinitionSnapshot,
    Drop,
    InstanceSnapshot,
    ParentSnapshot,
    Plan,
    Reject,
    Restart,
    Resume,
    SetIntent,
    Snapshot,
)
from common.model.states import (
    ExecutionType,
    FailureStrategy,
    ProcessState,
    ReleaseState,
    TaskDependType,
    TaskState,
)
from common.store.worker.ports import AttemptEnd
from master.commands import plan
from master.commands.origin import Origin
from tests.builders import NOON, a_definition_json, read_graph
from tests.memory.store import TaskRecord
from tests.one_master import WORKER, OneMaster

ZONES = ("UTC", "America/New_York", "Asia/Shanghai", "Pacific/Apia")
PLANS = (Begin, Complement, Resume, Restart, SetIntent, Drop, Reject)
MASTERS = (Node(address="m1:5678", incarnation=7), Node(address="m2:5678", incarnation=8))

# Hostile rows

BRANCHING = json.dumps(
    {
        "tasks": [
            {"name": "a", "type": "SHELL"},
            {
                "name": "b",
                "type": "CONDITIONS",
                "preTasks": ["a"],
                "dependence": {
                    "relation": "AND",
                    "dependTaskList": [
                        {
                            "relation": "AND",
                            "dependItemList": [{"depTasks": "a", "status": "SUCCESS"}],
                        }
                    ],
                },
                "conditionResult": {"successNode": ["c"], "failedNode": ["d"]},
            },
            {"name": "c", "type": "SHELL", "preTasks": ["b"]},
            {"name": "d", "type": "SHELL", "preTasks": ["b"], "runFlag": "FORBIDDEN"},
            {"name": "e", "type": "SHELL", "preTasks": ["a"]},
        ]
    }
)
JSONS = (
    a_definition_json("a >> b c >> d; e"),
    a_definition_json("a b c d e"),
    a_definition_json("a >> b >> c", b={"runFlag": "FORBIDDEN"}),
    BRANCHING,
    a_definition_json("a >> b; b >> a"),
    *("", "{", "{}", "[]", "null", '{"tasks": 7}', "[" * 5_000),
)
HOSTILE = st.sampled_from(
    (
        *("", "0", "-1", "12", "13", "99", "2147483648", "1" * 5_000, "twelve", "a", "a,b", "x,,y"),
        *("{}", "[]", "null", "{", "[" * 5_000, '{"k": 1.10}', '{"k": {"k": []}}', "\ud800", "\0"),
        *("2020-01-31 00:00:00", "0001-01-01 00:00:00", "9999-12-31 23:59:59", "2020-02-30 0:0:0"),
        *("$[yyyy", "$[add_months(yyyyMMdd,99999)]", "${k}", "${" * 1_000, "x" * 10_000),
    )
)
PROPERTIES = st.one_of(
    st.none(),
    HOSTILE,
    st.lists(
        st.fixed_dictionaries(
            {"prop": st.sampled_from("klm")},
            optional={"value": HOSTILE, "direct": st.sampled_from(("IN", "OUT", "?"))},
        ),
        max_size=3,
    ).map(json.dumps),
)
KEYS = (
    *("ProcessInstanceId", "WaittingThreadInstanceId", "StartNodeNameList", "StartParams"),
    *("complementStartDate", "complementEndDate", "parentProcessInstanceId", "id", "?"),
)
# The store's values lie a day within the range of a datetime.
TIMES = st.sampled_from((None, datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)))
PARTS = (
    *("param", "columns", "definition", "json", "globals", "state", "instance", "rows", "parent"),
    "stored",
)
"""The hostile parts of an example; the others are valid, so that most plans go far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command row, and the tables as they stand when it is planned."""

    row: CommandRow
    snapshot: Snapshot


@st.composite
def cases(draw: st.DrawFn) -> Case:
    hostile = draw(st.lists(st.sampled_from(PARTS), max_size=3))
    command_type = CommandType(draw(st.integers(0, 12)))
    of_child = "parent" in hostile or (
        command_type not in (CommandType.PAUSE, CommandType.STOP) and draw(st.booleans())
    )
    instance = _instance(draw, hostile, command_type, of_child)
    return Case(
        row=_row(draw, hostile, command_type, of_child),
        snapshot=Snapshot(
            definition=_definition(draw, hostile),
            instance=None if "instance" in hostile and draw(st.booleans()) else instance,
            asked_instance_id=draw(st.sampled_from((None, 13))) if "columns" in hostile else 12,
            parent=_parent(draw, hostile) if of_child else None,
            live_masters=frozenset(draw(st.sampled_from(((), MASTERS[:1])))),
        ),
    )


def _row(
    draw: st.DrawFn, hostile: Sequence[str], command_type: CommandType, of_child: bool
) -> CommandRow:
    odd = "columns" in hostile
    param = json.dumps(
        {
            "ProcessInstanceId": 12,
            "StartNodeNameList": draw(st.sampled_from(("a", "b,c", "a,x" if odd else "c"))),
            "StartParams": draw(st.sampled_from(({}, {"k": 1.1}, '{"k": "v"}'))),
        }
    )
    if "param" in hostile:
        param = draw(
            st.one_of(
                HOSTILE, st.dictionaries(st.sampled_from(KEYS), HOSTILE, max_size=4).map(json.dumps)
            )
        )
    return CommandRow(
        id=1,
        command_type=int(command_type),
        process_definition_id=draw(st.sampled_from((None, 0, 4))) if odd else 3,
        command_param=param,
        param_bytes=len(param),
        task_depend_type=draw(st.sampled_from((None, 0, 1, 2))),
        failure_strategy=1,
        warning_type=0,
        warning_group_id=0,
        schedule_time=draw(TIMES) if odd else NOON,
        start_time=NOON,
        executor_id=1,
        process_instance_priority=2,
        worker_group_id=-1,
        parent_task_instance_id=45 if of_child else 0,
    )


def _definition(draw: st.DrawFn, hostile: Sequence[str]) -> DefinitionSnapshot | None:
    odd = "definition" in hostile
    if odd and draw(st.booleans()):
        return None
    return DefinitionSnapshot(
        id=3,
        name="flights",
        version=2,
        release_state=draw(st.sampled_from(ReleaseState)) if odd else ReleaseState.ONLINE,
        usable=not odd or draw(st.booleans()),
        process_definition_json=draw(st.sampled_from(JSONS if "json" in hostile else JSONS[:4])),
        global_params=draw(PROPERTIES) if "globals" in hostile else None,
        timeout_minutes=0,
        tenant_id=-1,
        execution_type=draw(st.sampled_from(ExecutionType)),
    )


def _instance(
    draw: st.DrawFn, hostile: Sequence[str], command_type: CommandType, of_child: bool
) -> InstanceSnapshot:
    states = [state for state in ProcessState if _fits(command_type, state)]
    odd = "instance" in hostile
    return InstanceSnapshot(
        id=12,
        state=draw(st.sampled_from(ProcessState if "state" in hostile else states)),
        owner=draw(st.sampled_from((None, *MASTERS))),
        owner_epoch=4,
        process_definition_id=draw(st.sampled_from((3, 4))) if odd else 3,
        root_id=draw(st.sampled_from((0, 2))) if odd else 2 * of_child,
        command_param=(
            draw(
                st.one_of(
                    HOSTILE,
                    st.dictionaries(st.sampled_from(KEYS), HOSTILE, max_size=2).map(json.dumps),
                )
            )
            if "stored" in hostile
            else '{"StartParams": {"k": "1"}}'
        ),
        process_instance_json=draw(st.sampled_from(JSONS if "json" in hostile else JSONS[:4])),
        global_params=draw(PROPERTIES) if "globals" in hostile else None,
        task_depend_type=draw(st.sampled_from(TaskDependType)) if odd else TaskDependType.TASK_POST,
        history=draw(st.sampled_from(((), ("COMPLEMENT_DATA",), ("START_PROCESS", "?")))),
        schedule_time=draw(TIMES) if odd else None,
        tasks=_tasks(draw, odd="rows" in hostile),
    )


def _fits(command_type: CommandType, state: ProcessState) -> bool:
    match command_type:
        case CommandType.START_FAILURE_TASK_PROCESS:
            return state is ProcessState.FAILURE
        case CommandType.RECOVER_SUSPENDED_PROCESS:
            return state in (ProcessState.PAUSE, ProcessState.STOP)
        case CommandType.REPEAT_RUNNING | CommandType.EXECUTE_TASK:
            return state.is_terminal
        case CommandType.RECOVER_WAITTING_THREAD:
            return state is ProcessState.WAITING_THREAD
        case CommandType.RECOVER_SERIAL_WAIT:
            return state is ProcessState.SERIAL_WAIT
        case _:
            return not state.is_terminal


def _tasks(draw: st.DrawFn, *, odd: bool) -> tuple[TaskRow, ...]:
    names = draw(st.lists(st.sampled_from("abcdex" if odd else "abc"), max_size=5))
    rows = []
    for number, name in enumerate(names if odd else dict.fromkeys(names), start=1):
        state = draw(st.sampled_from([s for s in TaskState if odd or s.is_finished]))
        failed = state in (TaskState.FAILURE, TaskState.KILL)
        rows.append(
            TaskRow(
                id=number,
                name=name,
                attempt=draw(st.integers(0, 3)) if odd else 1,
                state=state,
                retry_times=draw(st.integers(0, 2)) if odd else 0,
                valid=draw(st.booleans()),
                settled=draw(st.booleans()),
                end_time=draw(st.sampled_from((None, NOON))) if odd else NOON,
                retry_at=draw(st.sampled_from((None, NOON))) if odd or failed else None,
                kill_requested=draw(st.booleans()),
                pause_requested=draw(st.booleans()),
                var_pool=draw(PROPERTIES) if odd else None,
                branch=draw(st.sampled_from((None, (), ("c",), ("x",)))) if odd else None,
            )
        )
    return tuple(rows)


def _parent(draw: st.DrawFn, hostile: Sequence[str]) -> ParentSnapshot | None:
    odd = "parent" in hostile
    if odd and draw(st.booleans()):
        return None
    return ParentSnapshot(
        process_instance_id=2,
        task_instance_id=45,
        task_name="sub",
        task_json=(
            draw(
                st.one_of(
                    HOSTILE,
                    PROPERTIES.map(lambda local: json.dumps({"params": {"localParams": local}})),
                )
            )
            if odd
            else "{}"
        ),
        input_pool=draw(PROPERTIES) if odd else None,
        waits=not odd or draw(st.booleans()),
        root_id=draw(st.sampled_from((0, 2))),
        history=draw(st.sampled_from(((), ("COMPLEMENT_DATA",)))),
        global_params=draw(PROPERTIES) if odd else None,
        schedule_time=draw(TIMES) if odd else None,
        ancestors=draw(st.sampled_from(((), (1,), (1, 3)))) if odd else (1,),
    )


def _planned(command: Command, snapshot: Snapshot, zone: str) -> Plan:
    origin = Origin(zone=ZoneInfo(zone), graph=read_graph)
    return plan(command, snapshot, now=NOON, origin=origin)


@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), zone=st.sampled_from(ZONES))
def test_whatever_stands_in_a_row_and_in_the_tables_there_is_a_plan(case: Case, zone: str) -> None:
    try:
        command = read_command(case.row, param_limit_bytes=10**6)
    except BadCommandError:
        return  # Checked by `tests/unit/test_commands.py`.
    snapshot = case.snapshot
    found = _planned(command, snapshot, zone)
    event(f"{command.command_type.name}: {type(found).__name__}")
    assert isinstance(found, PLANS)
    if isinstance(found, Reject | Drop):
        assert found.reason.strip()
    if isinstance(found, Restart):
        _check_restart(command, snapshot, found)
    if isinstance(found, Restart | Begin):
        assert (found.child_of is None) == (command.parent_task_instance_id == 0)


def _check_restart(command: Command, snapshot: Snapshot, found: Restart) -> None:
    instance = snapshot.instance
    assert instance is not None
    assert instance.state.is_terminal
    assert command.command_type in RESTARTING_COMMANDS
    assert (found.process_instance_id, found.epoch) == (instance.id, instance.owner_epoch)
    latest = {task.name: task for task in instance.tasks}
    assert len(dict.fromkeys(found.reset)) == len(found.reset)
    for name in found.reset:
        assert latest[name].valid
        assert latest[name].state.is_finished
    if command.command_type in (
        CommandType.RECOVER_SUSPENDED_PROCESS,
        CommandType.START_FAILURE_TASK_PROCESS,
    ):
        assert not any(
            latest[name].state.is_success and latest[name].retry_at is None for name in found.reset
        )
    if found.run_scope is not None:
        assert all(name in found.run_scope for name in found.reset)


# Ended runs

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

    def command(self, command_type: CommandType, *names: str, **columns: Any) -> None:
        param: dict[str, Any] = {"ProcessInstanceId": self.run}
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
