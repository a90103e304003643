"""Runs what tasks and servers usually run, so that the classes of it get into an archive.

    python -m worker.spark.jvm.cds_training connect ADDRESS

The JVM is a classic driver that serves Spark Connect besides, as a plugin: so one archive is for
both. What runs is of every common kind and on little data; what it comes to is of no interest, and
one part of it that fails leaves classes out of the archive and nothing else. Needs pyspark.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from common.own_http import OPENER
from worker.spark.jvm import doors, gateway, java_command
from worker.spark.jvm.cds_archive import Archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # A name, and no token.
_PORT = "ORCAFLOW_TRAINING_PORT"
_ROOT = str(Path(__file__).resolve().parents[3])
_CONNECT_SECONDS = 120
_HTTP_SECONDS = 20
_WRITE_SECONDS = 240
# Nothing runs so often here that the second compiler would save what it takes.
_COMPILES_LIGHTLY = "-XX:TieredStopAtLevel=1"
_PAGES = (
    "/jobs/",
    "/stages/",
    "/executors/",
    "/SQL/",
    "/connect/",
    "/api/v1/applications",
    "/api/v1/applications/{id}/jobs",
    "/api/v1/applications/{id}/stages?details=false&withSummaries=false",
    "/api/v1/applications/{id}/executors",
)
_CONF = {
    "spark.master": "local[2]",
    "spark.app.name": "orcaflow archive",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    **doors.settings("local[2]"),
    "spark.scheduler.mode": "FAIR",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
    # The installation's defaults hold here too, but nothing of it may reach a site's own metastore,
    # event logs or listeners, or fetch anything.
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.defaultCatalog": "spark_catalog",
    "spark.sql.catalog.spark_catalog": "builtin",
    "spark.eventLog.enabled": "false",
    **dict.fromkeys(
        (
            "spark.extraListeners",
            "spark.jars",
            "spark.jars.packages",
            "spark.sql.extensions",
            "spark.sql.queryExecutionListeners",
            "spark.sql.streaming.streamingQueryListeners",
        ),
        "",
    ),
}


def run(home: str, java: str, wanted: Archive, *, log: Path | None) -> None:
    """Have a JVM write this archive when it ends. Raises what starting it raises."""
    # Where PySpark looks for it in this very process.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="orcaflow-archive-") as directory:
        token = secrets.token_urlsafe(24)
        key = secrets.token_bytes(32) if doors.can_guard_pages(home) else b""
        conf = {
            **_CONF,
            **(doors.page_settings(key) if key else {}),
            "spark.sql.warehouse.dir": f"{directory}/warehouse",
        }
        command = java_command.command(
            java_command.PYTHON_DRIVER,
            conf=conf,
            properties_file=Path(directory, "training.properties"),
            home=home,
            environment={
                **os.environ,
                _TOKEN: token,
                "JAVA_HOME": str(Path(java).parent.parent),
                "SPARK_LOCAL_DIRS": directory,
            },
            archived=lambda _home, _java: wanted,
            scratch=Path(directory),
        )
        flags = wanted.flags()
        argv = [each for each in command.argv if each not in flags]
        argv[1:1] = (f"-XX:ArchiveClassesAtExit={wanted.file}", _COMPILES_LIGHTLY)
        with (log or Path(directory, "training.log")).open("wb") as out:
            started = gateway.start(argv, environment=command.environment, cwd=directory, log=out)
            try:
                with _output_to(out):
                    page = doors.headers(doors.page_token(key) if key else "")
                    _train(started, token, Path(directory), out, page)
            finally:
                started.close(wait_seconds=_WRITE_SECONDS)


def _train(
    started: gateway.Started,
    token: str,
    directory: Path,
    log: IO[bytes],
    headers: Mapping[str, str],
) -> None:
    context = started.context()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    port = _connect_port(spark)
    _try(log, "classic", lambda: _use(spark, directory / "classic"))
    _try(log, "RDDs", lambda: context.parallelize(range(10)).map(str).countByValue())
    if port:
        # A process has one kind of session.
        argv = [
            sys.executable,
            "-P",
            "-m",
            "worker.spark.jvm.cds_training",
            str(directory / "connect"),
        ]
        _try(
            log,
            "Connect",
            lambda: subprocess.run(
                argv,
                env={
                    **os.environ,
                    "PYTHONPATH": _ROOT,
                    _PORT: str(port),
                    _TOKEN: token,
                },
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                timeout=_CONNECT_SECONDS,
                check=True,
            ),
        )
    for page in _PAGES:
        request = urllib.request.Request(  # noqa: S310
            f"{context.uiWebUrl}{page.format(id=context.applicationId)}", headers=dict(headers)
        )
        _try(log, page, lambda at=request: OPENER.open(at, timeout=_HTTP_SECONDS).read())  # type: ignore[misc]
    spark.stop()


@contextlib.contextmanager
def _output_to(log: IO[bytes]) -> Iterator[None]:
    """Send all output of the training to a file: it is for nobody, and of several processes."""
    kept = [os.dup(1), os.dup(2)]
    sys.stdout.flush()
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        for standard, file in enumerate(kept, start=1):
            os.dup2(file, standard)
            os.close(file)


def _try(log: IO[bytes], name: str, part: Callable[[], object]) -> None:
    try:
        part()
    except Exception as error:  # noqa: BLE001  # See above.
        log.write(f"{name}: {type(error).__name__}: {error}\n".encode(errors="replace"))


def _connect_port(spark: SparkSession) -> int:
    """Return the plugin's port, 0 if it has none: only the plugin knows the port that it got."""
    try:
        name = "org.apache.spark.sql.connect.service.SparkConnectService$"
        service = getattr(getattr(spark._jvm, name), "MODULE$")  # noqa: SLF001
        return int(service.localPort())
    except Exception:  # noqa: BLE001  # An installation without Connect, or another one's name.
        return 0


