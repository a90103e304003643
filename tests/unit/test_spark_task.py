"""The keys of a SPARK task: the arguments of spark-submit, and the job of its runner."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.spark_config import SparkConfig
from tests.claims import a_claimed_task
from worker.launcher import Launcher, seen_by_tasks
from worker.launching.base import TaskParameterError, TaskSettings
from worker.processes.starting import Prepared
from worker.spark.managers.tags import Tags
from worker.workspace import attempt_folders

CLUSTER = "0123456789ab"
MANAGERS = SparkConfig(
    yarn_urls="http://rm1:8088,http://rm2:8088",
    standalone_urls="http://h:8080",
    kubernetes_url="https://k8s:6443",
    kubernetes_namespace="jobs,mine",
    history_url="http://history:18080",
)


class Desk:
    """Prepares SPARK tasks below one directory, with a Spark that is only there to be found."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.spark = home / "spark"
        (self.spark / "bin").mkdir(parents=True)
        submit = self.spark / "bin" / "spark-submit"
        submit.write_text("#!/bin/sh\n")
        submit.chmod(0o755)
        (home / "job.jar").touch()
        (home / "job.py").touch()
        self.settings = TaskSettings(
            spark_home=str(self.spark),
            environment=seen_by_tasks({}),
            spark=MANAGERS,
            tags=Tags(cluster=CLUSTER, key="secret", unsealed_until=1),
        )

    def prepared(self, params: Mapping[str, Any], **row: Any) -> Prepared:
        paths = attempt_folders(self.home / "tasks").paths(1, 2, 3)
        common = {
            "mainClass": "com.x.Job",
            "mainJar": {"res": str(self.home / "job.jar")},
            "programType": "SCALA",
        }
        node = {"params": {**common, **params}, **row.pop("node", {})}
        launcher = Launcher(
            home=self.home,
            data_dir=self.home / "data",
            zone=ZoneInfo("UTC"),
            tenant_mode="single",
            settings=self.settings,
        )
        values = {"task_type": "SPARK", "task_json": json.dumps(node), **row}
        return launcher.prepare(a_claimed_task(paths, **values))

    def job(self, params: Mapping[str, Any], **row: Any) -> dict[str, Any]:
        """The job file of the runner."""
        made = self.prepared(params, **row)
        assert made.job_file is not None
        found: dict[str, Any] = json.loads(made.job_file.read_text())
        return found

    def words(self, params: Mapping[str, Any], **row: Any) -> list[str]:
        """The arguments of spark-submit, without those that are always the same."""
        argv = self.job(params, **row)["argv"]
        assert argv[0] == f"{self.spark}/bin/spark-submit"
        position = argv.index("--properties-file")
        assert argv[position + 1] == str(self.home / "tasks/1/2/3/spark_1_2_3.conf")
        named = 2 if argv[position + 2] == "--name" else 0
        return argv[1:position] + argv[position + 2 + named :]

    def mistake(self, params: Mapping[str, Any], **row: Any) -> str:
        with pytest.raises(TaskParameterError) as caught:
            self.prepared(params, **row)
        return str(caught.value)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# The arguments.


def test_every_key_becomes_an_argument_in_the_contract_s_order(desk: Desk) -> None:
    assert desk.words(
        {
            "deployMode": "client",
            "driverCores": "1",
            "driverMemory": "512M",
            "numExecutors": 2,
            "executorMemory": "2G",
            "executorCores": 3,
            "mainArgs": "--day $[yyyyMMdd] 'two words'",
            "others": "--conf spark.ui.port=0",
            "sparkVersion": "SPARK2",
        },
        queue="etl",
    ) == [
        *("--master", "yarn", "--deploy-mode", "client"),
        *("--class", "com.x.Job"),
        *("--driver-cores", "1", "--driver-memory", "512M"),
        *("--num-executors", "2", "--executor-cores", "3", "--executor-memory", "2G"),
        *("--queue", "etl"),
        *("--conf", "spark.ui.port=0"),
        str(desk.home / "tasks/1/2/3/job.jar"),
        *("--day", "20260102", "two words"),
    ]


def test_what_is_not_set_is_not_said(desk: Desk) -> None:
    assert desk.words({"driverMemory": 1024})[-3:-1] == ["--driver-memory", "1024m"]
    words = desk.words({"driverCores": 0, "driverMemory": "", "others": None, "conf": {}})
    assert words[:-1] == ["--master", "yarn", "--deploy-mode", "cluster", "--class", "com.x.Job"]


