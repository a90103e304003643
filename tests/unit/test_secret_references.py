"""References that stand for secrets in exports, and the way back."""

from __future__ import annotations

import json
from typing import Any

from operations.secret_references import with_references, without_references

SHELL = "curl https://me:hunter2@host/x?a=${day} && psql postgresql://me:${db_password}@db/x"


def a_document(**values: Any) -> dict[str, Any]:
    node = {
        "name": "load it",
        "type": "SHELL",
        "params": {
            "rawScript": SHELL,
            "localParams": [
                {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": "hunter2"},
                {"prop": "api_token", "direct": "IN", "type": "VARCHAR", "value": "${given}"},
                {"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "2026-11-20"},
            ],
        },
    }
    inner = {"globalParams": [{"prop": "db_password", "value": "hunter2"}], "tasks": [node]}
    return {"name": "nightly", "processDefinitionJson": inner | values}


def back(document: dict[str, Any], secrets: dict[str, object]) -> Any:
    missing: set[str] = set()
    found = without_references(document, secrets, missing)
    assert not missing
    return found


def test_a_secret_is_replaced_wherever_it_stands_and_comes_back() -> None:
    document = a_document()
    referenced = with_references(document)
    text = json.dumps(referenced.document)
    assert "hunter2" not in text
    assert "${given}" in text
    assert "2026-11-20" in text
    assert "postgresql://me:${db_password}@db/x" in text
    assert referenced.values == {
        "ORCAFLOW_SECRET_DB_PASSWORD": "hunter2",
        "ORCAFLOW_SECRET_RAWSCRIPT_PASSWORD": "hunter2",
    }
    assert back(referenced.document, dict(referenced.values)) == document


def test_secrets_in_json_within_texts_are_replaced_and_come_back() -> None:
    parameters = json.dumps([{"prop": "pwd", "value": 'hun"ter\\2'}], ensure_ascii=False)
    node = {"name": "a", "params": json.dumps({"env": {"api_key": "hunter3"}})}
    document = a_document(tasks=[node]) | {"globalParams": parameters}
    referenced = with_references(document)
    text = json.dumps(referenced.document)
    assert "hun" not in text.replace("hunter2", "")
    assert back(referenced.document, dict(referenced.values)) == document


def test_secrets_of_schedules_are_told_apart_from_those_of_tasks_and_come_back() -> None:
    def params(*values: str) -> list[dict[str, Any]]:
        return [{"crontab": "0 0 3 * * ?", "startParams": {"pwd": each}} for each in values]

    alone = a_document() | {"schedules": params("hunter7", "hunter7", "${given}")}
    referenced = with_references(alone)
    assert referenced.values["ORCAFLOW_SECRET_PWD"] == "hunter7"
    assert referenced.document["schedules"][2]["startParams"] == {"pwd": "${given}"}
    assert back(referenced.document, dict(referenced.values)) == alone
    node = {"name": "load", "params": {"localParams": [{"prop": "pwd", "value": "hunter6"}]}}
    document = a_document(tasks=[node]) | {"schedules": params("hunter7", "hunter8")}
    referenced = with_references(document)
    assert referenced.values["ORCAFLOW_SECRET_SCHEDULES_PWD_1"] == "hunter7"
    assert referenced.values["ORCAFLOW_SECRET_SCHEDULES_PWD_2"] == "hunter8"
    assert back(referenced.document, dict(referenced.values)) == document


def test_a_name_with_several_values_is_told_apart_by_its_task_whatever_the_order() -> None:
    def a_task(name: str, *values: str) -> dict[str, Any]:
        local = [{"prop": "pwd", "value": value} for value in values]
        return {"name": name, "params": {"localParams": local}}

    tasks = [a_task("one", "hunter2"), a_task("two", "hunter3", "hunter4")]
    referenced = with_references(a_document(tasks=tasks, globalParams=[]))
    assert referenced.values == {
        "ORCAFLOW_SECRET_ONE_PWD": "hunter2",
        "ORCAFLOW_SECRET_TWO_PWD_1": "hunter3",
        "ORCAFLOW_SECRET_TWO_PWD_2": "hunter4",
    }
    turned = with_references(a_document(tasks=tasks[::-1], globalParams=[]))
    assert turned.values == referenced.values


def test_what_has_no_value_is_told_and_nothing_else_is_taken_for_a_reference() -> None:
    missing: set[str] = set()
    given = ["$ENV{ORCAFLOW_SECRET_PWD}", "a $ENV{ORCAFLOW_SECRET_X} b", "print $ENV{HOME}", 7]
    found = without_references(given, {"ORCAFLOW_SECRET_X": "y", "HOME": "/x"}, missing)
    assert found == ["$ENV{ORCAFLOW_SECRET_PWD}", "a y b", "print $ENV{HOME}", 7]
    assert missing == {"ORCAFLOW_SECRET_PWD"}


def test_options_of_command_lines_are_looked_through_and_numbers_keep_their_kind() -> None:
    node = {"name": "a", "params": {"others": "--conf spark.x.password=hunter2 --verbose"}}
    document = a_document(tasks=[node], globalParams=[{"prop": "pin_token", "value": 1234}])
    referenced = with_references(document)
    assert "hunter2" not in json.dumps(referenced.document)
    assert "1234" not in json.dumps(referenced.document)
    assert back(referenced.document, dict(referenced.values)) == document