def _use(spark: Any, directory: Path) -> None:
    """A little of everything, in either kind of session."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    spark.range(1000).selectExpr("sum(id)").collect()
    people = spark.createDataFrame(
        [(n, f"name {n}", float(n), n % 3 == 0) for n in range(20)],
        "id long, name string, amount double, good boolean",
    )
    people.createOrReplaceTempView("people")
    for form in ("parquet", "csv", "json"):
        path = str(directory / form)
        people.write.mode("overwrite").format(form).option("header", "true").save(path)
        spark.read.format(form).option("header", "true").load(path).count()
    read = spark.read.parquet(str(directory / "parquet"))
    read.filter("amount > 3 AND name LIKE 'name%'").show(3)
    joined = read.join(f.broadcast(people.select("id", f.col("name").alias("other"))), "id")
    joined.groupBy("good").agg(
        f.sum("amount"), f.avg("amount"), f.countDistinct("other"), f.max("name")
    ).orderBy("good").toPandas()
    read.join(people.withColumnRenamed("name", "n"), "id", "left").repartition(2).count()
    ranked = f.row_number().over(Window.partitionBy("good").orderBy(f.desc("amount")))
    read.withColumn("rank", ranked).where("rank <= 2").collect()
    spark.sql(
        "SELECT good, to_date('2026-01-31') AS day, collect_list(name) AS names, count(*) AS n"
        " FROM people WHERE id < :most GROUP BY 1, 2 HAVING count(*) > 0 ORDER BY n DESC LIMIT 5",
        args={"most": 10},
    ).show()
    spark.sql("WITH a AS (SELECT id FROM people) SELECT * FROM a UNION SELECT -1").collect()
    table = f"t_{os.getpid()}"
    people.write.saveAsTable(table)
    people.write.insertInto(table)
    spark.table(table).count()
    spark.sql("DROP TABLE IDENTIFIER(:name)", args={"name": table}).collect()
    spark.sql("SHOW TABLES").collect()
    people.cache().count()
    people.explain()
    double = f.udf(lambda value: value * 2, "double")
    people.select(double("amount")).collect()
    people.groupBy("good").applyInPandas(lambda group: group, people.schema).count()
    try:
        spark.sql("SELECT nowhere FROM people")
    except Exception:  # noqa: BLE001  # It is wrong on purpose: errors need classes too.
        spark.sql("SELECT 1").collect()


def main() -> None:
    """Use the Connect server at the port that a variable names."""
    # So that pyspark.sql's functions and types are those of such a session.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    from pyspark.sql.connect.session import SparkSession

    from worker.spark.jvm.connect_channel import LoopbackChannel

    channel = LoopbackChannel(int(os.environ[_PORT]), f"token={os.environ[_TOKEN]}")
    spark = SparkSession.builder.channelBuilder(channel).create()
    _use(spark, Path(sys.argv[1]))
    spark.stop()


if __name__ == "__main__":
    main()