@pytest.mark.parametrize(
    ("params", "target"),
    [
        ({}, ["--master", "yarn", "--deploy-mode", "cluster"]),
        ({"deployMode": "local"}, ["--master", "local"]),
        ({"deployMode": "local", "master": "local[2]"}, ["--master", "local[2]"]),
        ({"deployMode": "client", "master": "local[2]"}, ["--master", "local[2]"]),
        ({"master": "local[*]"}, ["--master", "local[*]"]),
        (
            {"deployMode": "client", "master": "spark://h:7077"},
            ["--master", "spark://h:7077", "--deploy-mode", "client"],
        ),
        (
            {"master": "k8s://https://k8s:6443"},
            ["--master", "k8s://https://k8s:6443", "--deploy-mode", "cluster"],
        ),
    ],
)
def test_the_master_follows_from_the_deploy_mode_unless_it_is_given(
    desk: Desk, params: dict[str, str], target: list[str]
) -> None:
    assert desk.words(params)[: len(target) + 1] == [*target, "--class"]


def test_files_are_found_by_name_and_urls_are_left_alone(desk: Desk) -> None:
    (desk.home / "resources").mkdir()
    for name in ("a.jar", "env.tar.gz", "lib.py", "x.txt"):
        (desk.home / "resources" / name).touch()
    place = desk.home / "tasks/1/2/3"
    job = desk.job(
        {
            "jars": "a.jar,hdfs:///lib/b.jar",
            "files": ["x.txt"],
            "archives": ["env.tar.gz#environment"],
            "pyFiles": [{"res": "lib.py"}],
            "packages": "org.a:b:1, org.c:d_2.13:2",
        }
    )
    argv = job["argv"]
    position = argv.index("--jars")
    assert argv[position : position + 10] == [
        *("--jars", f"{place}/a.jar,hdfs:///lib/b.jar"),
        *("--files", f"{place}/x.txt"),
        *("--archives", f"{place}/env.tar.gz#environment"),
        *("--py-files", f"{place}/lib.py"),
        *("--packages", "org.a:b:1,org.c:d_2.13:2"),
    ]
    # Files of this host are listed with their checksums.
    assert job["resources"] == [
        f"{place}/{name}" for name in ("job.jar", "a.jar", "x.txt", "env.tar.gz", "lib.py")
    ]


def test_a_principal_goes_with_its_keytab(desk: Desk) -> None:
    (desk.home / "me.keytab").touch()
    keytab = str(desk.home / "me.keytab")
    words = desk.words({"principal": "me@REALM", "keytab": keytab})
    position = words.index("--principal")
    assert words[position : position + 4] == [
        *("--principal", "me@REALM"),
        *("--keytab", str(desk.home / "tasks/1/2/3/me.keytab")),
    ]
    assert "params.keytab" in desk.mistake({"principal": "me@REALM"})
    assert "params.principal" in desk.mistake({"keytab": keytab})


def test_a_queue_in_others_goes_before_the_tenant_s(desk: Desk) -> None:
    words = desk.words({"others": "--queue mine"}, queue="etl")
    assert words.count("--queue") == 1
    assert "etl" not in words


def test_a_queue_of_the_task_s_own_goes_before_the_tenant_s(desk: Desk) -> None:
    words = desk.words({"queue": "mine"}, queue="etl")
    assert words[words.index("--queue") + 1] == "mine"
    words = desk.words({"queue": "a", "others": "--queue b"}, queue="etl")
    assert [words.count("--queue"), words[words.index("--queue") + 1]] == [1, "b"]


def test_others_win_over_keys_as_in_the_original(desk: Desk) -> None:
    (desk.home / "lib.jar").touch()
    params = {
        "driverMemory": "1G",
        "numExecutors": 2,
        "jars": ["hdfs://h/old.jar"],
        "others": "--num-executors 7 --driver-memory=2G --driver-cores 3 --executor-cores 4"
        f" --executor-memory ${{size}} --jars {desk.home}/lib.jar,hdfs://h/new.jar"
        " --packages org.x:y:1.0 --verbose",
    }
    local = [{"prop": "size", "direct": "IN", "type": "VARCHAR", "value": "3G"}]
    assert desk.words({**params, "localParams": local})[:-1] == [
        *("--master", "yarn", "--deploy-mode", "cluster", "--class", "com.x.Job"),
        *("--driver-cores", "3", "--driver-memory", "2G"),
        *("--num-executors", "7", "--executor-cores", "4", "--executor-memory", "3G"),
        *("--jars", f"{desk.home}/tasks/1/2/3/lib.jar,hdfs://h/new.jar"),
        *("--packages", "org.x:y:1.0", "--verbose"),
    ]


