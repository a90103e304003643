"""A separate package adds a task type: one module, which lint, schema, import and workers read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.errors import InvalidDefinitionError
from common.model.states import TaskState
from common.task_types import known_task_types
from operations.definition_files import DefinitionDocument, read_definition_files
from operations.definition_schema import schema_of_files
from tests.builders import read_graph
from tests.integration.worker_host import Host
from tests.schemas import faults

MODULE = """
from common.model.task_type import Key, Shape, TaskTypeSpec
from worker.launching.base import Launch, TaskContext

LEVEL = Key(name="level", shape=Shape.WORD, words=("LOW", "HIGH"), default="LOW")
TIMES = Key(name="times", shape=Shape.NUMBER, default=1)


class GreetTask:
    spec = TaskTypeSpec(
        name="GREET",
        about="Says hello.",
        keys=(Key(name="template", is_file=True), LEVEL, TIMES),
        needs=(("template",),),
        memory_retry=True,
    )

    def launch(self, context: TaskContext) -> Launch:
        words = [context.word(LEVEL), str(context.number(TIMES))]
        return Launch(argv=("/bin/cat", str(context.file("template", context.text("template")))),
                      notes=(" ".join(words),))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an installed distribution that has the type GREET, and one that is broken."""
    folder = tmp_path / "site"
    about = folder / "greetings-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[orcaflow.tasks]\nGREET = greetings_task:GreetTask\nBROKEN = there_is_none:Task\n"
    )
    (folder / "greetings_task.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    known_task_types.cache_clear()
    yield folder
    sys.modules.pop("greetings_task", None)
    known_task_types.cache_clear()


def read(folder: Path, **node: Any) -> DefinitionDocument:
    path = folder / "d.json"
    path.write_text(json.dumps({"name": "d", "tasks": [{"name": "a", **node}]}))
    (found,) = read_definition_files([path], resources=folder / "resources")
    return found


def mistakes(folder: Path, **node: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidDefinitionError) as caught:
        read(folder, **node)
    return caught.value.mistakes


def test_a_type_of_a_package_is_linted_by_its_specification(package: Path, tmp_path: Path) -> None:
    wrong = {"template": "hello.txt", "level": "MIDDLE", "times": "-1"}
    found = "\n".join(mistakes(tmp_path, type="GREET", params=wrong))
    assert "task 'a', params.template: there is no file 'hello.txt'" in found
    assert "task 'a', params.level: must be one of LOW, HIGH, not 'MIDDLE'" in found
    assert "task 'a', params.times: must be a whole number, not '-1'" in found
    (warning,) = read(tmp_path, type="greet", params={"level": "high"}).findings
    assert (warning.key, warning.problem) == ("params.template", "is missing: the task fails")


def test_its_files_are_made_absolute_at_import(package: Path, tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello\n")
    document = read(tmp_path, type="GREET", params={"template": "hello.txt"})
    (node,) = document.document["tasks"]
    assert node["params"]["template"] == str(tmp_path / "hello.txt")


def test_its_keys_stand_in_the_schema(package: Path) -> None:
    schema = schema_of_files()
    file = {"tasks": [{"name": "a", "type": "GREET", "params": {"level": "high", "times": 2}}]}
    assert list(faults(file, schema, schema)) == []
    file["tasks"][0]["params"] = {"level": "MIDDLE"}
    assert ".level" in "\n".join(faults(file, schema, schema))
    assert schema["$defs"]["params.GREET"]["description"] == "Says hello."


def test_a_master_raises_its_memory_after_a_failure_for_want_of_it(package: Path) -> None:
    node = {
        "name": "a",
        "type": "GREET",
        "maxRetryTimes": 1,
        "memoryRetry": {"factor": 2, "ceiling": "1G"},
    }
    policy = read_graph(json.dumps({"tasks": [node]})).nodes["a"].retry_policy
    assert policy.memory is not None
    node["type"] = "SHELL"
    with pytest.raises(
        InvalidDefinitionError, match="it is of COMPACT, DATA_QUALITY, GREET, PYSPARK"
    ):
        read_graph(json.dumps({"tasks": [node]}))


def test_a_worker_runs_it(package: Path, tmp_path: Path) -> None:
    (tmp_path / "hello.txt").write_text("hello world\n")
    host = Host(tmp_path)
    params = {"template": str(tmp_path / "hello.txt"), "times": 3}
    end = host.run(host.task(1, task_type="GREET", params=params))
    host.supervisor.close()
    assert end.state is TaskState.SUCCESS
    assert "LOW 3" in host.log(1)
    assert "hello world" in host.log(1)


def test_a_type_that_can_not_be_loaded_fails_its_tasks_and_warns_its_authors(
    package: Path, tmp_path: Path
) -> None:
    (warning,) = read(tmp_path, type="BROKEN").findings
    assert (warning.key, "there_is_none" in warning.problem) == ("type", True)
    host = Host(tmp_path)
    end = host.run(host.task(1, task_type="BROKEN", params={}))
    host.supervisor.close()
    assert end.state is TaskState.FAILURE
    assert "task type BROKEN: there_is_none:Task can't be loaded" in host.log(1)
