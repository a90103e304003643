"""Limits on the size of documents are checked before the definitions in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from operations.definition_files import InvalidFilesError, read_definition_files
from operations.document_limits import (
    MOST_DEFINITIONS,
    MOST_FINDINGS,
    MOST_RELATIONS,
    MOST_TASKS,
    MOST_UNKNOWN_KEYS,
)

_BROKEN: dict[str, Any] = {"name": "t", "type": "NONE"}
"""A task with a mistake. It is not reported, because limits are checked before tasks."""


def _mistakes(document: object) -> tuple[str, ...]:
    with pytest.raises(InvalidFilesError) as raised:
        read_definition_files(
            [Path("-")], resources=Path("resources"), standard_input=json.dumps(document).encode()
        )
    return raised.value.mistakes


def _definition(name: str, tasks: object) -> dict[str, Any]:
    return {"name": name, "processDefinitionJson": {"tasks": tasks}}


def _in_text(name: str, tasks: object) -> dict[str, Any]:
    return {"name": name, "processDefinitionJson": json.dumps({"tasks": tasks})}


def _exported(name: str, tasks: list[Any], relations: object = ()) -> dict[str, Any]:
    return {
        "processDefinition": {"name": name},
        "taskDefinitionList": tasks,
        "processTaskRelationList": json.dumps(relations),
    }


def _waiting(number: int, above: object) -> list[dict[str, Any]]:
    return [{**_BROKEN, "preTasks": above}] * number


_HALF = MOST_TASKS // 2
_NAMES = ["x"] * 1000
_MANY = MOST_RELATIONS // len(_NAMES) + 1


@pytest.mark.parametrize(
    ("document", "limit"),
    [
        ([_definition("d", [_BROKEN])] * (MOST_DEFINITIONS + 1), "501 definitions"),
        ([_definition("d", [_BROKEN] * _HALF)] * 2 + [_in_text("d", [_BROKEN])], "20,001 tasks"),
        ([_exported("d", [{}] * (_HALF + 1))] * 2, "20,002 tasks"),
        ({"name": "d", "tasks": [_BROKEN] * (MOST_TASKS + 1)}, "20,001 tasks"),
        (_definition("d", _waiting(_MANY, _NAMES)), "101,000 relations"),
        (_definition("d", _waiting(_MANY, json.dumps(_NAMES))), "101,000 relations"),
        (_exported("d", [{}], [{}] * (MOST_RELATIONS + 1)), "100,001 relations"),
    ],
)
def test_a_document_above_a_limit_has_one_mistake_before_any_check_x66(
    document: object, limit: str
) -> None:
    (mistake,) = _mistakes(document)
    assert limit in mistake
    assert "split the file" in mistake


@pytest.mark.parametrize(
    ("tasks", "most"),
    [
        ([_BROKEN | {f"k{number}": 1 for number in range(20_000)}], MOST_UNKNOWN_KEYS),
        ([_BROKEN | {f"k{key}": 1 for key in range(100)}] * 1_000, MOST_FINDINGS),
    ],
)
def test_the_number_of_unknown_keys_that_are_looked_up_is_bounded_x66(
    tasks: list[Any], most: int
) -> None:
    found = [each for each in _mistakes(_definition("d", tasks)) if "no effect" in each]
    assert len(found) <= most + 2
    assert "the check ends here" in found[-1]


_TWICE = '{"rawScript": "echo", "rawScript": "rm"}'


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (_definition("d", [_BROKEN | {"params": _TWICE}]), "task 't', params:"),
        (
            _definition("d", [_BROKEN | {"params": json.dumps({"conf": _TWICE})}]),
            "task 't', params.conf:",
        ),
        (_in_text("d", [_BROKEN | {"dependence": _TWICE}]), "task 't', dependence:"),
        (
            _exported("d", [{"name": "t", "taskParams": _TWICE}]),
            "taskDefinitionList[0].taskParams:",
        ),
        ({**_definition("d", [_BROKEN]), "globalParams": f"[{_TWICE}]"}, "globalParams:"),
        (
            {**_definition("d", [_BROKEN]), "processDefinitionLocations": _TWICE},
            "processDefinitionLocations:",
        ),
        (
            {"processDefinition": {"name": "d", "locations": _TWICE}, "taskDefinitionList": []},
            "processDefinition.locations:",
        ),
    ],
)
def test_a_text_that_holds_json_with_a_repeated_key_is_refused_x65(
    document: object, why: str
) -> None:
    (mistake,) = _mistakes(document)
    assert "stands twice" in mistake
    assert why in mistake


def test_all_texts_together_have_no_more_objects_than_one_document_x65() -> None:
    params = "[" + "{}," * 200_000 + "{}]"
    tasks = [_BROKEN | {"params": params}] * 4
    (mistake,) = _mistakes(_definition("d", tasks))
    assert "500,000 objects" in mistake
