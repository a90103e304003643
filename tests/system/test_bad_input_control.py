"""Bad input about recoveries, control tasks and pools, and corrupted rows.

Each is refused with a message that names the place, or ends with a reason; what may have to wait
costs next to nothing while it does. What holds after each test stands in `tests.system.frame`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import psycopg2.errors
import pytest

from operations.daemons import Kind
from tests.system.cluster import PrivateCluster, a_task, private_cluster, until
from tests.system.frame import (
    FAILURE,
    SUCCESS,
    answers,
    ask_to_stop,
    begin_bystander,
    good_definition,
    nothing_else_is_touched,
    refusal,
    unsaid,
)

SUBMITTED, RUNNING, STOP = 0, 1, 5
RECOVERIES = (3, 4, 7, 12)
ALL_THAT_NAME_AN_INSTANCE = (*RECOVERIES, 2, 8, 9, 10, 11)

_Wanted = dict[str, tuple[int | None, tuple[str, ...]]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bad_control")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[PrivateCluster]:
    """One master and one worker."""
    with private_cluster(home) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def good(cluster: PrivateCluster) -> int:
    return good_definition(cluster)


@pytest.fixture(scope="module")
def bystander(cluster: PrivateCluster) -> int:
    return begin_bystander(cluster)


@pytest.fixture(autouse=True)
def _frame(cluster: PrivateCluster, good: int, bystander: int) -> Iterator[None]:
    with nothing_else_is_touched(cluster, good, bystander):
        yield


# Recoveries


def test_a_recovery_of_a_run_that_runs_is_refused_and_it_runs_on(
    cluster: PrivateCluster, bystander: int
) -> None:
    param = json.dumps({"ProcessInstanceId": bystander, "StartNodeNameList": "patient"})
    for kind in RECOVERIES:
        message = refusal(cluster, cluster.put(None, param, command_type=kind))
        assert f"process instance {bystander} is RUNNING" in message
        assert "stop it" in message


def test_a_recovery_of_a_run_that_is_not_there_is_refused(cluster: PrivateCluster) -> None:
    param = json.dumps({"ProcessInstanceId": 2**31 - 1, "StartNodeNameList": "a"})
    for kind in ALL_THAT_NAME_AN_INSTANCE:
        message = refusal(cluster, cluster.put(None, param, command_type=kind))
        assert message == f"there is no process instance {2**31 - 1}"


@pytest.mark.parametrize("named", [0, -1, 2**31, "9" * 5_000, 1.5, True, [], {}, "x", "٩٩٩٩"])
def test_what_is_no_id_of_an_instance_is_refused(cluster: PrivateCluster, named: object) -> None:
    param = json.dumps({"ProcessInstanceId": named})
    message = refusal(cluster, cluster.put(None, param, command_type=7))
    assert "command_param: ProcessInstanceId must be the id of an instance" in message
    assert len(message) < 200


def test_a_second_recovery_is_refused_while_the_first_waits(
    cluster: PrivateCluster, good: int
) -> None:
    instance = cluster.begin(good)
    assert cluster.await_end(instance) == SUCCESS
    param = json.dumps({"ProcessInstanceId": instance})
    with psycopg2.connect(cluster.dsn) as holder, holder.cursor() as cursor:
        # As long as somebody holds its row, no master can plan anything for the instance.
        cursor.execute("SELECT id FROM t_ds_process_instance WHERE id = %s FOR UPDATE", (instance,))
        command = cluster.put(good, param, command_type=7)
        with pytest.raises(psycopg2.errors.UniqueViolation) as caught:
            cluster.put(good, param, command_type=4)
        assert "t_ds_command_one_recovery_idx" in str(caught.value)
        assert f"(process_instance_id)=({instance})" in str(caught.value)
        told = cluster.orcaflow("instance", "rerun", str(instance))
        assert told.returncode == 4
        assert f"process instance {instance} is being recovered already: command {command}" in (
            told.stderr
        )
    holder.close()
    until(lambda: cluster.rows("SELECT id FROM t_ds_command") == [])
    assert cluster.await_end(instance) == SUCCESS
    ((runs,),) = cluster.rows("SELECT run_times FROM t_ds_process_instance WHERE id = %s", instance)
    assert runs == 2


@pytest.mark.parametrize("kind", [0, 1, 12])
def test_start_nodes_that_are_not_there_are_refused(
    cluster: PrivateCluster, good: int, kind: int
) -> None:
    instance = cluster.begin(good)
    assert cluster.await_end(instance) == SUCCESS
    param = {"StartNodeNameList": "nowhere, '; DROP TABLE t_ds_command; --"}
    if kind == 12:
        param["ProcessInstanceId"] = str(instance)
    message = refusal(cluster, cluster.put(good, json.dumps(param), command_type=kind))
    assert "'nowhere'" in message
    assert "DROP TABLE" in message


# Control tasks


def _switch(condition: object, **more: object) -> list[object]:
    result = {"dependTaskList": [{"condition": condition, "nextNode": "a"}], "nextNode": "b"}
    return [
        {"name": "s", "type": "SWITCH", "switchResult": result | more},
        a_task("a", "true", "s"),
        a_task("b", "true", "s"),
    ]


def _conditions(item: object, *, success: str = "b", relation: str = "AND") -> list[object]:
    groups = [{"relation": "AND", "dependItemList": [item]}]
    return [
        a_task("a", "true"),
        {
            "name": "c",
            "type": "CONDITIONS",
            "preTasks": ["a"],
            "conditionResult": {"successNode": [success], "failedNode": ["b"]},
            "dependence": {"relation": relation, "dependTaskList": groups},
        },
        a_task("b", "true", "c"),
    ]


def _dependent(**item: object) -> dict[str, object]:
    whole = {"depTasks": "ALL", "cycle": "day", "dateValue": "today", **item}
    groups = [{"relation": "AND", "dependItemList": [whole]}]
    return {
        "name": "w",
        "type": "DEPENDENT",
        "dependence": {"relation": "AND", "dependTaskList": groups},
    }


def _sub_process(definition: int | str) -> dict[str, object]:
    key = "processDefinitionId" if isinstance(definition, int) else "processDefinitionName"
    return {"name": "s", "type": "SUB_PROCESS", "params": {key: definition}}


def _now_with(cluster: PrivateCluster, definition_id: int, tasks: list[object]) -> None:
    """Give a definition other tasks, by hand."""
    cluster.rows(
        "UPDATE t_ds_process_definition SET process_definition_json = %s WHERE id = %s",
        json.dumps({"tasks": tasks}),
        definition_id,
    )


def test_branches_that_lead_nowhere_are_refused_with_the_place(cluster: PrivateCluster) -> None:
    far = [*_switch("1 == 1", nextNode="far"), a_task("far", "true", "b")]
    nowhere = {"dependTaskList": [{"condition": "1 == 1", "nextNode": "gone"}]}
    cases: dict[str, tuple[list[object], tuple[str, ...]]] = {
        "no default": (
            _switch("1 == 1", nextNode=""),
            ("task 's', switchResult.nextNode: the switch has no default",),
        ),
        "no direct successor": (
            far,
            ("task 's', switchResult.nextNode: 'far' is not a direct successor",),
        ),
        "successor in no branch": (
            _switch("1 == 1", nextNode="a"),
            ("task 's': its successor 'b' is in no branch",),
        ),
        "branch to nothing": (
            _switch("1 == 1", **nowhere),
            ("switchResult.dependTaskList[0].nextNode: there is no task 'gone'",),
        ),
        "no switch at all": (
            [{"name": "s", "type": "SWITCH"}, a_task("a", "true", "s")],
            ("task 's', switchResult.nextNode: the switch has no default",),
        ),
        "success upstream": (
            _conditions({"depTasks": "a", "status": "SUCCESS"}, success="a"),
            ("task 'c', conditionResult.successNode: 'a' is not a direct successor",),
        ),
        "odd status": (
            _conditions({"depTasks": "a", "status": "MAYBE"}),
            ("dependTaskList[0].dependItemList[0].status", "'MAYBE'"),
        ),
        "odd relation": (
            _conditions({"depTasks": "a", "status": "SUCCESS"}, relation="XOR"),
            ("dependence.relation", "'XOR'"),
        ),
        "condition on nothing": (
            _conditions({"depTasks": "gone", "status": "SUCCESS"}),
            ("dependItemList[0].depTasks: there is no task 'gone'",),
        ),
    }
    found = answers(cluster, {name: tasks for name, (tasks, _) in cases.items()})
    assert unsaid(found, {name: (None, says) for name, (_, says) in cases.items()}) == {}


def test_an_expression_is_read_and_never_run(cluster: PrivateCluster, home: Path) -> None:
    trap = home / "trap of expressions"
    million = 1_000_000
    cases = {
        "__import__('os')": "position 1: ",
        f"__import__('os').system('touch \"{trap}\"')": "position 1: ",
        "9**9**9": "position 2: ",
        "().__class__": "position 2: ",
        "(" * (million // 2) + "1" + ")" * (million // 2): "1,000,001 characters",
        "(" * million: "1,000,000 characters",
        "(" * 1_900 + "1" + ")" * 1_900: "position ",
        "1 == 1 and " * 100_000 + "1 == 1": "characters",
        "'" + "x" * million: "characters",
        "${a} matches '(a+)+$'": "position 6: ",
        "${unclosed": "position 1: ",
        "1e999999 > 1": "position 1: ",
        "1 == 1; drop": "position 7: ",
        "lambda: 0": "position 1: ",
        "\u202e1 == 1": "position 1: ",
    }
    places = "task 's', switchResult.dependTaskList[0].condition: "
    named = {f"expression {number}": each for number, each in enumerate(cases)}
    found = answers(cluster, {name: _switch(each) for name, each in named.items()})
    wanted: _Wanted = {name: (None, (places, cases[each])) for name, each in named.items()}
    assert unsaid(found, wanted) == {}
    assert max(len(answer.text) for answer in found.values()) < 1_000
    assert not trap.exists()


def test_a_condition_without_its_parameter_fails_the_switch_with_the_place(
    cluster: PrivateCluster,
) -> None:
    many = json.dumps(
        {"tasks": _switch("${n} > 1"), "globalParams": [{"prop": "n", "value": "9" * 5_000}]}
    )
    found = answers(cluster, {"missing": _switch("${rows} > 1"), "digits": many})
    assert (
        unsaid(
            found,
            {"missing": (FAILURE, ("branch 1", "position 1", "'rows' has no value"))},
        )
        == {}
    )
    # Whichever branch it takes, it is decided.
    assert found["digits"].state in (FAILURE, SUCCESS)


def test_a_wait_for_what_is_not_there_ends_with_the_reason(cluster: PrivateCluster) -> None:
    place = "task 'w', dependence.dependTaskList[0].dependItemList[0]"
    cases: dict[str, tuple[object, int | None, str]] = {
        "missing id": (_dependent(definitionId=2**31 - 1), FAILURE, "there is no such definition"),
        "missing name": (
            _dependent(definitionName="'; DROP TABLE t_ds_command; --"),
            FAILURE,
            "--ALL-day-today: there is no such definition",
        ),
        "no id": (_dependent(definitionId=-3), None, f"{place}.definitionId"),
        "huge id": (_dependent(definitionId=2**40), None, f"{place}.definitionId"),
        "no cycle": (_dependent(definitionId=1, cycle="decade"), None, f"{place}.cycle"),
        "no date": (_dependent(definitionId=1, dateValue="tomorrow"), None, f"{place}.dateValue"),
        "no items": ({"name": "w", "type": "DEPENDENT"}, None, "at least one group is needed"),
    }
    found = answers(cluster, {name: case[0] for name, case in cases.items()})
    wanted: _Wanted = {name: (state, (says,)) for name, (_, state, says) in cases.items()}
    assert unsaid(found, wanted) == {}


def test_definitions_that_wait_for_each_other_are_refused_by_an_import(
    cluster: PrivateCluster, tmp_path: Path
) -> None:
    files = []
    for name, other in (("hen", "egg"), ("egg", "hen")):
        files.append(tmp_path / f"{name}.json")
        tasks = [_dependent(definitionName=other)]
        files[-1].write_text(json.dumps({"name": name, "processDefinitionJson": {"tasks": tasks}}))
    done = cluster.orcaflow("definition", "import", *map(str, files))
    assert done.returncode == 1
    assert "would wait for itself without end: 'hen' → 'egg' → 'hen'" in done.stderr


def test_the_first_run_that_waits_for_an_own_run_does_not_wait(cluster: PrivateCluster) -> None:
    found = answers(cluster, {"own": _dependent(definitionName="own")})
    assert found["own"].state == SUCCESS


@pytest.mark.parametrize("names", [("hen", "egg"), ("own twin", "own twin")])
def test_runs_that_wait_for_each_other_come_to_an_end(
    cluster: PrivateCluster, names: tuple[str, str]
) -> None:
    """Typed by hand, past the check of an import; each sees the other as a run that goes on."""
    definitions = {name: cluster.define(name, []) for name in dict.fromkeys(names)}
    for name, other in (names, names[::-1]):
        _now_with(cluster, definitions[name], [_dependent(definitionName=other)])
    if len(definitions) == 1:
        # An own run that was there before, else the first of the twins would not wait.
        assert cluster.await_end(cluster.begin(definitions[names[0]])) == SUCCESS
        cluster.rows(
            "UPDATE t_ds_process_instance SET schedule_time = now() - interval '9 days'"
            " WHERE process_definition_id = %s",
            definitions[names[0]],
        )
    instances = [cluster.begin(definitions[name]) for name in names]
    try:
        for instance in instances:
            assert cluster.await_end(instance, within=8) == FAILURE
    finally:
        for instance in instances:
            ask_to_stop(cluster, instance)
            cluster.await_end(instance)


def test_a_sub_process_that_can_not_be_begun_fails_its_task_with_the_reason(
    cluster: PrivateCluster,
) -> None:
    broken = cluster.define("broken child", "{broken")
    empty = cluster.define("empty child", "{}")
    own = cluster.define("own child", [])
    _now_with(cluster, own, [_sub_process(own)])
    cases: dict[str, tuple[int | str, str]] = {
        "missing child": (2**31 - 1, f"there is no process definition with the id {2**31 - 1}"),
        "unnamed child": ("no such", "there is no process definition 'no such'"),
        "broken parent": (broken, "'broken child' can't run: not JSON"),
        "empty parent": (empty, "'empty child' can't run: tasks: at least one task is needed"),
    }
    found = answers(cluster, {name: _sub_process(child) for name, (child, _) in cases.items()})
    wanted: _Wanted = {name: (FAILURE, (says,)) for name, (_, says) in cases.items()}
    assert unsaid(found, wanted) == {}
    instance = cluster.begin(own)
    assert cluster.await_end(instance) == FAILURE
    ((reason,),) = cluster.tasks_of(instance, "reason")
    assert f"'own child' would run inside itself: the sub processes have the definitions {own}" in (
        reason
    )


def test_an_offline_definition_runs_as_a_sub_process(cluster: PrivateCluster) -> None:
    child = cluster.define("offline child", [a_task("a", "true")], release_state=0)
    assert answers(cluster, {"its parent": _sub_process(child)})["its parent"].state == SUCCESS


def test_a_ring_of_sub_processes_ends_with_the_ring_in_the_reason(cluster: PrivateCluster) -> None:
    ring = [cluster.define(f"ring {number}", []) for number in range(3)]
    for number, definition in enumerate(ring):
        _now_with(cluster, definition, [_sub_process(ring[(number + 1) % 3])])
    instance = cluster.begin(ring[0])
    assert cluster.await_end(instance) == FAILURE
    tree = cluster.rows(
        "SELECT id, state FROM t_ds_process_instance WHERE %s IN (id, root_id) ORDER BY id",
        instance,
    )
    assert [state for _, state in tree] == [FAILURE] * 3
    ((reason,),) = cluster.tasks_of(tree[-1][0], "reason")
    assert " → ".join(map(str, (*ring, ring[0]))) in reason


def test_sixty_levels_of_sub_processes_come_to_their_end(cluster: PrivateCluster) -> None:
    definition = cluster.define("level 0", [a_task("deepest", "true")])
    for level in range(1, 61):
        definition = cluster.define(f"level {level}", [_sub_process(definition)])
    instance = cluster.begin(definition)
    assert cluster.await_end(instance) == SUCCESS
    assert cluster.rows(
        "SELECT count(*), min(state), max(state) FROM t_ds_process_instance"
        " WHERE %s IN (id, root_id)",
        instance,
    ) == [(61, SUCCESS, SUCCESS)]


# Pools and numbers


def test_a_pool_without_slots_can_not_be_made(cluster: PrivateCluster) -> None:
    for size in (0, -1, 2**31 - 1):
        with pytest.raises(psycopg2.errors.CheckViolation) as caught:
            cluster.rows("INSERT INTO t_ds_task_group (name, group_size) VALUES ('p', %s)", size)
        assert "t_ds_task_group_group_size_check" in str(caught.value)
    done = cluster.orcaflow("pool", "create", "p", "--size", "0")
    assert done.returncode == 2
    assert "--size" in done.stderr
    assert "from 1 to 1000000" in done.stderr


def test_slots_that_nobody_can_have_end_the_task_with_the_pool_in_the_reason(
    cluster: PrivateCluster,
) -> None:
    ((pool,),) = cluster.rows(
        "INSERT INTO t_ds_task_group (name, group_size) VALUES ('small', 2) RETURNING id"
    )
    hostile = "'; DROP TABLE t_ds_task_group; --"
    cases: dict[str, tuple[dict[str, object], int | None, str]] = {
        "unknown": ({"taskGroups": [{"name": "gone"}]}, FAILURE, "pool 'gone' does not exist"),
        "unknown id": ({"taskGroupId": 77_777}, FAILURE, "pool '77777' does not exist"),
        "hostile": ({"taskGroups": [{"name": hostile}]}, FAILURE, "DROP TABLE"),
        "too many": (
            {"taskGroups": [{"name": "small", "slots": 3}]},
            FAILURE,
            "pool 'small' has 2 slots, the task needs 3",
        ),
        "too many in two parts": (
            {"taskGroups": [{"name": "small", "slots": 2}, {"id": pool}]},
            FAILURE,
            "has 2 slots, the task needs 3",
        ),
        "NUL": ({"taskGroups": [{"name": "a\0b"}]}, FAILURE, "NUL character"),
        "none": ({"taskGroups": [{"name": "small", "slots": 0}]}, None, "taskGroups[0].slots"),
        "fewer": ({"taskGroups": [{"name": "small", "slots": -1}]}, None, "taskGroups[0].slots"),
        "absurd": ({"taskGroups": [{"name": "small", "slots": 10**30}]}, None, "[0].slots"),
        "unnamed": ({"taskGroups": [{"slots": 1}]}, None, "taskGroups[0].name"),
        "no list": ({"taskGroups": {"name": "small"}}, None, "taskGroups: must be a list"),
        "seventeen": ({"taskGroups": ["small"] * 17}, None, "at most 16 pools"),
        "twice": ({"taskGroups": ["small"] * 2}, None, "a pool is named twice"),
        "id": ({"taskGroupId": -5}, None, "taskGroupId: must be from 0"),
        "priority": ({"taskGroupPriority": 2**40}, None, "taskGroupPriority"),
    }
    found = answers(cluster, {name: a_task("t", "true", **case[0]) for name, case in cases.items()})
    wanted: _Wanted = {name: (state, (says,)) for name, (_, state, says) in cases.items()}
    assert unsaid(found, wanted) == {}
    # Nobody who was refused has left anything taken.
    taken = cluster.define("taken", [a_task("t", "true", taskGroups=[{"id": pool, "slots": 2}])])
    assert cluster.await_end(cluster.begin(taken)) == SUCCESS


def test_absurd_numbers_are_refused_with_the_place(cluster: PrivateCluster) -> None:
    bad: tuple[object, ...] = (-5, 1e300, "NaN", 2**63, 1.5, True, [], "1_0", "٣", "9" * 1_000)
    documents: dict[str, object] = {}
    wanted: _Wanted = {}

    def add(key: str, document: object) -> None:
        name = f"number {len(documents)}"
        documents[name] = document
        wanted[name] = None, (key,)

    for key in ("maxRetryTimes", "retryInterval", "delayTime", "workerGroupId"):
        for value in bad:
            add(f"task 't', {key}: must be ", a_task("t", "true", **{key: value}))
    for number in (0, -1, 10**12, "1e3"):
        limit = {"enable": True, "interval": number, "strategy": "WARN"}
        add("task 't', timeout.interval: ", a_task("t", "true", timeout=limit))
    for strategy in ("EXPLODE", 7, ""):
        limit = {"enable": True, "interval": 5, "strategy": strategy}
        add("task 't', timeout.strategy: ", a_task("t", "true", timeout=limit))
    backoffs: dict[str, tuple[object, ...]] = {
        "factor": (1e308, "nan", 0, -1),
        "jitter": (2, -0.1),
        "maxInterval": (-1, 10**15),
        "speed": (1,),
    }
    for key, values in backoffs.items():
        for value in values:
            add(f"task 't', retryBackoff.{key}: ", a_task("t", "true", retryBackoff={key: value}))
    for priority in ("EXTREME", -1, 5):
        add("taskInstancePriority: ", a_task("t", "true", taskInstancePriority=priority))
    whole: dict[str, tuple[object, ...]] = {
        "timeout": (-1, 10**20, "soon"),
        "timeoutStrategy": ("BOOM",),
        "tenantId": (-7, 10**20),
        "globalParams": ({"a": 1}, [{"value": "1"}], "[{"),
    }
    for key, values in whole.items():
        for value in values:
            add(key, json.dumps({"tasks": [a_task("t", "true")], key: value}))
    assert unsaid(answers(cluster, documents), wanted) == {}


def test_an_execution_type_that_means_nothing_is_refused(
    cluster: PrivateCluster, good: int, tmp_path: Path
) -> None:
    for value in (4, -1, 32_767):
        with pytest.raises(psycopg2.errors.CheckViolation) as caught:
            cluster.rows(
                "UPDATE t_ds_process_definition SET execution_type = %s WHERE id = %s", value, good
            )
        assert "t_ds_process_definition_execution_type_check" in str(caught.value)
    file = tmp_path / "absurd.json"
    tasks = [a_task("a", "true")]
    file.write_text(
        json.dumps(
            {
                "name": "absurd",
                "executionType": "SERIAL_MAYBE",
                "processDefinitionJson": {"tasks": tasks},
            }
        )
    )
    done = cluster.orcaflow("definition", "lint", str(file))
    assert done.returncode == 1
    assert "executionType: must be one of PARALLEL" in done.stderr + done.stdout


# What waits


def test_a_task_for_a_group_that_is_not_there_holds_up_no_other(cluster: PrivateCluster) -> None:
    ((empty,),) = cluster.rows(
        "INSERT INTO t_ds_worker_group (name) VALUES ('nobody serves') RETURNING id"
    )
    gone = [a_task(f"gone {n}", "true", workerGroupId=2**31 - 1 - n) for n in range(3)]
    unserved = a_task("unserved", "true", workerGroupId=empty)
    healthy = [a_task(f"healthy {n}", "true") for n in range(3)]
    instance = cluster.begin(cluster.define("groups", [*gone, unserved, *healthy]))
    try:
        until(lambda: dict(cluster.tasks_of(instance, "name", "state")).get("healthy 2") == SUCCESS)
        states = dict(cluster.tasks_of(instance, "name", "state"))
        assert {states[f"healthy {n}"] for n in range(3)} == {SUCCESS}
        assert {states[task["name"]] for task in (*gone, unserved)} == {SUBMITTED}
        why = cluster.orcaflow("instance", "why", str(instance)).stdout
        assert str(2**31 - 1) in why
        assert "nobody serves" in why
    finally:
        ask_to_stop(cluster, instance)
    assert cluster.await_end(instance) == STOP


def test_what_has_to_wait_costs_the_daemons_next_to_nothing(cluster: PrivateCluster) -> None:
    cluster.rows("INSERT INTO t_ds_task_group (name, group_size, status) VALUES ('closed', 1, 0)")
    never = cluster.define("never run", [a_task("a", "true")])
    tasks = [
        _dependent(definitionId=never),
        a_task("nowhere", "true", workerGroupId=2**31 - 1),
        a_task("held", "true", taskGroups=["closed"]),
        a_task("late", "true", delayTime=10_000_000),
    ]
    instances = [cluster.begin(cluster.define(f"waits {n}", tasks)) for n in range(5)]
    try:
        until(lambda: all(len(cluster.tasks_of(each, "id")) == 4 for each in instances))
        begun, used = time.monotonic(), _seconds_used(cluster)
        # A loop without rest takes a whole processor; the share is far from that on any computer.
        until(lambda: time.monotonic() - begun > 3)
        assert _seconds_used(cluster) - used < (time.monotonic() - begun) / 3
    finally:
        for each in instances:
            ask_to_stop(cluster, each)
    assert [cluster.await_end(each) for each in instances] == [STOP] * 5


def _seconds_used(cluster: PrivateCluster) -> float:
    """Of a processor, by all masters and workers together, since they began."""
    return sum(_ticks_of(pid) for pid in cluster.pids().values()) / os.sysconf("SC_CLK_TCK")


def _ticks_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# Rows that were spoilt by hand while their run was going on


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spoilt:
    """Columns of the process instance, or with `task` of the attempt at it, and what follows."""

    columns: str
    state: int
    says: str = ""
    task: str | None = None


_NESTED = "repeat('[', 50000)"

SPOILT = (
    _Spoilt(columns="run_scope = '[]'", state=FAILURE, says="not chosen"),
    _Spoilt(columns="run_scope = '[\"gone\"]'", state=FAILURE, says="not chosen"),
    _Spoilt(columns="global_params = '{broken'", state=FAILURE, says="global parameters"),
    _Spoilt(columns=f"global_params = {_NESTED}", state=FAILURE, says="nested too deeply"),
    _Spoilt(columns="global_params = '5'", state=FAILURE, says="must be a JSON list"),
    _Spoilt(columns="global_params = '[{\"prop\": 7}]'", state=SUCCESS),
    _Spoilt(columns="command_param = '{broken'", state=FAILURE, says="command_param"),
    _Spoilt(columns=f"command_param = {_NESTED}", state=FAILURE, says="command_param"),
    _Spoilt(columns="command_param = '[1]'", state=SUCCESS),
    _Spoilt(
        columns='command_param = \'{"StartNodeNameList": "gone"}\'',
        state=FAILURE,
        says="not selected",
    ),
    _Spoilt(columns="process_instance_json = '{broken'", state=FAILURE, says="not JSON"),
    _Spoilt(columns="process_instance_json = '{}'", state=FAILURE, says="at least one task"),
    _Spoilt(columns="history_cmd = 'nonsense,,'", state=SUCCESS),
    _Spoilt(columns="task_depend_type = 0", state=FAILURE, says="not selected"),
    _Spoilt(columns="state = 0", state=FAILURE, says="can't have happened"),
    _Spoilt(columns="state = 2", state=FAILURE, says="pausing"),
    _Spoilt(columns="state = 4", state=FAILURE, says="halting"),
    _Spoilt(columns="state = 10", state=FAILURE, says="can't have happened"),
    _Spoilt(columns="state = 14", state=SUCCESS),
    _Spoilt(columns="timeout = -5", state=SUCCESS),
    _Spoilt(columns="root_id = -1, parent_task_instance_id = -1", state=SUCCESS),
    _Spoilt(columns="host = 'nobody:1'", state=SUCCESS),
    _Spoilt(task="s", columns="branch = '[\"gone\"]'", state=FAILURE, says="upstream is not done"),
    _Spoilt(task="s", columns="branch = '[]'", state=FAILURE, says="upstream is not done"),
    _Spoilt(task="a", columns="var_pool = '{broken'", state=SUCCESS),
    _Spoilt(task="a", columns=f"var_pool = {_NESTED}", state=SUCCESS),
    _Spoilt(task="a", columns='var_pool = \'[{"prop": "x", "value": {}}]\'', state=SUCCESS),
    _Spoilt(task="a", columns="name = 'foreign'", state=FAILURE, says="'foreign'"),
    _Spoilt(task="a", columns="settled = false", state=SUCCESS),
    _Spoilt(task="a", columns="flag = 0", state=SUCCESS),
    _Spoilt(task="b", columns="task_json = '{broken'", state=SUCCESS),
    _Spoilt(task="b", columns="pid = -1", state=SUCCESS),
    _Spoilt(task="b", columns="timeout_seconds = -5, timeout_strategy = 0", state=SUCCESS),
)


def _going_on(cluster: PrivateCluster, names: Iterable[str], gate: Path) -> list[int]:
    """Runs whose task 'b' runs until there is a file at the gate."""
    switch = {"dependTaskList": [], "nextNode": "b"}
    tasks = [
        a_task("a", "true"),
        {"name": "s", "type": "SWITCH", "preTasks": ["a"], "switchResult": switch},
        a_task("b", f"while [ ! -e '{gate}' ]; do sleep 0.05; done", "s"),
        a_task("c", "true", "b"),
    ]
    instances = [cluster.begin(cluster.define(name, tasks)) for name in names]

    def are_there() -> bool:
        return all(("b", RUNNING) in cluster.tasks_of(each, "name", "state") for each in instances)

    until(are_there)
    return instances


def _spoil(cluster: PrivateCluster, instance: int, columns: str, task: str | None = None) -> None:
    """Spoil a row, and have its master read the run again as after a failover."""
    if task is None:
        where = "id = %s"
        cluster.rows(f"UPDATE t_ds_process_instance SET {columns} WHERE {where}", instance)
    else:
        where = "process_instance_id = %s AND name = %s"
        cluster.rows(f"UPDATE t_ds_task_instance SET {columns} WHERE {where}", instance, task)
    cluster.rows(
        "UPDATE t_ds_process_instance SET owner_epoch = owner_epoch + 1 WHERE id = %s", instance
    )


def _mend(cluster: PrivateCluster, instance: int) -> None:
    """End a run by hand, so that what is wrong with it troubles no other test."""
    cluster.rows(
        "UPDATE t_ds_task_instance SET state = 9, start_time = now(), end_time = now(),"
        " retry_at = NULL, due_at = NULL WHERE process_instance_id = %s",
        instance,
    )
    cluster.rows(
        "UPDATE t_ds_process_instance SET state = 5, start_time = now(), end_time = now(),"
        " schedule_time = NULL, wanted_at = NULL, wanted_deadline = NULL WHERE id = %s",
        instance,
    )


def test_runs_whose_rows_were_spoilt_go_on_or_end_with_a_reason(
    cluster: PrivateCluster, home: Path
) -> None:
    gate = home / "gate"
    instances = _going_on(cluster, (f"spoilt {n}" for n in range(len(SPOILT))), gate)
    for instance, spoilt in zip(instances, SPOILT, strict=True):
        _spoil(cluster, instance, spoilt.columns, spoilt.task)
    gate.touch()
    for instance, spoilt in zip(instances, SPOILT, strict=True):
        assert cluster.await_end(instance, within=20) == spoilt.state, spoilt
        said = cluster.rows(
            "SELECT coalesce(state_reason, '') || coalesce((SELECT string_agg(reason, ' ')"
            " FROM t_ds_task_instance WHERE process_instance_id = %s), '')"
            " FROM t_ds_process_instance WHERE id = %s",
            instance,
            instance,
        )[0][0]
        assert spoilt.says in said, spoilt


def test_an_intent_that_means_nothing_can_not_be_written(
    cluster: PrivateCluster, bystander: int
) -> None:
    for value in (0, 1, 7, 9, 99, -1):
        with pytest.raises(psycopg2.errors.CheckViolation) as caught:
            cluster.rows(
                "UPDATE t_ds_process_instance SET wanted_state = %s WHERE id = %s", value, bystander
            )
        assert "t_ds_process_instance_wanted_state_check" in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "task", "says"),
    [
        ("run_scope = '{broken'", None, "run_scope"),
        ("run_scope = '[1]'", None, "run_scope"),
        ("branch = '{broken'", "s", "branch"),
        (f"branch = {_NESTED}", "s", "branch"),
    ],
)
def test_a_run_with_a_list_that_can_not_be_read_ends_with_the_column_in_the_reason(
    cluster: PrivateCluster, home: Path, columns: str, task: str | None, says: str
) -> None:
    name = f"unreadable {columns} {task}"
    gate = home / f"gate of {hash(name)}"
    (instance,) = _going_on(cluster, [name], gate)
    _spoil(cluster, instance, columns, task)
    gate.touch()
    try:
        assert cluster.await_end(instance, within=6) == FAILURE
        assert (
            says
            in cluster.rows(
                "SELECT state_reason FROM t_ds_process_instance WHERE id = %s", instance
            )[0][0]
        )
    finally:
        _mend(cluster, instance)


@pytest.mark.parametrize("columns", ["host = NULL", "owner_incarnation = NULL"])
def test_a_run_that_lost_its_owner_is_taken_over(
    cluster: PrivateCluster, home: Path, columns: str
) -> None:
    gate = home / f"gate of {columns}"
    (instance,) = _going_on(cluster, [f"ownerless {columns}"], gate)
    _spoil(cluster, instance, columns)
    gate.touch()
    try:
        assert cluster.await_end(instance, within=10) == SUCCESS
    finally:
        _mend(cluster, instance)


@pytest.mark.parametrize(
    ("columns", "task"),
    [
        ("schedule_time = '20000-01-01'", None),
        ("wanted_state = 5, wanted_at = '20000-01-01'", None),
        ("wanted_state = 5, wanted_at = 'infinity'", None),
        ("end_time = '20000-01-01'", "a"),
        ("state = 12, due_at = '20000-01-01'", "b"),
    ],
)
def test_a_time_that_python_can_not_hold_ends_no_daemon(
    cluster: PrivateCluster, home: Path, columns: str, task: str | None
) -> None:
    name = f"timeless {columns} {task}"
    gate = home / f"gate of {hash(name)}"
    (instance,) = _going_on(cluster, [name], gate)
    (port,) = cluster.ports(Kind.MASTER)
    cluster.rows(
        "INSERT INTO t_ds_task_group (name, group_size) VALUES ('room', 9) ON CONFLICT DO NOTHING"
    )
    _spoil(cluster, instance, columns, task)
    gate.touch()
    try:
        if task == "b":
            # What looks at held attempts has looked at this one too.
            beside = answers(cluster, {f"beside {name}": a_task("t", "true", taskGroups=["room"])})
            assert [each.state for each in beside.values()] == [SUCCESS]
        if "wanted_state" not in columns:
            ask_to_stop(cluster, instance)
        cluster.await_end(instance, within=8)
    finally:
        _mend(cluster, instance)
        if cluster.pid(Kind.MASTER, port) is None:
            cluster.daemons.start_daemon(Kind.MASTER, port)


def test_a_recovery_of_a_run_with_such_a_time_ends_no_daemon(
    cluster: PrivateCluster, good: int
) -> None:
    instance = cluster.begin(good)
    assert cluster.await_end(instance) == SUCCESS
    cluster.rows(
        "UPDATE t_ds_process_instance SET schedule_time = '20000-01-01' WHERE id = %s", instance
    )
    (port,) = cluster.ports(Kind.MASTER)
    command = cluster.put(good, json.dumps({"ProcessInstanceId": instance}), command_type=7)
    taken = "SELECT id FROM t_ds_command WHERE id = %s"
    try:
        # Refused, or begun again as if it had no date: either is an answer.
        until(lambda: cluster.rows(taken, command) == [], within=6)
        assert cluster.await_end(instance, within=6) in (FAILURE, SUCCESS)
    finally:
        cluster.rows("DELETE FROM t_ds_command WHERE id = %s", command)
        _mend(cluster, instance)
        if cluster.pid(Kind.MASTER, port) is None:
            cluster.daemons.start_daemon(Kind.MASTER, port)
