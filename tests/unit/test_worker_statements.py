"""SQL taken apart: statements, slots for bound values, and a data source's row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from common.params import DataType
from common.store.worker.ports import DataSource
from worker.launching.base import TaskParameterError
from worker.launching.datasource import Target, target
from worker.launching.statements import Statement, statements

HOSTILE = "'; DROP TABLE x; --"


def taken_apart(
    text: str,
    parameters: Mapping[str, str] | None = None,
    types: Mapping[str, DataType] | None = None,
    dialect: str = "postgresql",
) -> tuple[Statement, ...]:
    return statements(
        text,
        "params.sql",
        parameters={"a": HOSTILE, "b": "B"} if parameters is None else parameters,
        types=types or {},
        dialect=dialect,
    )


def shown(text: str, dialect: str = "postgresql") -> list[str]:
    """The statements with a ? for each slot."""
    return ["?".join(each.texts).strip() for each in taken_apart(text, dialect=dialect)]


@pytest.mark.parametrize(
    ("text", "statement", "values"),
    [
        ("select ${a}", "select ?", [HOSTILE]),
        ("select '${a}'", "select ?", [HOSTILE]),
        ('select "${a}"', "select ?", [HOSTILE]),
        ("select '\"${a}\"'", "select ?", [HOSTILE]),
        ("select ''${a}''", "select ?", [HOSTILE]),
        ("select '%${a}%'", "select ?", [f"%{HOSTILE}%"]),
        ("select 'it''s ${a}'", "select ?", [f"it's {HOSTILE}"]),
        ("select '${a}-${b}'", "select ?", [f"{HOSTILE}-B"]),
        ("select '${a}', '${b}'", "select ?, ?", [HOSTILE, "B"]),
        ("select f(${a},${b})", "select f(?,?)", [HOSTILE, "B"]),
        ("select ${a}::text", "select ?::text", [HOSTILE]),
        ("-- ${zzz}\nselect ${b}", "-- ${zzz}\nselect ?", ["B"]),
        (
            "/* ${zzz} /* nested */ ${zzz} */ select ${b}",
            "/* ${zzz} /* nested */ ${zzz} */ select ?",
            ["B"],
        ),
        ("select '--', ${b}", "select '--', ?", ["B"]),
        ("select $$ ; ' -- $$, ${b}", "select $$ ; ' -- $$, ?", ["B"]),
        (r"select E'\'', ${b}", r"select E'\'', ?", ["B"]),
        (r"select '\', ${b}", r"select '\', ?", ["B"]),
    ],
)
def test_a_parameter_becomes_a_slot_whatever_it_holds(
    text: str, statement: str, values: list[str]
) -> None:
    (found,) = taken_apart(text)
    assert "?".join(found.texts) == statement
    assert [value for _, value in found.values] == values
    assert not any("DROP" in piece for piece in found.texts)


@pytest.mark.parametrize(
    "text",
    [
        "select * from tab_${a}",
        "select * from ${a}tab",
        "select E${a}",
        "select 1${a}",
        'select "x ${a}"',
        "select E'x ${a}'",
        "select U&'x ${a}'",
        "select $$ ${a} $$",
        "select $t$ ${a} $t$",
        "select ${a}${b}",
        "select 'x'${a}'y'",
        "select ${a${b}}",
        "select 'x ${a}",
        "select ${zzz}",
        "select '${zzz} x'",
    ],
)
def test_where_nothing_can_be_bound_a_parameter_is_refused(text: str) -> None:
    with pytest.raises(TaskParameterError, match=r"^params\.sql: "):
        taken_apart(text)


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(TaskParameterError, match="there is no parameter 'zzz'"):
        taken_apart("select '${zzz}'")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a; b;", ["a", "b"]),
        (";;a;; ;", ["a"]),
        ("-- only a comment", []),
        ("a ';' \";\" /* ; */ -- ;\n; b", ["a ';' \";\" /* ; */ -- ;", "b"]),
        ("select $x$ ; $x$; b", ["select $x$ ; $x$", "b"]),
        (
            "create trigger t begin select case when 1 then 2 end; delete; end; b",
            ["create trigger t begin select case when 1 then 2 end; delete; end", "b"],
        ),
        (
            "create or replace function f() returns int begin atomic select 1; select 2; end; b",
            [
                "create or replace function f() returns int begin atomic select 1; select 2; end",
                "b",
            ],
        ),
        ("begin; insert; end; b", ["begin", "insert", "end", "b"]),
    ],
)
def test_statements_are_split_where_it_is_safe(text: str, found: list[str]) -> None:
    assert shown(text) == found


def test_a_name_in_backticks_takes_no_parameter_in_mysql() -> None:
    with pytest.raises(TaskParameterError, match="inside a quoted name"):
        taken_apart("select `x ${a}`", dialect="mysql")


def test_a_backslash_ends_no_text_in_mysql() -> None:
    assert shown(r"select 'a\'; b', ${a} # ; c", "mysql") == [r"select 'a\'; b', ? # ; c"]


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (DataType.INTEGER, " 5 ", [("INTEGER", " 5 ")]),
        (DataType.INTEGER, "", [("INTEGER", None)]),
        (DataType.VARCHAR, "", [("VARCHAR", "")]),
        (DataType.DATE, "20260102", [("DATE", "20260102")]),
        (DataType.BOOLEAN, "true", [("BOOLEAN", "true")]),
        (DataType.LIST, '["x", 1, null]', [("VARCHAR", "x"), ("LONG", "1"), ("VARCHAR", None)]),
        (DataType.LIST, "[]", [("VARCHAR", None)]),
    ],
)
def test_values_are_bound_by_their_type(
    kind: DataType, text: str, values: list[tuple[str, str | None]]
) -> None:
    (found,) = taken_apart("x in (${a})", {"a": text}, {"a": kind})
    assert list(found.values) == values


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DataType.INTEGER, "5; drop"),
        (DataType.DOUBLE, "x"),
        (DataType.DATE, "yesterday"),
        (DataType.BOOLEAN, "maybe"),
        (DataType.TIMESTAMP, "noon"),
        (DataType.LIST, "a,b"),
        (DataType.LIST, '[["nested"]]'),
        (DataType.VARCHAR, "nul\0"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused_without_showing_it(
    kind: DataType, text: str
) -> None:
    with pytest.raises(TaskParameterError, match="'a'") as caught:
        taken_apart("select ${a}", {"a": text}, {"a": kind})
    assert text not in str(caught.value)


def test_a_statement_that_is_too_long_is_refused() -> None:
    with pytest.raises(TaskParameterError, match="1,000,000 are allowed"):
        taken_apart("x" * 1_000_001)


def source(row: Any, kind: int = 1) -> Target:
    text = row if isinstance(row, str) else json.dumps(row)
    return target({"datasource": 7}, DataSource(id=7, name="dw", type=kind, connection_params=text))


ROW = {
    "address": "jdbc:postgresql://10.0.0.5:5433",
    "database": "dw",
    "jdbcUrl": "jdbc:postgresql://10.0.0.5:5433/dw",
    "user": "u",
    "password": "p@ss/word",
    "other": "",
}


def test_the_original_s_form_is_taken_apart() -> None:
    found = source({**ROW, "other": "ssl=true&currentSchema=x&useUnicode=true"})
    assert (found.host, found.port, found.database, found.user) == ("10.0.0.5", 5433, "dw", "u")
    assert found.query == {"sslmode": "verify-full", "options": "-csearch_path=x"}
    assert found.secrets == ("p@ss/word",)
    assert "p@ss/word" not in repr(found)


def test_the_jdbc_url_alone_will_do() -> None:
    found = source({"jdbcUrl": "jdbc:postgresql://[::1]/dw?sslmode=require", "user": "u"})
    assert (found.host, found.port, found.database) == ("::1", 5432, "dw")
    assert found.query == {"sslmode": "require"}


@pytest.mark.parametrize(
    ("url", "dialect", "taken"),
    [
        ("sqlite:///file.db", "sqlite", "sqlite:///file.db"),
        ("postgresql://u:p%40ss@h/d", "postgresql", "postgresql+psycopg2://u:p%40ss@h/d"),
        ("postgres://h/d", "postgresql", "postgresql+psycopg2://h/d"),
        ("mysql+pymysql://h/d", "mysql", "mysql+pymysql://h/d"),
    ],
)
def test_a_url_of_ours_is_taken_for_any_type(url: str, dialect: str, taken: str) -> None:
    found = source({"url": url}, kind=0)
    assert (found.dialect, found.url) == (dialect, taken)


def test_a_password_in_a_url_is_known_in_both_spellings() -> None:
    assert source({"url": "postgresql://u:p%40ss@h/d"}).secrets == ("p%40ss", "p@ss")


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"address": "jdbc:postgresql://db:5432/x?socketFactory=evil"}, "socketFactory"),
        ({"other": "autoDeserialize=true"}, "autoDeserialize"),
        ({"other": "allowLoadLocalInfile=true"}, "allowLoadLocalInfile"),
        ({"other": "options=-cx=y"}, "options"),
        ({"other": "host=/tmp"}, "host"),
        ({"other": "currentSchema=a -c log=1"}, "currentSchema"),
        ({"address": "jdbc:h2:mem:;INIT=RUNSCRIPT FROM 'x'"}, "address"),
        ({"address": "jdbc:postgresql://evil@db:5432"}, "address"),
        ({"address": "jdbc:postgresql://db#x:5432"}, "address"),
        ({"address": "jdbc:postgresql:///tmp/socket"}, "address"),
        ({"address": "jdbc:postgresql://a:1,b:2"}, "address"),
        ({"address": "jdbc:postgresql://db:99999"}, "address"),
        ({"address": "/tmp/.s.PGSQL.5432"}, "address"),
        ({"database": "x host=evil"}, "database"),
        ({"database": ""}, "database"),
        ({"address": "", "jdbcUrl": ""}, "neither"),
        ({"password": ["p@ss/word"]}, "password"),
        ({"url": "file.db"}, "url"),
        ({"url": "postgresql://u:p%40ss@h/d?passfile=/etc/passwd"}, "passfile"),
        ({"other": "sslkey=/etc/keys/.ssh/id"}, "sslkey must name a file of the folder of shared"),
    ],
)
def test_what_a_row_may_not_say_is_named_and_its_password_is_not(
    change: dict[str, Any], cause: str
) -> None:
    row = {**ROW, **change}
    with pytest.raises(TaskParameterError) as caught:
        source(row)
    assert cause in str(caught.value)
    assert "p@ss/word" not in str(caught.value)


def test_a_row_that_is_no_json_is_not_quoted() -> None:
    with pytest.raises(TaskParameterError) as caught:
        source('{"password": "hunter2"')
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_another_type_of_database_is_told_how_it_can_be_reached() -> None:
    with pytest.raises(TaskParameterError, match="MYSQL is reached by an SQLAlchemy URL"):
        source(ROW, kind=0)


@pytest.mark.parametrize("given", [0, "0", "", None, -1, "x", "7; drop", [7], "9" * 40])
def test_what_is_no_id_names_no_data_source(given: Any) -> None:
    with pytest.raises(TaskParameterError, match=r"params\.datasource must be the id"):
        target({"datasource": given}, None)


def test_a_data_source_that_is_not_there_is_named() -> None:
    with pytest.raises(TaskParameterError, match="the project has no data source 7"):
        target({"datasource": "7"}, None)
