"""Keys that nothing reads: near misses are mistakes, others by how strictly a file is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from operations.definition_files import (
    DefinitionDocument,
    InvalidFilesError,
    read_definition_files,
)
from operations.findings import Severity
from tests.unit.definition_documents import a_dependent, a_task, an_export


def read(folder: Path, file: object, **given: Any) -> DefinitionDocument:
    path = folder / "d.json"
    path.write_text(json.dumps(file))
    (found,) = read_definition_files([path], resources=folder / "resources", **given)
    return found


def mistakes(folder: Path, file: object, **given: Any) -> list[str]:
    with pytest.raises(InvalidFilesError) as refused:
        read(folder, file, **given)
    return [each.text for each in refused.value.found]


def own(*tasks: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"name": "own", "processDefinitionJson": {"tasks": list(tasks) or [a_task("a")]}} | keys


NEAR_MISSES: list[tuple[dict[str, Any], str]] = [
    (a_task("a", preTask=["b"]), "task 'a', preTask: is not known and has no effect"),
    (a_task("a", maxRetryTime=3), "(did you mean 'maxRetryTimes'?)"),
    (a_task("a", Name="b"), "(did you mean 'name'?)"),
    (a_task("a", params={"rawScript": "1", "rawScrip": "2"}), "task 'a', params.rawScrip: is not"),
    (a_task("a", params={"rawScript": "1", "localParam": []}), "(did you mean 'localParams'?)"),
    (a_task("a", timeout={"intervall": 5}), "task 'a', timeout.intervall: is not known"),
    (
        a_task("a", params={"rawScript": "1", "localParams": [{"prop": "x", "valeu": "1"}]}),
        "task 'a', params.localParams[0].valeu: is not known",
    ),
    (
        a_dependent("a", definitionName="x", intervalls="ANY"),
        "task 'a', dependence.dependTaskList[0].dependItemList[0].intervalls: is not known",
    ),
    (
        a_task("a", type="SQL", params={"datasourceName": "x", "sql": "s", "preStatement": []}),
        "(did you mean 'preStatements'?)",
    ),
    (
        a_task("a", type="PYSPARK", params=json.dumps({"rawScript": "1", "profil": "x"})),
        "(did you mean 'profile'?)",
    ),
]


@pytest.mark.parametrize(("task", "text"), NEAR_MISSES)
def test_a_near_miss_of_a_key_is_a_mistake_in_every_file(
    tmp_path: Path, task: dict[str, Any], text: str
) -> None:
    for file in (own(task, a_task("b")), an_export(task, a_task("b"))):
        (mistake,) = mistakes(tmp_path, file)
        assert text in mistake


def test_an_unknown_key_is_a_mistake_in_a_file_of_our_own_form(tmp_path: Path) -> None:
    file = own(
        a_task("a", colour="red", params={"rawScript": "1", "scent": "lime"}), owner="me", tags=[]
    )
    assert mistakes(tmp_path, file) == [
        "owner: is not known and has no effect (take it out, or read the file with --lenient)",
        "tags: is not known and has no effect (take it out, or read the file with --lenient)",
        "task 'a', colour: is not known and has no effect (take it out, or read the file with --lenient)",
        "task 'a', params.scent: is not known and has no effect (take it out, or read the file with --lenient)",
    ]


def test_an_unknown_key_is_a_warning_in_an_export_and_in_a_bare_json(tmp_path: Path) -> None:
    task = a_task("a", colour="red")
    for file, given in ((an_export(task), {}), ({"tasks": [task]}, {"name": "bare"})):
        found = read(tmp_path, file, **given).findings
        (warning,) = [each for each in found if each.key == "colour"]
        assert (warning.severity, warning.node) == (Severity.WARNING, "a")


def test_a_strict_reading_refuses_unknown_keys_of_any_file_and_a_lenient_one_of_none(
    tmp_path: Path,
) -> None:
    task = a_task("a", colour="red")
    assert len(mistakes(tmp_path, an_export(task), strict=True)) == 1
    assert len(mistakes(tmp_path, {"tasks": [task]}, name="bare", strict=True)) == 1
    assert len(read(tmp_path, own(task), strict=False).findings) == 1
    assert "preTask" in str(mistakes(tmp_path, own(a_task("a", preTask=[])), strict=False))


def test_keys_that_the_original_writes_are_known(tmp_path: Path) -> None:
    keys = ("type", "receivers", "receiversCc", "showType", "connParams", "udfs", "title")
    params = {"datasource": 1, "sql": "select 1"} | dict.fromkeys(keys, "")
    tail = {
        "extras": {},
        "loc": None,
        "desc": "",
        "timeout": {"strategy": "", "interval": None, "enable": False},
        "conditionResult": {"successNode": [""], "failedNode": [""]},
    }
    file = own(a_task("a", type="SQL", params=params, **tail), **{"$schema": "definition.json"})
    assert read(tmp_path, file).findings == ()


def test_the_mark_of_a_secret_parameter_is_known_and_is_true_or_false(tmp_path: Path) -> None:
    def marked(mark: object) -> list[dict[str, object]]:
        return [{"prop": "place", "direct": "IN", "type": "VARCHAR", "value": "", "secret": mark}]

    of_task = {"rawScript": "true", "localParams": marked(True)}
    file = own(a_task("a", params=of_task))
    file["processDefinitionJson"]["globalParams"] = marked(False)
    assert read(tmp_path, file).findings == ()
    file["processDefinitionJson"]["globalParams"] = marked("true")
    (mistake,) = mistakes(tmp_path, file)
    assert "'secret' must be true or false" in mistake


def test_parameters_within_a_text_have_known_types(tmp_path: Path) -> None:
    declared = [{"prop": "day", "direct": "IN", "type": "DAY", "value": ""}]
    for given in (declared, json.dumps(declared)):
        file = own(a_task("a"))
        file["processDefinitionJson"]["globalParams"] = given
        (mistake,) = mistakes(tmp_path, file)
        assert "globalParams: parameter 0: key 'type' must be one of VARCHAR" in mistake
    file = own(a_task("a"), globalParams=json.dumps(declared))
    assert "key 'type' must be one of" in mistakes(tmp_path, file)[0]
    file["globalParams"] = "[{"
    (mistake,) = mistakes(tmp_path, file)
    assert mistake.count("JSON") == 1


def test_all_examples_are_without_findings() -> None:
    examples = Path(__file__).parents[2] / "examples"
    definitions = set(examples.glob("*/*.json")) - {examples / "streams" / "supervisor.json"}
    for path in sorted(definitions):
        for found in read_definition_files([path], resources=examples, profiles=("default",)):
            assert found.findings == (), path


def test_a_spark_profile_that_the_settings_do_not_have_is_a_mistake(tmp_path: Path) -> None:
    def task(profile: object) -> dict[str, Any]:
        return own(a_task("a", type="PYSPARK", params={"rawScript": "1", "profile": profile}))

    (number,) = mistakes(tmp_path, task(5), profiles=("default", "etl"))
    assert "there is no Spark profile '5'" in number
    (mistake,) = mistakes(tmp_path, task("nope"), profiles=("default", "etl"))
    assert mistake == (
        "task 'a', params.profile: there is no Spark profile 'nope' in worker.toml (it has default,"
        " etl, classic, connect); add [spark.profiles.nope], here and on the workers"
    )
    for known in ("etl", "classic", "connect", "${which}", ""):
        read(tmp_path, task(known), profiles=("default", "etl"))


def test_the_profile_of_a_python_task_is_none_of_spark(tmp_path: Path) -> None:
    params = {"rawScript": "1", "profile": "fresh"}
    file = own(a_task("a", type="PYTHON", params=params))
    assert read(tmp_path, file, profiles=("default",)).findings == ()


@pytest.mark.parametrize(
    ("params", "key"),
    [
        ({"conf": {"spark.executor.memory": "64g"}}, "conf: spark.executor.memory can't be had"),
        ({"conf": {"spark.sql.warehouse.dir": "/x"}}, "conf: spark.sql.warehouse.dir can't be"),
        ({"conf": {"spark.master": "yarn"}}, "conf: spark.master can't be had in a session of"),
        ({"master": "yarn"}, "master: can't be had in a session"),
        ({"pyFiles": "hdfs://h/a.py"}, "profile: the remote file hdfs://h/a.py can't be had"),
    ],
)
def test_what_a_named_profile_can_not_give_is_refused_before_a_run(
    tmp_path: Path, params: dict[str, Any], key: str
) -> None:
    for kind, script in (("PYSPARK", "1"), ("SPARK_SQL", "select 1")):
        asked = {"rawScript": script, "profile": "default"} | params
        (mistake,) = mistakes(tmp_path, own(a_task("a", type=kind, params=asked)))
        assert f"task 'a', params.{key}" in mistake
        for profile in ("classic", "", "${which}"):
            read(tmp_path, own(a_task("a", type=kind, params=asked | {"profile": profile})))


def test_a_definition_is_read_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").touch()
    file = own(a_task("a", type="PYTHON", params={"file": "x.py"}))
    text = json.dumps(file).encode()
    (found,) = read_definition_files([Path("-")], resources=tmp_path, standard_input=text)
    assert (found.name, str(found.place)) == ("own", "standard input: 'own'")
    assert found.document["tasks"][0]["params"]["file"] == str(tmp_path / "x.py")
