"""Arguments for spark-submit besides a task's own keys, and refusals."""

from __future__ import annotations

import shlex

import pytest

from common.model.spark_keys import (
    Option,
    RefusedError,
    check_secrets_in_driver,
    check_setting,
    check_variable,
    keys_of,
    read_others,
    settings_of,
    words_of,
)
from worker.spark.jvm.properties import read, rendered


def refusal(others: str) -> str:
    with pytest.raises(RefusedError) as caught:
        read_others(shlex.split(others))
    return str(caught.value)


def test_known_options_pass_with_their_values() -> None:
    others = (
        "--conf spark.ui.port=0 -c spark.a=b --conf=spark.c=d=e --queue etl --verbose"
        " --driver-class-path /lib/x.jar --repositories https://repo --total-executor-cores 4"
        " --driver-java-options '-XX:+UseG1GC -Duser.timezone=UTC'"
    )
    options = read_others(shlex.split(others))
    assert options[0] == Option("--conf", "spark.ui.port=0")
    assert settings_of(options) == {"spark.ui.port": "0", "spark.a": "b", "spark.c": "d=e"}
    assert words_of(options)[:6] == [
        *("--conf", "spark.ui.port=0", "--conf", "spark.a=b", "--conf", "spark.c=d=e")
    ]
    assert words_of(options)[6:9] == ["--queue", "etl", "--verbose"]


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--master", "master"),
        ("--deploy-mode", "deployMode"),
        ("--class", "mainClass"),
    ],
)
def test_an_option_with_a_key_of_its_own_is_sent_there(option: str, key: str) -> None:
    assert f"params.{key}" in refusal(f"{option} x")
    assert f"params.{key}" in refusal(f"{option}=x")


def test_an_option_stands_for_a_key_and_the_last_of_several_counts() -> None:
    others = "--files a,b --num-executors=3 --verbose --files c --py-files ${x} --queue etl"
    assert keys_of(read_others(shlex.split(others))) == {
        "files": "c",
        "numExecutors": "3",
        "pyFiles": "${x}",
        "queue": "etl",
    }


@pytest.mark.parametrize(
    "others",
    [
        "--properties-file /etc/passwd",
        "--proxy-user root",
        "--kill application_1_1",
        "--kill=application_1_1",
        "--status driver-1",
        "--remote sc://h",
        "--supervise",
        "--help",
        "-h",
        "--version",
        "--usage-error",
        "--load-spark-defaults",
    ],
)
def test_an_option_that_does_something_else_is_refused(others: str) -> None:
    assert "is not allowed" in refusal(others)


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ("evil.jar", "would take it for the program"),
        ("--conf spark.a=b evil.jar", "would take it for the program"),
        ("--unheard-of", "no option that is known"),
        ("--unheard-of=x", "no option that is known"),
        ("-x", "no option that is known"),
        ("--conf", "needs a value"),
        ("--conf spark.a", "needs a setting like"),
        ("--conf '=b'", "no name of a setting"),
        ("--conf ' spark.yarn.tags=x'", "no name of a setting"),
        ("--queue", "needs a value"),
        ("--queue 'a\nb'", "control character"),
        ("--conf 'spark.a=b\nspark.yarn.tags=x'", "control character"),
        ("--conf 'spark.a=b\x1b[2J'", "control character"),
    ],
)
def test_what_is_no_option_is_refused_with_the_reason(others: str, why: str) -> None:
    assert why in refusal(others)


