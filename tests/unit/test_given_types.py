"""Values of parameters that callers give are of the types that the definition declares."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.errors import InvalidDefinitionError
from common.model.states import ReleaseState
from common.params import ParameterError
from common.store.people.definitions import DefinitionRow
from master.commands.parameters import resolved_global_params
from operations.definition_files import read_definition_files
from operations.errors import UsageError
from operations.start_params import checked_params
from tests.unit.definition_documents import a_task, an_export

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DECLARED = [
    {"prop": "n", "direct": "IN", "type": "INTEGER", "value": "1"},
    {"prop": "day", "direct": "IN", "type": "DATE", "value": "$[yyyy-MM-dd]"},
    {"prop": "text", "direct": "IN", "type": "VARCHAR", "value": ""},
]


def a_row(**changes: Any) -> DefinitionRow:
    values: dict[str, Any] = {
        "id": 1,
        "code": 1,
        "project_id": 1,
        "name": "d",
        "version": 1,
        "release_state": ReleaseState.ONLINE,
        "process_definition_json": "{}",
        "description": None,
        "global_params": json.dumps(DECLARED),
        "timeout_minutes": 0,
        "tenant_id": -1,
        "user_id": 1,
        "usable": True,
        "create_time": NOON,
        "update_time": NOON,
    }
    return DefinitionRow(**values | changes)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"n": "7", "day": "2026-01-31", "text": "abc", "other": "abc"}, ""),
        ({"n": "", "day": "$[yyyy-MM-dd-1]"}, ""),
        ({"n": "abc"}, "'n' is declared INTEGER, so its value must be a whole number of 32 bits"),
        ({"n": "3000000000"}, "'n' is declared INTEGER"),
        ({"day": "31.1.2026"}, "'day' is declared DATE, so its value must be written as"),
    ],
)
def test_the_doors_of_people_and_of_the_master_judge_alike(
    given: dict[str, str], refused: str
) -> None:
    def begin(*, is_stored: bool = False) -> str:
        return resolved_global_params(
            (json.dumps(DECLARED),),
            given=json.dumps(given),
            moment=NOON,
            parent=None,
            zone=ZoneInfo("UTC"),
            is_stored=is_stored,
        )

    rows = (
        a_row(),
        a_row(global_params=None, process_definition_json=json.dumps({"globalParams": DECLARED})),
    )
    if not refused:
        assert [checked_params(given, row) for row in rows] == [given, given]
        assert begin()
        return
    for row in rows:
        with pytest.raises(UsageError) as asked:
            checked_params(given, row)
        assert refused in str(asked.value)
        assert "abc" not in str(asked.value)
    with pytest.raises(ParameterError) as begun:
        begin()
    assert refused in str(begun.value)
    # A run from before this rule may be repeated.
    assert begin(is_stored=True)


def test_a_declared_value_of_another_type_is_a_mistake_and_in_an_export_a_warning(
    tmp_path: Path,
) -> None:
    wrong = {"prop": "m", "direct": "IN", "type": "INTEGER", "value": "abc"}
    task = a_task("t", params={"rawScript": "true", "localParams": [wrong]})
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"name": "d", "tasks": [task], "globalParams": [wrong]}))
    with pytest.raises(InvalidDefinitionError) as caught:
        read_definition_files([path], resources=tmp_path)
    places = ("globalParams: parameter 'm'", "task 't', params.localParams: parameter 'm'")
    assert all(place in each for place, each in zip(places, caught.value.mistakes, strict=True))
    path.write_text(json.dumps(an_export(task)))
    (found,) = read_definition_files([path], resources=tmp_path)
    (warning,) = [each for each in found.findings if each.key == "params.localParams"]
    assert "'m' is declared INTEGER" in warning.problem
    assert not warning.keeps_offline
