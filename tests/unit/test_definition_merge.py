"""Merges of two changes of a definition: task by task, and never by a guess."""

from __future__ import annotations

from typing import Any

import pytest

from common.definition_merge import is_mergeable, merged


def a_document(tasks: dict[str, str], **more: Any) -> dict[str, Any]:
    nodes = [{"name": name, "params": {"rawScript": each}} for name, each in tasks.items()]
    return {"name": "nightly", "processDefinitionJson": {"tasks": nodes}, **more}


def scripts(document: Any) -> dict[str, str]:
    nodes = document["processDefinitionJson"]["tasks"]
    return {each["name"]: each["params"]["rawScript"] for each in nodes}


BASE = a_document({"a": "1", "b": "1"}, timeout=3)


def test_changes_of_different_tasks_and_settings_come_together() -> None:
    mine = a_document({"a": "2", "b": "1", "c": "1"}, timeout=3, description="d")
    theirs = a_document({"a": "1", "x": "1"}, timeout=4)
    found = merged(BASE, mine, theirs)
    assert found.conflicts == ()
    assert scripts(found.document) == {"a": "2", "c": "1", "x": "1"}
    assert found.document is not None
    assert (found.document["timeout"], found.document["description"]) == (4, "d")
    assert set(found.theirs) == {
        "timeout",
        "task x",
        "task b",
    }


@pytest.mark.parametrize("other", [{"a": "3", "b": "1"}, {"b": "1"}])
def test_a_task_that_both_have_changed_is_a_conflict(other: dict[str, str]) -> None:
    found = merged(BASE, a_document({"a": "2", "b": "1"}, timeout=3), a_document(other, timeout=3))
    assert (found.document, found.conflicts) == (None, ("task a",))


def test_the_same_change_of_both_is_none() -> None:
    same = a_document({"a": "2", "b": "1"}, timeout=3)
    found = merged(BASE, same, same)
    assert (found.document, found.conflicts, found.theirs) == (same, (), ())


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"processDefinitionJson": {"tasks": 3}},
        {"processDefinitionJson": {"tasks": [3]}},
        a_document({"a": "1"}) | {"processDefinitionJson": {"tasks": [{"name": "a"}] * 2}},
    ],
)
def test_only_tasks_with_names_of_their_own_can_be_merged(document: object) -> None:
    assert not is_mergeable(document)
    assert is_mergeable(BASE)
