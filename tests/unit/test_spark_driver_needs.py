"""The parts of scripts that need a separate Spark driver."""

from __future__ import annotations

import pytest

from worker.spark.session.driver_needs import (
    driver_settings,
    is_of_a_session,
    needs_driver,
)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1\nspark._jvm.java.lang.System.exit(1)", "_jvm (line 2)"),
        ("sc._jsc.hadoopConfiguration().set('a', 'b')", "_jsc (line 1)"),
        ("sc.addPyFile('lib.zip')", "addPyFile (line 1)"),
        ("spark.sparkContext.setCheckpointDir('/tmp')", "setCheckpointDir (line 1)"),
        (
            "SparkSession.builder.config('spark.executor.memory', '4g').getOrCreate()",
            "spark.executor.memory (line 1)",
        ),
        ("SparkConf().set('spark.jars.packages', 'a:b:1')", "spark.jars.packages (line 1)"),
        ("b.config(map={'spark.sql.extensions': 'x'})", "spark.sql.extensions (line 1)"),
        ("conf.setAll([('spark.serializer', 'kryo')])", "spark.serializer (line 1)"),
        ("b.master('spark://h:7077')", "the master spark://h:7077 (line 1)"),
        (
            "spark.sql('ADD JAR /a.jar')",
            "a statement that brings jars, files or archives (line 1)",
        ),
        ("\ufeffSparkSession.builder.enableHiveSupport()", "enableHiveSupport (line 1)"),
        ("ssc = StreamingContext(sc, 1)", "StreamingContext (line 1)"),
        ("h = pyspark.sql.HiveContext(sc)", "HiveContext (line 1)"),
        ("SparkConf().setMaster('yarn')", "the master yarn (line 1)"),
        ("sc.cancelJobGroup('nightly')", "cancelJobGroup (line 1)"),
        # The first line counts, whatever is found first.
        ("sc.addFile('x')\nsc._jvm", "addFile (line 1)"),
    ],
)
def test_what_changes_a_whole_driver_is_named_with_its_line(source: str, found: str) -> None:
    assert needs_driver(source) == found


@pytest.mark.parametrize(
    "source",
    [
        "spark.range(3).count()",
        "SparkSession.builder.appName('x').master('local[4]').getOrCreate()",
        "b.config('spark.sql.shuffle.partitions', 4).config('spark.app.name', 'x')",
        "SparkConf().setAppName('x').setMaster('local').set('spark.sql.ansi.enabled', 'true')",
        "df.set('a', 'b'); config('spark.executor.memory', '4g')",
        "options = {'spark.executor.memory': '4g'}",
        "sc.setLogLevel('ERROR')",
        "def broken(:",
        "\0",
        # No name of a setting, so it is not repeated in a message.
        "b.config('spark.x\\n', 'y').config('spark.' + 'x' * 200, 'y')",
    ],
)
def test_what_other_tasks_do_not_notice_needs_no_driver(source: str) -> None:
    assert needs_driver(source) == ""


def test_literal_settings_of_a_driver_are_found() -> None:
    source = """
builder.config("spark.executor.memory", "4g").config("spark.sql.ansi.enabled", True)
SparkConf().set("spark.speculation", True).setAll([("spark.task.cpus", 2), ("spark.x", name)])
builder.config(map={"spark.executor.memory": "8g", "spark.sql.warehouse.dir": "/w"})
other.config("color", "red")
"""
    assert driver_settings(source) == {
        "spark.executor.memory": "8g",
        "spark.speculation": "true",
        "spark.task.cpus": "2",
        "spark.sql.warehouse.dir": "/w",
    }
    # Python refuses to print an integer of this length.
    assert driver_settings(f"b.config('spark.task.cpus', 0x{'f' * 9000})") == {}
    assert driver_settings("def broken(:") == {}
    assert driver_settings("SparkSession.builder.enableHiveSupport()") == {
        "spark.sql.catalogImplementation": "hive"
    }


def test_settings_of_a_session_are_those_of_sql_that_spark_reads_later() -> None:
    assert is_of_a_session("spark.sql.shuffle.partitions")
    assert is_of_a_session("spark.sql.catalog.lake")
    assert not is_of_a_session("spark.sql.warehouse.dir")
    assert not is_of_a_session("spark.executor.cores")
