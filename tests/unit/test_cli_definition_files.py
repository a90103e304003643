"""Files of definitions: all mistakes are reported, each with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import InvalidDefinitionError
from operations.definition_files import DefinitionDocument, read_definition_files


def a_task(name: str, *upstream: str, **changes: Any) -> dict[str, Any]:
    params = {"rawScript": "true"}
    return {"name": name, "type": "SHELL", "params": params, "preTasks": list(upstream)} | changes


def a_definition(*tasks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"name": "nightly", "processDefinitionJson": {"tasks": list(tasks)}} | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "definitions"
    made.mkdir()
    return made


def written(folder: Path, content: object, name: str = "file.json") -> Path:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(*paths: Path, name: str | None = None) -> list[DefinitionDocument]:
    resources = paths[0].parent.parent / "resources"
    return read_definition_files(list(paths), resources=resources, name=name)


def mistakes_of(*paths: Path, name: str | None = None) -> tuple[str, ...]:
    with pytest.raises(InvalidDefinitionError) as caught:
        read(*paths, name=name)
    return caught.value.mistakes


def test_a_file_may_hold_one_definition_or_a_list_of_them(folder: Path) -> None:
    one = a_definition(a_task("a"), description="each night", timeout="30")
    many = [a_definition(a_task("a"), name="x"), a_definition(a_task("a"), name="y")]
    found = read(written(folder, one), written(folder, many, "many.json"))
    assert [each.name for each in found] == ["nightly", "x", "y"]
    assert (found[0].description, found[0].timeout_minutes) == ("each night", 30)


def test_the_json_may_be_text_and_the_names_those_of_the_originals_exports(folder: Path) -> None:
    inner = json.dumps({"tasks": [a_task("a")]})
    (found,) = read(
        written(folder, [{"processDefinitionName": "old", "processDefinitionJson": inner}])
    )
    assert (found.name, found.task_count) == ("old", 1)


def test_a_bare_json_needs_a_name_from_outside(folder: Path) -> None:
    path = written(folder, {"tasks": [a_task("a")]})
    (found,) = read(path, name="bare")
    assert found.name == "bare"
    assert "name: is missing" in mistakes_of(path)[0]


def test_global_parameters_are_copied_from_the_json(folder: Path) -> None:
    parameters = [{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "$[yyyyMMdd]"}]
    document = a_definition(a_task("a"))
    document["processDefinitionJson"]["globalParams"] = parameters
    (found,) = read(written(folder, document))
    assert json.loads(found.global_params or "") == parameters


def test_a_syntax_error_is_reported_with_line_and_column(folder: Path) -> None:
    path = written(folder, '{"name": "x",\n "processDefinitionJson": {,}}')
    (mistake,) = mistakes_of(path)
    assert mistake.startswith(f"{path}: line 2 column 28: not JSON")


def test_all_mistakes_of_all_files_are_reported_at_once(folder: Path) -> None:
    first = written(
        folder,
        a_definition(
            a_task("a", "ghost"),
            a_task("a"),
            a_task("b", type="COBOL"),
            a_task("c", maxRetryTimes="often"),
            a_task("d", type="PYTHON", params={"file": "gone.py"}),
            name="bad\x1bname",
        ),
    )
    second = written(folder, "nonsense", "second.json")
    text = "\n".join(mistakes_of(first, second))
    for part in (
        "control character",
        "no task 'ghost'",
        "'a' is used twice",
        "'COBOL' is unknown",
        "'c', maxRetryTimes",
        "task 'd', params.file: there is no file 'gone.py'",
        f"{second}: line 1 column 1",
    ):
        assert part in text
    assert text.count(str(first)) >= 6


def test_a_cycle_is_reported_with_its_way(folder: Path) -> None:
    (mistake,) = mistakes_of(written(folder, a_definition(a_task("a", "b"), a_task("b", "a"))))
    assert "a cycle: 'a' → 'b' → 'a'" in mistake or "a cycle: 'b' → 'a' → 'b'" in mistake


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'{"name": "x", "name": "y", "tasks": []}', "the key 'name' stands twice"),
        (b'{"name": "x", "timeout": NaN, "tasks": []}', "NaN is not JSON"),
        (b'{"name": "x", "timeout": -Infinity, "tasks": []}', "-Infinity is not JSON"),
        (b"[" * 200 + b"]" * 200, "nested more than 100 levels deep"),
        (b"[" * 100_000, "nested more than 100 levels deep"),
        (b'{"name": "\xff"}', "is not UTF-8"),
        (b'{"name": "x", "description": "a\\u0000b", "tasks": []}', "NUL character"),
        (b'{"name": "x", "description": "\\ud800", "tasks": []}', "surrogate"),
        (b'{"name": "x", "timeout": ' + b"9" * 5000 + b"}", "digit"),
        (b'{"name": "x"}', "nothing is defined"),
        (b'{"name": "x", "processDefinitionJson": "{"}', "not JSON"),
        (b'{"name": "x", "processDefinitionJson": {"tasks": []}}', "at least one task"),
        (b'"text"', "must be an object"),
        (b"[]", "the list is empty"),
        (b"", "not JSON"),
    ],
)
def test_bad_json_is_refused_with_its_cause(folder: Path, content: bytes, part: str) -> None:
    assert part in mistakes_of(written(folder, content))[0]


def test_a_file_of_more_than_ten_megabytes_is_not_read(folder: Path) -> None:
    path = written(folder, b" " * 10_000_001)
    assert mistakes_of(path) == (f"{path}: is larger than 10 MB",)


def test_a_path_without_a_file_is_reported_by_its_name(folder: Path) -> None:
    assert "No such file" in mistakes_of(folder / "gone.json")[0]
    assert "is a folder" in mistakes_of(folder)[0]


def test_two_definitions_of_one_name_are_refused(folder: Path) -> None:
    first = written(folder, a_definition(a_task("a")))
    second = written(folder, a_definition(a_task("a")), "second.json")
    assert mistakes_of(first, second) == (
        f"{second}: 'nightly' is defined twice (also in {first})",
    )


def test_scripts_and_jars_are_found_beside_the_file(folder: Path) -> None:
    for name in ("job.py", "job.jar", "lib.sh"):
        (folder / name).write_text("")
    document = a_definition(
        a_task("p", type="PYSPARK", params={"file": "job.py"}),
        a_task("t", type="PYTHON", params=json.dumps({"file": "job.py"})),
        a_task("s", type="SPARK", params={"mainJar": {"res": "job.jar"}, "mainClass": "x.Y"}),
        a_task("r", params={"rawScript": "true", "resourceList": [{"res": "lib.sh"}]}),
    )
    (found,) = read(written(folder, document))
    params = [task["params"] for task in json.loads(found.process_definition_json)["tasks"]]
    assert params[0]["file"] == params[1]["file"] == str(folder / "job.py")
    assert params[2]["mainJar"]["res"] == str(folder / "job.jar")
    assert params[3]["resourceList"][0]["res"] == str(folder / "lib.sh")


def test_a_resource_of_the_workers_keeps_its_relative_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "shared.jar").write_text("")
    document = a_definition(a_task("s", type="SPARK", params={"mainJar": {"res": "shared.jar"}}))
    (found,) = read(written(folder, document))
    task = json.loads(found.process_definition_json)["tasks"][0]
    assert task["params"]["mainJar"]["res"] == "shared.jar"


def test_a_missing_jar_is_a_mistake_and_a_remote_one_is_sparks_business(folder: Path) -> None:
    gone = a_task("gone", type="SPARK", params={"mainJar": {"res": "gone.jar"}})
    remote = a_task("remote", type="SPARK", params={"mainJar": {"res": "hdfs:///jobs/x.jar"}})
    mistakes = mistakes_of(written(folder, a_definition(gone, remote)))
    assert len(mistakes) == 1
    assert "task 'gone', params.mainJar.res: there is no file 'gone.jar'" in mistakes[0]


def test_a_file_named_by_a_parameter_is_left_to_the_worker(folder: Path) -> None:
    document = a_definition(
        a_task("p", type="PYTHON", params={"file": "${which}.py"}),
        a_task("q", type="PYTHON", params={"file": "jobs/${which}.py"}),
    )
    (found,) = read(written(folder, document))
    tasks = json.loads(found.process_definition_json)["tasks"]
    assert tasks[0]["params"]["file"] == "${which}.py"
    assert tasks[1]["params"]["file"] == str(folder / "jobs/${which}.py")


def test_a_malformed_parameter_is_reported_with_its_task(folder: Path) -> None:
    local = [{"prop": "x", "direct": "SIDEWAYS", "value": "1"}]
    task = a_task("a", params={"rawScript": "true", "localParams": local})
    assert "task 'a', params.localParams" in mistakes_of(written(folder, a_definition(task)))[0]


def a_spark_task(**params: Any) -> dict[str, Any]:
    return a_task("load", type="SPARK", params={"mainJar": {"res": "/bin/true"}, **params})


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ({"others": "--master local"}, "params.others: --master has a key of its own"),
        ({"others": "--conf 'spark.a"}, "params.others: No closing quotation"),
        ({"conf": {"spark.yarn.tags": "mine"}}, "params.conf: spark.yarn.tags is set by Orcaflow"),
        ({"conf": {"spark.remote": "${server}"}}, "params.conf: spark.remote is not allowed"),
        ({"env": {"LD_PRELOAD": "/tmp/x.so"}}, "params.env: the variable LD_PRELOAD"),
    ],
)
def test_a_setting_that_no_worker_gives_to_spark_submit_is_refused_before_it_is_saved(
    folder: Path, params: dict[str, Any], mistake: str
) -> None:
    (found,) = mistakes_of(written(folder, a_definition(a_spark_task(**params))))
    assert f"task 'load', {mistake}" in found


def test_a_value_that_a_parameter_may_still_correct_is_left_to_the_attempt(folder: Path) -> None:
    task = a_spark_task(
        others="--queue ${queue} ${more}",
        conf={"spark.driver.extraJavaOptions": "${options}", "spark.ui.port": 0},
        env={"REGION": "${region}"},
    )
    assert read(written(folder, a_definition(task)))
