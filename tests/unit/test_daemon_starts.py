"""The start of a daemon: most of it is imports, which leave no garbage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from worker.spark.host import folders

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import gc, runpy, sys
begun = []
gc.callbacks.append(lambda phase, _: begun.append(phase))
try:
    runpy.run_module(sys.argv[1], run_name="__main__")
except SystemExit:
    print(len(begun) < 20, gc.isenabled(), gc.get_freeze_count() > 10_000, file=sys.stderr)
"""


@pytest.mark.parametrize("module", ["master.server", "worker.server", "worker.warden_pass"])
def test_no_garbage_is_looked_for_until_a_daemon_is_imported(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "True True True\n"


SWEEP = """
import runpy, sys
try:
    runpy.run_module("worker.spark.host", run_name="__main__")
except SystemExit:
    print(*{"grpc", "numpy", "pyspark", "worker.spark.host.loop"}.intersection(sys.modules))
"""


def test_a_spark_host_that_only_sweeps_imports_nothing_that_takes_time(tmp_path: Path) -> None:
    left = folders.own_folder(tmp_path, 1) / "server-1"
    left.mkdir(parents=True)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SWEEP,
            "--home",
            tmp_path,
            "--port",
            "1",
            "--spark-home",
            "",
            "--sweep",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, left.exists()) == ("\n", False)
