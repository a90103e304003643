"""Scripts in a shared server get the values that `spark-submit` gives, and are kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.spark_host import (
    LONG_JOB,
    Attempt,
    SparkHost,
    running_jobs,
    until,
)

pytestmark = pytest.mark.slow

AS_SPARK_SUBMIT = {
    "contexts": (
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
        sc = SparkContext(conf=SparkConf().setAppName("mine").setMaster("local[1]"))
        tell(sc is spark.sparkContext, SparkContext.getOrCreate() is sc, sc.appName)
        tell(SparkSession.builder.getOrCreate() is spark, sc.parallelize([1, 2, 3]).sum())
        tell(sc.getJobTags() == set())
        spark.stop()
        again = SparkSession.builder.getOrCreate()
        tell(again.range(4).count(), again.sparkContext is not sc)
        try:
            SparkContext()
        except ValueError as error:
            tell("Cannot run multiple SparkContexts" in str(error))
        """,
        [True, True, "mine", True, 6, True, 4, True, True],
    ),
    "relative paths": (
        """
        import glob
        from pyspark.ml.feature import Tokenizer
        def there(pattern):
            return bool(glob.glob(pattern))
        spark.range(3).write.parquet("out/report")
        spark.sql("insert overwrite directory 'out/there' using parquet select 7 as n")
        spark.sparkContext.parallelize(["a", "b"]).saveAsTextFile("out/text")
        Tokenizer(inputCol="a", outputCol="b").save("out/model")
        spark.range(1).write.saveAsTable("kept")
        tell([there(f"out/{each}/*") for each in ("report", "there", "text", "model")])
        tell(there("spark-warehouse/kept/*.parquet"))
        tell(spark.read.parquet("out/report").count(), spark.sql("select * from parquet.`out/there`").count())
        tell(sorted(spark.sparkContext.textFile("out/text").collect()))
        """,
        [[True] * 4, True, 3, 1, ["a", "b"]],
    ),
    "another directory and SPARK_HOME": (
        """
        import glob, os
        from pyspark.sql import SparkSession
        from pyspark.sql.functions import udf
        own = os.getcwd()
        os.environ["SPARK_HOME"] = "/nowhere"
        os.chdir("/")
        spark.range(3).write.parquet("out/kept")
        tell(bool(glob.glob(f"{own}/out/kept/*.parquet")), spark.read.parquet("out/kept").count())
        tell(spark.range(2).select(udf(lambda n: n + 1, "long")("id")).collect()[1][0])
        spark.stop()
        tell(SparkSession.builder.getOrCreate().range(4).count())
        """,
        [True, 3, 2, 4],
    ),
    "a stream of files": (
        """
        import os
        os.makedirs("in")
        with open("in/1.json", "w") as file:
            file.write('{"id": 1}')
        rows = spark.readStream.schema("id int").json("in")
        def write(writer, **named):
            writer.trigger(availableNow=True).start(**named).awaitTermination()
        write(rows.writeStream.format("json").option("checkpointLocation", "a"), path="out")
        write(rows.writeStream.option("path", "too"), format="json", checkpointLocation="b")
        tell(*(spark.read.json(name).count() for name in ("out", "too")))
        write(rows.writeStream.format("console").option("checkpointLocation", "c"))
        """,
        [1, 1],
    ),
    "a stream": (
        """
        import glob
        seen = []
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        query = (
            rows.writeStream.foreachBatch(lambda df, n: seen.append(df.count()) or print("batch", n))
            .option("checkpointLocation", "checkpoint").trigger(once=True).start()
        )
        query.awaitTermination()
        tell(seen, bool(glob.glob("checkpoint/*")))
        """,
        [[5], True],
    ),
}
"""Scripts with the values that they print in a separate driver; more are in `tests.parity`."""


@pytest.fixture
def host(warm: SparkHost) -> Iterator[SparkHost]:
    yield warm
    warm.kill_proxies()
    until(lambda: warm.is_quiet)


def classic(host: SparkHost, script: str) -> tuple[int, Attempt]:
    return host.run(script, classic=True)


@pytest.mark.parametrize("name", AS_SPARK_SUBMIT)
def test_a_script_gets_the_values_of_spark_submit(host: SparkHost, name: str) -> None:
    script, values = AS_SPARK_SUBMIT[name]
    code, attempt = classic(host, script)
    assert (code, attempt.values) == (0, values), attempt.output
    # The output of streams is in the log of their task.
    printed = {"a stream of files": "Batch: 0\n", "a stream": "batch 0\n"}.get(name, "")
    assert printed in attempt.output


