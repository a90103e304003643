"""The Spark session of a task, and the job that its process is given."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spark_launches import SOCKET, TAG, job_of, parameter, prepared
from worker.launching.base import TaskParameterError
from worker.processes.quality_report import read_quality


def test_a_task_that_says_nothing_asks_the_host_for_a_session_of_the_default_profile(
    tmp_path: Path,
) -> None:
    made = prepared(tmp_path, {"conf": {"spark.sql.ansi.enabled": True, "spark.sql.x": "$[yyyy]"}})
    assert made.argv[:3] == (sys.executable, "-I", "-S")
    assert Path(made.argv[3]).name == "task_proxy.py"
    assert made.argv[4:] == (SOCKET, "task", "default", str(made.job_file))
    job = job_of(made)
    assert job["kind"] == "worker.spark.session.script"
    assert (job["profile"], job["master"]) == ("default", "")
    assert job["conf"] == {"spark.sql.ansi.enabled": "true", "spark.sql.x": "2026"}
    assert (job["name"], job["tag"]) == ("daily load", TAG)
    assert job["classic"] is True
    assert Path(job["script"]).read_text() == "spark"
    assert made.environment["ORCAFLOW_SPARK_FACTS"] == str(made.facts_file)
    assert Path(made.directory) in Path(str(made.facts_file)).parents
    assert "driver of its own" not in made.header


def test_a_job_can_be_read_by_its_task_alone(tmp_path: Path) -> None:
    made = prepared(tmp_path, {})
    assert made.job_file is not None
    assert made.job_file.stat().st_mode & 0o777 == 0o600


def test_the_private_driver_is_made_as_the_default_profile_and_the_task_say(tmp_path: Path) -> None:
    made = prepared(
        tmp_path,
        {"profile": "classic", "conf": {"spark.executor.cores": 2, "spark.log.level": "INFO"}},
    )
    assert made.argv[1:3] == ("-P", "-u")
    assert Path(made.argv[3]).name == "classic.py"
    assert made.argv[4:] == (str(made.job_file),)
    job = job_of(made)
    assert (job["profile"], job["master"]) == ("classic", "local[*]")
    assert job["conf"] == {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "INFO",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.executor.cores": "2",
        "spark.orcaflow.attempt": TAG,
    }
    assert made.environment["SPARK_LOCAL_DIRS"].startswith(made.directory)
    assert "driver of its own" not in made.header


def test_classic_may_be_what_all_tasks_get(tmp_path: Path) -> None:
    made = prepared(tmp_path, {}, default_profile="classic")
    assert job_of(made)["profile"] == "classic"
    named = prepared(tmp_path, {"profile": "big"}, default_profile="classic")
    assert named.argv[6] == "big"


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"master": "local[2]"}, "params.master"),
        ({"conf": {"spark.master": "local[2]"}}, "params."),
        ({"conf": {"spark.executor.memory": "1g"}}, "params.conf: spark.executor.memory"),
        ({"conf": {"spark.sql.warehouse.dir": "/x"}}, "params.conf: spark.sql.warehouse.dir"),
        ({"conf": {"spark.sql.extensions": "x"}}, "params.conf: spark.sql.extensions"),
        ({"pyFiles": ["hdfs://a/b.py"]}, "the remote file hdfs://a/b.py"),
    ],
)
def test_what_no_session_can_have_makes_the_driver_private_or_is_a_mistake(
    tmp_path: Path, params: Mapping[str, Any], what: str
) -> None:
    made = prepared(tmp_path, params)
    assert job_of(made)["profile"] == "classic"
    assert f"[orcaflow] takes a driver of its own (profile classic), since {what}" in made.header
    with pytest.raises(TaskParameterError) as caught:
        prepared(tmp_path, {**params, "profile": "big"})
    assert what in str(caught.value)
    assert "put it into the profile, or take `profile: classic`" in str(caught.value)


def test_a_private_driver_keeps_what_the_default_profile_has(tmp_path: Path) -> None:
    made = prepared(tmp_path, {"conf": {"spark.task.maxFailures": 1}}, default_profile="big")
    job = job_of(made)
    assert job["master"] == "spark://cluster:7077"
    assert job["name"] == f"daily load [{TAG}]"
    assert job["conf"]["spark.jars"] == "/jars/a.jar"
    assert job["conf"]["spark.jars.packages"] == "org.x:y:1"
    assert job["conf"]["spark.executor.memory"] == "3g"
    assert job["conf"]["spark.task.maxFailures"] == "1"


def test_a_worker_without_a_host_gives_every_task_a_driver(tmp_path: Path) -> None:
    made = prepared(tmp_path, {"profile": "big"}, socket="")
    assert job_of(made)["master"] == "spark://cluster:7077"
    assert "since this worker keeps no sessions" in made.header


def test_an_unknown_profile_is_a_mistake_that_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TaskParameterError, match=r"no Spark profile 'huge'; it has big, default"):
        prepared(tmp_path, {"profile": "huge"})


def test_a_profile_may_be_a_parameter(tmp_path: Path) -> None:
    made = prepared(tmp_path, {"profile": "${p}"}, global_params=[parameter("p", "VARCHAR", "big")])
    assert made.argv[6] == "big"


@pytest.mark.parametrize(
    "conf",
    [
        ["a"],
        {"a=b": "c"},
        {"": "x"},
        {"a\nb": "c"},
        {"a": {"b": 1}},
        {"spark.remote": "sc://x"},
        {"spark.connect.grpc.binding.port": 1},
        {"spark.sql.x": "a\nb"},
        {"spark.orcaflow.attempt": "x"},
        {"spark.driver.extraJavaOptions": "-javaagent:/tmp/x.jar"},
    ],
)
def test_a_conf_that_is_none_is_refused(tmp_path: Path, conf: Any) -> None:
    with pytest.raises(TaskParameterError, match=r"params\.conf"):
        prepared(tmp_path, {"conf": conf})


def test_parameters_have_the_types_that_were_declared_for_them(tmp_path: Path) -> None:
    made = prepared(
        tmp_path,
        {"localParams": [parameter("n", "LONG", "7"), parameter("out", "INTEGER", "", "OUT")]},
        global_params=[parameter("day", "DATE", "$[yyyy-MM-dd]"), parameter("x", "VARCHAR", "a")],
    )
    job = job_of(made)
    assert job["params"]["day"] == {"type": "DATE", "value": "2026-01-02"}
    assert job["params"]["n"] == {"type": "LONG", "value": "7"}
    assert job["params"]["x"] == {"type": "VARCHAR", "value": "a"}
    assert job["outputs"] == {"out": "INTEGER"}


def test_a_value_that_its_type_can_not_have_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(TaskParameterError) as caught:
        prepared(tmp_path, {}, global_params=[parameter("day", "DATE", "hunter2")])
    assert str(caught.value) == (
        "parameter 'day' is declared DATE, so its value must be written as 2026-01-31"
    )


def test_files_are_shipped_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "resources").mkdir()
    for name in ("lib.py", "more.zip", "env.tar.gz"):
        (tmp_path / "resources" / name).touch()
    made = prepared(
        tmp_path,
        {
            "resourceList": [{"res": "lib.py"}],
            "profile": "connect",
            "pyFiles": ["lib.py", {"res": "more.zip"}],
            "archives": "env.tar.gz#env",
        },
    )
    job = job_of(made)
    assert job["py_files"] == [f"{made.directory}/lib.py", f"{made.directory}/more.zip"]
    assert job["archives"] == [f"{made.directory}/env.tar.gz#env"]
    assert made.argv[5] == "task"


def test_secrets_stand_in_the_job_and_nowhere_else(tmp_path: Path) -> None:
    made = prepared(tmp_path, {}, global_params=[parameter("db_password", "VARCHAR", "hunter2")])
    assert job_of(made)["secrets"] == ["hunter2"]
    assert "hunter2" not in made.header
    assert "hunter2" not in repr(made.argv) + repr(made.environment)


def test_more_memory_after_too_little_takes_a_driver_of_its_own(tmp_path: Path) -> None:
    node = {"memoryRetry": {"factor": 2, "ceiling": "5g"}}
    made = prepared(tmp_path, {}, node=node, memory_factor=2.0)
    assert job_of(made)["conf"]["spark.driver.memory"] == "4096m"
    assert "an earlier attempt had too little memory" in made.header
    assert "has 2 times the memory of the first attempt, up to 5120m" in made.header
    capped = prepared(tmp_path, {"profile": "classic"}, node=node, memory_factor=4.0)
    assert job_of(capped)["conf"]["spark.driver.memory"] == "5120m"
    cluster = prepared(tmp_path, {}, node=node, memory_factor=2.0, default_profile="big")
    assert job_of(cluster)["conf"]["spark.executor.memory"] == "5120m"
    named = prepared(tmp_path, {"profile": "big"}, node=node, memory_factor=2.0)
    assert named.argv[6] == "big"
    assert "has no more memory than the attempt before" in named.header


def test_openlineage_learns_which_run_an_application_belongs_to(tmp_path: Path) -> None:
    spark = {"openlineage_url": "http://lineage:5000", "openlineage_namespace": "shop"}
    conf = job_of(prepared(tmp_path, {}, spark=spark))["conf"]
    assert conf["spark.openlineage.transport.url"] == "http://lineage:5000"
    assert conf["spark.openlineage.parentJobNamespace"] == "shop"
    assert conf["spark.openlineage.parentJobName"] == "daily.load"
    again = job_of(prepared(tmp_path, {}, spark=spark))["conf"]
    assert conf["spark.openlineage.parentRunId"] == again["spark.openlineage.parentRunId"]
    other = job_of(prepared(tmp_path, {}, spark=spark, id=4))["conf"]
    assert conf["spark.openlineage.parentRunId"] != other["spark.openlineage.parentRunId"]
    assert conf["spark.openlineage.rootParentRunId"] == other["spark.openlineage.rootParentRunId"]


def test_every_task_knows_its_place_in_a_trace(tmp_path: Path) -> None:
    one = prepared(tmp_path, {}).environment["TRACEPARENT"]
    two = prepared(tmp_path, {}, id=4).environment["TRACEPARENT"]
    assert one.split("-")[1] == two.split("-")[1]
    assert one.split("-")[2] != two.split("-")[2]
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    joined = prepared(
        tmp_path, {}, global_params=[parameter("traceparent", "VARCHAR", given)]
    ).environment["TRACEPARENT"]
    assert joined == f"00-0af7651916cd43dd8448eb211c80319c-{one.split('-')[2]}-00"


def test_an_environment_is_made_by_the_task_s_own_process(tmp_path: Path) -> None:
    wanted = {"requirements": ["six==1.17.0", "six==1.17.0", "${more}"]}
    more = [parameter("more", "VARCHAR", "rich>=14")]
    warm = prepared(tmp_path, {"environment": wanted}, global_params=more)
    assert job_of(warm)["environment"] == {
        "root": str(tmp_path / "environments"),
        "archive": "",
        "requirements": ["six==1.17.0", "rich>=14"],
    }
    assert Path(warm.argv[3]).name == "task_proxy.py"
    classic = prepared(tmp_path, {"environment": wanted, "profile": "classic"}, global_params=more)
    assert Path(classic.argv[3]).name == "environments.py"
    assert classic.argv[4:] == (str(classic.job_file),)


def test_a_packed_environment_goes_to_executors_elsewhere(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    archive.touch()
    local = job_of(prepared(tmp_path, {"environment": json.dumps({"archive": str(archive)})}))
    assert local["archives"] == []
    assert "spark.sql.execution.pyspark.python" not in local["conf"]
    job = job_of(prepared(tmp_path, {"environment": {"archive": str(archive)}, "profile": "big"}))
    (shipped,) = job["archives"]
    assert shipped.endswith("/env.tar.gz#orcaflow_environment")
    assert job["environment"]["archive"] == shipped.partition("#")[0]
    assert job["conf"]["spark.sql.execution.pyspark.python"] == (
        "./orcaflow_environment/bin/python"
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("env.tar.gz", "params.environment must be"),
        ([], "params.environment must be"),
        ({"archive": "a", "requirements": ["b"]}, "params.environment must be"),
        ({"archive": "a", "python": "b"}, "params.environment must be"),
        ({"archive": "/no/such.tar"}, "there is no file /no/such.tar"),
        ({"archive": "hdfs://a/b.tar"}, "must be a file on this worker"),
        ({"requirements": "six"}, "params.environment.requirements must be a list"),
        ({"requirements": ["--index-url=x"]}, "params.environment.requirements[0] must be like"),
        ({"requirements": ["six", " "]}, "params.environment.requirements[1] must be like"),
    ],
)
def test_an_environment_that_is_none_is_told(tmp_path: Path, given: object, told: str) -> None:
    with pytest.raises(TaskParameterError) as caught:
        prepared(tmp_path, {"environment": given})
    assert told in str(caught.value)


def test_requirements_are_no_use_to_executors_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(TaskParameterError, match="run elsewhere: pack it"):
        prepared(tmp_path, {"environment": {"requirements": ["six"]}, "profile": "big"})


def test_rules_on_data_are_checked_and_handed_over_with_former_figures(tmp_path: Path) -> None:
    rules = [
        {"type": "row_count", "min": 1, "where": "day = '$[yyyyMMdd]' and x = :x"},
        {"type": "compare", "metric": "row_count", "maxChange": 0.5},
    ]
    made = prepared(
        tmp_path,
        {"table": "sales_${region}", "rules": rules, "where": "y = '$[yyyy]'"},
        task_type="DATA_QUALITY",
        global_params=[parameter("region", "VARCHAR", "eu")],
        former_quality={"compare row_count": (5.0, 4.0)},
    )
    job = job_of(made)
    assert job["kind"] == "worker.spark.quality.evaluation"
    assert job["source"]["table"] == "sales_eu"
    assert job["where"] == "y = '2026'"
    assert job["rules"][0]["where"] == "day = '20260102' and x = :x"
    assert job["former"] == {"compare row_count": [5.0, 4.0]}
    assert Path(job["quality_file"]).read_text() == ""
    assert read_quality(Path(job["quality_file"].replace(".quality.json", ".log"))) == ()


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"rules": [{"type": "row_count", "min": 1}]}, "params.table: one of table, path and sql"),
        ({"table": "t"}, "params.rules must be a list"),
        (
            {"table": "t", "rules": [{"type": "x"}, {"type": "unique"}]},
            "params.rules[1].column is missing",
        ),
    ],
)
def test_wrong_rules_are_told_before_anything_runs(
    tmp_path: Path, params: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(TaskParameterError) as caught:
        prepared(tmp_path, params, task_type="DATA_QUALITY")
    assert told in str(caught.value)


def test_sql_is_taken_with_its_dates_and_without_its_parameters(tmp_path: Path) -> None:
    made = prepared(
        tmp_path,
        {"rawScript": "select '$[yyyyMMdd]', :day;\r\nselect 2", "limit": 5},
        task_type="SPARK_SQL",
        global_params=[parameter("day", "DATE", "2026-01-31")],
    )
    job = job_of(made)
    assert job["kind"] == "worker.spark.session.sql"
    assert job["text"] == "select '20260102', :day;\nselect 2"
    assert (job["script"], job["limit"], job["rows_shown"]) == ("", 5, 5)
    assert Path(job["result_file"]).read_text() == ""
    assert made.outputs is None


def test_sql_has_datasets_as_views_with_the_parameters_in_their_intervals(tmp_path: Path) -> None:
    views = [{"dataset": "a-b", "interval": "${day}/P1D"}, {"dataset": "a.b", "view": "c"}]
    params = {"rawScript": "select 1", "datasets": views}
    day = [parameter("day", "DATE", "2026-01-31")]
    job = job_of(prepared(tmp_path, params, task_type="SPARK_SQL", global_params=day))
    assert job["datasets"] == [
        {"dataset": "a-b", "interval": "2026-01-31/P1D", "view": "a_b"},
        {"dataset": "a.b", "view": "c"},
    ]
    views[0]["interval"] = "${missing}/P1D"
    views[1] = {"dataset": "../b", "view": "a b", "at": "x"}
    with pytest.raises(TaskParameterError) as caught:
        prepared(tmp_path, params, task_type="SPARK_SQL", global_params=day)
    for place in ("[1] has no key at", "[1].dataset must", "[1].view must"):
        assert place in str(caught.value)


def test_sql_of_a_file_is_left_to_the_task_to_read(tmp_path: Path) -> None:
    path = tmp_path / "daily.sql"
    path.write_text("select 1")
    job = job_of(prepared(tmp_path, {"file": str(path)}, task_type="SPARK_SQL"))
    assert (job["script"], job["text"], job["place"]) == (str(path), "", "params.file")


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"rawScript": " -- nothing\n;"}, "params.rawScript has no statement"),
        ({"rawScript": "select 1;\nselect 'a"}, "params.rawScript: line 2: a text in '"),
        (
            {"rawScript": "select 1;\n\nselect *\nfrom t_${day}"},
            "params.rawScript: line 4: ${day} is inside a word or a name",
        ),
        ({"rawScript": "select 1", "limit": "many"}, "params.limit must be a whole number"),
        ({"file": "/no/such.sql"}, "params.file: there is no file /no/such.sql"),
        ({"file": "x.sql", "rawScript": "select 1"}, "are both given"),
    ],
)
def test_wrong_sql_is_told_before_anything_runs(
    tmp_path: Path, params: Mapping[str, Any], told: str
) -> None:
    day = [parameter("day", "VARCHAR", "x")]
    with pytest.raises(TaskParameterError) as caught:
        prepared(tmp_path, params, task_type="SPARK_SQL", global_params=day)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("task_type", "params"),
    [
        ("PYSPARK", {"profile": "connect", "pyFiles": ["lib.py"]}),
        ("PYSPARK", {"profile": "connect", "archives": "lib.zip"}),
        ("PYSPARK", {"profile": "connect", "rawScript": "spark.addArtifacts('a.py')"}),
        ("PYSPARK", {"profile": "connect", "file": "brings.py"}),
        (
            "PYSPARK",
            {"profile": "connect", "conf": {"spark.sql.artifact.isolation.enabled": True}},
        ),
        ("SPARK_SQL", {"rawScript": "ADD JAR '/a.jar';\nSELECT 1"}),
        (
            "DATA_QUALITY",
            {"sql": "SELECT 1 -- EXECUTE IMMEDIATE", "rules": [{"type": "row_count", "min": 1}]},
        ),
    ],
    ids=str,
)
def test_a_task_that_brings_something_asks_for_an_isolated_session(
    tmp_path: Path, task_type: str, params: dict[str, Any]
) -> None:
    resources = tmp_path / "resources"
    resources.mkdir()
    for name in ("lib.py", "lib.zip"):
        (resources / name).touch()
    (resources / "brings.py").write_text("spark.sql('''add\n  file /a''')")
    named = {"resourceList": [{"res": name} for name in ("lib.py", "lib.zip", "brings.py")]}
    made = prepared(tmp_path, {**named, **params}, task_type=task_type)
    assert made.argv[5:7] == ("task", "default/isolated")
    assert job_of(made)["profile"] == "default"
    assert not job_of(made)["classic"]
    elsewhere = prepared(tmp_path, {**named, **params, "profile": "big"}, task_type=task_type)
    assert task_type == "PYSPARK" or elsewhere.argv[6] == "big"
    private = prepared(tmp_path, {**named, **params, "profile": "classic"}, task_type=task_type)
    assert job_of(private)["profile"] == "classic"


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"pyFiles": ["lib.py"]}, "what pyFiles and archives bring"),
        ({"archives": "lib.py"}, "what pyFiles and archives bring"),
        ({"file": "brings.py"}, "a statement that brings jars, files or archives (line 2)"),
        ({"rawScript": "1\nspark._jvm.java"}, "_jvm (line 2)"),
        (
            {"conf": {"spark.sql.artifact.isolation.enabled": True}},
            "spark.sql.artifact.isolation.enabled",
        ),
    ],
    ids=str,
)
def test_a_script_that_would_change_the_driver_of_all_gets_one(
    tmp_path: Path, params: dict[str, Any], what: str
) -> None:
    resources = tmp_path / "resources"
    resources.mkdir()
    (resources / "lib.py").touch()
    (resources / "brings.py").write_text("pass\nspark.sql('add file /a')")
    named = {"resourceList": [{"res": name} for name in ("lib.py", "brings.py")]}
    for profile in ("", "big"):
        made = prepared(tmp_path, {**named, **params, "profile": profile})
        assert job_of(made)["profile"] == "classic"
        assert f"takes a driver of its own (profile classic), since {what} needs" in made.header
        made_as = "spark://cluster:7077" if profile else "local[*]"
        assert job_of(made)["master"] == made_as


def test_a_driver_is_started_with_the_literal_settings_of_the_script(tmp_path: Path) -> None:
    script = "b.config('spark.executor.memory', '4g').config('spark.submit.deployMode', 'cluster')"
    for profile in ("", "classic"):
        conf = job_of(prepared(tmp_path, {"rawScript": script, "profile": profile}))["conf"]
        assert conf["spark.executor.memory"] == "4g"
        assert "spark.submit.deployMode" not in conf


def test_connect_is_a_session_of_the_default_profile(tmp_path: Path) -> None:
    made = prepared(tmp_path, {"profile": "connect", "rawScript": "spark._jvm"})
    assert made.argv[4:7] == (SOCKET, "task", "default")
    assert job_of(made)["classic"] is False
    assert job_of(prepared(tmp_path, {}, default_profile="connect"))["classic"] is False


def test_statements_and_rules_get_sessions_of_connect(tmp_path: Path) -> None:
    made = prepared(tmp_path, {"rawScript": "SELECT 1"}, task_type="SPARK_SQL")
    assert job_of(made)["classic"] is False
