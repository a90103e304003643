"""Runs scripts as PYSPARK tasks of a private cluster."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import light_jvm
from tests.parity.outcomes import Outcome, files_below, logged, printed
from tests.parity.scripts import Script
from tests.parity.submitting import CONF, MASTER
from tests.system.cluster import PrivateCluster

SETTINGS: Final = {
    "WORKER__WORKING_DIRECTORY_POLICY": "never",
    "SPARK__PROFILES__DEFAULT__MASTER": MASTER,
    "SPARK__PROFILES__DEFAULT__DRIVER_MEMORY": "768m",
    "SPARK__PROFILES__DEFAULT__START_TIMEOUT_SECONDS": "240",
    "SPARK__PROFILES__DEFAULT__CONF": json.dumps(
        {**CONF, "spark.driver.extraJavaOptions": light_jvm.LIGHT}
    ),
}
"""The settings of a cluster for the suite, in the form that `private_cluster` takes."""

_SUCCESS: Final = 7
_WITHIN_SECONDS: Final = 3_600
_OWN_FILES: Final = re.compile(r"params\.json|spark-facts\.json|(py)?spark_\d+_\d+_\d+\.\w+")
"""The files that the product itself leaves in an attempt's directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """The outcome of a task, with the reason that it reports and its log."""

    outcome: Outcome
    reason: str
    is_refusal: bool
    """True if its log names a line of the script and a remedy."""
    log: str


def run(
    cluster: PrivateCluster, scripts: Sequence[Script], *, postgresql: str = ""
) -> dict[str, TaskOutcome]:
    """Run the scripts as tasks of one process instance; return their outcomes by name."""
    nodes = [_node(script, postgresql) for script in scripts]
    definition = cluster.define("parity with spark-submit", nodes)
    instance = cluster.begin(definition)
    cluster.await_end(instance, within=_WITHIN_SECONDS)
    columns = ("state", "exit_code", "reason", "failure_reason", "log_path", "execute_path")
    rows = {row[0]: row[1:] for row in cluster.tasks_of(instance, "name", *columns)}
    return {script.name: _outcome(script, rows[script.name]) for script in scripts}


def _node(script: Script, postgresql: str) -> dict[str, object]:
    params: dict[str, object] = {
        "file": str(script.path),
        "mainArgs": shlex.join(script.given(postgresql)),
    }
    if script.py_files:
        params["pyFiles"] = [str(path) for path in script.py_files]
    if script.package:
        params["conf"] = {**CONF, "spark.jars.packages": script.package}
        params["master"] = MASTER
    return {"name": script.name, "type": "PYSPARK", "params": params}


def _outcome(script: Script, row: Sequence[object]) -> TaskOutcome:
    state, exit_code, reason, failure, log_path, execute_path = row
    log = Path(str(log_path)).read_text(encoding="utf-8", errors="replace")
    code = 0 if state == _SUCCESS else (exit_code if isinstance(exit_code, int) else 1)
    return TaskOutcome(
        outcome=Outcome(
            exit_code=code,
            printed=printed(log),
            logged=logged(log),
            files=files_below(Path(str(execute_path)), _OWN_FILES),
        ),
        reason=f"{failure}: {reason}" if state != _SUCCESS else "",
        is_refusal=failure == "UNSUPPORTED" and "Hint: " in log and f'"{script.path}", line' in log,
        log=log,
    )
