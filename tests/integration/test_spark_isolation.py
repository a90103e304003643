"""Isolation of sessions that share generated code, and of those that add files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark_host import Attempt, SparkHost
from worker.spark.session.sharing import ISOLATED, isolated

pytestmark = pytest.mark.slow

TELL_WHETHER = f'tell(spark.conf.get("{ISOLATED}"))\n'
NOT_THERE = "nothing"
# What a session's own files say, seen from a Python of its UDFs.
READ = f"""
from pyspark.sql.functions import udf
@udf("string")
def brought(_):
    from pyspark import SparkFiles
    try:
        with open(SparkFiles.get("brought.txt")) as file:
            return file.read()
    except FileNotFoundError:
        return "{NOT_THERE}"
def look():
    tell(*[row[0] for row in spark.range(1).select(brought("id")).collect()])
"""
BRING = {
    "artifacts": 'spark.addArtifacts("{path}", file=True)',
    "a statement": 'spark.sql("add /* its own */ file {path}")',
    "a script of SQL": "spark.sql(\"BEGIN EXECUTE IMMEDIATE 'ADD FILE {path}'; END\")",
}


@pytest.fixture
def host(warm: SparkHost) -> SparkHost:
    return warm


def file_that_says(text: str, folder: Path) -> Path:
    path = folder / text / "brought.txt"
    path.parent.mkdir()
    path.write_text(text)
    return path


def values(attempt: Attempt) -> list[object]:
    assert attempt.end() == 0, attempt.output
    return attempt.values


def test_sessions_share_unless_a_profile_or_its_servers_isolate_them(host: SparkHost) -> None:
    shared = host.start(TELL_WHETHER)
    kept_apart = [
        host.start(TELL_WHETHER, profile="apart"),
        host.start(TELL_WHETHER, profile=isolated("default")),
    ]
    assert values(shared) == ["false"]
    assert [values(each) for each in kept_apart] == [["true"], ["true"]]


@pytest.mark.parametrize("way", BRING)
def test_what_isolated_sessions_bring_is_nobody_elses(
    host: SparkHost, tmp_path: Path, way: str
) -> None:
    script = f"{READ}\n{BRING[way]}\nlook()\nwait()\nlook()\n"
    few, many = (
        host.start(script.format(path=file_that_says(text, tmp_path)), profile=isolated("default"))
        for text in ("few", "many")
    )
    for each in (few, many):
        each.ready()
    without = [
        host.start(f"{READ}look()", profile=name) for name in ("default", isolated("default"))
    ]
    assert [values(each) for each in without] == [[NOT_THERE], [NOT_THERE]]
    for each in (few, many):
        each.go_on()
    assert (values(few), values(many)) == (["few", "few"], ["many", "many"])


@pytest.mark.parametrize("way", BRING)
def test_a_session_that_shares_brings_nothing_and_is_told_the_cure(
    host: SparkHost, tmp_path: Path, way: str
) -> None:
    bring = BRING[way].format(path=file_that_says("late", tmp_path))
    code, refused = host.run(f"tell(spark.range(3).count())\n{bring}\ntell('after')")
    assert (code, refused.values, refused.failure) == (1, [3], "UNSUPPORTED")
    assert f'"{ISOLATED}": "true"' in refused.output
    further = host.start(f"spark = spark.newSession()\n{bring}\ntell('after')")
    assert (further.end(), further.failure) == (1, "UNSUPPORTED")
    code, without = host.run(f"{READ}look()")
    assert (code, without.values) == (0, [NOT_THERE])


def test_sessions_that_share_code_share_no_functions_and_no_pythons(host: SparkHost) -> None:
    script = """
    import sys
    def seen(n):
        import colorsys
        kept = getattr(colorsys, "kept", 0)
        colorsys.kept = {n}
        return kept * 100 + {n}
    spark.udf.register("mine", seen, "long")
    spark.range({n}).createOrReplaceTempView("numbers")
    wait()
    tell(spark.sql("select max(mine(id)), count(*) from numbers").first().asDict())
    """
    few, many = (host.start(script.format(n=n)) for n in (3, 5))
    for each in (few, many):
        each.ready()
        each.go_on()
    found = [list(value.values()) for each in (few, many) for value in values(each)]  # type: ignore[attr-defined]
    # Its own former value it may have found, no neighbour's.
    assert found[0] in ([3, 3], [303, 3])
    assert found[1] in ([5, 5], [505, 5])
