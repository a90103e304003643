"""Runs a script by plain `spark-submit`, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests import light_jvm
from tests.parity.outcomes import Outcome, files_below, logged, printed
from tests.parity.scripts import Script
from worker.spark.jvm.installation import home_of_spark

MASTER: Final = "local[2]"
CONF: Final[Mapping[str, str]] = {"spark.sql.shuffle.partitions": "2"}
"""Settings of both sides, so that the numbers of partitions and files agree."""
_TIMEOUT_SECONDS: Final = 400


class UnresolvedError(Exception):
    """A script's package cannot be downloaded here."""


def run(script: Script, folder: Path, *, postgresql: str = "") -> Outcome:
    """Run a script to its end. Raises `UnresolvedError`."""
    folder.mkdir(parents=True)
    conf = {
        **CONF,
        **light_jvm.conf(),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.log.level": "WARN",
    }
    home = home_of_spark("", os.environ)
    command = [f"{home}/bin/spark-submit", "--master", MASTER]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    if script.py_files:
        command += ["--py-files", ",".join(map(str, script.py_files))]
    if script.package:
        command += ["--packages", script.package]
    done = subprocess.run(
        [*command, str(script.path), *script.given(postgresql)],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    (folder.parent / f"{folder.name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if script.package and done.returncode and "unresolved dependency" in done.stdout + done.stderr:
        raise UnresolvedError(f"{script.package} cannot be downloaded from Maven's repository")
    return Outcome(
        exit_code=done.returncode,
        printed=printed(done.stdout),
        # Spark sends what Python logs to its own standard output.
        logged=logged(done.stdout),
        files=files_below(folder),
    )
