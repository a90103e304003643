"""The specifications of the built-in task types agree with their launchers, and lint reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from common.errors import InvalidDefinitionError
from common.model.control_types import MASTER_TASK_TYPES
from common.model.task_type import Shape
from common.task_types import find_task_types, known_task_types
from operations.definition_files import DefinitionDocument, read_definition_files
from tests.unit.stream_specs import SMALL
from tests.unit.task_forms import GOOD, PLACES, RULES, VALUES, launched

ROOT = Path(__file__).parents[2]


def test_every_type_that_a_definition_may_name_is_there() -> None:
    types = find_task_types()
    assert set(types.built_in) == set(GOOD)
    assert set(types) == {*types.built_in, *MASTER_TASK_TYPES}
    assert all(types[name].name == name for name in types)
    assert all(types[name].problem == "" for name in types)
    assert all(hasattr(types.maker(name)(), "launch") for name in types.built_in)


CASES = [
    (name, key.name)
    for name in GOOD
    for key in known_task_types()[name].keys
    if key.name not in ("localParams", "datasourceName")
]


@pytest.mark.parametrize(("name", "key"), CASES, ids=[f"{name}-{key}" for name, key in CASES])
def test_lint_finds_a_value_if_and_only_if_the_launcher_refuses_it(
    tmp_path: Path, name: str, key: str
) -> None:
    spec = known_task_types()[name]
    disagreements = []
    for number, value in enumerate(VALUES):
        params = {**GOOD[name], key: value}
        refused = launched(tmp_path / str(number), name, params)
        # Lint calls `missing_in` too: it warns.
        found = [*(str(fault) for fault in spec.faults_in(params)), *spec.missing_in(params)]
        is_local = any(place in refused for place in PLACES)
        if bool(refused) != bool(found) and not (is_local and not found):
            # Lint may leave mistakes to the attempt that a placeholder or a type may still correct.
            if refused and not found and "$" in json.dumps(value):
                continue
            disagreements.append((value, refused, found))
    assert disagreements == [], disagreements


@pytest.mark.parametrize("name", list(GOOD))
def test_lint_accepts_a_placeholder_only_where_some_value_makes_it_right(
    tmp_path: Path, name: str
) -> None:
    wrong = []
    folders = (tmp_path / str(number) for number in count())
    for key in known_task_types()[name].keys:
        params = {**GOOD[name], key.name: "${x}"}
        is_other = key.name in ("localParams", "datasourceName", "file", "datasource")
        if is_other or [*known_task_types()[name].faults_in(params)]:
            continue
        texts = [
            each
            for each in (*VALUES, "2026-01-01/P1D", "org:a:1")
            if isinstance(each, str) and "$" not in each
        ]
        if not any(
            not refused or any(place in refused for place in PLACES)
            for value in texts
            for refused in [
                launched(
                    next(folders),
                    name,
                    {**params, "localParams": [{"prop": "x", "direct": "IN", "value": value}]},
                )
            ]
        ):
            wrong.append(key.name)
    assert wrong == []


def read(folder: Path, *nodes: dict[str, Any]) -> DefinitionDocument:
    path = folder / "d.json"
    named = [{"name": f"t{index}", **node} for index, node in enumerate(nodes)]
    path.write_text(json.dumps({"name": "d", "tasks": named}))
    (found,) = read_definition_files([path], resources=folder / "resources")
    return found


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("SHELL", {"rawScript": ["a"]}, "params.rawScript: must be text, not a list"),
    ("SHELL", {"rawScript": "a", "shell": "sh -c"}, "params.shell: must be the name of a shell"),
    ("PYTHON", {"rawScript": "1", "file": "x.py"}, "params.rawScript: and params.file are both"),
    ("PYTHON", {"rawScript": "1", "mainArgs": "'a"}, "params.mainArgs: can't be split into words"),
    ("PYTHON", {"rawScript": "1", "profile": "x"}, "params.profile: must be one of default, fresh"),
    ("PYTHON", {"rawScript": "1", "interpreter": "a b"}, "params.interpreter: must be the name"),
    (
        "PYTHON",
        {"rawScript": "1", "interpreter": "python3", "environment": {"archive": "a.zip"}},
        "params.interpreter: and params.environment are both given",
    ),
    ("PYTHON", {"rawScript": "1", "datasources": "dw"}, "params.datasources: must be an object"),
    ("PYTHON", {"rawScript": "1", "environment": {"pip": 1}}, "params.environment: must be"),
    ("PYSPARK", {"rawScript": "1", "conf": []}, ""),
    ("PYSPARK", {"rawScript": "1", "conf": ["x"]}, "params.conf: must be an object"),
    ("PYSPARK", {"rawScript": "1", "conf": {"spark.remote": "x"}}, "params.conf: spark.remote"),
    ("PYSPARK", {"rawScript": "1", "environment": {"pip": 1}}, "params.environment: must be"),
    ("SPARK_SQL", {"rawScript": "select 1", "limit": "many"}, "params.limit: must be a whole"),
    ("SPARK_SQL", {"rawScript": "select 'a"}, "params.rawScript: "),
    (
        "SPARK_SQL",
        {"rawScript": "s", "datasets": [{"view": "-"}]},
        "params.datasets: can't be read",
    ),
    ("DATA_QUALITY", {"table": "t", "rules": [{"type": "x"}]}, "params.rules[0].type: must be one"),
    ("DATA_QUALITY", {"table": "t", "sql": "s", "rules": RULES}, "params.table: one of table"),
    ("SPARK", {"programType": "RUBY", "mainJar": "hdfs://j"}, "params.programType: must be one of"),
    ("SPARK", {"mainJar": "hdfs://j", "driverMemory": "lots"}, "params.driverMemory: must be like"),
    ("SPARK", {"mainJar": "hdfs://j", "numExecutors": -1}, "params.numExecutors: must be a whole"),
    ("SPARK", {"mainJar": "hdfs://j", "numExecutors": "two"}, "params.numExecutors: must be a w"),
    ("SPARK", {"mainJar": "hdfs://j", "sparkVersion": "2.4"}, "params.sparkVersion: must be one"),
    ("SPARK", {"mainJar": "hdfs://j", "executorMemory": 5}, "params.executorMemory: must be 450M"),
    ("SPARK", {"mainJar": "hdfs://j", "driverMemory": "64M"}, "params.driverMemory: must be 450M"),
    ("SPARK", {"mainJar": "hdfs://j", "others": "--driver-memory 5"}, "params.others: --driver-me"),
    ("SPARK", {"mainJar": "hdfs://j", "driverMemory": 1024, "executorMemory": "0"}, ""),
    ("SPARK", {"mainJar": "hdfs://j", "master": "moon"}, "params.master: must be yarn"),
    ("SPARK", {"mainJar": "hdfs://j", "principal": "p"}, "params.keytab: a principal and"),
    ("SPARK", {"mainJar": "hdfs://j", "packages": "a"}, "params.packages[0]: must be like org"),
    ("SPARK", {"mainJar": "hdfs://j", "others": "--num-executors x"}, "params.others: --num-exec"),
    ("SPARK", {"mainJar": "hdfs://j", "others": "--principal p"}, "params.keytab: a principal and"),
    ("SPARK", {"mainJar": "hdfs://j", "others": "--files a.conf --jars a.jar --queue q"}, ""),
    ("SQL", {"datasource": 1, "sql": "s", "sqlType": "2"}, "params.sqlType: must be one of 0, 1"),
    ("SQL", {"datasource": 1, "sql": "s", "udfs": "1"}, "params.udfs: functions of Hive"),
    ("SQL", {"datasource": 1, "sql": "s", "preStatements": [1]}, "params.preStatements: must be a"),
    (
        "STREAM",
        {"supervisor": "a", "profile": "small", "driverMemory": "1g"},
        "params.driverMemory: belongs to a driver of its own",
    ),
    ("STREAM", {"supervisor": "a", "profile": "classic", "driverMemory": "1g"}, ""),
    ("STREAM", {"supervisor": "a", "profile": "${which}", "driverMemory": "1g"}, ""),
    ("STREAM", {"supervisor": "a", "from": "latest"}, "params.from: belongs to params.spec"),
    ("STREAM", {"supervisor": "a", "spec": {"a": 1}}, "params.supervisor: and params.spec are"),
    ("STREAM", {"spec": SMALL, "from": "latest"}, "params.to: is missing"),
    ("STREAM", {"spec": SMALL, "from": "soon", "to": "latest"}, "params.from: must be offsets"),
    ("STREAM", {"spec": SMALL, "from": {"0": 1}, "to": {"0": 0}}, "params.to: partition 0 would"),
    (
        "STREAM",
        {"spec": {"type": "kafka"}, "from": "earliest", "to": "latest"},
        "params.spec: can't be read: dataSchema: is missing",
    ),
    ("COMPACT", {"dataset": "/", "interval": "2026/P1D"}, "params.dataset: must be the name of a"),
    ("COMPACT", {"dataset": "d", "interval": "tomorrow"}, "params.interval: "),
    (
        "COMPACT",
        {"dataset": "d", "interval": "2026-11-20/P1D", "metricsSpec": [{"type": "count"}]},
        "params.metricsSpec: can't be read: metricsSpec[0].name: is missing",
    ),
    (
        "COMPACT",
        {
            "dataset": "d",
            "interval": "2026-11-20/P1D",
            "metricsSpec": [{"type": "longLast", "name": "last", "fieldName": "delay"}],
        },
        "params.metricsSpec: can't be read: last: a longLast can't be merged",
    ),
    ("PROCEDURE", {"datasource": 1, "method": "f; drop"}, "params.method: must be the name"),
    ("HTTP", {"url": "ftp://x"}, "params.url: must begin with http:// or https://"),
    ("HTTP", {"url": "http://x", "httpMethod": "FETCH"}, "params.httpMethod: must be one of GET"),
    ("HTTP", {"url": "http://x", "socketTimeout": "1s"}, "params.socketTimeout: must be a whole"),
    (
        "HTTP",
        {"url": "http://x", "httpParams": [{"prop": "a"}]},
        "params.httpParams[0]: httpParametersType must be one of",
    ),
    (
        "HTTP",
        {"url": "http://x", "httpCheckCondition": "BODY_CONTAINS"},
        "params.condition: BODY_CONTAINS needs a text",
    ),
]


@pytest.mark.parametrize(("name", "params", "problem"), WRONG)
def test_a_wrong_value_is_found_before_a_run_with_its_place(
    tmp_path: Path, name: str, params: dict[str, Any], problem: str
) -> None:
    (tmp_path / "x.py").touch()
    node = {"type": name, "params": params}
    if not problem:
        read(tmp_path, node)
        return
    with pytest.raises(InvalidDefinitionError) as caught:
        read(tmp_path, node)
    assert any(f"task 't0', {problem}" in each for each in caught.value.mistakes)
    # Each place once.
    places = [each.partition(", ")[2].partition(":")[0] for each in caught.value.mistakes]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("placeholder", ["${x}", "${x}/a", "$[yyyyMMdd]"])
def test_a_placeholder_is_a_mistake_only_where_nothing_is_put_in(
    tmp_path: Path, placeholder: str
) -> None:
    for name, good in GOOD.items():
        spec = known_task_types()[name]
        for key in spec.keys:
            is_read_as_written = key.shape in (
                Shape.NUMBER,
                Shape.WORD,
                Shape.FLAG,
                Shape.SIZE,
            )
            is_read_as_written |= key.is_literal
            if is_read_as_written or key.name in (
                *("localParams", "datasource", "conf", "env", "options", "rules", "httpBody"),
                *("resourceList", "preStatements", "postStatements"),
            ):
                continue
            params = {**good, key.name: placeholder}
            params |= {"rawScript": ""} if key.name == "file" else {}
            faults = [each for each in spec.faults_in(params) if each.key == key.name]
            assert faults == [], (name, key.name)


def test_a_missing_key_is_a_warning_since_a_task_may_be_unfinished(tmp_path: Path) -> None:
    found = read(tmp_path, {"type": "SPARK", "params": {"mainJar": "hdfs://j"}}, {"type": "HTTP"})
    assert [(each.node, each.key, each.problem) for each in found.findings] == [
        ("t0", "params.mainClass", "a SCALA program needs one: the task fails"),
        ("t1", "params.url", "is missing: the task fails"),
    ]


def test_lint_imports_neither_sqlalchemy_nor_what_its_types_do_not_need() -> None:
    code = (
        "import sys; from orcaflow.cli.app import main;"
        " sys.argv = ['orcaflow', 'definition', 'lint', 'examples/flights/flights.json']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "worker.tasks.pyspark" in loaded
    assert not {"sqlalchemy", "pyspark", "kazoo", "httpx", "worker.tasks.http"}.intersection(loaded)
