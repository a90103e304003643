"""The results of a run that stay valid under another version of its definition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.kept_results import KeptResults, kept_results
from common.model.definitions import ProcessGraph
from common.model.states import TaskState
from tests.builders import a_definition_json, read_graph

GOOD = dict.fromkeys("abcd", TaskState.SUCCESS)


def a_graph(
    shape: str = "a >> b >> c; d", params: list[Any] | None = None, **of_task: Any
) -> ProcessGraph:
    document = json.loads(a_definition_json(shape, **of_task))
    return read_graph(json.dumps(document | {"globalParams": params or []}))


def script(text: str) -> dict[str, Any]:
    return {"params": {"rawScript": text, "localParams": [], "resourceList": []}}


def a_param(name: str, value: str = "1") -> dict[str, str]:
    return {"prop": name, "direct": "IN", "type": "VARCHAR", "value": value}


def found(before: ProcessGraph, after: ProcessGraph, **states: TaskState) -> KeptResults:
    return kept_results(before, after, GOOD | states)


def test_all_good_results_of_an_unchanged_definition_stay() -> None:
    assert found(a_graph(), a_graph()) == KeptResults(
        kept=("a", "b", "c", "d"), runs=(), stale=(), removed=()
    )


def test_a_changed_task_and_all_after_it_run_and_the_others_stay() -> None:
    changed = found(a_graph(), a_graph(b=script("false")))
    assert (changed.kept, changed.stale) == (("a", "d"), ("b", "c"))


def test_a_task_without_a_good_result_runs_though_nothing_has_changed() -> None:
    again = found(a_graph(), a_graph(), b=TaskState.FAILURE, d=TaskState.FORCED_SUCCESS)
    assert (again.kept, again.runs, again.stale) == (("a", "c", "d"), ("b",), ())


def test_a_new_task_runs_and_what_comes_after_it() -> None:
    more = found(a_graph("a >> b; d"), a_graph("a >> n >> b; d"))
    assert (more.kept, more.stale) == (("a", "d"), ("n", "b"))


def test_a_removed_task_is_gone_and_what_came_after_it_runs() -> None:
    fewer = found(a_graph("a >> b >> c; d"), a_graph("a >> c; d"))
    assert (fewer.kept, fewer.stale, fewer.removed) == (("a", "d"), ("c",), ("b",))


def test_a_task_that_waits_for_fewer_or_more_tasks_runs() -> None:
    assert found(a_graph("a b >> c; d"), a_graph("a >> c; b d")).stale == ("c",)
    assert found(a_graph("a >> c; b d"), a_graph("a b >> c; d")).stale == ("c",)


@pytest.mark.parametrize("key", ["id", "code", "desc", "description"])
def test_what_no_result_depends_on_may_change(key: str) -> None:
    assert found(a_graph(a={key: "old"}), a_graph(a={key: "new"})).stale == ()


def test_the_order_of_keys_and_of_upstream_tasks_is_of_no_account() -> None:
    turned = {"params": {"resourceList": [], "localParams": [], "rawScript": "true"}}
    before, after = a_graph("a b >> c; d"), a_graph("b a >> c; d", a=turned)
    assert found(before, after).stale == ()


def test_a_changed_or_removed_global_parameter_makes_all_stale() -> None:
    before = a_graph(params=[a_param("day"), a_param("table")])
    for params in ([a_param("day", "2"), a_param("table")], [a_param("day")]):
        assert found(before, a_graph(params=params)).kept == ()


def test_an_added_global_parameter_matters_to_the_tasks_that_name_it() -> None:
    before = a_graph(b=script("echo ${Day}"))
    after = a_graph(params=[a_param("day")], b=script("echo ${Day}"))
    assert found(before, after).stale == ("b", "c")


def test_an_added_global_parameter_reaches_the_child_of_a_sub_process() -> None:
    child = {"type": "SUB_PROCESS", "params": {"processDefinitionId": 7}}
    after = a_graph(params=[a_param("day")], d=child)
    assert found(a_graph(d=child), after).stale == ("d",)
