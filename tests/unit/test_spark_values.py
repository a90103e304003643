"""Values of parameters in Spark SQL: literals of their types, which they can't leave."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.params import DataType
from common.params.values import ParameterValueError
from worker.launching.spark_values import with_values
from worker.spark.session.statements import StatementError, split
from worker.sql_scanner import SPARK, Part

HOSTILE = "x'); drop table t; -- \\"
VALUES: Mapping[str, tuple[DataType, str]] = {
    "day": (DataType.VARCHAR, "2026-01-31"),
    "system.biz.date": (DataType.VARCHAR, "20260130"),
    "date": (DataType.DATE, "20260131"),
    "at": (DataType.TIMESTAMP, "2026-01-31T13:30:00"),
    "clock": (DataType.TIME, "13:30"),
    "n": (DataType.INTEGER, "-5"),
    "big": (DataType.LONG, "12345678901"),
    "rate": (DataType.DOUBLE, "1.5"),
    "nan": (DataType.FLOAT, "nan"),
    "on": (DataType.BOOLEAN, "1"),
    "ids": (DataType.LIST, '[1, "a\'b", null, true]'),
    "none": (DataType.LIST, "[]"),
    "gap": (DataType.INTEGER, ""),
    "blank": (DataType.VARCHAR, ""),
    "bad": (DataType.VARCHAR, HOSTILE),
    "variable": (DataType.VARCHAR, "${env:HOME}\n"),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("where dt = '${day}'", "where dt = '2026-01-31'"),
        ("where dt = ${day}", "where dt = '2026-01-31'"),
        ('where dt = "${day}"', 'where dt = "2026-01-31"'),
        ("like '%${day}%${day}'", "like '%2026-01-31%2026-01-31'"),
        ("partition (dt='${system.biz.date}')", "partition (dt='20260130')"),
        ("date '${day}'", "date '2026-01-31'"),
        ("d = ${date}", "d = DATE '2026-01-31'"),
        ("at > ${at}", "at > TIMESTAMP '2026-01-31 13:30:00'"),
        ("t = ${clock}", "t = '13:30:00'"),
        ("limit ${big}", "limit 12345678901"),
        ("select 1-${n}", "select 1- -5"),
        ("select ${rate}, ${nan}, ${on}", "select 1.5D, CAST('nan' AS DOUBLE), true"),
        ("id in (${ids})", "id in (1, 'a\\'b', NULL, true)"),
        ("id in (${none})", "id in (NULL)"),
        ("select ${gap}, ${blank}, '${blank}'", "select NULL, '', ''"),
        ("select '${bad}'", "select 'x\\'); drop table t; -- \\\\'"),
        ("select ${bad}", "select 'x\\'); drop table t; -- \\\\'"),
        ('select "${bad}"', 'select "x\\\'); drop table t; -- \\\\"'),
        # Spark replaces its own variables in a statement, so a value may not look like one.
        ("select ${variable}", "select '\\u0024{env:HOME}\\n'"),
        ("-- ${day}\nselect /* ${day} */ 1", "-- ${day}\nselect /* ${day} */ 1"),
        (
            "select '${nosuch}', ${nosuch}, t_${nosuch}",
            "select '${nosuch}', ${nosuch}, t_${nosuch}",
        ),
        ("select :day, payload:${day}", "select :day, payload:'2026-01-31'"),
        ("select r'a\\', '${day}'", "select r'a\\', '2026-01-31'"),
    ],
)
def test_a_value_becomes_a_literal(text: str, expected: str) -> None:
    assert with_values(text, VALUES.get) == expected


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("select 1;\nselect * from t_${day}", "line 2: ${day} is inside a word or a name"),
        ("select * from ${day}_t", "line 1: ${day} is inside a word or a name"),
        ("select * from ${day}.t", "line 1: ${day} is inside a word or a name"),
        ("select * from db.${day}", "line 1: ${day} is inside a word or a name"),
        ("select ${day}${day}", "line 1: ${day} is inside a word or a name"),
        ("select ''${day}''", "line 1: ${day} is inside a word or a name"),
        ("select `${day}`", "line 1: ${day} is inside a name in `"),
        ("select r'${day}'", "line 1: ${day} is inside a raw text"),
        ("select $$ ${day} $$", "line 1: ${day} is inside a text in $$"),
        # The value's first sign would be escaped by the backslash, and then its escape not.
        ("select '\\${bad}'", "line 1: ${bad} is inside an escape sequence"),
    ],
)
def test_a_reference_where_no_literal_can_be_is_refused(text: str, where: str) -> None:
    with pytest.raises(StatementError) as caught:
        with_values(text, VALUES.get)
    assert str(caught.value).startswith(where)
    assert "write !{" in str(caught.value)


def test_a_value_that_is_not_of_its_type_is_refused_by_the_parameters_name() -> None:
    for text in ("select ${n}", "select '${n}'"):
        with pytest.raises(ParameterValueError, match="'n' is declared INTEGER"):
            with_values(text, {"n": (DataType.INTEGER, "1; drop table t")}.get)


def bare(text: str) -> str:
    """The text without what is in quotes: what Spark reads as words and signs."""
    kept, position = [], 0
    while (token := SPARK.find(text, position)) is not None:
        kept.append(text[position : token.start])
        position = token.end
        if token.part in (Part.QUOTE, Part.PREFIX):
            start = token.start if token.part is Part.QUOTE else token.end
            quoted = SPARK.quoted_at(text, start)
            position = len(text) if quoted is None else quoted.end
            kept.append("Q")
        elif token.part is Part.LINE_COMMENT:
            position = SPARK.line_comment_end(text, token)
        elif token.part is Part.BLOCK_COMMENT:
            position = SPARK.block_comment_end(text, token) or len(text)
        else:
            kept.append(token.text)
    return "".join((*kept, text[position:]))


PIECES = (
    *("select ", "'", '"', "`", "\\", "''", "${x}", "${x}", "r'", "--", "/*", "*/", ";", "\n", " "),
    *("$$", "$", "a", ".", ",", "%", ":x", "{", "}"),
)


@given(
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.lists(st.sampled_from((*PIECES, "${x}", "\0", "u0027", "é")), max_size=6).map("".join),
)
def test_no_value_changes_what_is_outside_of_quotes(text: str, value: str) -> None:
    try:
        split(text)
        plain = with_values(text, {"x": (DataType.VARCHAR, "v")}.get)
    except StatementError:
        return
    try:
        filled = with_values(text, {"x": (DataType.VARCHAR, value)}.get)
    except ParameterValueError:
        assert "\0" in value
        return
    assert bare(filled) == bare(plain)
    assert len(split(filled)) == len(split(plain))
