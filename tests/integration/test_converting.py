"""`definition convert` runs a file of pydolphinscheduler and writes YAML, which imports take.

The package itself is not installed here: a module of its name stands in, and files speak to the
gateway by py4j's own client, as it does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Cli

PROGRAM = """
import json
import os

import pydolphinscheduler  # noqa: F401
from py4j.java_gateway import GatewayParameters, JavaGateway

NAMES = ("PYDS_JAVA_GATEWAY_ADDRESS", "PYDS_JAVA_GATEWAY_PORT", "PYDS_JAVA_GATEWAY_AUTH_TOKEN")
address, port, token = (os.environ[name] for name in NAMES)
gateway = JavaGateway(
    gateway_parameters=GatewayParameters(
        address=address, port=int(port), auth_token=token, auto_convert=True
    )
)
entry = gateway.entry_point


def task(workflow, name, kind="SHELL", **params):
    code = entry.getCodeAndVersion("project-pydolphin", workflow, name).get("code")
    return {
        "code": code,
        "name": name,
        "taskType": kind,
        "taskParams": {"rawScript": f"echo {name}\\ndate", "localParams": [], **params},
        "flag": "YES",
        "taskPriority": "MEDIUM",
        "workerGroup": "default",
        "environmentCode": None,
    }


def submit(name, tasks, schedule=None):
    codes = [0, *(each["code"] for each in tasks)]
    edges = [
        {"preTaskCode": one, "postTaskCode": other} for one, other in zip(codes, codes[1:])
    ]
    return entry.createOrUpdateWorkflow(
        *("user", "project-pydolphin", name, "", "[]", schedule, schedule is not None),
        *("NONE", 0, 0, "default", 1, json.dumps(edges), json.dumps(tasks), None, "SERIAL_WAIT"),
    )
"""
GOOD = """
child = submit("child", [task("child", "only")])
found = entry.getDependentInfo("project-pydolphin", "child", "only")
item = {
    "projectCode": found.get("projectCode"),
    "definitionCode": found.get("processDefinitionCode"),
    "depTaskCode": found.get("taskDefinitionCode"),
    "cycle": "day",
    "dateValue": "today",
}
group = {"relation": "AND", "dependItemList": [item]}
entry.createOrUpdateResource("user", "lib/main.py", "print(1)")
path = entry.queryResourcesFileInfo("user", "lib/main.py").getFullName()
environment = entry.getEnvironmentInfo("conda")
source = entry.getDatasource("warehouse", None)
tasks = [
    task("parent", "shell", resourceList=[{"resourceName": path}]),
    task("parent", "sub", "SUB_WORKFLOW", processDefinitionCode=child),
    task("parent", "wait", "DEPENDENT", dependence={"relation": "AND", "dependTaskList": [group]}),
    task(
        "parent", "query", "SQL", sql="SELECT 1", sqlType="0",
        datasource=source.getId(), type=source.getType().getDescp().upper(),
    ),
]
tasks[0]["environmentCode"] = environment
schedule = {
    "crontab": "0 0 3 * * ? *",
    "timezoneId": "Asia/Shanghai",
    "startTime": "2021-01-01 00:00:00",
    "endTime": "9999-12-31 23:59:59",
}
submit("parent", tasks, json.dumps(schedule))
entry.execWorkflowInstance("user", "project-pydolphin", "parent", "", "default", "NONE", 0, 1)
"""

READER = """
def create_workflow(yaml_file):
    with open(yaml_file) as file:
        name = file.read().strip().removeprefix("workflow: ")
    files = [{"resourceName": "lib.sh"}]
    submit(name, [task(name, "a", resourceList=files)])
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "packages" / "pydolphinscheduler"
    folder.mkdir(parents=True)
    (folder / "core").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "core" / "__init__.py").touch()
    (folder / "core" / "yaml_workflow.py").write_text(PROGRAM + READER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))


def a_file(folder: Path, text: str) -> str:
    file = folder / "etl.py"
    file.write_text(PROGRAM + text, encoding="utf-8")
    return str(file)


@pytest.mark.usefixtures("package")
def test_what_a_file_submits_is_written_linted_and_imported(cli: Cli, tmp_path: Path) -> None:
    convert = ("definition", "convert", a_file(tmp_path, GOOD), "--python", sys.executable)
    to = tmp_path / "made"
    code, out, err = cli(*convert, "--to", str(to), "-o", "json")
    assert (code, err) == (0, "")
    made: dict[str, Any] = json.loads(out)
    files = [str(to / "child.yaml"), str(to / "parent.yaml")]
    assert [each["file"] for each in made["definitions"]] == files
    assert (made["resources"], made["runs"]) == (["lib/main.py"], ["parent"])
    assert "names the environment 'conda'" in made["definitions"][1]["notes"][0]
    text = (to / "parent.yaml").read_text(encoding="utf-8")
    assert "rawScript: |-\n        echo shell\n        date\n" in text
    assert "code" not in text.lower()
    assert "environmentName: conda" in text

    code, out, err = cli("definition", "lint", *files)
    assert (code, err) == (0, "")
    url = "postgresql://ada@127.0.0.1:1/none"
    assert cli("datasource", "create", "warehouse", "--url", url, "--project", "default")[0] == 0
    assert cli("environment", "create", "conda", "--project", "default")[0] == 0
    code, out, err = cli("definition", "import", *files, "-o", "json")
    assert code == 0, err
    rows = {each["name"]: each for each in json.loads(out)}
    assert rows["parent"]["unmapped"] == []
    assert rows["parent"]["schedules"][0]["crontab"] == "0 0 3 * * ? *"
    code, out, err = cli("definition", "export", "parent")
    assert code == 0, err
    exported = json.loads(out)
    assert exported["executionType"] == "SERIAL_WAIT"
    tasks = {each["name"]: each for each in exported["processDefinitionJson"]["tasks"]}
    assert tasks["sub"]["params"]["processDefinitionName"] == "child"
    (item,) = tasks["wait"]["dependence"]["dependTaskList"][0]["dependItemList"]
    assert (item["definitionName"], item["depTasks"]) == ("child", "only")
    assert tasks["query"]["params"]["datasourceName"] == "warehouse"
    assert tasks["query"]["preTasks"] == ["wait"]
    assert tasks["shell"]["params"]["resourceList"] == [{"res": str(to / "lib" / "main.py")}]

    # The same again changes nothing, and what somebody has changed stays.
    assert cli(*convert, "--to", str(to))[0] == 0
    (to / "child.yaml").write_text("name: mine\n", encoding="utf-8")
    code, out, err = cli(*convert, "--to", str(to))
    assert code == 4
    assert "child.yaml is there with another content" in err
    assert cli(*convert, "--to", str(to), "--replace")[0] == 0


@pytest.mark.usefixtures("package")
def test_a_yaml_file_is_read_and_names_files_relative_to_the_folder_of_the_result(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib.sh").write_text("true")
    file = tmp_path / "flow.yaml"
    file.write_text("workflow: nightly")
    to = tmp_path / "made"
    convert = ("definition", "convert", str(file), "--python", sys.executable, "--to", str(to))
    code, out, err = cli(*convert)
    assert (code, err) == (0, ""), out
    text = (to / "nightly.yaml").read_text(encoding="utf-8")
    assert "- res: ../lib.sh\n" in text
    assert str(tmp_path) not in text
    assert "digests" not in text
    assert cli("definition", "lint", str(to / "nightly.yaml"))[0] == 0


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", 4, "submitted nothing"),
        ("submit('child', [])\n", 1, "'child': taskDefinitionList: must be a list of one task"),
        ("raise ValueError('no such day')\n", 4, "no such day"),
        ("entry.deleteUser('user', 1)\n", 4, "no method 'deleteUser'"),
        ("import threading\nthreading.Event().wait()\n", 4, "did not end within 1 s"),
        ("submit('lake', [task('lake', 'a', 'DATAX')])\n", 1, "'DATAX' is no task type"),
        (
            "entry.createOrUpdateResource('u', '../x.py', '')\nsubmit('x', [task('x', 'a')])\n",
            2,
            "out of",
        ),
    ],
)
def test_a_file_that_can_not_be_converted_says_why(
    cli: Cli, tmp_path: Path, text: str, code: int, said: str
) -> None:
    to = tmp_path / "made"
    ended, _, err = cli(
        *("definition", "convert", a_file(tmp_path, text), "--python", sys.executable),
        *("--to", str(to), "--timeout", "1s" if "wait()" in text else "60s"),
    )
    assert (ended, said in err) == (code, True), err
    assert to.exists() == ("DATAX" in text)


@pytest.mark.parametrize(
    ("python", "code", "said"),
    [
        (sys.executable, 4, "-m pip install apache-dolphinscheduler"),
        ("no-such-python", 2, "there is no program 'no-such-python'"),
    ],
)
def test_an_interpreter_without_the_package_is_refused(
    cli: Cli, tmp_path: Path, python: str, code: int, said: str
) -> None:
    ended, _, err = cli("definition", "convert", a_file(tmp_path, GOOD), "--python", python)
    assert (ended, said in err) == (code, True), err