def test_files_in_others_are_fetched_as_those_of_keys_are(desk: Desk) -> None:
    for name in ("app.conf", "m.py", "env.zip", "me.keytab"):
        (desk.home / name).touch()
    resources = [{"res": str(desk.home / name)} for name in ("app.conf", "m.py")]
    words = desk.words(
        {
            "resourceList": resources,
            "others": f"--files app.conf --py-files m.py --archives {desk.home}/env.zip#env"
            f" --principal me@REALM --keytab {desk.home}/me.keytab",
        }
    )
    folder = desk.home / "tasks/1/2/3"
    assert words[words.index("--files") : -1] == [
        *("--files", f"{folder}/app.conf", "--archives", f"{folder}/env.zip#env"),
        *("--py-files", f"{folder}/m.py"),
        *("--principal", "me@REALM", "--keytab", f"{folder}/me.keytab"),
    ]


def test_memory_in_others_is_raised_after_an_attempt_with_too_little(desk: Desk) -> None:
    words = desk.job(
        {"others": "--executor-memory 1g"},
        memory_factor=2.0,
        node={"memoryRetry": {"factor": 2, "ceiling": "6g"}},
    )["argv"]
    assert words[words.index("--executor-memory") + 1] == "2048m"


def test_a_python_program_needs_no_class(desk: Desk) -> None:
    program = {"programType": "PYTHON", "mainJar": {"res": str(desk.home / "job.py")}}
    assert "--class" not in desk.words({**program, "mainClass": "ignored"})
    assert ".py" in desk.mistake({"programType": "PYTHON"})


def test_no_argument_is_ever_read_by_a_shell(desk: Desk) -> None:
    words = desk.words(
        {"mainArgs": "; rm -rf ~ $(id) `id`"}, queue="x --conf spark.yarn.submit.file=/etc/passwd"
    )
    assert words[-6:] == [";", "rm", "-rf", "~", "$(id)", "`id`"]
    assert "x --conf spark.yarn.submit.file=/etc/passwd" in words


@pytest.mark.parametrize(
    ("params", "key"),
    [
        ({"mainArgs": "'open"}, "mainArgs"),
        ({"others": '"open'}, "others"),
        ({"others": "--master local"}, "params.master"),
        ({"others": "--deploy-mode=client"}, "params.deployMode"),
        ({"others": "--conf 'a=b\nc'"}, "others"),
        ({"others": "--num-executors many"}, "params.others: --num-executors must be a whole"),
        ({"others": "--driver-memory lots"}, "params.others: --driver-memory must be like 512M"),
        ({"others": "--packages x"}, "params.others: --packages must be like org.example"),
        ({"others": "--principal me@REALM"}, "keytab"),
        ({"others": "--files gone.conf"}, "gone.conf"),
        ({"deployMode": "moon"}, "deployMode"),
        ({"deployMode": "cluster", "master": "local"}, "deployMode"),
        ({"deployMode": "local", "master": "yarn"}, "deployMode"),
        ({"master": "mesos://h:5050"}, "master"),
        ({"programType": "COBOL"}, "programType"),
        ({"sparkVersion": "SPARK9"}, "sparkVersion"),
        ({"driverCores": "many"}, "driverCores"),
        ({"driverMemory": "lots"}, "driverMemory"),
        ({"executorMemoryOverhead": "1.5g"}, "executorMemoryOverhead"),
        ({"mainClass": ""}, "mainClass"),
        ({"mainJar": None}, "mainJar"),
        ({"mainJar": {"id": 5}}, "mainJar"),
        ({"mainJar": {"res": "gone.jar"}}, "gone.jar"),
        ({"mainJar": {"res": "../../gone.jar"}}, "mainJar"),
        ({"mainJar": {"res": "--conf=spark://x"}}, "mainJar"),
        ({"resourceList": {"res": "x"}}, "resourceList"),
        ({"resourceList": [{"res": "x"}]}, "resourceList[0]"),
        ({"jars": ["gone.jar"]}, "jars[0]"),
        ({"files": ["a,b"]}, "files[0]"),
        ({"packages": "not maven"}, "packages[0]"),
        ({"mainArgs": {"a": 1}}, "mainArgs"),
        ({"conf": ["spark.x=1"]}, "conf"),
        ({"conf": {"spark.x": {}}}, "conf.spark.x"),
        ({"env": {"A B": "1"}}, "env"),
        ({"env": {"JAVA_TOOL_OPTIONS": "-javaagent:x"}}, "JAVA_TOOL_OPTIONS"),
        ({"namespace": "jobs"}, "namespace"),
        ({"namespace": "No Name", "master": "k8s://https://k8s:6443"}, "namespace"),
        ({"principal": "-x", "keytab": "y"}, "principal"),
    ],
)
def test_a_mistake_in_a_spark_task_is_named(desk: Desk, params: dict[str, Any], key: str) -> None:
    assert key in desk.mistake(params)