def test_the_value_of_an_option_is_not_taken_for_an_option_of_its_own() -> None:
    # spark-submit does not read it either.
    assert read_others(["--queue", "--kill"]) == [Option("--queue", "--kill")]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("spark.master", "local", "params.master"),
        ("spark.submit.deployMode", "client", "params.deployMode"),
        ("spark.submit.pyFiles", "/etc/x.py", "params.pyFiles"),
        ("spark.app.name", "x", "params.name"),
        ("spark.kubernetes.namespace", "kube-system", "params.namespace"),
        ("spark.yarn.keytab", "/etc/x", "params.keytab"),
        ("spark.yarn.tags", "mine", "finds its applications"),
        ("spark.orcaflow.attempt", "orcaflow-0123456789ab-1", "finds its applications"),
        ("spark.kubernetes.driver.label.orcaflow-attempt", "x", "finds its applications"),
        ("spark.kubernetes.executor.label.orcaflow-cluster", "x", "finds its applications"),
        ("spark.yarn.submit.waitAppCompletion", "true", "follows the application"),
        ("spark.kubernetes.submission.waitAppCompletion", "true", "follows the application"),
        ("spark.yarn.submit.file.replication", "3", "not allowed"),
        ("spark.yarn.submit.file=/etc/passwd", "x", "no name of a setting"),
        ("spark.driver.supervise", "true", "not allowed"),
        ("spark.remote", "sc://h", "not allowed"),
        ("spark.hadoop.yarn.resourcemanager.address", "elsewhere:8032", "nobody follows"),
        ("spark.hadoop.yarn.resourcemanager.hostname.rm1", "elsewhere", "nobody follows"),
        ("spark.driver.extraJavaOptions", "-Du=jdbc:x?password=abc", "command line"),
        ("spark.a\nspark.yarn.tags", "x", "no name of a setting"),
        ("spark.a", "b\nspark.yarn.tags=x", "line end"),
        ("spark.a", "b\0", "control character"),
        ("spark.executorEnv.LD_PRELOAD", "/tmp/x.so", "LD_PRELOAD"),
        ("spark.yarn.appMasterEnv.JAVA_TOOL_OPTIONS", "-javaagent:x", "JAVA_TOOL_OPTIONS"),
        ("spark.kubernetes.driverEnv.HADOOP_USER_NAME", "hdfs", "HADOOP_USER_NAME"),
    ],
)
def test_a_dangerous_setting_is_refused_wherever_it_stands(key: str, value: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        check_setting(key, value)


@pytest.mark.parametrize(
    "key",
    [
        "spark.driver.extraJavaOptions",
        "spark.executor.extraJavaOptions",
        "spark.driver.defaultJavaOptions",
        "spark.yarn.am.extraJavaOptions",
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        "-javaagent:/tmp/x.jar",
        "-XX:+UseG1GC -agentlib:jdwp=transport=dt_socket",
        "-agentpath:/tmp/x.so",
        "-Xrunjdwp:x",
        "-XX:OnOutOfMemoryError='kill -9 %p'",
        "-XX:OnError=reboot",
        "-XX:Flags=/tmp/flags",
        "-XX:VMOptionsFile=/tmp/x",
        "-Xbootclasspath/a:/tmp/x.jar",
        '-java"agent":/tmp/x.jar',
        "-java\\agent:/tmp/x.jar",
        "'-javaagent:/tmp/x.jar'",
        "@/tmp/options",
        "${spark.mine}",
        "-Dspark.yarn.tags=x",
        "-Djavax.net.ssl.trustStorePassword=hunter2",
    ],
)
def test_no_agent_gets_into_a_java_program(key: str, value: str) -> None:
    with pytest.raises(RefusedError) as caught:
        check_setting(key, value)
    assert "hunter2" not in str(caught.value)
    assert "is not allowed" in refusal("--driver-java-options '-javaagent:x'")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.shuffle.partitions", "200"),
        ("spark.driver.extraJavaOptions", "-XX:+UseG1GC -Dlog4j.configurationFile=x.xml"),
        ("spark.executorEnv.REGION", "eu"),
        ("spark.hadoop.fs.s3a.secret.key", "hunter2"),
        ("spark.yarn.queue", "etl"),
        ("spark.a", "with\ttab and = and \\ and ü"),
    ],
)
def test_ordinary_settings_pass(key: str, value: str) -> None:
    check_setting(key, value)


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.hadoop.security.credential.provider.path",
        "spark.ssl.keyPassword",
        "spark.my.token",
    ],
)
def test_a_secret_may_not_be_an_argument(key: str) -> None:
    why = refusal(f"--conf {key}=hunter2")
    assert "params.conf" in why
    assert "hunter2" not in why


@pytest.mark.parametrize(
    "others",
    [
        "--conf 'spark.x.url=jdbc:postgresql://h/x?user=a&password=hunter2'",
        "--conf spark.x.url=https://etl:hunter2@repo/",
        "--repositories https://etl:hunter2@repo/",
        "--driver-class-path https://etl:hunter2@repo/x.jar",
        "--driver-java-options '-Du=jdbc:x?password=hunter2'",
    ],
)
def test_a_secret_within_a_value_may_not_be_an_argument_either(others: str) -> None:
    why = refusal(others)
    assert "command line" in why
    assert "hunter2" not in why


@pytest.mark.parametrize("setting", [("spark.my.password", "x"), ("spark.u", "ftp://a:b@h/")])
def test_a_secret_may_not_go_where_spark_makes_arguments_of_settings(
    setting: tuple[str, str],
) -> None:
    with pytest.raises(RefusedError, match="command line"):
        check_secrets_in_driver(dict([("spark.a", "b"), setting]))


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "BASH_ENV",
        "JAVA_TOOL_OPTIONS",
        "SPARK_SUBMIT_OPTS",
        "ORCAFLOW_HOME",
        "A=B",
        "",
    ],
)
def test_a_variable_by_which_something_else_would_run_is_refused(name: str) -> None:
    with pytest.raises(RefusedError):
        check_variable(name, "x")


def test_settings_survive_the_way_through_a_file() -> None:
    conf = {
        "spark.a": " leading",
        "spark.path": r"C:\new\table",
        "spark.b": "x = y # no comment",
        "spark.empty": "",
        "spark.uni": "ü€",
    }
    assert "spark.a = \\ leading\n" in rendered(conf)
    assert r"spark.path = C:\\new\\table" in rendered(conf)
    assert "\n\n" not in rendered(conf)


def test_a_person_s_file_is_read_as_spark_reads_it() -> None:
    text = "# a comment\nspark.a 1\nspark.b=2\n  spark.c : 3\n\n! another\nspark.d\t4  \n"
    assert read(text) == {"spark.a": "1", "spark.b": "2", "spark.c": "3", "spark.d": "4"}
