"""The task types, run for real: scripts, parameters, and Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.states import TaskState
from tests import light_jvm
from tests.integration.worker_host import Host
from worker.launching.base import TaskSettings


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.supervisor.close()


def test_a_shell_script_gets_its_parameters_and_its_dates(host: Host) -> None:
    task = host.task(
        1,
        "echo '${day} ${region} $[yyyyMMdd-1] ${HOME_OF_NOBODY} ${system.biz.date}'",
        local=[{"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "$[yyyy-MM-dd]"}],
        global_params='[{"prop":"region","direct":"IN","type":"VARCHAR","value":"eu"}]',
    )
    assert host.run(task).state is TaskState.SUCCESS
    assert "\n2026-01-02 eu 20260101 ${HOME_OF_NOBODY} 20260101\n" in host.log(1)


def test_a_shell_script_with_windows_line_ends_runs(host: Host) -> None:
    assert host.run(host.task(1, "if true; then\r\necho fine\r\nfi\r\n")).state is TaskState.SUCCESS
    assert "\nfine\n" in host.log(1)


def test_a_shell_script_may_name_its_interpreter(host: Host) -> None:
    end = host.run(host.task(1, '#!/usr/bin/env bash\na=(x y)\necho "${#a[@]}"\n'))
    assert end.state is TaskState.SUCCESS
    assert "\n2\n" in host.log(1)


BASH_SCRIPTS = {
    "output of both streams": ("ls /nowhere &> log; test -s log && echo right", "right"),
    "==": ('x=1; if [ "$x" == 1 ]; then echo right; else echo wrong; fi', "right"),
    "RANDOM": ('[ -n "$RANDOM" ] && echo right', "right"),
    "[[": ("[[ abc == a* ]] && echo right", "right"),
    "array": ('a=(x y); echo "${a[1]} ${#a[@]}"', "y 2"),
    "braces": ("echo {1..3}", "1 2 3"),
    "process substitution": ("cat <(echo right)", "right"),
    "here string": ('cat <<< "right"', "right"),
    "source": ("echo echo right > lib.sh; source ./lib.sh", "right"),
    "pipefail": ("set -o pipefail; false | true || echo right", "right"),
    "substring": ('x=2026-11-29; echo "${x:0:4} ${x//-/}"', "2026 20261129"),
    "C loop": ("for ((i = 0; i < 3; i++)); do printf $i; done; echo", "012"),
    "echo": (r"""echo 'a\nb'""", r"a\nb"),
    "function": ("function f { local x=right; echo $x; }; f", "right"),
    "PIPESTATUS": ('false | true; echo "${PIPESTATUS[0]}"', "1"),
    "printf": ("printf '%q %(%Y)T\n' 'a b' 0", r"a\ b 1970"),
}


@pytest.mark.parametrize("name", BASH_SCRIPTS)
def test_a_shell_script_means_what_bash_makes_of_it(host: Host, name: str) -> None:
    script, printed = BASH_SCRIPTS[name]
    assert host.run(host.task(1, f"export TZ=UTC\n{script}\n")).state is TaskState.SUCCESS
    assert f"\n{printed}\n" in host.log(1), host.log(1)


@pytest.mark.parametrize("shell", ["sh", "/bin/sh", "${which}"])
def test_a_task_may_name_its_shell(host: Host, shell: str) -> None:
    local = [{"prop": "which", "direct": "IN", "type": "VARCHAR", "value": "sh"}]
    params = {"rawScript": "echo ${BASH_VERSION-no bash}", "shell": shell}
    end = host.run(host.task(1, task_type="SHELL", params=params, local=local))
    assert end.state is TaskState.SUCCESS, host.log(1)
    # If sh is bash, it runs in POSIX mode and sets the variable too.
    is_bash = Path("/bin/sh").resolve().name == "bash"
    assert ("\nno bash\n" in host.log(1)) is not is_bash


def test_an_interpreter_in_the_script_goes_before_the_shell(host: Host) -> None:
    script = "#!/usr/bin/env python3\nprint('from python')\n"
    end = host.run(host.task(1, task_type="SHELL", params={"rawScript": script, "shell": "sh"}))
    assert end.state is TaskState.SUCCESS, host.log(1)
    assert "\nfrom python\n" in host.log(1)


@pytest.mark.parametrize(
    ("shell", "problem"),
    [
        ("nosuchshell", "params.shell: there is no program nosuchshell on this worker; install it"),
        ("/bin/nosuchshell", "params.shell: there is no program /bin/nosuchshell on this worker"),
        ("-c", "params.shell must be the name of a shell as bash, or its path as /bin/zsh"),
        ("sh -c", "params.shell must be the name of a shell"),
        ("../sh", "params.shell must be the name of a shell"),
    ],
)
def test_a_shell_that_cannot_run_the_script_is_named_with_the_cure(
    host: Host, shell: str, problem: str
) -> None:
    params = {"rawScript": "touch ran", "shell": shell}
    end = host.run(host.task(1, task_type="SHELL", params=params))
    assert end.state is TaskState.FAILURE
    assert problem in str(end.reason)


def test_a_worker_without_its_shell_fails_the_task_and_names_the_setting(tmp_path: Path) -> None:
    host = Host(tmp_path, settings=TaskSettings(shell="nosuchshell"))
    end = host.run(host.task(1, "true"))
    assert end.state is TaskState.FAILURE
    assert "worker.shell: there is no program nosuchshell on this worker; install it, or name" in (
        end.reason or ""
    )
    host.supervisor.close()


def test_a_value_in_a_variable_is_no_command_x11(host: Host) -> None:
    evil = "x; touch PWNED $(touch PWNED) `touch PWNED` \" '\n${nosuch}"
    given = json.dumps({"day": evil, "BASH_ENV": "/nowhere", "LD_PRELOAD": "/nowhere"})
    script = 'printf "%s\n" "$day"; env; ls'
    end = host.run(host.task(1, f"#!/usr/bin/env bash\n{script}", start_params=given))
    assert end.state is TaskState.SUCCESS, host.log(1)
    assert f"\n{evil}\n" in host.log(1)
    assert not (host.directory(1) / "PWNED").exists()
    variables = {line.partition("=")[0] for line in host.log(1).splitlines()}
    assert {"ORCAFLOW_PARAM_BASH_ENV", "ORCAFLOW_PARAM_LD_PRELOAD"} <= variables
    assert not {"BASH_ENV", "LD_PRELOAD"} & variables


def test_the_environment_file_is_sourced_before_a_shell_script(tmp_path: Path) -> None:
    env_file = tmp_path / "env file; exit 3.sh"
    env_file.write_text("export GREETING=hello\n")
    host = Host(tmp_path, settings=TaskSettings(env_path=str(env_file)))
    local = [{"prop": "file", "direct": "IN", "type": "VARCHAR", "value": "mine"}]
    end = host.run(host.task(1, 'echo "$GREETING $# $file"', local=local))
    assert end.state is TaskState.SUCCESS, host.log(1)
    assert "\nhello 0 mine\n" in host.log(1)
    host.supervisor.close()


def test_parameters_stand_in_a_file_that_only_the_task_can_read(host: Host, tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    host.run(
        host.task(
            1,
            f'stat -c %a "$ORCAFLOW_PARAMS"; tee {copy} < "$ORCAFLOW_PARAMS"',
            local=[{"prop": "password", "direct": "IN", "type": "VARCHAR", "value": "hunter2"}],
        )
    )
    header, body = host.log(1).split("\n600\n")
    assert "password=******" in header
    assert "hunter2" not in header
    assert json.loads(copy.read_text())["password"] == "hunter2"
    # What a task prints of its secrets is masked.
    assert json.loads(body.splitlines()[0].split("[orcaflow]")[0])["password"] == "*******"


def test_a_python_script_shows_its_own_lines_in_a_traceback(host: Host) -> None:
    end = host.run(host.task(1, "x = 1\nraise ValueError('${a}')\n", task_type="PYTHON"))
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 1)
    assert 'py_1_2_1.command", line 2' in host.log(1)


def test_a_python_file_gets_its_arguments(host: Host, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    params = {"file": "${folder}/job.py", "mainArgs": "--day '${day} x' \"a b\""}
    local = [
        {"prop": "folder", "direct": "IN", "type": "VARCHAR", "value": str(tmp_path)},
        {"prop": "day", "direct": "IN", "type": "VARCHAR", "value": "$[yyyyMMdd]"},
    ]
    host.run(host.task(1, task_type="PYTHON", params=params, local=local))
    assert "['--day', '20260102 x', 'a b']" in host.log(1)


def test_resources_are_found_under_their_own_names(host: Host, tmp_path: Path) -> None:
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "lib.sh").write_text("echo from lib\n")
    end = host.run(host.task(1, ". ./lib.sh", params={"resourceList": [{"res": "lib.sh"}]}))
    assert end.state is TaskState.SUCCESS
    assert "\nfrom lib\n" in host.log(1)


_QUIET_SPARK = {
    **light_jvm.conf(),
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.mark.slow
def test_a_pyspark_script_has_a_session_and_its_parameters(host: Host) -> None:
    script = """
