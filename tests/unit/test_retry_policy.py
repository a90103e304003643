"""The retry settings of a node: the reasons, and the growth of memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidDefinitionError
from common.model.definitions import TaskNode
from common.model.failures import FailureReason
from common.model.memory_factor import MAX_MEMORY_FACTOR
from common.model.retry_policy import (
    RETRIES_ALL,
    MemoryRetry,
    RetryPolicy,
    megabytes_in,
    memory_retry_of,
    read_retry_policy,
)
from common.task_types import known_task_types
from operations.lint_warnings import lint_warnings
from tests.builders import read_graph

OUT_OF_MEMORY, FETCH_FAILED = FailureReason.OUT_OF_MEMORY, FailureReason.FETCH_FAILED
RAISE = {"factor": 2, "ceiling": "8G"}


def document(**keys: Any) -> dict[str, Any]:
    task = {
        "name": "a",
        "type": "PYSPARK",
        "params": {"rawScript": "print()"},
        "maxRetryTimes": 3,
        "retryInterval": 1,
    }
    return {"tasks": [task | keys]}


def node(**keys: Any) -> TaskNode:
    return read_graph(json.dumps(document(**keys))).nodes["a"]


def mistakes(**keys: Any) -> list[str]:
    with pytest.raises(InvalidDefinitionError) as caught:
        node(**keys)
    return list(caught.value.mistakes)


def test_without_a_word_every_reason_is_tried_again() -> None:
    assert node().retry_policy is RETRIES_ALL
    assert node(retryOn=[], noRetryOn="", memoryRetry={}).retry_policy == RETRIES_ALL
    retried = {reason for reason in FailureReason if RETRIES_ALL.retries(reason)}
    # Another attempt would lack the same grant.
    assert set(FailureReason) - retried == {FailureReason.NOT_GRANTED}


def test_reasons_are_listed_by_their_names() -> None:
    policy = node(
        retryOn=["OUT_OF_MEMORY", "FETCH_FAILED", "OUT_OF_MEMORY"], noRetryOn=["DATA_ERROR"]
    ).retry_policy
    assert policy.retry_on == (OUT_OF_MEMORY, FETCH_FAILED)
    assert policy.no_retry_on == (FailureReason.DATA_ERROR,)


def test_lists_and_objects_may_be_text_that_holds_them() -> None:
    policy = node(retryOn='["OUT_OF_MEMORY"]', memoryRetry=json.dumps(RAISE)).retry_policy
    assert policy == RetryPolicy(
        retry_on=(OUT_OF_MEMORY,), memory=MemoryRetry(factor=2.0, ceiling_mb=8192)
    )


@pytest.mark.parametrize("key", ["retryOn", "noRetryOn"])
@pytest.mark.parametrize("wrong", ["OUT_OF_MEMORY", 7, True, {"a": 1}, "[not JSON"])
def test_what_is_no_list_of_reasons_is_refused(key: str, wrong: object) -> None:
    (mistake,) = mistakes(**{key: wrong})
    assert mistake.startswith(f"task 'a', {key}: must be a list of reasons, not ")
    assert "OUT_OF_MEMORY" in mistake


@pytest.mark.parametrize("wrong", ["OOM", "out_of_memory", "", None, 7, ["OUT_OF_MEMORY"]])
def test_a_reason_that_is_not_known_is_refused_and_the_known_ones_are_told(wrong: object) -> None:
    (mistake,) = mistakes(retryOn=["FETCH_FAILED", wrong])
    assert mistake.startswith("task 'a', retryOn[1]: ")
    assert "(known: OUT_OF_MEMORY, FETCH_FAILED, " in mistake


def test_a_reason_can_not_be_wanted_and_excluded() -> None:
    assert mistakes(retryOn=["FETCH_FAILED"], noRetryOn=["FETCH_FAILED"]) == [
        "task 'a', noRetryOn: FETCH_FAILED stands in retryOn too; take it out of one"
    ]


@pytest.mark.parametrize("key", ["retryOn", "noRetryOn", "memoryRetry"])
def test_what_is_never_tried_again_has_no_policy(key: str) -> None:
    given = {"retryOn": ["KILLED"], "noRetryOn": ["KILLED"], "memoryRetry": RAISE}[key]
    (mistake,) = mistakes(type="SUB_PROCESS", params={"processDefinitionId": 1}, **{key: given})
    assert mistake == f"task 'a', {key}: a SUB_PROCESS is never tried again; take it out"


def test_memory_is_doubled_unless_the_author_says_otherwise() -> None:
    assert node(memoryRetry={"ceiling": 4096}).retry_policy.memory == MemoryRetry(
        factor=2.0, ceiling_mb=4096
    )
    assert node(memoryRetry={"factor": "1.5", "ceiling": "3.5 GB"}).retry_policy.memory == (
        MemoryRetry(factor=1.5, ceiling_mb=3584)
    )


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({}, None),
        ({"factor": 2}, ".ceiling"),
        ({"factor": 2, "ceiling": ""}, ".ceiling"),
        ({"factor": 2, "ceiling": "lots"}, ".ceiling"),
        ({"factor": 2, "ceiling": "-8G"}, ".ceiling"),
        ({"factor": 2, "ceiling": 0}, ".ceiling"),
        ({"factor": 2, "ceiling": True}, ".ceiling"),
        ({"factor": 2, "ceiling": 10**400}, ".ceiling"),
        ({"factor": 2, "ceiling": "900T"}, ".ceiling"),
        ({"factor": 1, "ceiling": "8G"}, ".factor"),
        ({"factor": 17, "ceiling": "8G"}, ".factor"),
        ({"factor": "nan", "ceiling": "8G"}, ".factor"),
        ({"factor": 10**400, "ceiling": "8G"}, ".factor"),
        ({"factor": True, "ceiling": "8G"}, ".factor"),
        ({"factor": [2], "ceiling": "8G"}, ".factor"),
        ({"speed": 1, "ceiling": "8G"}, ".speed"),
        ([2, "8G"], ""),
        ("8G", ""),
        (7, ""),
    ],
)
def test_memory_that_can_not_be_raised_like_this_is_refused(
    wrong: object, place: str | None
) -> None:
    if place is None:
        assert node(memoryRetry=wrong).retry_policy is RETRIES_ALL
        return
    (mistake,) = mistakes(memoryRetry=wrong)
    assert mistake.startswith(f"task 'a', memoryRetry{place}: ")


def test_only_memory_that_orcaflow_asks_for_is_raised() -> None:
    (mistake,) = mistakes(type="SHELL", memoryRetry=RAISE)
    assert mistake.startswith("task 'a', memoryRetry: the memory of a SHELL is not Orcaflow's")


@pytest.mark.parametrize(
    ("lists", "cure"),
    [
        ({"retryOn": ["FETCH_FAILED"]}, "add it to retryOn"),
        ({"noRetryOn": ["OUT_OF_MEMORY"]}, "take it out of noRetryOn"),
    ],
)
def test_memory_is_not_raised_for_an_attempt_that_will_not_be_made(
    lists: dict[str, list[str]], cure: str
) -> None:
    (mistake,) = mistakes(memoryRetry=RAISE, **lists)
    assert mistake.startswith("task 'a', memoryRetry: ")
    assert mistake.endswith(cure)


def test_every_mistake_of_a_policy_is_told_at_once() -> None:
    found = mistakes(retryOn=["OOM"], noRetryOn=7, memoryRetry={"factor": 0, "ceiling": "x"})
    assert [mistake.partition(": ")[0] for mistake in found] == [
        "task 'a', retryOn[0]",
        "task 'a', noRetryOn",
        "task 'a', memoryRetry.factor",
        "task 'a', memoryRetry.ceiling",
    ]


def test_a_policy_without_retries_is_warned_of() -> None:
    warnings = lint_warnings("d", document(maxRetryTimes=0, retryOn=["KILLED"], memoryRetry=RAISE))
    assert [(one.key, one.problem) for one in warnings] == [
        (key, "has no effect: maxRetryTimes is 0, so nothing is tried again")
        for key in ("retryOn", "memoryRetry")
    ]
    assert list(lint_warnings("d", document(retryOn=["KILLED"], memoryRetry=RAISE))) == []


def test_the_node_takes_its_policy_to_its_worker() -> None:
    carried = json.loads(node(memoryRetry=RAISE).task_json)
    assert memory_retry_of(carried) == MemoryRetry(factor=2.0, ceiling_mb=8192)
    assert memory_retry_of({}) is None
    assert memory_retry_of({"memoryRetry": {"factor": "x"}}) is None


def test_an_attempt_gets_its_memory_times_the_factor_up_to_the_ceiling() -> None:
    memory = MemoryRetry(ceiling_mb=8192)
    assert [memory.megabytes(3000, factor) for factor in (1.0, 2.0, 4.0)] == [3000, 6000, 8192]
    assert memory.megabytes(10_000, 2.0) == 10_000, "the author has configured more than that"


@pytest.mark.parametrize(
    ("written", "megabytes"),
    [
        ("8g", 8192),
        ("8 GB", 8192),
        ("512M", 512),
        ("512mb", 512),
        ("1.5g", 1536),
        ("1t", 1024 * 1024),
        ("2048k", 2),
        ("700", 700),
        (700, 700),
        ("8 gallons", None),
        ("", None),
        ("g", None),
        (None, None),
        (False, None),
        (float("inf"), None),
    ],
)
def test_sizes_are_read_as_spark_writes_them(written: object, megabytes: int | None) -> None:
    assert megabytes_in(written) == megabytes


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(retry_on=_ANYTHING, memory=_ANYTHING, ceiling=_ANYTHING, factor=_ANYTHING)
def test_whatever_is_written_is_read_or_refused(
    retry_on: object, memory: object, ceiling: object, factor: object
) -> None:
    for raised in (memory, {"factor": factor, "ceiling": ceiling}):
        warnings: list[str] = []
        entry = {"retryOn": retry_on, "memoryRetry": raised}
        policy = read_retry_policy("SPARK", entry, "here", warnings, task_types=known_task_types())
        assert all(each.startswith("here, ") for each in warnings)
        assert 1 <= policy.next_memory_factor(1.0, OUT_OF_MEMORY) <= MAX_MEMORY_FACTOR