def test_a_missing_spark_is_named(desk: Desk) -> None:
    (desk.spark / "bin" / "spark-submit").unlink()
    assert "worker.spark_home" in desk.mistake({})


# Settings that go by the file and not by an argument.


def test_all_of_conf_goes_by_a_file_that_only_the_attempt_can_read(desk: Desk) -> None:
    made = desk.prepared({"conf": {"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.n": 3}})
    assert made.job_file is not None
    assert made.job_file.stat().st_mode & 0o777 == 0o600
    job = json.loads(made.job_file.read_text())
    assert job["conf"]["spark.hadoop.fs.s3a.secret.key"] == "hunter2"
    assert job["conf"]["spark.n"] == "3"
    assert "hunter2" not in " ".join((*made.argv, *job["argv"], made.header))
    assert "hunter2" in job["secrets"]


def test_a_secret_in_the_environment_is_masked_where_it_is_repeated(desk: Desk) -> None:
    made = desk.prepared({"env": {"API_TOKEN": "hunter2"}, "mainArgs": "--say hunter2"})
    assert "hunter2" not in made.header
    assert "hunter2" not in " ".join(made.environment.values())


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("SPARK_HOME", "worker.spark_home"),
        ("SPARK_CONF_DIR", "params.conf"),
        ("SPARK_ENV_LOADED", "params.conf"),
        ("SPARK_DIST_CLASSPATH", "params.jars"),
        ("JAVA_HOME", "worker's own environment"),
        ("PATH", "worker's own environment"),
        ("HADOOP_CONF_DIR", "worker's own environment"),
        ("YARN_CONF_DIR", "worker's own environment"),
    ],
)
def test_which_spark_runs_and_where_is_not_the_task_s_to_say(
    desk: Desk, name: str, cure: str
) -> None:
    why = desk.mistake({"env": {name: "/tmp/mine"}})
    assert f"params.env: the variable {name} is not allowed" in why
    assert cure in why
    assert "/tmp/mine" not in why


def test_java_may_be_elsewhere_where_executors_run(desk: Desk) -> None:
    conf = {"spark.executorEnv.JAVA_HOME": "/opt/java", "spark.yarn.appMasterEnv.JAVA_HOME": "/j"}
    assert desk.job({"conf": conf})["conf"]["spark.executorEnv.JAVA_HOME"] == "/opt/java"


def test_every_application_carries_the_tag_of_its_attempt(desk: Desk) -> None:
    tag = desk.settings.tags.of(3)
    job = desk.job({})
    assert job["tag"] == tag
    assert job["conf"]["spark.yarn.tags"] == f"{tag},orcaflow-{CLUSTER}"
    assert job["conf"]["spark.orcaflow.attempt"] == tag
    on_kubernetes = desk.job({"master": "k8s://https://k8s:6443"})["conf"]
    assert on_kubernetes["spark.kubernetes.driver.label.orcaflow-attempt"] == tag
    assert on_kubernetes["spark.kubernetes.executor.label.orcaflow-cluster"] == CLUSTER


def test_x102_a_standalone_application_s_tag_is_in_its_name_but_in_no_command_line(
    desk: Desk,
) -> None:
    job = desk.job({"master": "spark://h:7077", "deployMode": "client", "name": "mine"})
    assert job["conf"]["spark.app.name"] == f"mine [{desk.settings.tags.of(3)}]"
    assert "orcaflow-" not in " ".join(job["argv"])


def test_an_application_is_named_after_its_task(desk: Desk) -> None:
    argv = desk.job({})["argv"]
    assert argv[argv.index("--name") + 1] == "daily load"


def test_spark_submit_leaves_when_it_has_submitted(desk: Desk) -> None:
    assert desk.job({})["conf"]["spark.yarn.submit.waitAppCompletion"] == "false"
    on_kubernetes = desk.job({"master": "k8s://https://k8s:6443"})
    assert on_kubernetes["conf"]["spark.kubernetes.submission.waitAppCompletion"] == "false"
    assert on_kubernetes["in_cluster"] is True


