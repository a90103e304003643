"""`!{name}` in SQL: replaced by names, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.model.task_type import ValueFaultError
from common.statement_names import with_names
from common.store.worker.ports import DataSource
from tests.unit.preparing import prepared
from worker.launching.base import TaskParameterError

SOURCE = DataSource(
    id=1, name="dw", type=1, connection_params='{"url": "postgresql://u:p@h:5432/d"}'
)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("select * from !{t}", "sales", "select * from sales"),
        (
            "select * from !{t} a join !{t} b",
            "db.sales",
            "select * from db.sales a join db.sales b",
        ),
        ("select * from sales_!{t}", "20260131", "select * from sales_20260131"),
        ('select "!{t}"', "Größe_1", 'select "Größe_1"'),
        ("select a !{ t } !{} !{t_${x}}", "x", "select a !{ t } !{} !{t_${x}}"),
    ],
)
def test_a_name_is_put_into_the_text(text: str, value: str, expected: str) -> None:
    assert with_names(text, {"t": value}.get) == expected


@pytest.mark.parametrize(
    "value",
    ["", " ", "a b", "a;b", "a--b", "a-b", "'a'", '"a"', "`a`", "a)", "a.", ".a", "a..b", "a$b",
     "a\n", "a\0", "x" * 401],
)  # fmt: skip
def test_a_value_that_is_not_a_name_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ValueFaultError) as caught:
        with_names("select * from !{t}", {"t": value}.get)
    assert str(caught.value).startswith("the value of parameter 't' is not a name")
    assert len(str(caught.value)) < 250


def test_a_parameter_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueFaultError, match="there is no parameter 'nosuch'"):
        with_names("select * from !{nosuch}", {}.get)


def an_in(prop: str, value: str) -> dict[str, Any]:
    return {"prop": prop, "direct": "IN", "type": "VARCHAR", "value": value}


def test_sql_and_spark_sql_put_names_and_values_in(tmp_path: Path) -> None:
    (tmp_path / "tasks/logs/1/2").mkdir(parents=True)
    local = [an_in("t", "dw.sales"), an_in("day", "2026-01-31")]
    text = "select * from !{t} where dt = '${day}'"
    sql = {"datasource": 1, "sql": text, "preStatements": ["truncate !{t}"], "localParams": local}
    made = prepared(tmp_path, "SQL", sql, datasource=SOURCE, datasources=(SOURCE,))
    assert made.job_file is not None
    job = json.loads(made.job_file.read_text())
    assert job["main"][0]["texts"] == ["select * from dw.sales where dt = ", ""]
    assert job["before"][0]["texts"] == ["truncate dw.sales"]
    made = prepared(tmp_path, "SPARK_SQL", {"rawScript": text, "localParams": local})
    assert made.job_file is not None
    job = json.loads(made.job_file.read_text())
    assert job["text"] == "select * from dw.sales where dt = '2026-01-31'"
    rules = [{"type": "custom_sql", "sql": f"select count(*) from ({text})", "min": 1}]
    quality = {"table": "t", "where": "dt = ${day}", "rules": rules, "localParams": local}
    made = prepared(tmp_path, "DATA_QUALITY", quality)
    assert made.job_file is not None
    job = json.loads(made.job_file.read_text())
    assert job["where"] == "dt = '2026-01-31'"
    assert job["rules"][0]["sql"].endswith("from dw.sales where dt = '2026-01-31')")


def test_a_hostile_name_fails_the_attempt_with_the_place_and_the_parameter(tmp_path: Path) -> None:
    (tmp_path / "tasks/logs/1/2").mkdir(parents=True)
    params = {
        "datasource": 1,
        "sql": "select 1",
        "sqlType": "1",
        "preStatements": ["delete from !{t}"],
        "localParams": [an_in("t", "x; drop table y")],
    }
    with pytest.raises(TaskParameterError) as caught:
        prepared(tmp_path, "SQL", params, datasource=SOURCE, datasources=(SOURCE,))
    assert str(caught.value).startswith(
        "params.preStatements[0]: the value of parameter 't' is not"
    )