def test_x113_the_server_for_accumulators_of_a_session_has_no_port(host: SparkHost) -> None:
    script = "tell(isinstance(spark.sparkContext._accumulatorServer.server_address, str))"
    code, attempt = classic(host, script)
    assert (code, attempt.values) == (0, [True]), attempt.output


def test_a_task_finds_nothing_that_the_task_before_has_left(host: SparkHost) -> None:
    leaves = """
    spark.sql("create database lost")
    spark.range(3).write.saveAsTable("kept")
    spark.range(3).createOrReplaceGlobalTempView("all")
    spark.range(3).cache().count()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    """
    finds = """
    tell([each.name for each in spark.catalog.listDatabases()], spark.catalog.listTables())
    tell(spark.catalog.tableExists("global_temp.all"), spark.range(3).storageLevel.useMemory)
    tell(spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo")
    """
    code, left = classic(host, leaves)
    assert code == 0, left.output
    code, attempt = classic(host, finds)
    assert (code, attempt.values) == (0, [["default"], [], False, False, False]), attempt.output


def test_tasks_at_once_use_the_same_names(host: SparkHost) -> None:
    script = """
    spark.range({n}).write.saveAsTable("mine")
    spark.range({n}).createOrReplaceGlobalTempView("mine")
    spark.range({n}).write.parquet("mine")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {n}).load()
    stream = rows.writeStream.queryName("stream").option("checkpointLocation", "marks")
    stream.format("memory").trigger(once=True).start().awaitTermination()
    wait()
    tell(spark.table("mine").count(), spark.table("global_temp.mine").count())
    tell(spark.read.parquet("mine").count())
    tell(spark.table("stream").count())
    """
    attempts = [host.start(script.format(n=n), classic=True).ready() for n in (3, 5)]
    for each in attempts:
        each.go_on()
    assert [each.end() for each in attempts] == [0, 0], attempts[0].output + attempts[1].output
    assert [each.values for each in attempts] == [[3] * 4, [5] * 4]


def test_a_killed_task_leaves_no_job_and_no_table(host: SparkHost) -> None:
    script = f"""
    import threading
    spark.sql("create database lost")
    spark.newSession().range(3).count()
    threading.Thread(target=lambda: {LONG_JOB}).start()
    wait()
    """
    attempt = host.start(script, classic=True).ready()
    until(lambda: running_jobs(host.directory))
    attempt.process.kill()
    until(lambda: host.is_quiet)
    _, after = classic(host, "tell([each.name for each in spark.catalog.listDatabases()])")
    assert after.values == [["default"]]


def test_stopping_one_session_leaves_the_others(host: SparkHost) -> None:
    other = host.start(
        "spark.range(3).cache().count()\nwait()\ntell(spark.range(4).count())", classic=True
    )
    other.ready()
    code, attempt = classic(
        host,
        """
        spark.sparkContext.clearJobTags()
        spark.sparkContext.cancelAllJobs()
        spark.catalog.clearCache()
        spark.stop()
        """,
    )
    assert code == 0, attempt.output
    other.go_on()
    assert (other.end(), other.values) == (0, [4]), other.output


def test_what_would_change_the_driver_of_all_is_refused(host: SparkHost, tmp_path: Path) -> None:
    for line in (
        f"spark.sparkContext.addFile('{tmp_path}')",
        "spark.builder.config(**{'key': 'spark.executor.memory', 'value': '4g'}).getOrCreate()",
    ):
        code, attempt = classic(host, line)
        assert (code, attempt.failure) == (1, "UNSUPPORTED"), attempt.output
        assert '"profile": "classic"' in attempt.output


def test_a_process_that_the_script_forks_does_not_close_the_session(host: SparkHost) -> None:
    script = """
    import os
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        tell(spark.range(3).count())
    """
    for is_classic in (True, False):
        code, attempt = host.run(script, classic=is_classic)
        assert (code, attempt.values) == (0, [3]), attempt.output


def test_a_stream_that_never_returns_is_ended_with_the_script(host: SparkHost) -> None:
    code, attempt = classic(
        host,
        """
        import threading, time
        is_called = threading.Event()
        def never(df, n):
            is_called.set()
            time.sleep(36_000)
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        rows.writeStream.foreachBatch(never).start()
        is_called.wait()
        """,
    )
    assert code == 0, attempt.output
    until(lambda: host.is_quiet)
    assert host.works()


def test_jobs_of_a_server_get_cores_in_turn(host: SparkHost) -> None:
    mode = 'sc._jsc.sc().getPoolForName("default").get().schedulingMode().toString()'
    _, attempt = classic(host, f"sc = spark.sparkContext\ntell({mode})")
    assert attempt.values == ["FAIR"], attempt.output
