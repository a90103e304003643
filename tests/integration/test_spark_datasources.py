"""Data sources in real Spark sessions: they can be read, and nothing shows their passwords.

Apache Derby stands in for a database, since Spark brings its driver along.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.ports import free_port
from tests import light_jvm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "hunter2hunter2"

_SCRIPT = """
shop = datasource("shop")
print("options", shop)
orders = spark.range(3).withColumnRenamed("id", "n")
orders.write.format("jdbc").options(**shop).option("dbtable", "ORDERS").save()
read = spark.read.format("jdbc").options(**shop).option("dbtable", "ORDERS").load()
print("rows", read.count())
read.explain("extended")
print("catalog", spark.sql("select sum(n) from shop.ME.ORDERS").first()[0])
spark.table("shop.ME.ORDERS").explain("extended")
print("set", spark.sql("set").where("key like '%shop.password'").first()[1])
"""

_PROGRAM = """
import json, sys, urllib.request
from pathlib import Path
from pyspark.sql import SparkSession
from worker.spark.session import work
from worker.spark.session.job import Job

mode, port, job_file, pages_file = sys.argv[1:]
builder = SparkSession.builder.config("spark.ui.enabled", "true").config("spark.ui.port", port)
builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "WARN")
builder = builder.config("spark.sql.shuffle.partitions", "1")
connect = mode == "connect"
spark = (builder.remote("local[1]") if connect else builder.master("local[1]")).getOrCreate()
job = Job.read(job_file)
code = work.run(spark, job, work.compiled(job))
base = f"http://localhost:{port}"

def page(path):
    return urllib.request.urlopen(base + path, timeout=30).read().decode()

application = json.loads(page("/api/v1/applications"))[0]["id"]
about = f"/api/v1/applications/{application}"
paths = ["/SQL/", "/jobs/", "/environment/", f"{about}/sql?details=true&planDescription=true",
         f"{about}/environment", f"{about}/jobs", *(["/connect/"] if connect else [])]
Path(pages_file).write_text(json.dumps({path: page(path) for path in paths}))
spark.stop()
sys.exit(code)
"""


@pytest.mark.parametrize("mode", ["classic", "connect"])
def test_a_data_source_is_read_and_its_password_is_shown_nowhere(mode: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    job = {
        "kind": "worker.spark.session.script",
        "script": str(script),
        "secrets": [PASSWORD],
        "datasources": {
            "shop": {
                "url": "jdbc:derby:memory:shop;create=true",
                "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
                "user": "me",
                "password": PASSWORD,
            }
        },
    }
    job_file = tmp_path / "job.json"
    job_file.write_text(json.dumps(job))
    pages_file = tmp_path / "pages.json"
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        # Else Derby leaves its log wherever it is started.
        "JDK_JAVA_OPTIONS": f"-Dderby.stream.error.file={tmp_path / 'derby.log'}",
        "PYSPARK_SUBMIT_ARGS": f"{light_jvm.arguments(light_jvm.conf())} pyspark-shell",
    }
    done = subprocess.run(
        [sys.executable, str(program), mode, str(free_port()), str(job_file), str(pages_file)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert not job_file.exists()
    assert "rows 3\n" in told
    assert "catalog 3\n" in told
    assert "set *********(redacted)\n" in told
    assert "'password': '******'" in told
    assert "JDBCRelation(ORDERS)" in told
    assert PASSWORD not in told
    pages = json.loads(pages_file.read_text())
    assert {path for path, text in pages.items() if PASSWORD in text} == set()
    assert "ORDERS" in pages["/SQL/" if mode == "classic" else "/connect/"] + str(pages)
