"""Warnings that need more than one definition, or that a database alone can answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from operations.definition_files import DefinitionDocument, read_definition_files
from tests.unit.definition_documents import a_child, a_task
from tests.unit.later_definitions import a_later_export, a_later_task


def read(folder: Path, *content: object) -> list[DefinitionDocument]:
    paths = []
    for index, each in enumerate(content):
        path = folder / f"{index}.json"
        path.write_text(json.dumps(each))
        paths.append(path)
    return read_definition_files(paths, resources=folder / "resources")


def warnings(document: DefinitionDocument) -> list[tuple[str, str]]:
    return [(each.key, each.problem) for each in document.findings]


def a_file(name: str, *tasks: dict[str, Any], given: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"name": name, "tasks": list(tasks), "globalParams": [{"prop": each} for each in given]}


def test_what_a_parent_gives_is_declared_for_its_children_and_theirs(tmp_path: Path) -> None:
    local = [{"prop": "local", "direct": "IN", "value": "1"}]
    found = read(
        tmp_path,
        a_file("leaf", a_task("a", params={"rawScript": "say ${day} ${local} ${nosuch}"})),
        a_file("middle", a_child("c", processDefinitionName="leaf")),
        a_file(
            "top",
            a_child("c", processDefinitionName="middle", localParams=local),
            given=("day",),
        ),
    )
    assert [problem for _, problem in warnings(found[0])] == [
        "${nosuch} is declared nowhere and stays as it is written"
    ]


def test_a_file_parameter_is_reported(tmp_path: Path) -> None:
    local = [{"prop": "f", "direct": "IN", "type": "FILE", "value": "a.txt"}]
    (found,) = read(
        tmp_path, a_file("d", a_task("a", params={"rawScript": "true", "localParams": local}))
    )
    ((key, problem),) = warnings(found)
    assert key == "params.localParams[0].type"
    assert problem.startswith("FILE passes no file")


def test_codes_of_no_file_are_reported_by_lint_and_left_to_the_import(tmp_path: Path) -> None:
    item = {"definitionCode": 77, "depTaskCode": 88, "cycle": "day", "dateValue": "today"}
    groups = [{"relation": "AND", "dependItemList": [item]}]
    export = a_later_export(
        a_later_task(1, "c", "SUB_PROCESS", params={"processDefinitionCode": 99}),
        a_later_task(
            2,
            "d",
            "DEPENDENT",
            params={"dependence": {"relation": "AND", "dependTaskList": groups}},
        ),
    )
    (found,) = read(tmp_path, export)
    codes = {each.key: each for each in found.findings if each.of_database}
    assert set(codes) == {
        "params.processDefinitionCode",
        "dependence.dependTaskList[0].dependItemList[0].definitionCode",
        "dependence.depTaskCode",
    }
    assert "the code 99 is in none of these files" in codes["params.processDefinitionCode"].problem


def test_two_statements_in_a_query_are_a_mistake_before_a_run(tmp_path: Path) -> None:
    query = {"type": "MYSQL", "datasource": 1, "sql": "select 1; select 2", "sqlType": "0"}
    (found,) = read(tmp_path, a_later_export(a_later_task(1, "q", "SQL", params=query)))
    (finding,) = [each for each in found.findings if each.key == "params.sql"]
    assert finding.problem.startswith("has 2 statements; a query (sqlType 0) is one")
    assert finding.keeps_offline
