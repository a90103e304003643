"""PYTHON tasks: their interpreter, their environment, and their file of connections."""

from __future__ import annotations

import json
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.store.worker.ports import DataSource, Environment
from orcaflow.task import datasource
from tests.unit.preparing import prepared
from worker.launcher import seen_by_tasks
from worker.launching.base import NotGrantedError, TaskParameterError, TaskSettings
from worker.log_masking import secrets_left_in
from worker.processes.starting import Prepared

SECRET = "pa ss/wörd"
OURS = DataSource(
    id=7,
    name="sales_db",
    type=1,
    connection_params='{"url": "mysql+pymysql://ada:pa%20ss%2Fw%C3%B6rd@db.example:3306/sales?charset=utf8"}',
)
ORIGINAL = DataSource(
    id=8,
    name="dw",
    type=1,
    connection_params=json.dumps(
        {
            "address": "jdbc:postgresql://db:5433",
            "database": "dw",
            "user": "ada",
            "password": SECRET,
        }
    ),
)
FILE = DataSource(id=9, name="file", type=1, connection_params='{"url": "sqlite:///some/rows.db"}')


def a_program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def a_task(home: Path, *sources: DataSource, **params: Any) -> Prepared:
    settings = TaskSettings(environment=seen_by_tasks({}), data_dir=str(home / "data"))
    return prepared(
        home,
        "PYTHON",
        {"rawScript": "1", **params},
        settings=settings,
        datasource=sources[0] if sources else None,
        datasources=sources,
    )


def named(home: Path, config: str, *, python: str = "", **params: Any) -> Prepared:
    return prepared(
        home,
        "PYTHON",
        {"rawScript": "1", **params},
        settings=TaskSettings(environment=seen_by_tasks({"PATH": "/usr/bin"}), python=python),
        environment_code=7,
        environment=Environment(code=7, name="own", config=config),
    )


def connections_of(made: Prepared) -> dict[str, dict[str, Any]]:
    path = Path(made.environment["ORCAFLOW_DATASOURCES"])
    assert path == made.job_file
    found: dict[str, dict[str, Any]] = json.loads(path.read_text())
    return found


def test_a_folder_that_an_environment_adds_to_the_path_chooses_the_interpreter(
    tmp_path: Path,
) -> None:
    program = a_program(tmp_path / "venv" / "bin" / "python")
    made = named(tmp_path, f"export PATH={tmp_path}/venv/bin:$PATH")
    assert made.argv[0] == program
    assert not made.forks


def test_an_environment_without_a_python_keeps_the_workers(tmp_path: Path) -> None:
    made = named(tmp_path, f"export PATH={tmp_path}/java/bin:$PATH JAVA_HOME={tmp_path}/java")
    assert made.argv[0] == sys.executable
    assert made.forks


@pytest.mark.parametrize(
    ("variable", "of_folder"), [("PYTHON_LAUNCHER", False), ("PYTHON_HOME", True)]
)
def test_the_variables_of_dolphinscheduler_choose_the_interpreter(
    tmp_path: Path, variable: str, of_folder: bool
) -> None:
    program = a_program(tmp_path / "opt" / "bin" / "python3")
    value = tmp_path / "opt" if of_folder else program
    assert named(tmp_path, f"export {variable}={value}").argv[0] == program
    with pytest.raises(TaskParameterError, match=f"{variable} names no Python"):
        named(tmp_path, f"export {variable}={tmp_path}/none")


def test_a_setting_of_the_worker_goes_before_an_environment_and_a_key_before_both(
    tmp_path: Path,
) -> None:
    a_program(tmp_path / "venv" / "bin" / "python")
    of_setting = a_program(tmp_path / "setting" / "python")
    of_key = a_program(tmp_path / "key" / "python")
    config = f"export PATH={tmp_path}/venv/bin:$PATH"
    assert named(tmp_path, config, python=of_setting).argv[0] == of_setting
    assert named(tmp_path, config, python=of_setting, interpreter=of_key).argv[0] == of_key


@pytest.mark.parametrize(
    ("params", "cause"),
    [
        ({"interpreter": "/no/such"}, "params.interpreter: there is no program /no/such"),
        ({"interpreter": "python -x"}, "params.interpreter must be the name of a Python"),
        (
            {"interpreter": "python3", "environment": {"requirements": ["a"]}},
            "params.interpreter and params.environment are both given",
        ),
        ({"environment": {"requirements": ["-r x"]}}, r"params.environment.requirements\[0\]"),
    ],
)
def test_a_mistake_names_its_key(tmp_path: Path, params: dict[str, Any], cause: str) -> None:
    with pytest.raises(TaskParameterError, match=cause):
        a_task(tmp_path, **params)


