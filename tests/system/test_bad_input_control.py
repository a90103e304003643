"""Bad input about recoveries, control tasks and pools, and corrupted rows.

Each is refused with a message that names the place, or ends with a reason; what may have to wait
costs next to nothing while it does. What holds after each test stands in `tests.system.frame`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import psycopg2.errors
import pytest

from operations.daemons import Kind
from tests.system.absurd_numbers import absurd_numbers
from tests.system.cluster import PrivateCluster, a_task, private_cluster, until
from tests.system.control_tasks import (
    BAD_BRANCHES,
    a_dependent,
    a_sub_process,
    a_switch,
    redefine,
)
from tests.system.frame import (
    FAILURE,
    STOP,
    SUCCESS,
    answers,
    ask_to_stop,
    nothing_else_is_touched,
    refusal,
    unsaid,
)
from tests.system.spoilt_rows import NESTED, SPOILT, going_on, mend, spoil

SUBMITTED = 0
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


def test_branches_that_lead_nowhere_are_refused_with_the_place(cluster: PrivateCluster) -> None:
    found = answers(cluster, {name: tasks for name, (tasks, _) in BAD_BRANCHES.items()})
    assert unsaid(found, {name: (None, says) for name, (_, says) in BAD_BRANCHES.items()}) == {}


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
    found = answers(cluster, {name: a_switch(each) for name, each in named.items()})
    wanted: _Wanted = {name: (None, (places, cases[each])) for name, each in named.items()}
    assert unsaid(found, wanted) == {}
    assert max(len(answer.text) for answer in found.values()) < 1_000
    assert not trap.exists()


def test_a_condition_without_its_parameter_fails_the_switch_with_the_place(
    cluster: PrivateCluster,
) -> None:
    many = json.dumps(
        {"tasks": a_switch("${n} > 1"), "globalParams": [{"prop": "n", "value": "9" * 5_000}]}
    )
    found = answers(cluster, {"missing": a_switch("${rows} > 1"), "digits": many})
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
        "missing id": (a_dependent(definitionId=2**31 - 1), FAILURE, "there is no such definition"),
        "missing name": (
            a_dependent(definitionName="'; DROP TABLE t_ds_command; --"),
            FAILURE,
            "--ALL-day-today: there is no such definition",
        ),
        "no id": (a_dependent(definitionId=-3), None, f"{place}.definitionId"),
        "huge id": (a_dependent(definitionId=2**40), None, f"{place}.definitionId"),
        "no cycle": (a_dependent(definitionId=1, cycle="decade"), None, f"{place}.cycle"),
        "no date": (a_dependent(definitionId=1, dateValue="tomorrow"), None, f"{place}.dateValue"),
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
        tasks = [a_dependent(definitionName=other)]
        files[-1].write_text(json.dumps({"name": name, "processDefinitionJson": {"tasks": tasks}}))
    done = cluster.orcaflow("definition", "import", *map(str, files))
    assert done.returncode == 1
    assert "would wait for itself without end: 'hen' → 'egg' → 'hen'" in done.stderr


def test_the_first_run_that_waits_for_an_own_run_does_not_wait(cluster: PrivateCluster) -> None:
    found = answers(cluster, {"own": a_dependent(definitionName="own")})
    assert found["own"].state == SUCCESS


@pytest.mark.parametrize("names", [("hen", "egg"), ("own twin", "own twin")])
def test_runs_that_wait_for_each_other_come_to_an_end(
    cluster: PrivateCluster, names: tuple[str, str]
) -> None:
    """Typed by hand, past the check of an import; each sees the other as a run that goes on."""
    definitions = {name: cluster.define(name, []) for name in dict.fromkeys(names)}
    for name, other in (names, names[::-1]):
        redefine(cluster, definitions[name], [a_dependent(definitionName=other)])
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
            assert cluster.await_end(instance) == FAILURE
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
    redefine(cluster, own, [a_sub_process(own)])
    cases: dict[str, tuple[int | str, str]] = {
        "missing child": (2**31 - 1, f"there is no process definition with the id {2**31 - 1}"),
        "unnamed child": ("no such", "there is no process definition 'no such'"),
        "broken parent": (broken, "'broken child' can't run: not JSON"),
        "empty parent": (empty, "'empty child' can't run: tasks: at least one task is needed"),
    }
    found = answers(cluster, {name: a_sub_process(child) for name, (child, _) in cases.items()})
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
    assert answers(cluster, {"its parent": a_sub_process(child)})["its parent"].state == SUCCESS


def test_a_ring_of_sub_processes_ends_with_the_ring_in_the_reason(cluster: PrivateCluster) -> None:
    ring = [cluster.define(f"ring {number}", []) for number in range(3)]
    for number, definition in enumerate(ring):
        redefine(cluster, definition, [a_sub_process(ring[(number + 1) % 3])])
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
        definition = cluster.define(f"level {level}", [a_sub_process(definition)])
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
        "unknown": ({"taskGroups": [{"name": "gone"}]}, FAILURE, "the project has no pool 'gone'"),
        "unknown id": ({"taskGroupId": 77_777}, FAILURE, "the project has no pool '77777'"),
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
    documents, wanted = absurd_numbers()
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

        def states_of(tasks: list[dict[str, object]]) -> set[int | None]:
            states = dict(cluster.tasks_of(instance, "name", "state"))
            return {states.get(task["name"]) for task in tasks}

        until(lambda: states_of(healthy) == {SUCCESS})
        assert states_of([*gone, unserved]) == {SUBMITTED}
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
        a_dependent(definitionId=never),
        a_task("nowhere", "true", workerGroupId=2**31 - 1),
        a_task("held", "true", taskGroups=["closed"]),
        a_task("late", "true", delayTime=10_000_000),
    ]
    instances = [cluster.begin(cluster.define(f"waits {n}", tasks)) for n in range(5)]
    try:
        until(lambda: all(len(cluster.tasks_of(each, "id")) == 4 for each in instances))
        # Right after the beginning there may be something to do yet.
        until(lambda: _share_used(cluster) < 1 / 3)
    finally:
        for each in instances:
            ask_to_stop(cluster, each)
    assert [cluster.await_end(each) for each in instances] == [STOP] * 5


def _share_used(cluster: PrivateCluster) -> float:
    """Of a processor, for three seconds: a loop without rest takes a whole one on any computer."""
    begun, used = time.monotonic(), _seconds_used(cluster)
    until(lambda: time.monotonic() - begun > 3)
    return (_seconds_used(cluster) - used) / (time.monotonic() - begun)


def _seconds_used(cluster: PrivateCluster) -> float:
    """Of a processor, by all masters and workers together, since they began."""
    return sum(_ticks_of(pid) for pid in cluster.pids().values()) / os.sysconf("SC_CLK_TCK")


def _ticks_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# Rows that were spoilt by hand while their run was going on


def test_runs_whose_rows_were_spoilt_go_on_or_end_with_a_reason(
    cluster: PrivateCluster, home: Path
) -> None:
    gate = home / "gate"
    instances = going_on(cluster, (f"spoilt {n}" for n in range(len(SPOILT))), gate)
    for instance, spoilt in zip(instances, SPOILT, strict=True):
        spoil(cluster, instance, spoilt.columns, spoilt.task)
    gate.touch()
    for instance, spoilt in zip(instances, SPOILT, strict=True):
        assert cluster.await_end(instance) == spoilt.state, spoilt
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
        (f"branch = {NESTED}", "s", "branch"),
    ],
)
def test_a_run_with_a_list_that_can_not_be_read_ends_with_the_column_in_the_reason(
    cluster: PrivateCluster, home: Path, columns: str, task: str | None, says: str
) -> None:
    name = f"unreadable {columns} {task}"
    gate = home / f"gate of {hash(name)}"
    (instance,) = going_on(cluster, [name], gate)
    spoil(cluster, instance, columns, task)
    gate.touch()
    try:
        assert cluster.await_end(instance) == FAILURE
        assert (
            says
            in cluster.rows(
                "SELECT state_reason FROM t_ds_process_instance WHERE id = %s", instance
            )[0][0]
        )
    finally:
        mend(cluster, instance)


@pytest.mark.parametrize("columns", ["host = NULL", "owner_incarnation = NULL"])
def test_a_run_that_lost_its_owner_is_taken_over(
    cluster: PrivateCluster, home: Path, columns: str
) -> None:
    gate = home / f"gate of {columns}"
    (instance,) = going_on(cluster, [f"ownerless {columns}"], gate)
    spoil(cluster, instance, columns)
    gate.touch()
    try:
        assert cluster.await_end(instance) == SUCCESS
    finally:
        mend(cluster, instance)


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
    (instance,) = going_on(cluster, [name], gate)
    (port,) = cluster.ports(Kind.MASTER)
    cluster.rows(
        "INSERT INTO t_ds_task_group (name, group_size) VALUES ('room', 9) ON CONFLICT DO NOTHING"
    )
    spoil(cluster, instance, columns, task)
    gate.touch()
    try:
        if task == "b":
            # What looks at held attempts has looked at this one too.
            beside = answers(cluster, {f"beside {name}": a_task("t", "true", taskGroups=["room"])})
            assert [each.state for each in beside.values()] == [SUCCESS]
        if "wanted_state" not in columns:
            ask_to_stop(cluster, instance)
        cluster.await_end(instance)
    finally:
        mend(cluster, instance)
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
        until(lambda: cluster.rows(taken, command) == [])
        assert cluster.await_end(instance) in (FAILURE, SUCCESS)
    finally:
        cluster.rows("DELETE FROM t_ds_command WHERE id = %s", command)
        mend(cluster, instance)
        if cluster.pid(Kind.MASTER, port) is None:
            cluster.daemons.start_daemon(Kind.MASTER, port)