def test_yarn_runs_a_program_once_in_an_attempt_unless_the_task_says_otherwise(
    desk: Desk,
) -> None:
    once = {"spark.yarn.maxAppAttempts": "1"}
    assert desk.job({})["fallbacks"] == once
    assert desk.job({"conf": {"spark.yarn.maxAppAttempts": "3"}})["fallbacks"] == {}
    assert desk.job({"others": "--conf spark.yarn.maxAppAttempts=3"})["fallbacks"] == {}
    assert desk.job({"deployMode": "client"})["fallbacks"] == {}


def test_on_a_standalone_cluster_spark_submit_waits_since_the_master_does_not_tell_the_end(
    desk: Desk,
) -> None:
    job = desk.job({"master": "spark://h:7077", "deployMode": "cluster"})
    assert job["conf"]["spark.standalone.submit.waitAppCompletion"] == "true"
    assert job["in_cluster"] is False


def test_a_driver_of_our_own_takes_any_free_port_for_its_page(desk: Desk) -> None:
    assert desk.job({"deployMode": "client"})["conf"]["spark.ui.port"] == "0"
    chosen = desk.job({"deployMode": "client", "conf": {"spark.ui.port": 4141}})
    assert chosen["conf"]["spark.ui.port"] == "4141"
    assert "spark.ui.port" not in desk.job({})["conf"]


def test_a_driver_of_our_own_keeps_other_accounts_out(desk: Desk) -> None:
    job = desk.job({"deployMode": "local", "master": "local[2]"})
    assert job["conf"]["spark.authenticate"] == "true"
    assert job["conf"]["spark.driver.bindAddress"] == "127.0.0.1"
    assert job["conf"]["spark.ui.killEnabled"] == "false"
    client = desk.job({"deployMode": "client"})
    assert client["conf"]["spark.ui.killEnabled"] == "false"
    # Its executors are elsewhere.
    assert "spark.driver.bindAddress" not in client["conf"]
    chosen = desk.job({"deployMode": "client", "conf": {"spark.ui.killEnabled": "true"}})
    assert chosen["conf"]["spark.ui.killEnabled"] == "true"
    assert not {"spark.authenticate", "spark.ui.killEnabled"} & desk.job({})["conf"].keys()


def test_spark_submit_keeps_its_temporary_files_in_the_attempts_directory(desk: Desk) -> None:
    job = desk.job({})
    folder = desk.home / "tasks/1/2/3/spark-tmp"
    assert job["environment"]["SPARK_SUBMIT_OPTS"] == f'"-Djava.io.tmpdir={folder}"'
    assert folder.is_dir()


def test_variables_reach_the_driver_and_the_executors_wherever_they_run(desk: Desk) -> None:
    variables = {"env": {"REGION": "eu"}}
    job = desk.job(variables)
    assert job["environment"]["REGION"] == "eu"
    assert job["conf"]["spark.yarn.appMasterEnv.REGION"] == "eu"
    assert job["conf"]["spark.executorEnv.REGION"] == "eu"
    on_kubernetes = desk.job({**variables, "master": "k8s://https://k8s:6443"})["conf"]
    assert on_kubernetes["spark.kubernetes.driverEnv.REGION"] == "eu"
    assert "spark.executorEnv.REGION" not in desk.job({**variables, "deployMode": "local"})["conf"]


def test_the_worker_s_own_python_is_not_looked_for_on_other_hosts(desk: Desk) -> None:
    assert "PYSPARK_PYTHON" not in desk.job({})["environment"]
    assert "PYSPARK_PYTHON" in desk.job({"deployMode": "client"})["environment"]


def test_the_namespace_is_the_task_s_or_the_first_configured_one(desk: Desk) -> None:
    master = {"master": "k8s://https://k8s:6443"}
    assert desk.job(master)["namespace"] == "jobs"
    job = desk.job({**master, "namespace": "mine"})
    assert job["namespace"] == "mine"
    assert job["conf"]["spark.kubernetes.namespace"] == "mine"


@pytest.mark.parametrize("mode", ["cluster", "client"])
def test_a_namespace_that_nobody_looks_into_is_refused(desk: Desk, mode: str) -> None:
    master = {"master": "k8s://https://k8s:6443", "deployMode": mode}
    why = desk.mistake({**master, "namespace": "theirs"})
    assert "params.namespace: 'theirs'" in why
    assert "spark.kubernetes_namespace" in why


