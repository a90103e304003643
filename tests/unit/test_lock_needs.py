"""`locks` of a task: read, and refused with their mistakes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.errors import InvalidDefinitionError
from common.model.lock_needs import MAX_LOCKS, LockNeed
from common.model.locks import LockType
from tests.builders import read_graph

A: dict[str, Any] = {"name": "a", "type": "SHELL", "params": {"rawScript": "true"}}


def mistakes_in(*tasks: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(InvalidDefinitionError) as refused:
        read_graph(json.dumps({"tasks": tasks}))
    return refused.value.mistakes


def mistake_of(**keys: Any) -> str:
    (mistake,) = mistakes_in(A | keys)
    return mistake


def locks_of(**keys: Any) -> tuple[LockNeed, ...]:
    return read_graph(json.dumps({"tasks": [A | keys]})).nodes["a"].locks


def test_locks_of_a_task_are_read_with_their_defaults() -> None:
    asked = [
        {"dataset": "flights", "interval": "$[yyyy-MM-dd]/P1D", "type": "SHARED", "priority": 75},
        {"dataset": "flights.daily", "interval": "2026-11-20/P1D"},
    ]
    expected = (
        LockNeed(
            dataset="flights", interval="$[yyyy-MM-dd]/P1D", type=LockType.SHARED, priority=75
        ),
        LockNeed(dataset="flights.daily", interval="2026-11-20/P1D"),
    )
    assert locks_of(locks=asked) == expected
    assert locks_of(locks=json.dumps(asked)) == expected
    assert locks_of() == ()


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"dataset": None}, "locks[0].dataset"),
        ({"dataset": "../up"}, "locks[0].dataset"),
        ({"dataset": "d" * 129}, "locks[0].dataset"),
        ({"interval": None}, "locks[0].interval"),
        ({"interval": "2026-11-20"}, "locks[0].interval"),
        ({"interval": "2026-13-20/P1D"}, "locks[0].interval"),
        ({"interval": "$" * 101}, "locks[0].interval"),
        ({"type": "WRITE"}, "locks[0].type"),
        ({"priority": 101}, "locks[0].priority"),
        ({"priority": True}, "locks[0].priority"),
        ({"wait": 5}, "locks[0]"),
    ],
)
def test_locks_that_make_no_sense_are_refused(changes: dict[str, Any], place: str) -> None:
    lock = {"dataset": "flights", "interval": "2026-11-20/P1D"} | changes
    assert mistake_of(locks=[lock]).startswith(f"task 'a', {place}: ")


def test_a_task_asks_for_some_locks_and_control_tasks_for_none() -> None:
    lock = {"dataset": "flights", "interval": "2026-11-20/P1D"}
    assert mistake_of(locks=[lock] * (MAX_LOCKS + 1)).startswith("task 'a', locks: at most")
    assert mistake_of(locks=["flights"]).startswith("task 'a', locks[0]: must be")
    assert mistake_of(locks={}).startswith("task 'a', locks: ")
    control = mistakes_in(A, A | {"name": "c", "type": "SUB_PROCESS", "locks": [lock]})
    assert any("locks: a SUB_PROCESS takes no slot" in mistake for mistake in control)
