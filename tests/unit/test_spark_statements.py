"""Splitting a text of Spark SQL into its statements; a `;` that ends none is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.spark.session.statements import MAX_CHARS, StatementError, split


def texts(text: str) -> list[str]:
    return [each.text for each in split(text)]


def test_statements_end_at_semicolons_and_know_their_line() -> None:
    found = split("select 1;\n\n-- why\nselect\n  2 ;;\n; select 3 -- last\n")
    assert [(each.text, each.line) for each in found] == [
        ("select 1", 1),
        ("select\n  2", 4),
        ("select 3", 6),
    ]
    assert [each.first_line for each in found] == ["select 1", "select", "select 3"]
    assert {each.word for each in found} == {"SELECT"}


@pytest.mark.parametrize("text", ["", " \n\t", ";;;", "-- only\n", "/* a; /* b; */ c; */", "--"])
def test_blanks_and_comments_are_no_statements(text: str) -> None:
    assert texts(text) == []


@pytest.mark.parametrize(
    "statement",
    [
        "select 'a;b'",
        r"select 'it\'s; so'",
        "select 'it''s; so'",
        'select "a;b"',
        r'select "a\";b"',
        "select `a;``b;` from t",
        r"select r'C:\', 1",
        r'select R"C:\", 1',
        "select 1 /* ; /* nested; */ ; */ + 2",
        "select 1 -- ; it's\n + 2",
        "select 1 -- goes on \\\n ; on the next line\n + 2",
        "create view v with metrics language yaml as $$ a: 'b; $$",
        "create view v as $y$ a; $$ ; $y$",
        "select /*+ broadcast(a); */ * from a",
        "select 'a' /* ' */ 'b'",
        "select years - months, a:b::int, map('k', 1)",
    ],
)
def test_a_semicolon_inside_something_ends_no_statement(statement: str) -> None:
    assert texts(f"{statement};\nselect 2") == [statement, "select 2"]


@pytest.mark.parametrize(
    "statement",
    [
        "BEGIN SELECT 1; SELECT 2; END",
        "begin not atomic declare x int; set x = 1; end",
        "lbl: BEGIN SELECT 1; END lbl",
        "lbl:BEGIN SELECT 1; END lbl",
        "BEGIN IF 1 > 0 THEN SELECT 1; ELSE SELECT if(true, 1, 2); END IF; SELECT 2; END",
        "BEGIN SELECT CASE WHEN 1 > 0 THEN 1 END; SELECT 2; END",
        "BEGIN CASE WHEN 1 > 0 THEN SELECT 1; SELECT 2; END CASE; SELECT 3; END",
        "BEGIN l: WHILE 1 < 0 DO SELECT repeat('a', 2); END WHILE l; BEGIN SELECT 1; END; END",
        "BEGIN FOR r AS SELECT 1 DO SELECT 1; END FOR; REPEAT SELECT 1; UNTIL TRUE END REPEAT; END",
        "BEGIN lp: LOOP LEAVE lp; END LOOP lp; SELECT 1; END",
        "CREATE PROCEDURE p() AS BEGIN SELECT 1; END",
    ],
)
def test_a_compound_statement_is_one(statement: str) -> None:
    assert texts(f"select 0;{statement}; select 2") == ["select 0", statement, "select 2"]


def test_words_of_compounds_are_names_like_others_elsewhere() -> None:
    assert texts("select begin, case when a then 1 end, end from t; select 2") == [
        "select begin, case when a then 1 end, end from t",
        "select 2",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 1;\nselect 'a", "line 2: a text in ' is never closed"),
        ('select "a', 'line 1: a text in " is never closed'),
        ("\n\nselect `a", "line 3: a name in ` is never closed"),
        ("select 1 /* /* */", "line 1: a comment is never closed"),
        ("select 1;\ncreate view v as $$ a", "line 2: a text in $$ is never closed"),
        ("select 1;\nBEGIN SELECT 1; SELECT 2;", "line 2: a BEGIN has no END"),
        ("x" * (MAX_CHARS + 1), "it has 1,000,001 characters; 1,000,000 are allowed"),
    ],
)
def test_what_is_never_closed_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(StatementError) as caught:
        split(text)
    assert str(caught.value) == message


def test_named_parameters_are_found_where_they_are_some() -> None:
    (statement,) = split(
        "select :day, ':no', `:no`, a::int, /* :no */ b:field -- :no\n"
        "from identifier('t_' || :name) where d between :day and :other_day and x = :größe"
    )
    assert statement.names == ("day", "field", "name", "other_day", "größe")


@given(st.lists(st.text(alphabet="ab 1\n:.*(),-", min_size=1).filter(lambda t: "--" not in t)))
def test_texts_without_quotes_are_divided_at_every_semicolon(parts: list[str]) -> None:
    assert texts(";".join(parts)) == [part.strip() for part in parts if part.strip()]


@given(st.text(alphabet="ab;'\"`$-/*\\\n:r {}BEGINDCASE"))
def test_any_text_is_divided_or_refused_and_nothing_is_made_up(text: str) -> None:
    try:
        found = split(text)
    except StatementError:
        return
    lines = text.split("\n")
    for each in found:
        assert each.text.strip()
        assert each.text in text
        assert each.text.partition("\n")[0] in lines[each.line - 1]
