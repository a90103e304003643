"""The environment variables of parameters: their names, and the parameters that have none."""

from __future__ import annotations

import pytest

from common.params import references_in, safe_way, variable_of, variables_of


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("day", "day"),
        ("Day2", "Day2"),
        ("_x", "_x"),
        ("system.biz.date", "system_biz_date"),
        ("biz-date", "biz_date"),
        ("DAY", "ORCAFLOW_PARAM_DAY"),
        ("user_ID", "ORCAFLOW_PARAM_user_ID"),
        ("start_date_2", "start_date_2"),
        ("endDate", "endDate"),
        ("s3_path_", "s3_path_"),
        ("python_version", "python_version"),
        ("A.B", "ORCAFLOW_PARAM_A_B"),
        ("_", "ORCAFLOW_PARAM__"),
        ("a b", None),
        ("1st", None),
        ("größe", None),
        ("x=y", None),
        ("BASH_FUNC_ls%%", None),
        ("f()", None),
        ("", None),
        ("x\n", None),
        ("x" * 300, None),
    ],
)
def test_a_parameter_has_its_own_name_or_one_of_orcaflow_s(name: str, variable: str | None) -> None:
    assert variable_of(name) == variable


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "IFS", "PS4", "SHELLOPTS"),
        *("PYTHONPATH", "PYTHONSTARTUP", "PERL5OPT", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS"),
        *("_JAVA_OPTIONS", "GIT_SSH_COMMAND", "HOME", "TMPDIR", "SPARK_HOME", "ORCAFLOW_OUTPUT"),
        *("http_proxy", "https_proxy", "all_proxy", "Http_Proxy", "npm_config_registry"),
        *("fish_function_path", "shell_escape", "orcaflow_x", "ORCAFLOW_PARAM_day"),
        *("TF_CLI_ARGS_plan", "TF_VAR_region", "GIT_CONFIG_x", "PIP_index_url", "PSModulePath"),
        *("CC_x86_64_unknown_linux_gnu", "COMPlus_x", "ConnectionStrings__db", "Boost_ROOT"),
        *("ORG_GRADLE_PROJECT_x", "AIRFLOW__core__x", "spring_config_location", "Qt5_DIR"),
        *("logging_config", "ac_cv_prog_CC", "rvm_path", "cypress_x", "BASH_FUNC_x"),
    ],
)
def test_no_parameter_sets_what_programs_heed(name: str) -> None:
    assert variables_of({name: "evil"}).given == {f"ORCAFLOW_PARAM_{name}": "evil"}


def test_a_name_that_is_a_variable_s_goes_before_one_that_becomes_it() -> None:
    found = variables_of({"a.b": "1", "a_b": "2", "X-Y": "3", "X_Y": "4"})
    assert found.given == {"a_b": "2", "ORCAFLOW_PARAM_X_Y": "4"}
    assert found.left_out == {
        "a.b": "a_b may be another's",
        "X-Y": "ORCAFLOW_PARAM_X_Y may be another's",
    }


def test_of_two_names_that_become_one_neither_is_given() -> None:
    found = variables_of({"a.b": "1", "a-b": "2"})
    assert found.given == {}
    assert sorted(found.left_out) == ["a-b", "a.b"]


def test_values_that_no_variable_may_have_are_left_out() -> None:
    found = variables_of({"a": "x\0y", "b": "\ud800", "c": "x" * 70_000, "day": "$(touch x)\n'"})
    assert found.given == {"day": "$(touch x)\n'"}
    assert sorted(found.left_out) == ["a", "b", "c"]


def test_all_variables_together_leave_room_for_arguments() -> None:
    found = variables_of({f"p{i}": "x" * 60_000 for i in range(100)})
    assert 400_000 < sum(map(len, found.given.values())) < 600_000
    assert len(found.left_out) == 100 - len(found.given)


def test_references_are_found_wherever_they_stand() -> None:
    known = {"a": "1", "b": "2", "c": "3"}
    text = "${a} '${b}' ${x${c}} ${a} ${no} ${a:-1} $a ${!b}"
    assert references_in(text, known) == ("a", "b", "c")


def test_the_safe_way_is_told_for_shells_and_for_python() -> None:
    assert safe_way("day") == "\"$day\" in a shell, params['day'] of orcaflow.task in Python"
    assert "$ORCAFLOW_PARAM_DAY" in safe_way("DAY")
    assert safe_way("a b") == "params['a b'] of orcaflow.task"