def test_connections_are_in_a_file_that_only_the_task_reads(tmp_path: Path) -> None:
    made = a_task(tmp_path, OURS, ORIGINAL, FILE, datasources={"sales": 7, "dw": 8, "file": 9})
    found = connections_of(made)
    assert stat.S_IMODE(Path(made.environment["ORCAFLOW_DATASOURCES"]).stat().st_mode) == 0o600
    assert found["sales"] == {
        "url": "mysql+pymysql://ada:pa%20ss%2Fw%C3%B6rd@db.example:3306/sales?charset=utf8",
        "dialect": "mysql",
        "host": "db.example",
        "port": 3306,
        "database": "sales",
        "user": "ada",
        "password": SECRET,
        "query": {"charset": "utf8"},
    }
    assert found["dw"]["url"] == ("postgresql+psycopg2://ada:pa%20ss%2Fw%C3%B6rd@db:5433/dw")
    assert (found["dw"]["port"], found["dw"]["password"]) == (5433, SECRET)
    path = f"{tmp_path}/data/some/rows.db"
    assert (found["file"]["database"], found["file"]["url"]) == (path, f"sqlite:///{path}")
    assert SECRET in made.secrets
    assert SECRET not in made.header + " ".join((*made.argv, *made.environment.values()))
    assert made.forks


def test_a_list_of_sources_has_their_own_names(tmp_path: Path) -> None:
    assert list(connections_of(a_task(tmp_path, OURS, datasources=[7]))) == ["sales_db"]


def test_a_source_that_is_not_granted_fails_the_attempt(tmp_path: Path) -> None:
    with pytest.raises(NotGrantedError, match="the project has no data source 8"):
        a_task(tmp_path, OURS, datasources={"sales": 7, "dw": 8})


def test_a_source_that_breaks_the_rule_fails_the_attempt_without_its_secret(
    tmp_path: Path,
) -> None:
    bad = replace(OURS, connection_params='{"url": "mysql://u:hush@h/d?init_command=x"}')
    with pytest.raises(TaskParameterError, match="init_command") as refused:
        a_task(tmp_path, bad, datasources=[7])
    assert "hush" not in str(refused.value)


def test_a_task_without_sources_has_no_file(tmp_path: Path) -> None:
    made = a_task(tmp_path)
    assert made.job_file is None
    assert "ORCAFLOW_DATASOURCES" not in made.environment


def test_an_environment_is_made_before_the_script_by_the_workers_python(tmp_path: Path) -> None:
    made = a_task(
        tmp_path, ORIGINAL, environment={"requirements": ["a==1"]}, datasources=[8], mainArgs="x"
    )
    assert made.argv[:3] == (sys.executable, "-P", "-u")
    assert Path(made.argv[3]).name == "environments.py"
    assert made.job_file == Path(made.argv[4])
    job = json.loads(made.job_file.read_text())
    assert job["environment"]["requirements"] == ["a==1"]
    assert job["environment"]["without_spark"]
    assert job["arguments"] == ["x"]
    assert job["connections"]["dw"]["password"] == SECRET
    assert not made.forks
    assert SECRET in secrets_left_in(made.directory, job_file=made.job_file)


def test_a_restarted_worker_finds_the_passwords_of_the_file(tmp_path: Path) -> None:
    made = a_task(tmp_path, ORIGINAL, datasources=[8])
    assert made.job_file is not None
    assert secrets_left_in(made.directory, job_file=made.job_file) == (SECRET,)
    made.job_file.write_text("[" * 100_000)
    assert secrets_left_in(made.directory, job_file=made.job_file) == ()


def test_a_script_reads_a_connection_by_name_and_prints_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = a_task(tmp_path, ORIGINAL, datasources=[8])
    with pytest.raises(KeyError, match=r"params\.datasources"):
        datasource("dw")
    monkeypatch.setenv("ORCAFLOW_DATASOURCES", made.environment["ORCAFLOW_DATASOURCES"])
    found = datasource("dw")
    assert found["password"] == SECRET
    assert f"{found}".count("******") == 2
    assert "w%C3%B6rd" not in repr(found)
    with pytest.raises(KeyError, match="it names dw"):
        datasource("sales")
