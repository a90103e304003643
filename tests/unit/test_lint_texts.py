"""Parameters that are declared nowhere, and dates that print something else than they seem to."""

from __future__ import annotations

from typing import Any

import pytest

from operations.lint_texts import text_warnings
from tests.unit.definition_documents import a_child, a_task


def warned(*tasks: dict[str, Any], **document: Any) -> list[str]:
    return [str(each) for each in text_warnings({"tasks": list(tasks), **document})]


def script(text: str, kind: str = "SHELL", **params: Any) -> dict[str, Any]:
    return a_task("a", type=kind, params={"rawScript": text, **params})


@pytest.mark.parametrize("kind", ["SHELL", "PYTHON", "PYSPARK", "SPARK_SQL"])
def test_a_parameter_that_is_declared_nowhere_is_named(kind: str) -> None:
    (warning,) = warned(script("say ${nosuch} ${day}", kind), globalParams=[{"prop": "day"}])
    assert warning == (
        "task 'a', params.rawScript: ${nosuch} is declared nowhere and stays as it is written"
        " (declare it, or give it to each run: --param nosuch=…)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "x=1\necho ${x}",
        "export x=1; echo ${x}",
        "x+=(1); echo ${x}",
        "for x in 1 2; do echo ${x}; done",
        "while read -r other x; do echo ${x}; done",
        "local x; echo ${x}",
        "printf -v x 1; echo ${x}",
        "echo ${HOME} ${ORCAFLOW_OUTPUT}",
        ". ./settings.sh\necho ${x}",
        "true; source settings.sh; echo ${x}",
        'eval "$(settings)"\necho ${x}',
        "echo ${x:-1} ${#x} ${x[@]}",
    ],
)
def test_a_variable_of_the_script_itself_is_no_finding(text: str) -> None:
    assert warned(script(text)) == []


def test_a_word_that_only_looks_set_is_a_finding() -> None:
    assert len(warned(script("before=1; echo ${for} ${ore}"))) == 2


def test_what_a_task_upstream_puts_out_is_known() -> None:
    out = {"prop": "rows", "direct": "OUT", "type": "INTEGER", "value": ""}
    task = a_task("b", params={"rawScript": "echo ${rows}"})
    assert warned(script("true", localParams=[out]), task) == []


def test_a_sub_process_may_hand_up_any_name() -> None:
    assert warned(a_child("c", processDefinitionName="x"), script("echo ${rows}")) == []


def test_parameters_in_values_and_conditions_are_looked_at_too() -> None:
    choice = {"dependTaskList": [{"condition": "${size} > 1", "nextNode": "b"}], "nextNode": "c"}
    found = warned(
        script("true", localParams=[{"prop": "x", "direct": "IN", "value": "${nosuch}"}]),
        a_task("s", type="SWITCH", params={}, switchResult=choice),
        globalParams=[{"prop": "y", "value": "${other}-$[yyyymmdd]"}],
    )
    assert [each.partition(": ")[0] for each in found] == [
        "globalParams[0].value",
        "globalParams[0].value",
        "task 'a', params.localParams[0].value",
        "task 's', switchResult.dependTaskList[0].condition",
    ]


def test_a_system_parameter_is_known_by_its_whole_name() -> None:
    assert warned(script("${system.biz.date} ${system.biz.curdate} ${system.datetime}")) == []
    (warning,) = warned(script("${system.biz.dat}"))
    assert "is not a parameter of the system" in warning
    assert "there are system.biz.date," in warning


