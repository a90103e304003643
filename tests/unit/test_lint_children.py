"""Background processes of SHELL scripts: a warning where the worker would end them."""

from __future__ import annotations

from typing import Any

import pytest

from operations.lint_children import children_warnings, keep_children
from tests.unit.definition_documents import a_task


def a_document(script: str, kind: str = "SHELL", **params: Any) -> dict[str, Any]:
    return {"tasks": [a_task("a", type=kind, params={"rawScript": script, **params})]}


@pytest.mark.parametrize(
    "script",
    [
        "nohup java -jar app.jar > log.txt 2>&1 &\necho started",
        "sleep 5 &",
        "serve & echo $!",
        "(serve &)",
        "echo 'a & b'; serve \"$x\" &\r\n",
        "setsid serve & # wait for nobody",
        "echo awaited; serve &",
    ],
)
def test_a_script_that_leaves_a_process_behind_is_warned_of(script: str) -> None:
    (warning,) = (str(each) for each in children_warnings(a_document(script)))
    assert warning.startswith("task 'a', params.rawScript: starts a process in the background")
    assert list(children_warnings(a_document(script, keepChildren=True))) == []
    assert list(children_warnings(a_document(script, kind="PYTHON"))) == []


@pytest.mark.parametrize(
    "script",
    [
        "true && false",
        "cmd > log 2>&1",
        "cmd &> log; cmd >& log; cmd <&3; cmd |& tee log",
        "echo 'a & b' \"c & d\" e\\&f # g &",
        "x=$((3 & 1)); [[ a == *&* ]]",
        "one & two & wait",
        "one &\nwait $!; echo done",
    ],
)
def test_other_ampersands_and_awaited_processes_are_not(script: str) -> None:
    assert list(children_warnings(a_document(script))) == []


def test_a_task_of_an_export_keeps_its_background_processes() -> None:
    document = a_document("nohup serve > log 2>&1 &")
    (warning,) = (str(each) for each in keep_children(document))
    assert "stays alive after the task, as in DolphinScheduler" in warning
    assert document["tasks"][0]["params"]["keepChildren"] is True
    assert [*keep_children(document), *children_warnings(document)] == []
    ended = a_document("serve &", keepChildren=False)
    assert list(keep_children(ended)) == []
    assert len(list(children_warnings(ended))) == 1
    assert list(keep_children(a_document("one & wait"))) == []
