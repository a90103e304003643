"""Every command row has a plan, whatever the tables hold.

The rows are hostile: a plan must only exist and keep its promises.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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
from common.model.states import ExecutionType, ProcessState, ReleaseState, TaskDependType, TaskState
from master.commands import plan
from master.commands.origin import Origin
from tests.builders import NOON, a_definition_json, read_graph

ZONES = ("UTC", "America/New_York", "Asia/Shanghai", "Pacific/Apia")
PLANS = (Begin, Complement, Resume, Restart, SetIntent, Drop, Reject)
MASTERS = (Node(address="m1:5678", incarnation=7), Node(address="m2:5678", incarnation=8))


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
        return  # Checked by `tests/unit/commands`.
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