def test_the_names_of_an_attempt_are_known_where_a_worker_reads_them() -> None:
    name = "${system.task.instance.id}"
    given = [{"prop": "which", "direct": "IN", "value": name}]
    assert warned(script(f"echo {name}", localParams=given)) == []
    choice = {"dependTaskList": [{"condition": f"{name} == 'x'", "nextNode": "a"}], "nextNode": "a"}
    found = warned(
        a_task("s", type="SWITCH", params={}, switchResult=choice),
        a_child("c", processDefinitionName="x", localParams=given),
        script("true"),
    )
    assert [each.partition(" is not ")[0] for each in found] == [
        f"task 's', switchResult.dependTaskList[0].condition: {name}",
        f"task 'c', params.localParams[0].value: {name}",
    ]
    assert "in a task that a master decides: it stays as it is written" in found[0]
    assert "system.task.execute.path" not in found[0]
    choice["dependTaskList"][0]["condition"] = "${system.project.name} == 'x'"
    named = [{"prop": "which", "direct": "IN", "value": "${system.workflow.instance.id}"}]
    of_master = (
        a_task("s", type="SWITCH", params={}, switchResult=choice),
        a_child("c", processDefinitionName="x", localParams=named),
    )
    assert warned(*of_master) == []


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("yyyMMdd", "odd number of letters for the year"),
        ("yyyymmdd", "minutes in the place of the month"),
        ("YYYYMMdd", "the year of the week"),
        ("yyyyMMDD", "the day of the year"),
        ("add_month(yyyyMM,-1)", "is no date and stays as it is written"),
        ("yyyyMMdd-1d", "is no date and stays as it is written"),
        ("yyyyMMdd - 1", "prints the sign and the number, and no day is counted"),
        ("yyyy-MM-dd HH:mm:ss + 1/24", "prints the sign and the number, and no day is counted"),
        ("yyyyMMdd- 1", "prints the sign and the number, and no day is counted"),
        ("yyyyMMdd -1", "prints a blank at its end"),
        ("month_begin(yyyyMMdd)", "is no date and stays as it is written"),
        ("yyyy-MM-ddTHH:mm", "is no date and stays as it is written"),
    ],
)
def test_a_wrong_date_is_a_warning(form: str, problem: str) -> None:
    for kind in ("SHELL", "PYSPARK"):
        (warning,) = warned(script(f"say $[{form}]", kind))
        assert f"$[{form}]" in warning
        assert problem in warning


@pytest.mark.parametrize(
    "form",
    [
        *("yyyyMMdd", "yyyy-MM-dd-1", "yyMMdd", "HH:mm-1/24", "mmss", "add_months(yyyyMM,-1)"),
        *("yyyyMMddHHmmss", "yyyyMMddHHmm", "DDD", "timestamp(yyyyMMddHHmmss)", "D"),
        *("year_week(yyyy-MM-dd)", "yyyy-MM-dd'T'HH:mm", "1+2", "i+1", "0", "*", "a[1]"),
        *("${form}", "add_months(yyyyMM,${n})"),
    ],
)
def test_a_right_date_and_what_is_none_are_no_finding(form: str) -> None:
    assert warned(script(f"say $[{form}]", localParams=[{"prop": "n"}, {"prop": "form"}])) == []


@pytest.mark.parametrize("kind", ["SQL", "SPARK_SQL"])
def test_a_name_for_a_table_without_a_parameter_fails_the_task(kind: str) -> None:
    key = "sql" if kind == "SQL" else "rawScript"
    task = a_task("a", type=kind, params={key: "select * from !{t}", "datasource": 1})
    (warning,) = warned(task)
    assert f"params.{key}: !{{t}} is declared nowhere: the task fails" in warning
    assert warned(task, globalParams=[{"prop": "t"}]) == []


def test_an_sql_task_fails_by_a_value_that_is_declared_nowhere() -> None:
    (warning,) = warned(a_task("a", type="SQL", params={"sql": "select ${x}"}))
    assert "params.sql: ${x} is declared nowhere: the task fails" in warning


def test_the_response_of_an_http_task_has_to_be_declared() -> None:
    call = a_task("call", type="HTTP", params={"url": "http://h"})
    reader = a_task("a", params={"rawScript": "say ${call.response}"})
    (warning,) = warned(call, reader)
    assert "declare call.response in localParams of the task 'call', with direct OUT" in warning
    call["params"]["localParams"] = [{"prop": "call.response", "direct": "OUT"}]
    assert warned(call, reader) == []
