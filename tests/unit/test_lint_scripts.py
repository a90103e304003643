"""Scripts that parameters are put into: a warning, or a mistake where workers refuse them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from operations.definition_files import InvalidFilesError, read_definition_files
from operations.findings import Severity
from operations.lint_scripts import splicing_warnings
from tests.unit.definition_documents import a_task

DAY = [{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "1"}]


def a_document(kind: str, text: str, **params: Any) -> dict[str, Any]:
    task = a_task("a", type=kind, params={"rawScript": text, **params})
    return {"globalParams": DAY, "tasks": [task]}


@pytest.mark.parametrize("kind", ["SHELL", "PYTHON", "PYSPARK"])
def test_a_script_that_a_parameter_is_put_into_is_warned_of(kind: str) -> None:
    document = a_document(kind, "echo '${day}' ${system.biz.date} ${HOME}")
    (warning,) = (str(each) for each in splicing_warnings(document))
    assert warning == (
        "task 'a', params.rawScript: ${day}, ${system.biz.date} puts a value into the script, where"
        " what --param gives can be a command (write \"$day\" in a shell, params['day'] of"
        " orcaflow.task in Python)"
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("SHELL", 'echo "$day" ${day:-x} ${HOME} $[yyyyMMdd] #{setValue(x=1)}'),
        ("PYTHON", "print(params['day'])"),
        ("SPARK_SQL", "SELECT '${day}'"),
    ],
)
def test_the_safe_ways_are_no_finding(kind: str, text: str) -> None:
    assert list(splicing_warnings(a_document(kind, text))) == []


def test_what_other_tasks_declare_counts_and_many_names_are_cut() -> None:
    names = [f"n{index}" for index in range(7)]
    declared = [{"prop": name, "direct": "OUT", "value": ""} for name in names]
    document = a_document("SHELL", " ".join(f"${{{name}}}" for name in names))
    document["tasks"].append(a_task("b", params={"rawScript": "true", "localParams": declared}))
    (warning,) = splicing_warnings(document)
    assert warning.problem.startswith("${n0}, ${n1}, ${n2}, ${n3}, ${n4} and 2 more puts")


def test_where_workers_refuse_it_it_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"name": "a", **a_document("SHELL", "echo ${day}")}))
    resources = tmp_path / "resources"
    (found,) = read_definition_files([path], resources=resources)
    (warning,) = (each for each in found.findings if each.severity is Severity.WARNING)
    assert "${day} puts a value into the script" in str(warning)
    with pytest.raises(InvalidFilesError) as caught:
        read_definition_files([path], resources=resources, splices_scripts=False)
    assert "worker.shell_parameters = 'environment' refuses" in str(caught.value)