# The managers to query.


def test_the_runner_is_told_whom_to_ask_and_whom_lost_attempts_left(desk: Desk) -> None:
    job = desk.job({}, lost_attempts=(2, 1), ended_attempts=(1,))
    tags = desk.settings.tags
    assert job["managers"]["yarn_urls"] == ["http://rm1:8088", "http://rm2:8088"]
    assert job["attach_tags"] == [tags.of(2), tags.of(1), f"orcaflow-{CLUSTER}-1"]
    assert job["end_tags"] == [tags.of(1), f"orcaflow-{CLUSTER}-1"]


@pytest.mark.parametrize(
    ("master", "key"),
    [
        ("yarn", "spark.yarn_urls"),
        ("k8s://https://k8s:6443", "spark.kubernetes_url"),
        ("spark://h:7077", "spark.standalone_urls"),
    ],
)
def test_cluster_mode_needs_somebody_to_ask(tmp_path: Path, master: str, key: str) -> None:
    desk = Desk(tmp_path)
    desk.settings = TaskSettings(
        spark_home=str(desk.spark), environment=seen_by_tasks({}), tags=Tags(cluster=CLUSTER)
    )
    assert key in desk.mistake({"master": master})
    client = desk.prepared({"master": master, "deployMode": "client"})
    # The page of a standalone Master can be guessed, and usually is at that address.
    is_told = f"{key} in worker.toml does not name its manager" in client.header
    assert is_told is not master.startswith("spark://")


def test_a_token_is_for_the_configured_server_alone(desk: Desk) -> None:
    assert "spark.kubernetes_url" in desk.mistake({"master": "k8s://https://elsewhere:6443"})


def test_only_a_driver_of_our_own_can_put_out_parameters_by_printing(desk: Desk) -> None:
    local = [{"prop": "n", "direct": "OUT", "type": "INTEGER", "value": ""}]
    ours = desk.prepared({"deployMode": "client", "localParams": local}).outputs
    assert ours is not None
    assert ours.log_from is not None
    elsewhere = desk.prepared({"localParams": local}).outputs
    assert elsewhere is not None
    assert elsewhere.log_from is None


def test_facts_are_written_where_the_worker_looks(desk: Desk) -> None:
    made = desk.prepared({})
    assert made.environment["ORCAFLOW_SPARK_FACTS"] == str(made.facts_file)


# Memory.

_RAISING = {"memoryRetry": {"factor": 2, "ceiling": "6g"}}


def test_an_attempt_after_one_that_had_too_little_memory_gets_more(desk: Desk) -> None:
    job = desk.job(
        {
            "deployMode": "client",
            "driverMemory": "1G",
            "executorMemory": "4g",
            "executorMemoryOverhead": "512m",
            "conf": {"spark.executor.pyspark.memory": "1g"},
            "others": "--conf spark.driver.memoryOverhead=300m",
        },
        memory_factor=2.0,
        node=_RAISING,
    )
    words = job["argv"]
    assert words[words.index("--driver-memory") + 1] == "2048m"
    assert words[words.index("--executor-memory") + 1] == "6144m"  # Not above the ceiling.
    assert job["conf"]["spark.executor.memoryOverhead"] == "1024m"
    assert job["conf"]["spark.executor.pyspark.memory"] == "2048m"
    assert "spark.driver.memoryOverhead=600m" in words
    assert job["memory"]["keys"] == {}


def test_memory_that_only_the_installation_says_is_raised_by_the_runner(desk: Desk) -> None:
    job = desk.job({"executorMemory": "1g"}, memory_factor=2.0, node=_RAISING)
    assert job["memory"] == {
        "factor": 2.0,
        "ceiling_mb": 6144,
        "keys": {
            "spark.driver.memory": True,
            "spark.driver.memoryOverhead": False,
            "spark.executor.memoryOverhead": False,
            "spark.executor.pyspark.memory": False,
        },
    }


def test_a_first_attempt_gets_what_is_written(desk: Desk) -> None:
    job = desk.job({"driverMemory": "1G"}, node=_RAISING)
    assert job["argv"][job["argv"].index("--driver-memory") + 1] == "1G"
    assert job["memory"] is None


def test_memory_that_is_given_twice_is_a_question(desk: Desk) -> None:
    params = {"driverMemoryOverhead": "1g", "conf": {"spark.driver.memoryOverhead": "2g"}}
    assert "both given" in desk.mistake(params)
