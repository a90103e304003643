"""The JSON schema of definition files: it accepts, it refuses, and it is complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.task_types import known_task_types
from operations.definition_schema import schema_of_files
from orcaflow.cli.app import main
from tests.schemas import faults

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "examples").rglob("*.json")
    if "tasks" in path.read_text(encoding="utf-8")
)
SCHEMA = schema_of_files()


def broken(document: Any) -> list[str]:
    return list(faults(document, SCHEMA, SCHEMA))


def a_file(**node: Any) -> dict[str, Any]:
    return {"name": "d", "tasks": [{"name": "a", "type": "SHELL", **node}]}


@pytest.mark.parametrize("file", FILES)
def test_every_example_keeps_the_schema(file: str) -> None:
    assert broken(json.loads((ROOT / file).read_text(encoding="utf-8"))) == []


def test_the_schema_has_every_type_with_every_key() -> None:
    types = known_task_types()
    for name in types:
        properties = SCHEMA["$defs"][f"params.{name}"]["properties"]
        assert {key.name for key in types[name].keys} <= properties.keys()
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize(
    "node",
    [
        {"params": {"rawScript": "true"}},
        {"params": json.dumps({"rawScript": "true"})},
        {"type": "shell", "params": {"rawScript": "true", "anything": [1]}},
        {
            "type": "HTTP",
            "params": {"url": "http://x", "httpMethod": "post", "connectTimeout": "5"},
        },
        {"type": "SQL", "params": {"sqlType": 0, "sql": "select 1", "displayRows": ""}},
        {"type": "SPARK", "params": {"mainJar": {"res": "a.jar"}, "driverMemory": "2G"}},
        {"type": "PYSPARK", "params": {"rawScript": "1", "conf": {"spark.x": True}}},
        {
            "maxRetryTimes": "3",
            "timeout": {"enable": False},
            "preTasks": [],
            "runFlag": "FORBIDDEN",
        },
        {"type": "SUB_PROCESS", "params": {"processDefinitionName": "other"}},
    ],
)
def test_what_lint_takes_the_schema_takes(node: dict[str, Any]) -> None:
    file = a_file(**node)
    assert broken(file) == []
    assert broken({"name": "d", "processDefinitionJson": file}) == []
    assert broken({"name": "d", "processDefinitionJson": json.dumps(file)}) == []
    assert broken([file]) == []


@pytest.mark.parametrize(
    ("node", "place"),
    [
        ({"type": "NOPE"}, ".type"),
        ({"runFlag": "maybe"}, ".runFlag"),
        ({"maxRetryTimes": -1}, ".maxRetryTimes"),
        ({"params": {"rawScript": ["a"]}}, ".rawScript"),
        ({"type": "HTTP", "params": {"httpMethod": "FETCH"}}, ".httpMethod"),
        ({"type": "HTTP", "params": {"connectTimeout": -1}}, ".connectTimeout"),
        ({"type": "SPARK", "params": {"driverMemory": "much"}}, ".driverMemory"),
        ({"type": "PYSPARK", "params": {"conf": {"spark.x": []}}}, ".conf"),
        ({"params": {"resourceList": [{}]}}, ".resourceList"),
    ],
)
def test_a_wrong_value_breaks_the_schema_at_its_place(node: dict[str, Any], place: str) -> None:
    assert place in "\n".join(broken(a_file(**node)))


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["definition", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA
