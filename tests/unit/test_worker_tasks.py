"""The task types' reading of a node's parameters, and the values that every task is given."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from common.datasource_keys import DatasourceKeys
from common.errors import SchedulerError
from common.model.codes import task_code
from common.parameter_keys import ParameterKeys
from common.params import BUILT_IN_NAMES, Origin
from common.store.worker.ports import Environment
from tests.unit.preparing import prepared
from worker.launcher import seen_by_tasks
from worker.launching.base import TaskParameterError, TaskSettings


def test_a_script_and_a_file_together_are_a_question(tmp_path: Path) -> None:
    with pytest.raises(TaskParameterError, match="both"):
        prepared(tmp_path, "PYTHON", {"rawScript": "1", "file": "x.py"})


@pytest.mark.parametrize(
    "params",
    [
        {"rawScript": ""},
        {"rawScript": " \n"},
        {"rawScript": ["a"]},
        {"rawScript": "a\0b"},
        {"rawScript": "${a}", "localParams": [{"prop": "a", "value": "x\0y"}]},
        {"rawScript": "a", "localParams": "{"},
        {"rawScript": "a", "localParams": [{"value": "no name"}]},
        {"rawScript": "a", "resourceList": [{"id": 7}]},
    ],
)
def test_a_mistake_in_a_shell_task_is_an_error_that_the_loop_expects(
    tmp_path: Path, params: dict[str, Any]
) -> None:
    with pytest.raises(SchedulerError):
        prepared(tmp_path, "SHELL", params)


def test_circular_parameters_are_named(tmp_path: Path) -> None:
    circle = '[{"prop":"a","value":"${b}"},{"prop":"b","value":"${a}"}]'
    with pytest.raises(SchedulerError, match="circular"):
        prepared(tmp_path, "SHELL", {"rawScript": "true"}, global_params=circle)


def test_every_task_is_told_who_it_is(tmp_path: Path) -> None:
    made = prepared(
        tmp_path,
        "SHELL",
        {"rawScript": "true"},
        settings=TaskSettings(
            environment=seen_by_tasks({"LC_ALL": "C", "SECRET": "x", "PATH": "/bin"})
        ),
    )
    assert made.environment["ORCAFLOW_TASK_INSTANCE_ID"] == "3"
    assert made.environment["ORCAFLOW_PROCESS_INSTANCE_ID"] == "2"
    assert made.environment["ORCAFLOW_TASK_NAME"] == "load"
    assert made.environment["ORCAFLOW_ATTEMPT"] == "2"
    assert made.environment["ORCAFLOW_DATA_DIR"] == str(tmp_path / "data")
    assert made.environment["LC_ALL"] == "C"
    assert "SECRET" not in made.environment
    assert made.argv == ("/bin/bash", str(tmp_path / "tasks/1/2/3/1_2_3_node.sh"))


def test_a_task_of_a_run_without_a_moment_counts_its_dates_from_its_start(tmp_path: Path) -> None:
    made = prepared(tmp_path, "SHELL", {"rawScript": "$[yyyyMMdd]"}, moment=None)
    assert Path(made.argv[1]).read_text() == "20260102"


# Half past eleven in the evening of New York's day of 25 hours, 2019-11-03.
LATE = datetime(2019, 11, 4, 4, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        (None, "20191104 0430 20191103 0330"),
        ("America/New_York", "20191103 2330 20191102 2230"),
        ("Asia/Tokyo", "20191104 1330 20191103 1230"),
    ],
)
def test_t45_offsets_in_days_are_calendar_days_of_the_run_s_zone(
    tmp_path: Path, zone: str | None, expected: str
) -> None:
    script = "$[yyyyMMdd HHmm] $[yyyyMMdd-1] $[HHmm-1/24]"
    made = prepared(tmp_path, "SHELL", {"rawScript": script}, moment=LATE, timezone_id=zone)
    assert Path(made.argv[1]).read_text() == expected


@pytest.mark.parametrize("complement", [False, True])
def test_t45_business_dates_are_those_of_the_run_s_zone(tmp_path: Path, complement: bool) -> None:
    made = prepared(
        tmp_path,
        "SHELL",
        {"rawScript": "${system.biz.date} ${system.biz.curdate} ${system.datetime}"},
        moment=LATE,
        timezone_id="America/New_York",
        complement=complement,
    )
    assert Path(made.argv[1]).read_text() == "20191102 20191103 20191103233000"


ORIGIN = Origin(definition_name="daily", definition_code=9, project_name="sales", project_code=7)


def test_a_script_finds_the_names_and_ids_of_its_attempt(tmp_path: Path) -> None:
    script = "\n".join(f"{name} ${{{name}}}" for name in BUILT_IN_NAMES)
    made = prepared(tmp_path, "SHELL", {"rawScript": script}, origin=ORIGIN)
    assert Path(made.argv[1]).read_text().splitlines() == [
        "system.task.instance.id 3",
        f"system.task.execute.path {tmp_path}/tasks/1/2/3",
        "system.task.definition.name load",
        f"system.task.definition.code {task_code(1, 'load')}",
        "system.workflow.instance.id 2",
        "system.workflow.definition.name daily",
        "system.workflow.definition.code 9",
        "system.project.name sales",
        "system.project.code 7",
    ]
    assert made.environment["system_project_name"] == "sales"
    assert "sales" not in made.header


def test_an_imported_task_keeps_its_code_and_parameters_may_name_it(tmp_path: Path) -> None:
    given = [{"prop": "me", "direct": "IN", "value": "n${system.task.definition.code}"}]
    node = {"code": "140000000000001", "params": {"rawScript": "${me}", "localParams": given}}
    made = prepared(tmp_path, "SHELL", {}, task_json=json.dumps(node))
    assert Path(made.argv[1]).read_text() == "n140000000000001"


def test_names_of_a_deleted_definition_stay_as_they_are_written(tmp_path: Path) -> None:
    made = prepared(tmp_path, "SHELL", {"rawScript": "${system.project.name}"})
    assert Path(made.argv[1]).read_text() == "${system.project.name}"


def test_a_parameter_and_the_script_text_of_a_complement_give_the_same_day(tmp_path: Path) -> None:
    made = prepared(
        tmp_path,
        "SHELL",
        {
            "rawScript": "${day} $[yyyyMMdd-1] ${system.biz.date}",
            "localParams": [
                {"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "$[yyyyMMdd-1]"}
            ],
        },
        moment=LATE,
        timezone_id="America/New_York",
        complement=True,
    )
    assert Path(made.argv[1]).read_text() == "20191102 20191102 20191102"


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "America"])
def test_a_task_of_a_run_in_a_zone_that_there_is_not_is_refused(tmp_path: Path, zone: str) -> None:
    with pytest.raises(SchedulerError, match=r"the run's time zone: .* is no zone"):
        prepared(tmp_path, "SHELL", {"rawScript": "true"}, timezone_id=zone)


START = '{"day": "x; touch PWNED", "PATH": "/evil", "file": "mine"}'


@pytest.mark.parametrize(
    ("task_type", "script"), [("SHELL", 'echo "$day"'), ("PYTHON", "print(params['day'])")]
)
def test_scripts_get_their_parameters_as_variables(
    tmp_path: Path, task_type: str, script: str
) -> None:
    made = prepared(tmp_path, task_type, {"rawScript": script}, start_params=START)
    assert made.environment["day"] == "x; touch PWNED"
    assert made.environment["system_biz_date"] == "20260101"
    assert made.environment["ORCAFLOW_PARAM_PATH"] == "/evil"
    assert "/evil" not in made.environment["PATH"]
    assert Path(made.argv[-1]).read_text() == script


@pytest.mark.parametrize("task_type", ["SHELL", "PYTHON"])
def test_an_operator_may_refuse_scripts_that_parameters_are_put_into(
    tmp_path: Path, task_type: str
) -> None:
    settings = TaskSettings(environment=seen_by_tasks({}), splices_scripts=False)
    with pytest.raises(TaskParameterError) as caught:
        prepared(
            tmp_path,
            task_type,
            {"rawScript": "echo ${system.biz.date} '${day}' ${HOME}"},
            start_params=START,
            settings=settings,
        )
    assert str(caught.value) == (
        "params.rawScript: ${system.biz.date}, ${day} would put a value into the script, where it"
        " can be a command, which worker.shell_parameters = 'environment' refuses; write"
        " \"$system_biz_date\" in a shell, params['system.biz.date'] of orcaflow.task in Python"
    )
    made = prepared(tmp_path, task_type, {"rawScript": "$[yyyy] $day ${HOME}"}, settings=settings)
    assert Path(made.argv[-1]).read_text() == "2026 $day ${HOME}"


@pytest.mark.parametrize(
    ("splices", "arguments"),
    [
        (True, ("--day", "x", "y", "--evil", "2026", "01")),
        (False, ("--day", "x y --evil", "2026 01")),
    ],
)
def test_a_value_is_one_argument_where_scripts_are_not_spliced(
    tmp_path: Path, splices: bool, arguments: tuple[str, ...]
) -> None:
    settings = TaskSettings(
        environment=seen_by_tasks({"PATH": "/usr/bin:/bin"}), splices_scripts=splices
    )
    quotes = "" if splices else "'"
    made = prepared(
        tmp_path,
        "PYTHON",
        {"rawScript": "1", "mainArgs": f"--day ${{v}} {quotes}$[yyyy MM]{quotes}"},
        start_params='{"v": "x y --evil"}',
        settings=settings,
    )
    assert made.argv[3:] == arguments


def test_quotes_keep_a_value_with_blanks_within_one_argument(tmp_path: Path) -> None:
    made = prepared(
        tmp_path,
        "PYTHON",
        {"rawScript": "1", "mainArgs": "--title \"${title}\" '${title}' ${options}"},
        start_params='{"title": "two words", "options": "-a -b"}',
    )
    assert made.argv[3:] == ("--title", "two words", "two words", "-a", "-b")


def test_a_parameter_without_a_variable_is_named_in_the_log(tmp_path: Path) -> None:
    local = [{"prop": "a b", "value": "1"}]
    made = prepared(tmp_path, "SHELL", {"rawScript": "true", "localParams": local})
    assert "parameter 'a b' has no variable: its name can't be that of a variable" in made.header


JAVA = Environment(
    code=7,
    name="java",
    config="export JAVA_HOME=/opt/java PATH=/opt/java/bin:$PATH\nexport DB_PASSWORD=hunter22",
)


def test_the_variables_of_an_environment_reach_every_type_and_no_argument(tmp_path: Path) -> None:
    python = prepared(
        tmp_path, "PYTHON", {"rawScript": "pass"}, environment_code=7, environment=JAVA
    )
    shell = prepared(
        tmp_path / "shell", "SHELL", {"rawScript": "true"}, environment_code=7, environment=JAVA
    )
    for each in (python, shell):
        assert each.environment["JAVA_HOME"] == "/opt/java"
        assert each.environment["PATH"].startswith("/opt/java/bin:/usr/local/sbin:")
        assert each.environment["ORCAFLOW_ATTEMPT"] == "2"
        assert each.secrets == ("hunter22",)
        assert "hunter22" not in " ".join(each.argv) + each.header


def test_the_token_by_which_an_attempt_asks_its_worker_is_masked_in_its_log(
    tmp_path: Path,
) -> None:
    by = {"ASKS_AT": "/run/ask.sock", "ASKS_TOKEN": "73b9" * 16}
    made = prepared(tmp_path, "SHELL", {"rawScript": "env"}, asks_by=lambda _: by)
    assert by.items() <= made.environment.items()
    assert made.secrets == (by["ASKS_TOKEN"],)


def test_an_environment_goes_before_a_parameter_of_its_name(tmp_path: Path) -> None:
    local = [{"prop": "JAVA_HOME", "direct": "IN", "type": "VARCHAR", "value": "/of/parameter"}]
    made = prepared(
        tmp_path,
        "SHELL",
        {"rawScript": "true", "localParams": local},
        environment_code=7,
        environment=JAVA,
    )
    assert made.environment["JAVA_HOME"] == "/opt/java"


@pytest.mark.parametrize(
    ("environment", "cause"),
    [
        (None, "environmentCode: the project has no environment 7: an administrator can grant it"),
        (replace(JAVA, config="source x"), "environment 'java': line 1: only lines like export"),
        (
            replace(JAVA, config=f"export A_TOKEN=aes256gcm:01234567:{'A' * 40}"),
            "environment 'java': passwords .* there is no key file",
        ),
    ],
)
def test_an_environment_that_is_gone_or_can_not_be_read_fails_the_attempt_with_the_reason(
    tmp_path: Path, environment: Environment | None, cause: str
) -> None:
    keys = DatasourceKeys(tmp_path / "none")
    with pytest.raises(TaskParameterError, match=cause):
        prepared(
            tmp_path,
            "SHELL",
            {"rawScript": "true"},
            opened=keys.opened,
            environment_code=7,
            environment=environment,
        )


def test_an_attempt_whose_secret_can_not_be_decrypted_fails_with_the_cure(tmp_path: Path) -> None:
    file = DatasourceKeys(tmp_path / "elsewhere")
    file.make(for_parameters=True)
    stored = ParameterKeys(file).sealed('[{"prop": "password", "value": "hush"}]')
    here = ParameterKeys(DatasourceKeys(tmp_path / "none"))
    for column in ("global_params", "input_pool"):
        with pytest.raises(
            TaskParameterError, match=r"there is no key file .* copy the file"
        ) as told:
            prepared(
                tmp_path, "SHELL", {"rawScript": "true"}, trouble=here.trouble, **{column: stored}
            )
        assert "hush" not in str(told.value)
