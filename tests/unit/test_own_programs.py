"""Tasks whose code is Orcaflow's own: streams and topologies, and the sessions that they get."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from common.spark_config import SparkProfile
from tests.unit.spark_launches import PROFILES, SOCKET, job_of, parameter, prepared
from tests.unit.stream_specs import SMALL
from worker.launching.base import TaskParameterError


def test_a_range_of_a_topic_has_its_parameters_in_its_job_alone(tmp_path: Path) -> None:
    spec = copy.deepcopy(SMALL)
    spec["spec"]["ioConfig"]["consumerProperties"]["sasl.password"] = "${kafka_password}"
    made = prepared(
        tmp_path,
        {"spec": spec, "from": "$[yyyy-MM-dd]", "to": {"0": 7}},
        task_type="STREAM",
        global_params=[parameter("kafka_password", "VARCHAR", "hunter2")],
    )
    job = job_of(made)
    assert (job["kind"], job["master"]) == ("worker.spark.streaming.bounded", "local[2]")
    assert (job["from"][:5], job["to"]) == ("2026-", {"0": 7})
    consumer = job["spec"]["spec"]["ioConfig"]["consumerProperties"]
    assert consumer["sasl.password"] == "hunter2"
    assert "hunter2" not in " ".join(made.argv)


def test_a_stream_has_a_driver_of_the_workers_own_python_whatever_the_profiles_say(
    tmp_path: Path,
) -> None:
    made = prepared(
        tmp_path,
        {"supervisor": "flights", "cores": 3, "conf": {"spark.sql.shuffle.partitions": 7}},
        task_type="STREAM",
        default_profile="big",
    )
    assert made.argv[0] == sys.executable
    assert Path(made.argv[3]).name == "classic.py"
    job = job_of(made)
    assert (job["kind"], job["master"]) == ("worker.spark.streaming.task", "local[3]")
    assert job["conf"]["spark.driver.memory"] == "512M"
    assert job["conf"]["spark.sql.shuffle.partitions"] == "7"
    assert "spark.jars" not in job["conf"]
    assert Path(made.environment["SPARK_HOME"]).name == "pyspark"
    assert made.environment["PYSPARK_PYTHON"] == sys.executable
    # Spark's own Python processes import the source.
    assert (Path(made.environment["PYTHONPATH"]) / "worker" / "tasks").is_dir()


def test_a_stream_with_a_profile_shares_its_servers(tmp_path: Path) -> None:
    shared = {"supervisor": "flights", "cores": 3, "profile": "default"}
    made = prepared(tmp_path, shared, task_type="STREAM")
    assert made.argv[5:7] == ("task", "default")
    job = job_of(made)
    assert (job["kind"], job["profile"], job["cores"]) == (
        "worker.spark.streaming.task",
        "default",
        3,
    )
    assert job["conf"]["spark.sql.shuffle.partitions"] == "3"
    assert "spark.driver.memory" not in job["conf"]
    kept = {**shared, "conf": {"spark.sql.shuffle.partitions": 7}}
    job = job_of(prepared(tmp_path, kept, task_type="STREAM"))
    assert job["conf"]["spark.sql.shuffle.partitions"] == "7"
    own = job_of(prepared(tmp_path, {**shared, "profile": "classic"}, task_type="STREAM"))
    assert (own["profile"], own["master"]) == ("classic", "local[3]")


@pytest.mark.parametrize(
    ("changes", "socket", "cure"),
    [
        ({"profile": "big"}, SOCKET, "name a profile whose master is local"),
        ({"profile": "apart"}, SOCKET, f'name a profile with python = "{sys.executable}"'),
        ({"driverMemory": "1g"}, SOCKET, "belongs to a driver of its own"),
        ({"profile": "huge"}, SOCKET, "no Spark profile 'huge'"),
        ({"profile": "default"}, "", "this worker keeps no Spark servers"),
        ({"conf": {"spark.executor.cores": 2}}, SOCKET, "put it into the profile"),
    ],
)
def test_a_profile_that_no_stream_can_share_is_refused_with_the_cure(
    tmp_path: Path, changes: dict[str, Any], socket: str, cure: str
) -> None:
    params = {"supervisor": "flights", "profile": "default", **changes}
    profiles = {**PROFILES, "apart": SparkProfile(python="/usr/bin/python3")}
    with pytest.raises(TaskParameterError) as caught:
        prepared(tmp_path, params, task_type="STREAM", socket=socket, profiles=profiles)
    assert cure in str(caught.value)


def test_a_topology_has_a_driver_of_the_workers_own_python_and_no_code_in_its_job(
    tmp_path: Path,
) -> None:
    made = prepared(
        tmp_path,
        {"topology": "words", "cores": 4, "driverMemory": "2G", "conf": {"spark.a.b": "c"}},
        task_type="TOPOLOGY",
        default_profile="big",
    )
    assert (made.argv[0], Path(made.argv[3]).name) == (sys.executable, "classic.py")
    job = job_of(made)
    assert (job["kind"], job["master"]) == ("worker.spark.topology.task", "local[4]")
    assert (job["conf"]["spark.driver.memory"], job["conf"]["spark.a.b"]) == ("2G", "c")
    assert "rawScript" not in job
    assert (Path(made.environment["PYTHONPATH"]) / "worker" / "tasks").is_dir()
