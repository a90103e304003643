"""The command of a JVM: the launcher's answer is taken as it is, and cached."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from worker.spark.jvm import java_command
from worker.spark.jvm.java_command import NoSparkError

SAID = """\
#!{python}
import os, sys
open({log!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
settings = open(sys.argv[sys.argv.index("--properties-file") + 1]).read()
words = ["", "{before}", "{java}", "-cp", "{home}/conf/:{home}/jars/*", "-Xmx1g"]
words += [w.split(" = ")[1] for w in settings.splitlines() if "JavaOptions" in w]
words = [each for each in words if each != "-"]
words += ["org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
sys.stdout.write("\\0".join(words) + "\\0")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "spark"
    (made / "jars").mkdir(parents=True)
    (made / "jars" / "spark-core_2.13-4.3.0.jar").write_bytes(b"")
    return made


@pytest.fixture
def environment(home: Path, tmp_path: Path) -> dict[str, str]:
    """An environment with a Java that answers as Spark's launcher would."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    text = SAID.format(
        python=sys.executable, log=str(tmp_path / "asked"), java=program, home=home, before="-"
    )
    program.write_text(text)
    program.chmod(0o755)
    return {"JAVA_HOME": str(tmp_path / "java"), "PATH": os.defpath, "SPARK_HOME": str(home)}


def launcher_calls(tmp_path: Path) -> int:
    path = tmp_path / "asked"
    return len(path.read_text().splitlines()) if path.exists() else 0


def made(
    environment: dict[str, str], tmp_path: Path, name: str = "p.spark", **conf: str
) -> java_command.Command:
    named = {f"spark.{key.replace('_', '.')}": value for key, value in conf.items()}
    return java_command.command(
        java_command.PYTHON_DRIVER,
        conf=named,
        properties_file=tmp_path / name,
        environment=environment,
    )


def test_a_driver_keeps_its_temporary_files_in_the_folder_that_it_is_given(
    environment: dict[str, str], tmp_path: Path
) -> None:
    command = java_command.command(
        java_command.PYTHON_DRIVER,
        conf={},
        properties_file=tmp_path / "p.spark",
        environment=environment,
        scratch=tmp_path / "scratch",
    )
    assert f"-Djava.io.tmpdir={tmp_path / 'scratch'}" in command.argv
    assert not any("tmpdir" in word for word in made(environment, tmp_path, "q.spark").argv)


def test_the_command_is_what_the_launcher_says_with_settings_in_a_file(
    environment: dict[str, str], tmp_path: Path, home: Path
) -> None:
    command = made(environment, tmp_path, my_secret="hush hush")
    java = f"{environment['JAVA_HOME']}/bin/java"
    assert command.argv == (
        java,
        "-cp",
        f"{home}/conf/:{home}/jars/*",
        *java_command.LATE_C2,
        "-Xmx1g",  # Options of the installation and the task come after, since the last one counts.
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(tmp_path / "p.spark"),
        "--load-spark-defaults",
        "pyspark-shell",
    )
    assert "hush hush" in (tmp_path / "p.spark").read_text()
    assert stat.S_IMODE((tmp_path / "p.spark").stat().st_mode) == 0o600
    assert command.environment["SPARK_HOME"] == str(home)
    assert command.archive is None


def test_the_launcher_is_asked_once(environment: dict[str, str], tmp_path: Path) -> None:
    made(environment, tmp_path, "1.spark", app_name="a")
    made(environment, tmp_path, "2.spark", app_name="b")
    assert launcher_calls(tmp_path) == 1


@pytest.mark.parametrize("file", ["spark-defaults.conf", "java-opts"])
def test_it_is_asked_again_when_the_installation_has_other_settings(
    environment: dict[str, str], tmp_path: Path, home: Path, file: str
) -> None:
    made(environment, tmp_path, "1.spark")
    (home / "conf").mkdir()
    (home / "conf" / file).write_text("spark.driver.memory 2g\n")
    made(environment, tmp_path, "2.spark")
    assert launcher_calls(tmp_path) == 2


def test_it_is_asked_again_for_another_memory(environment: dict[str, str], tmp_path: Path) -> None:
    made(environment, tmp_path, "1.spark", driver_memory="1g")
    made(environment, tmp_path, "2.spark", driver_memory="2g")
    assert launcher_calls(tmp_path) == 2


def test_java_options_stand_in_a_file_of_this_account(
    environment: dict[str, str], tmp_path: Path
) -> None:
    options = '-Djavax.net.ssl.trustStorePassword="hush'
    command = made(environment, tmp_path, driver_extraJavaOptions=options)
    assert not any("hush" in word for word in command.argv)
    file = java_command.options_file(tmp_path / "p.spark")
    assert f"@{file}" in command.argv
    assert '"-Djavax.net.ssl.trustStorePassword=\\"hush"' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_password_among_java_options_is_kept_nowhere(
    environment: dict[str, str], tmp_path: Path, home: Path
) -> None:
    made(environment, tmp_path, driver_extraJavaOptions="-Dpassword=hush")
    kept = [each.read_text() for each in (home / "orcaflow").rglob("*.json")]
    assert not any("hush" in text for text in kept)


def test_what_somebody_else_could_have_kept_is_asked_again(
    environment: dict[str, str], tmp_path: Path, home: Path
) -> None:
    made(environment, tmp_path, "1.spark")
    [kept] = (home / "orcaflow").glob("launch-*.json")
    document = json.loads(kept.read_text())
    kept.write_text(json.dumps({**document, "java": "/evil"}))
    kept.chmod(0o666)
    command = made(environment, tmp_path, "2.spark")
    assert command.argv[0] != "/evil"
    assert launcher_calls(tmp_path) == 2


def test_variables_of_the_launcher_and_of_the_installation_are_set(
    environment: dict[str, str], tmp_path: Path, home: Path
) -> None:
    program = Path(environment["JAVA_HOME"], "bin", "java")
    program.write_text(program.read_text().replace('"-",', '"env", "LD_LIBRARY_PATH=/native",'))
    (home / "conf").mkdir()
    (home / "conf" / "spark-env.sh").write_text("MINE=1\necho some words\n")
    command = made(environment, tmp_path)
    assert command.environment["LD_LIBRARY_PATH"] == "/native"
    assert command.environment["MINE"] == "1"
    assert command.argv[0] == str(program)


def test_a_script_of_the_installation_that_never_ends_is_told(
    environment: dict[str, str], tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "conf").mkdir()
    (home / "conf" / "spark-env.sh").write_text("exec sleep 600\n")
    monkeypatch.setattr(java_command, "_SCRIPT_SECONDS", 0.1)
    with pytest.raises(NoSparkError, match=r"spark-env\.sh takes longer than 0\.1 seconds"):
        made(environment, tmp_path)


def test_a_script_of_the_installation_may_forget_where_its_files_are(
    environment: dict[str, str], tmp_path: Path, home: Path
) -> None:
    (home / "conf").mkdir()
    (home / "conf" / "spark-env.sh").write_text("unset SPARK_CONF_DIR\n")
    assert made(environment, tmp_path).environment["SPARK_CONF_DIR"] == f"{home}/conf"


def test_a_missing_java_is_said_with_the_cure(environment: dict[str, str], tmp_path: Path) -> None:
    nowhere = {**environment, "JAVA_HOME": "/nowhere"}
    with pytest.raises(NoSparkError, match=r"no java in /nowhere/bin.*JAVA_HOME"):
        made(nowhere, tmp_path)


def test_a_launcher_that_fails_is_told_with_its_words(
    environment: dict[str, str], tmp_path: Path
) -> None:
    program = Path(environment["JAVA_HOME"], "bin", "java")
    program.write_text("#!/bin/sh\necho 'Error: no such class' >&2\nexit 1\n")
    with pytest.raises(NoSparkError, match="Error: no such class"):
        made(environment, tmp_path)


def test_no_installation_is_said_with_the_cure(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del environment["SPARK_HOME"]
    monkeypatch.setattr("worker.spark.jvm.installation.find_spec", lambda _name: None)
    with pytest.raises(NoSparkError, match="install pyspark, or set SPARK_HOME"):
        made(environment, tmp_path)
