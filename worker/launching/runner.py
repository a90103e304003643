"""Runs a task by a program of Orcaflow's own, in a process and with an account of its own.

The program, a module of `worker.runners`, is given its work as JSON in a file that only the attempt
can read and that the program removes as soon as it has read it: a password stands neither in an
argument nor in the environment, where others could see it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from worker.launching.base import Launch, TaskContext

_PACKAGES = str(Path(__file__).resolve().parents[2])


def run_by(context: TaskContext, module: str, job: Mapping[str, object]) -> Launch:
    """Have `worker.runners.<module>` do this job."""
    name = f"{module}_{context.app_id}.json"
    known = {
        "outputs": {name: each.name for name, each in context.outputs.items()},
    }
    path = context.write(name, json.dumps({**known, **job}))
    environment = {"PYTHONPATH": _PACKAGES, "PYTHONUNBUFFERED": "1"}
    if context.settings.data_dir:
        # A data source names its file below what is shared, whoever the tenant is.
        environment["ORCAFLOW_DATA_DIR"] = context.settings.data_dir
    return Launch(
        # The worker's own interpreter, which surely has the libraries; -P keeps the attempt's
        # directory, which is the current one, from being searched for modules.
        argv=(sys.executable, "-P", "-m", f"worker.runners.{module}", str(path)),
        environment=environment,
        prints_outputs=False,
        job_file=path,
    )