from pyspark.sql import functions as F

def double(n):
    return 2 * n

twice = F.udf(double, "int")
rows = spark.range(int(params["n"])).select(twice(F.col("id").cast("int")).alias("v"))
print("sum", rows.agg(F.sum("v")).first()[0], spark.sparkContext.appName, __name__)
print("conf", spark.conf.get("spark.ui.enabled"), spark.conf.get("spark.sql.shuffle.partitions"))
raise ValueError("the end")
"""
    params = {"rawScript": script, "master": "local[1]", "conf": _QUIET_SPARK}
    local = [{"prop": "n", "direct": "IN", "type": "INTEGER", "value": "100"}]
    end = host.run(host.task(1, task_type="PYSPARK", params=params, local=local))
    log = host.log(1)
    assert "sum 9900 daily task 1 __main__" in log
    assert "conf false 1" in log
    assert 'pyspark_1_2_1.py", line 11, in <module>' in log
    assert 'run_script.py", line' not in log
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 1)
    assert not list((host.directory(1) / "spark-local").iterdir())


def test_a_pyspark_script_that_does_not_compile_fails_before_spark_is_started(host: Host) -> None:
    end = host.run(host.task(1, "def f(:\n", task_type="PYSPARK"))
    assert (end.state, end.exit_code) == (TaskState.FAILURE, 1)
    assert "SyntaxError" in host.log(1)


@pytest.mark.slow
def test_a_python_program_runs_by_spark_submit(host: Host, tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "import os, sys, time, urllib.error, urllib.request\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "print('rows', spark.range(7).count(), sys.argv[1:])\n"
        "try: print('page', urllib.request.urlopen(spark.sparkContext.uiWebUrl).status)\n"
        "except urllib.error.HTTPError as error: print('page', error.code)\n"
        "name, end = 'spark-facts.json', time.monotonic() + 300\n"
        "def facts(): return open(name).read() if os.path.exists(name) else ''\n"
        "while 'local-' not in facts() and time.monotonic() < end: time.sleep(0.05)\n"
        "spark.stop()\n"
    )
    params = {
        "programType": "PYTHON",
        "deployMode": "local",
        "mainJar": {"res": str(program)},
        "mainArgs": "--day $[yyyyMMdd] '; rm -rf x'",
        "driverMemory": "512M",
        "others": light_jvm.arguments(
            {**light_jvm.conf(), "spark.ui.enabled": "true", "spark.log.level": "WARN"}
        ),
    }
    end = host.run(host.task(1, task_type="SPARK", params=params))
    assert end.state is TaskState.SUCCESS, host.log(1)
    assert "\npage 403\n" in host.log(1)
    (shown,) = re.findall(r"application local-\S+: (http\S+), with the token in (\S+)", host.log(1))
    assert Path(shown[1]).name.startswith("spark_")
    assert "rows 7 ['--day', '20260102', '; rm -rf x']" in host.log(1)
