"""Sharing generated code, as far as a script, settings and a master allow it."""

from __future__ import annotations

import pytest

from worker.spark.session.sharing import (
    ISOLATED,
    is_profile,
    isolated,
    may_share,
    script_brings,
    statement_brings,
)


@pytest.mark.parametrize(
    "text",
    [
        "ADD JAR '/a/b.jar'",
        "add jars /a.jar /b.jar",
        "Add\n\tFILE /a",
        "add /* why */ -- because\n archive /a.zip",
        "add/**/file /a",
        f"add /* {'why ' * 50}*/ file /a",
        f"add -- {'why ' * 50}\n file /a",
        f"add {'/**/' * 50} file /a",
        f"add{' ' * 200}file /a",
        "select '--'; add file /a",
        "\x12Hadd file /a",  # As in a message: the length stands before it.
        "create function f as 'a.B' using jar 'c.jar'",
        "CREATE FUNCTION f AS 'a.B' USING ARCHIVE 'c.zip'",
        "BEGIN EXECUTE IMMEDIATE q; END",
    ],
)
def test_statements_that_bring_something(text: str) -> None:
    assert statement_brings(text)
    assert script_brings([f"spark.sql('''{text}''')"])


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "alter table t add columns (file string)",
        "select * from a join b using (file)",
        "select address, jar from added_files",
        "create table t using parquet",
        "addjar",
        "merge using files_of_today on true",
    ],
)
def test_statements_that_bring_nothing(text: str) -> None:
    assert not statement_brings(text)


def test_a_script_that_adds_artifacts_brings_something() -> None:
    assert script_brings(["select 1", "spark.addArtifacts('a.py', pyfile=True)"])
    assert script_brings(["spark.addArtifact('a.py')"])
    assert not script_brings(["spark.range(3).count()"])


@pytest.mark.parametrize(
    "piece", ["add ", "add /*", "add /**/", "/*", "*/", "add --\n", "using\n", "add  \t "]
)
def test_no_text_takes_long_to_look_through(piece: str) -> None:
    # Millions of steps are fine; growth faster than the text's would never end.
    assert not statement_brings(piece * (200_000 // len(piece)))


@pytest.mark.parametrize(
    ("master", "conf", "may"),
    [
        ("local[*]", {}, True),
        ("local[2]", {ISOLATED: "false"}, True),
        ("local[2]", {ISOLATED: " True "}, False),
        ("spark://host:7077", {}, False),
        ("yarn", {}, False),
    ],
)
def test_who_may_share(master: str, conf: dict[str, str], may: bool) -> None:
    assert may_share(master, conf) is may


def test_the_name_of_isolated_servers_is_no_profiles() -> None:
    assert is_profile("default")
    assert not is_profile(isolated("default"))
