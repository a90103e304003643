"""Reading `process_definition_json`: lenient where people are sloppy, strict where it can't run."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from common.errors import InvalidDefinitionError
from common.model.control import Conditions
from common.model.definitions import (
    MAX_MINUTES,
    MAX_NAME_LENGTH,
    MAX_NODES,
    MAX_POOLS,
    MAX_RETRIES,
    MAX_SLOTS,
    Backoff,
    PoolShare,
    ProcessGraph,
    TaskNode,
    TaskTimeout,
)
from common.model.states import Priority, TimeoutStrategy
from tests.builders import read_graph

TOO_MANY_DIGITS = "1" * 5_000


def a_task(name: object = "a", **keys: Any) -> dict[str, Any]:
    return {"name": name, "type": "SHELL", "params": {"rawScript": "true"}} | keys


def text_of(*tasks: Any, **keys: Any) -> str:
    return json.dumps({"tasks": list(tasks)} | keys)


def graph_of(*tasks: Any, **keys: Any) -> ProcessGraph:
    return read_graph(text_of(*tasks, **keys))


def node_of(**keys: Any) -> TaskNode:
    (node,) = graph_of(a_task(**keys)).nodes.values()
    return node


def mistakes_in(text: str) -> tuple[str, ...]:
    with pytest.raises(InvalidDefinitionError) as refused:
        read_graph(text)
    assert str(refused.value) == "; ".join(refused.value.mistakes)
    return refused.value.mistakes


def mistake_of(**keys: Any) -> str:
    (mistake,) = mistakes_in(text_of(a_task(**keys)))
    return mistake


# Leniency


def test_a_task_needs_a_name_and_a_type_and_has_defaults_for_the_rest() -> None:
    (node,) = graph_of({"name": "a", "type": "SHELL"}).nodes.values()
    assert (node.name, node.task_type, node.upstream, node.forbidden) == ("a", "SHELL", (), False)
    assert (node.max_retry_times, node.retry_interval) == (0, timedelta())
    assert (node.priority, node.worker_group_id) == (Priority.MEDIUM, -1)


def test_numbers_may_be_text() -> None:
    node = node_of(maxRetryTimes="2", retryInterval=" 3 ", workerGroupId="4")
    assert (node.max_retry_times, node.retry_interval) == (2, timedelta(minutes=3))
    assert node.worker_group_id == 4
    graph = graph_of(a_task(), timeout="45", tenantId="-1")
    assert (graph.timeout_minutes, graph.tenant_id) == (45, -1)


@pytest.mark.parametrize("value", [None, ""])
def test_an_empty_value_is_the_default(value: object) -> None:
    keys = (
        *("maxRetryTimes", "retryInterval", "workerGroupId", "timeout", "params", "preTasks"),
        *("runFlag", "taskInstancePriority"),
    )
    assert node_of(**dict.fromkeys(keys, value)).max_retry_times == 0


def test_a_type_may_be_written_in_small_letters() -> None:
    assert node_of(type="pyspark").task_type == "PYSPARK"


@pytest.mark.parametrize("value", [{"rawScript": "x"}, '{"rawScript": "x"}'])
def test_parameters_may_be_an_object_or_text_that_holds_one(value: object) -> None:
    assert json.loads(json.loads(node_of(params=value).task_json)["params"]) == {"rawScript": "x"}


@pytest.mark.parametrize("value", [{"enable": False}, '{"enable": false}', "{}", None, ""])
def test_a_timeout_may_be_an_object_or_text_that_holds_one(value: object) -> None:
    assert node_of(timeout=value).name == "a"


@pytest.mark.parametrize(
    "edges",
    [
        {"preTasks": ["a", "a"]},
        {"preTasks": '["a"]'},
        {"preTasks": ["a", ""]},
        {"depList": ["a"]},
        {"depList": '["a"]', "preTasks": None},
        {"preTasks": ["a"], "depList": ["nowhere"]},
    ],
)
def test_edges_may_be_a_list_or_text_under_either_key(edges: dict[str, object]) -> None:
    graph = graph_of(a_task("a"), a_task("b", **edges))
    assert graph.nodes["b"].upstream == ("a",)
    assert graph.dag.upstream["b"] == ("a",)


def test_no_edge_is_an_empty_list_too() -> None:
    assert node_of(preTasks=[""], depList=[]).upstream == ()


@pytest.mark.parametrize("value", [[{"prop": "x"}], '[{"prop": "x"}]'])
def test_global_parameters_may_be_a_list_or_text_that_holds_one(value: object) -> None:
    assert json.loads(graph_of(a_task(), globalParams=value).global_params) == [{"prop": "x"}]


@pytest.mark.parametrize("value", [None, "", [], "[]", "null"])
def test_there_may_be_no_global_parameters(value: object) -> None:
    assert graph_of(a_task(), globalParams=value).global_params == "[]"


def test_unknown_keys_are_ignored() -> None:
    assert graph_of(a_task(loc=None, colour="red"), locations={}).dag.names == ("a",)


def test_the_order_written_is_kept() -> None:
    graph = graph_of(a_task("z"), a_task("m"), a_task("a", preTasks=["z"]))
    assert tuple(graph.nodes) == graph.dag.names == ("z", "m", "a")


@pytest.mark.parametrize("priority", Priority)
def test_every_priority_is_known_by_its_name(priority: Priority) -> None:
    assert node_of(taskInstancePriority=priority.name).priority is priority


def test_a_forbidden_node_is_marked() -> None:
    assert node_of(runFlag="FORBIDDEN").forbidden


# The form for a worker


def test_the_task_json_has_sorted_keys_and_objects_as_text() -> None:
    node = graph_of(
        a_task("a"),
        a_task(
            "b",
            id="tasks-1",
            params='{"rawScript": "echo ü"}',
            dependence={},
            timeout={"enable": False},
            conditionResult={"successNode": [""]},
            extras=[1],
            preTasks=["a"],
            maxRetryTimes="2",
        ),
    ).nodes["b"]
    document = json.loads(node.task_json)
    assert list(document) == sorted(document)
    assert document == {
        "conditionResult": '{"successNode": [""]}',
        "depList": ["a"],
        "dependence": "{}",
        "extras": "[1]",
        "id": "tasks-1",
        "maxRetryTimes": "2",
        "name": "b",
        "params": '{"rawScript": "echo ü"}',
        "preTasks": '["a"]',
        "timeout": '{"enable": false}',
        "type": "SHELL",
    }


def test_the_task_json_can_be_read_as_a_definition_again() -> None:
    once = node_of(params={"rawScript": "x"}, timeout={}, maxRetryTimes="2")
    again = graph_of(json.loads(once.task_json)).nodes["a"]
    assert again == once


@pytest.mark.parametrize("script", ["\0", "\ud800", 'it\'s "quoted"\n'])
def test_the_task_json_can_be_stored_whatever_a_script_holds(script: str) -> None:
    task_json = node_of(params={"rawScript": script}, description=script).task_json
    assert "\0" not in task_json
    assert task_json.encode()
    assert json.loads(json.loads(task_json)["params"]) == {"rawScript": script}


# Mistakes


def test_all_mistakes_are_told_at_once_with_their_places() -> None:
    text = text_of(
        a_task("a", type="COBOL", maxRetryTimes="many"),
        a_task("b", runFlag="OFF", taskInstancePriority="URGENT", preTasks=["nowhere"]),
        a_task("b"),
        a_task(""),
        "no object",
        a_task("c", params="{", timeout=[], preTasks={"a": 1}, workerGroupId=-2),
        timeout=-1,
        tenantId="x",
        globalParams=[{"value": 1}],
    )
    places = [re.split(r": | must| is | needs| are", mistake)[0] for mistake in mistakes_in(text)]
    assert places == [
        "task 'a', type",
        "task 'a', maxRetryTimes",
        "task 'b', runFlag",
        "task 'b', taskInstancePriority",
        "tasks[2].name",
        "tasks[3].name",
        "tasks[4]",
        "task 'c', params",
        "task 'c', preTasks",
        "task 'c', workerGroupId",
        "task 'c', timeout",
        "task 'b', preTasks",
        "timeout",
        "tenantId",
        "globalParams[0].prop",
    ]


def test_a_cycle_is_told_beside_the_other_mistakes() -> None:
    text = text_of(
        a_task("a", preTasks=["b"]),
        a_task("b", preTasks=["a", "nowhere"]),
        a_task("c", type="COBOL"),
    )
    found = mistakes_in(text)
    assert len(found) == 3
    assert found[-1] in ("tasks: a cycle: 'a' → 'b' → 'a'", "tasks: a cycle: 'b' → 'a' → 'b'")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "not JSON: Expecting value at line 1 column 1"),
        ('{"tasks":\n [}', "not JSON: Expecting value at line 2 column 3"),
        ("[]", "the JSON must be an object with the key 'tasks'"),
        ("null", "the JSON must be an object with the key 'tasks'"),
        ("{}", "tasks: at least one task is needed"),
        ('{"tasks": []}', "tasks: at least one task is needed"),
        ('{"tasks": {"a": 1}}', "tasks: at least one task is needed"),
    ],
)
def test_a_text_without_tasks_is_refused(text: str, cause: str) -> None:
    assert mistakes_in(text) == (cause,)


@pytest.mark.parametrize("value", [1.5, 2.0, True, False, "1.5", "two", "0x1", [], {}, "1e3"])
@pytest.mark.parametrize("key", ["maxRetryTimes", "retryInterval", "workerGroupId"])
def test_what_is_no_whole_number_is_refused(key: str, value: object) -> None:
    assert mistake_of(**{key: value}).startswith(f"task 'a', {key}: must be a whole number, not ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("maxRetryTimes", -1),
        ("maxRetryTimes", MAX_RETRIES + 1),
        ("retryInterval", -1),
        ("retryInterval", 1_000_001),
        ("workerGroupId", -2),
        ("workerGroupId", 2**31),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(key: str, value: int) -> None:
    assert re.fullmatch(
        rf"task 'a', {key}: must be from .* to .*, not {value}", mistake_of(**{key: value})
    )


@pytest.mark.parametrize("key", ["maxRetryTimes", "retryInterval", "workerGroupId"])
def test_a_number_of_thousands_of_digits_is_refused_in_few_words(key: str) -> None:
    assert len(mistake_of(**{key: TOO_MANY_DIGITS})) < 200


@pytest.mark.parametrize(
    "text",
    [
        f'{{"tasks": [{{"name": "a", "type": "SHELL", "maxRetryTimes": {TOO_MANY_DIGITS}}}]}}',
        text_of(a_task(params=f'{{"a": {TOO_MANY_DIGITS}}}')),
        text_of(a_task(), globalParams=f"[{TOO_MANY_DIGITS}]"),
    ],
)
def test_a_number_that_python_refuses_to_read_is_a_mistake_like_others(text: str) -> None:
    (mistake,) = mistakes_in(text)
    assert len(mistake) < 300


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_that_is_nested_too_deeply_is_refused(opening: str) -> None:
    deep = opening * 100_000
    assert mistakes_in(deep) == ("the JSON is nested too deeply",)
    assert "params" in mistake_of(params=deep)
    assert mistakes_in(text_of(a_task(), globalParams=deep)) == (
        "globalParams: the text is not JSON",
    )


@pytest.mark.parametrize("depth", range(100, 1_000, 60))
def test_no_depth_of_parameters_is_more_than_a_reader_bears(depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    text = f'{{"tasks": [{{"name": "a", "type": "SHELL", "params": {deep}}}]}}'
    # The limit depends on the depth of the caller; no other error may come of it.
    with suppress(InvalidDefinitionError):
        assert len(read_graph(text).nodes["a"].task_json) > len(deep)


@pytest.mark.parametrize("value", ["[1]", [1], 7, True, "null", "x"])
def test_parameters_must_be_an_object(value: object) -> None:
    assert mistake_of(params=value).startswith("task 'a', params: ")


@pytest.mark.parametrize("value", [{}, "{}", 7, [1], [["b"]], '["b", 1]'])
def test_edges_must_be_a_list_of_names(value: object) -> None:
    assert mistake_of(preTasks=value).startswith("task 'a', preTasks: must be a list")


@pytest.mark.parametrize("value", [{}, 7, [7], "{}", '["x"]'])
def test_global_parameters_must_be_a_list_of_objects(value: object) -> None:
    assert mistakes_in(text_of(a_task(), globalParams=value)) == (
        "globalParams: must be a list of objects",
    )


@pytest.mark.parametrize("value", [None, "", 7, "FLINK", "COBOL", ["SHELL"], {}])
def test_an_unknown_type_is_refused_with_those_that_are_known(value: object) -> None:
    mistake = mistake_of(type=value)
    assert mistake == (
        f"task 'a', type: {value!r} is unknown (known: COMPACT, CONDITIONS, DATA_QUALITY, DEPENDENT,"
        " HTTP, PROCEDURE, PYSPARK, PYTHON, SHELL, SPARK, SPARK_SQL, SQL, STREAM,"
        " SUB_PROCESS, SWITCH, TOPOLOGY)"
    )


def test_a_node_that_waits_for_itself_is_a_cycle() -> None:
    assert mistake_of(preTasks=["a"]) == "tasks: a cycle: 'a' → 'a'"


# Delays, retries, time-outs, pools


def test_a_delay_is_in_minutes() -> None:
    assert node_of(delayTime="3").delay == timedelta(minutes=3)
    assert node_of().delay == timedelta()


@pytest.mark.parametrize("value", ["much", 1.5, -2, True])
def test_a_limit_to_memory_is_whole_megabytes(value: object) -> None:
    assert node_of(memoryMax="512").name == node_of(memoryMax=-1).name
    assert mistake_of(memoryMax=value).startswith("task 'a', memoryMax: must be ")


@pytest.mark.parametrize("delay", [-1, 1.5, "soon", MAX_MINUTES + 1])
def test_an_absurd_delay_is_refused(delay: object) -> None:
    assert mistake_of(delayTime=delay).startswith("task 'a', delayTime: must be ")


@pytest.mark.parametrize(
    ("written", "strategy"),
    [
        ("WARN", TimeoutStrategy.WARN),
        ("FAILED", TimeoutStrategy.FAILED),
        ("WARN,FAILED", TimeoutStrategy.WARNFAILED),
        ("FAILED, WARN", TimeoutStrategy.WARNFAILED),
        ("WARNFAILED", TimeoutStrategy.WARNFAILED),
        ("warn", TimeoutStrategy.WARN),
    ],
)
def test_a_time_out_has_minutes_and_a_strategy(written: str, strategy: TimeoutStrategy) -> None:
    node = node_of(timeout={"strategy": written, "interval": "30", "enable": True})
    assert node.timeout == TaskTimeout(after=timedelta(minutes=30), strategy=strategy)


@pytest.mark.parametrize("enable", [False, None, "false", 0, "no"])
def test_a_time_out_that_is_not_enabled_is_none_whatever_else_it_says(enable: object) -> None:
    timeout = {"strategy": "SHOUT", "interval": -1, "enable": enable}
    assert node_of(timeout=timeout).timeout is None


@pytest.mark.parametrize(
    ("timeout", "place"),
    [
        ({"strategy": "WARN", "interval": 0}, "interval"),
        ({"strategy": "WARN"}, "interval"),
        ({"strategy": "", "interval": 5}, "strategy"),
        ({"interval": 5}, "strategy"),
        ({"strategy": "SHOUT", "interval": 5}, "strategy"),
        ({"strategy": "WARN,SHOUT", "interval": 5}, "strategy"),
    ],
)
def test_an_enabled_time_out_that_says_too_little_is_refused(
    timeout: dict[str, object], place: str
) -> None:
    mistake = mistake_of(timeout=timeout | {"enable": True})
    assert mistake.startswith(f"task 'a', timeout.{place}: ")


def test_the_time_out_of_a_process_warns_unless_it_says_otherwise() -> None:
    assert graph_of(a_task(), timeout=5).timeout_strategy is TimeoutStrategy.WARN
    graph = graph_of(a_task(), timeout=5, timeoutStrategy="WARN,FAILED")
    assert graph.timeout_strategy is TimeoutStrategy.WARNFAILED
    assert mistakes_in(text_of(a_task(), timeoutStrategy="SHOUT")) == (
        "timeoutStrategy: must be WARN, FAILED or WARN,FAILED, not 'SHOUT'",
    )


def test_retries_may_back_off() -> None:
    backoff = node_of(retryBackoff={"factor": "3", "maxInterval": 60, "jitter": 0.2}).backoff
    assert backoff == Backoff(factor=3.0, longest=timedelta(hours=1), jitter=0.2)
    assert node_of(retryBackoff='{"jitter": 1}').backoff == Backoff(jitter=1.0)
    assert node_of().backoff is None


@pytest.mark.parametrize(
    ("backoff", "key"),
    [
        ({"factor": 0.5}, "factor"),
        ({"factor": "nan"}, "factor"),
        ({"factor": True}, "factor"),
        ({"factor": 10**400}, "factor"),
        ({"jitter": 1.1}, "jitter"),
        ({"jitter": -1}, "jitter"),
        ({"maxInterval": -1}, "maxInterval"),
        ({"speed": 3}, "speed"),
    ],
)
def test_a_back_off_that_makes_no_sense_is_refused(backoff: dict[str, object], key: str) -> None:
    assert mistake_of(retryBackoff=backoff).startswith(f"task 'a', retryBackoff.{key}: ")


def test_pools_are_named_by_id_as_later_releases_do_or_in_a_list() -> None:
    node = node_of(taskGroupId=4, taskGroupPriority=7)
    assert (node.pools, node.pool_priority) == ((PoolShare(pool_id=4),), 7)
    node = node_of(taskGroups=[{"name": "db", "slots": 2}, "disk", {"id": 3}])
    assert node.pools == (
        PoolShare(pool_name="db", slots=2),
        PoolShare(pool_name="disk"),
        PoolShare(pool_id=3),
    )
    assert node_of(taskGroupId=0).pools == ()


@pytest.mark.parametrize(
    ("pools", "place"),
    [
        ([{"name": "db", "slots": 0}], "taskGroups[0].slots"),
        ([{"name": "db", "slots": MAX_SLOTS + 1}], "taskGroups[0].slots"),
        ([{"slots": 1}], "taskGroups[0].name"),
        ([{"name": " "}], "taskGroups[0].name"),
        ([7], "taskGroups[0]"),
        (["db", {"name": "db"}], "taskGroups"),
        ([f"p{number}" for number in range(MAX_POOLS + 1)], "taskGroups"),
        ({}, "taskGroups"),
    ],
)
def test_pools_that_make_no_sense_are_refused(pools: object, place: str) -> None:
    assert mistake_of(taskGroups=pools).startswith(f"task 'a', {place}: ")


# Control tasks


def test_a_control_task_is_read_with_its_node() -> None:
    graph = graph_of(
        a_task("a"),
        {
            "name": "c",
            "type": "CONDITIONS",
            "preTasks": ["a"],
            "conditionResult": {"successNode": ["b"], "failedNode": [""]},
            "dependence": {
                "relation": "AND",
                "dependTaskList": [
                    {"relation": "AND", "dependItemList": [{"depTasks": "a", "status": "SUCCESS"}]}
                ],
            },
        },
        a_task("b", preTasks=["c"]),
    )
    control = graph.nodes["c"].control
    assert isinstance(control, Conditions)
    assert (control.success, control.failed) == (("b",), ())


def test_a_branch_to_a_node_that_is_no_direct_successor_is_refused() -> None:
    switch = {"dependTaskList": [], "nextNode": "z"}
    text = text_of(
        a_task("a"),
        {"name": "s", "type": "SWITCH", "preTasks": ["a"], "switchResult": switch},
        a_task("z"),
    )
    (mistake,) = mistakes_in(text)
    assert "'z' is not a direct successor" in mistake


@pytest.mark.parametrize("task_type", ["SUB_PROCESS", "CONDITIONS", "SWITCH", "DEPENDENT"])
def test_a_control_task_without_its_own_part_is_refused_with_its_place(task_type: str) -> None:
    for mistake in mistakes_in(text_of(a_task("a"), a_task("c", type=task_type, preTasks=["a"]))):
        assert mistake.startswith("task 'c'")


# Limits


def test_as_many_tasks_as_are_allowed_are_read() -> None:
    tasks = [{"name": f"t{index}", "type": "SHELL"} for index in range(MAX_NODES)]
    assert len(graph_of(*tasks).nodes) == 10_000


def test_one_task_more_is_refused_with_both_numbers() -> None:
    text = text_of(*({"name": f"t{index}", "type": "SHELL"} for index in range(MAX_NODES + 1)))
    assert mistakes_in(text) == ("tasks: 10001 tasks; at most 10000 are allowed",)


# Names


@pytest.mark.parametrize(
    "name",
    [
        'it\'s "quoted" `whoami` $(x) ; \\',
        "../../../../etc/passwd",
        "..",
        "/",
        "-rf",
        "%s {} ${x} $[yyyy]",
        "naïve 数据 🐋",
        "with a blank",
        "x" * MAX_NAME_LENGTH,
    ],
)
def test_a_name_may_hold_what_a_person_types_since_it_never_becomes_a_path(name: str) -> None:
    assert tuple(graph_of(a_task(name), a_task("z", preTasks=[name])).nodes) == (name, "z")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a\nb", "has a control character"),
        ("a\0b", "has a control character"),
        ("a\x1b[2Jb", "has a control character"),
        ("a\u202eb", "has a control character"),
        ("a\u2028b", "has a control character"),
        ("a\ud800b", "has a control character"),
        ("a,b", "has a comma, which divides names in start lists"),
        (" a", "begins or ends with white space"),
        ("a\n", "begins or ends with white space"),
        (" ", "begins or ends with white space"),
        ("x" * (MAX_NAME_LENGTH + 1), "has 201 characters; at most 200 are allowed"),
    ],
)
def test_a_name_that_would_break_a_list_a_row_or_a_terminal_is_refused(
    name: str, fault: str
) -> None:
    mistake = mistake_of(name=name)
    assert mistake.endswith(f", name: {fault}")
    assert mistake.isprintable()
    assert len(mistake) < 250


@pytest.mark.parametrize("name", [None, "", 7, ["a"], {}])
def test_a_task_without_a_name_is_told_by_its_place(name: object) -> None:
    assert mistake_of(name=name) == "tasks[0].name: a task needs a name"
