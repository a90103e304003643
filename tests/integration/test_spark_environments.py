"""Environments of tasks: made once, shared, and told about when they can't be made."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from common.model.failures import FailureReason
from worker.spark.diagnosis.failures import WorkFailedError
from worker.spark.session.environments import python_for
from worker.spark.session.job import Job

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    """A package that no index is needed for, as a requirement."""
    path = tmp_path / "weather_vane-1.0-py3-none-any.whl"
    about = "weather_vane-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("weather_vane.py", "direction = 'north'\n")
        packed.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: weather-vane\nVersion: 1.0\n"
        )
        packed.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{about}/RECORD", "")
    return f"weather-vane @ file://{path}"


def a_job(folder: Path, **environment: Any) -> Job:
    document = {
        "kind": "worker.spark.session.script",
        "environment": {"root": str(folder / "environments"), **environment},
    }
    return Job.of(document, reason_file=folder / "job.reason")


def refused(job: Job) -> WorkFailedError:
    with pytest.raises(WorkFailedError) as caught:
        python_for(job)
    return caught.value


def told_by(python: str, code: str) -> str:
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_requirements_become_an_environment_that_is_kept(
    tmp_path: Path, wheel: str, capfd: pytest.CaptureFixture[str]
) -> None:
    job = a_job(tmp_path, requirements=[wheel])
    python = python_for(job)
    assert told_by(python, "import weather_vane; print(weather_vane.direction)") == "north"
    assert told_by(python, "import pyspark, pandas; print(pyspark.__version__ > '4')") == "True"
    told = capfd.readouterr().out
    assert "[orcaflow] makes an environment with weather-vane @ file://" in told
    assert "Successfully installed weather-vane-1.0" in told
    assert python_for(job) == python
    assert capfd.readouterr().out == ""
    assert python_for(a_job(tmp_path, requirements=[wheel, wheel])) != python


def test_an_environment_that_was_left_half_made_is_made_anew(tmp_path: Path, wheel: str) -> None:
    job = a_job(tmp_path, requirements=[wheel])
    place = Path(python_for(job)).parents[1]
    (place / ".complete").unlink()
    (place / "bin" / "python").unlink()
    assert told_by(python_for(job), "import weather_vane; print('again')") == "again"


def test_tasks_that_want_the_same_at_once_make_it_once(tmp_path: Path, wheel: str) -> None:
    program = (
        "import sys; from pathlib import Path; from worker.spark.session import environments; from worker.spark.session.job import Job;"
        "job = Job.of({'kind': 'x', 'environment': {'root': sys.argv[1],"
        "'requirements': [sys.argv[2]]}}, reason_file=Path('x'));"
        "print('python', environments.python_for(job))"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "environments"), wheel]

    def run(_: int) -> str:
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout

    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(run, range(3)))
    assert sum("makes an environment" in each for each in told) == 1
    assert len({each.partition("python ")[2] for each in told}) == 1


@pytest.mark.parametrize("requirement", ["weather-vane @ file:///no/such.whl", "weather vane =="])
def test_requirements_that_can_not_be_had_are_told(tmp_path: Path, requirement: str) -> None:
    error = refused(a_job(tmp_path, requirements=[requirement]))
    assert error.explained.sentence.startswith("the task's environment could not be made: pip: ")
    assert error.explained.reason is FailureReason.CONFIGURATION
    assert [*(tmp_path / "environments").glob("*/")] == []


def test_a_password_in_a_requirement_does_not_stand_in_the_log(
    tmp_path: Path, wheel: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hush").mkdir()
    moved = tmp_path / "hush" / "weather_vane-1.0-py3-none-any.whl"
    Path(wheel.partition("file://")[2]).rename(moved)
    job = a_job(tmp_path, requirements=[f"weather-vane @ file://{moved}"])
    place = Path(python_for(dataclasses.replace(job, secrets=("hush",)))).parents[1]
    told = capfd.readouterr().out
    assert "Successfully installed weather-vane-1.0" in told
    assert "hush" not in told
    assert not (place / "requirements.txt").exists()


def test_a_worker_that_is_offline_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    error = refused(a_job(tmp_path, requirements=["no-such-package==1"]))
    assert "pip can't reach the index" in error.explained.sentence
    assert error.explained.reason is FailureReason.SUBMIT_FAILED


def test_an_archive_is_unpacked_once_and_again_when_it_changes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    archive = tmp_path / "env.tar.gz"

    def pack() -> None:
        with tarfile.open(archive, "w:gz") as bundle:
            for path in sorted(made.iterdir()):
                bundle.add(path, arcname=path.name)

    pack()
    job = a_job(tmp_path, archive=str(archive))
    python = python_for(job)
    assert told_by(python, "import pyspark, sys; print(sys.prefix)") == str(Path(python).parents[1])
    assert "unpacks env.tar.gz" in capfd.readouterr().out
    assert python_for(job) == python
    assert capfd.readouterr().out == ""
    (made / "more.txt").write_text("more")
    pack()
    assert python_for(job) != python


def test_an_archive_that_is_none_is_told(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar.gz"
    assert (
        "can't be read: No such file"
        in refused(a_job(tmp_path, archive=str(archive))).explained.sentence
    )
    archive.write_bytes(b"nothing")
    assert "can't be unpacked" in refused(a_job(tmp_path, archive=str(archive))).explained.sentence
    with tarfile.open(archive, "w:gz") as bundle:
        bundle.add(Path(__file__), arcname="readme")
    assert "has no bin/python" in refused(a_job(tmp_path, archive=str(archive))).explained.sentence
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("bin/python", "#!/bin/sh\necho no >&2; exit 1\n")
    error = refused(a_job(tmp_path, archive=str(archive)))
    assert error.explained.sentence == "the Python of the task's environment does not run: no"


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "environments").write_text("a file")
    error = refused(a_job(tmp_path, requirements=["x"]))
    assert "can't be kept in" in error.explained.sentence


def test_a_script_runs_with_its_requirements_and_its_connections(
    tmp_path: Path, wheel: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys, weather_vane\n"
        "path = os.environ['ORCAFLOW_DATASOURCES']\n"
        "print(weather_vane.direction, sys.argv[1:], json.load(open(path)), os.stat(path).st_mode)\n"
        "print('ORCAFLOW_SPARK_FACTS' in os.environ)\n"
    )
    job = tmp_path / "job.json"
    connections = {"dw": {"password": "hush"}}
    document = {
        "kind": "python",
        "script": str(script),
        "arguments": ["a b"],
        "environment": {
            "root": str(tmp_path / "environments"),
            "requirements": [wheel],
            "without_spark": True,
        },
        "connections": connections,
    }
    job.write_text(json.dumps(document))
    job.chmod(0o600)
    program = ROOT / "worker" / "spark" / "session" / "environments.py"
    done = subprocess.run(
        [sys.executable, "-P", "-u", str(program), str(job)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "ORCAFLOW_SPARK_FACTS": str(tmp_path / "facts.json")},
    )
    *_, said, of_spark = done.stdout.splitlines()
    assert said == f"north ['a b'] {connections} {0o100600}"
    assert of_spark == "False"
    # The worker removes it when the attempt has ended.
    assert json.loads(job.read_text()) == connections
