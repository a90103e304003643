"""The JSON that an HTTP task sends: as it is written, with values that can't change its shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.model.task_type import ValueFaultError
from common.task_types import task_type_spec
from tests.unit.preparing import prepared
from worker.launching.json_body import with_values

VALUES = {"day": "2026-01-31", "n": "42", "bad": '","admin":true,"x":"', "list": "[1, 2]", "q": '"'}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": {"b": [1, 1.10, true, null]}}', '{"a": {"b": [1, 1.10, true, null]}}'),
        ('{"day": "${day}", "n": ${n}}', '{"day": "2026-01-31", "n": 42}'),
        ('{"ids": ${list}, "${day}": 1}', '{"ids": [1, 2], "2026-01-31": 1}'),
        ('{"a": "${bad}"}', '{"a": "\\",\\"admin\\":true,\\"x\\":\\""}'),
        ('{"a": "\\"${q}\\" ${nosuch}"}', '{"a": "\\"\\"\\" ${nosuch}"}'),
        ("${list}", "[1, 2]"),
    ],
)
def test_values_are_put_in(text: str, expected: str) -> None:
    assert with_values(text, VALUES.get) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a=1", "must be JSON"),
        ('{"a": NaN}', "must be JSON"),
        ('{"a": ${nosuch}}', "there is no parameter 'nosuch'"),
        ('{"a": ${day}}', "the value of parameter 'day' is not a JSON value"),
        ("{${bad}: 1}", "the value of parameter 'bad' is not a JSON value"),
        ("[" * 100_000, "must be JSON"),
    ],
)
def test_what_is_not_json_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueFaultError) as caught:
        with_values(text, VALUES.get)
    assert str(caught.value).startswith(problem)
    assert "admin" not in str(caught.value)


@given(st.text())
def test_a_text_remains_a_text_whatever_it_holds(value: str) -> None:
    made = with_values('{"a": "x${v}y", "b": 1}', {"v": value}.get)
    assert json.loads(made) == {"a": f"x{value}y", "b": 1}


@pytest.mark.parametrize("body", ['{"a": {"n": 1.10}}', {"a": {"n": 1.1}}])
def test_a_task_sends_the_body_as_it_is_written(tmp_path: Path, body: Any) -> None:
    (tmp_path / "tasks/logs/1/2").mkdir(parents=True)
    made = prepared(tmp_path, "HTTP", {"url": "http://h/", "httpMethod": "POST", "httpBody": body})
    assert made.job_file is not None
    job = json.loads(made.job_file.read_text())
    assert (job["content"], job["body"]) == (
        body if isinstance(body, str) else json.dumps(body),
        None,
    )


def test_lint_finds_a_body_that_is_no_json_and_one_that_is_given_twice() -> None:
    spec = task_type_spec("HTTP")
    field = {"prop": "a", "httpParametersType": "BODY", "value": "1"}
    (fault,) = spec.faults_in({"url": "http://h/", "httpBody": "a=1"})
    assert str(fault).startswith("params.httpBody must be JSON")
    (fault,) = spec.faults_in({"url": "http://h/", "httpBody": "{}", "httpParams": [field]})
    assert "are both given" in str(fault)
