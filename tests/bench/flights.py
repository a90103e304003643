"""The flights example, one day, whole, against the same seven Spark steps by `spark-submit`.

The example's nine tasks run as they are imported; the steps are its PYSPARK tasks one after the
other, as a shell script would run them. Both leave the same tables of the same day.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.cluster import ROOT
from tests.bench.figures import Figure, Target
from tests.bench.stage import PATIENCE_SECONDS, Stage

_DAY = "2013-01-02"
_EXAMPLE = ROOT / "examples" / "flights"
_STEPS = 7
# A script of the example expects `spark` and `params`; this prelude makes them.
_BEFORE = """import json, runpy, sys
from pyspark.sql import SparkSession
names = {"spark": SparkSession.builder.getOrCreate(), "params": json.loads(sys.argv[2])}
runpy.run_path(sys.argv[1], names, "__main__")
"""


def measure(stage: Stage, runs: int) -> list[Figure]:
    process = _process()
    definition = stage.database.define("flights", json.dumps(process))
    steps = [task for task in process["tasks"] if task["type"] == "PYSPARK"]
    assert len(steps) == _STEPS
    before = stage.cluster.home / "before.py"
    before.write_text(_BEFORE, encoding="utf-8")
    data = stage.cluster.home / "data"
    results = data / "flights" / f"day={_DAY}" / "results.json"
    stage.database.run(definition, within=PATIENCE_SECONDS)  # Unpacks the data once for all runs.
    whole, submitted = [], []
    for _ in range(runs):
        results.unlink()
        whole.append(stage.database.run(definition, within=PATIENCE_SECONDS))
        assert results.is_file()
        began = time.monotonic()
        for step in steps:
            _submit(before, step["params"], data)
        submitted.append(time.monotonic() - began)
    ratios = tuple(each / ours for each, ours in zip(submitted, whole, strict=True))
    return [
        Figure(name="spark.flights", unit="s", values=tuple(whole)),
        Figure(name="spark.flights_submitted", unit="s", values=tuple(submitted)),
        Figure(
            name="spark.flights_times_faster",
            unit="x",
            values=ratios,
            target=Target(limit=5, at_least=True),
        ),
    ]


def _process() -> dict[str, Any]:
    """The example's definition for one day, with the absolute paths that its import makes."""
    document = json.loads((_EXAMPLE / "flights.json").read_text(encoding="utf-8"))
    process: dict[str, Any] = document["processDefinitionJson"]
    [day] = process["globalParams"]
    day["value"] = _DAY
    for task in process["tasks"]:
        task["params"]["file"] = str(_EXAMPLE / task["params"]["file"])
    return process


def _submit(before: Path, params: dict[str, Any], data: Path) -> None:
    given = {"day": _DAY, **{each["prop"]: each["value"] for each in params["localParams"]}}
    conf = [word for key, text in params["conf"].items() for word in ("--conf", f"{key}={text}")]
    program = Path(sys.executable).with_name("spark-submit")
    own = {"PYSPARK_PYTHON": sys.executable, "ORCAFLOW_DATA_DIR": str(data)}
    subprocess.run(
        [program, "--master", "local[2]", *conf, before, params["file"], json.dumps(given)],
        env={**os.environ, **own},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=PATIENCE_SECONDS,
    )
