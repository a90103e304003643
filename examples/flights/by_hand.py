"""Runs the pipeline for one day in this process, without a cluster: for trying out and testing.

    python by_hand.py 2013-01-01 [--into DIRECTORY]

The tasks are those of `flights.json`, one after the other in an order that its edges allow; all
PYSPARK tasks share one Spark session, which is what makes it quick. At the end the results are
compared with `expected.py`. Only fixed values are understood as parameters, besides the day.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent


def definition() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((HERE / "flights.json").read_text(encoding="utf-8"))
    process: dict[str, Any] = whole["processDefinitionJson"]
    return process


def tasks() -> Iterator[dict[str, Any]]:
    """The tasks of the definition, each after those that it waits for."""
    by_name = {task["name"]: task for task in definition()["tasks"]}
    edges = {name: task["preTasks"] for name, task in by_name.items()}
    return (by_name[name] for name in TopologicalSorter(edges).static_order())


def session() -> SparkSession:
    """One session with the settings of the definition's PYSPARK tasks."""
    builder = SparkSession.builder.appName("flights by hand").master("local[1]")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
    for task in tasks():
        if task["type"] == "PYSPARK":
            for key, value in task["params"]["conf"].items():
                builder = builder.config(key, value)
    return builder.getOrCreate()


def run_task(task: dict[str, Any], day: str, data: Path, spark: SparkSession) -> None:
    """One task as a worker would run it; its `sys.exit` message comes out as SystemExit."""
    params = {"day": day} | {
        local["prop"]: local["value"] for local in task["params"]["localParams"]
    }
    script = HERE / task["params"]["file"]
    if task["type"] == "PYSPARK":
        before = dict(os.environ)
        os.environ["ORCAFLOW_DATA_DIR"] = str(data)
        try:
            runpy.run_path(str(script), {"spark": spark, "params": params}, "__main__")
        finally:
            os.environ.clear()
            os.environ.update(before)
        return
    given = data / "params.json"
    given.write_text(json.dumps(params), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"ORCAFLOW_DATA_DIR": str(data), "ORCAFLOW_PARAMS": str(given)},
        cwd=data,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(ended.stderr.strip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("day")
    parser.add_argument("--into", type=Path, default=Path("flights-data"))
    asked = parser.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    spark = session()
    try:
        for task in tasks():
            print(f"{task['name']} …", flush=True)
            run_task(task, asked.day, asked.into.resolve(), spark)
    finally:
        spark.stop()

    sys.path.insert(0, str(HERE))
    from expected import compare, expected

    folder = asked.into / "flights" / f"day={asked.day}"
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    differences = compare(results, expected(date.fromisoformat(asked.day)))
    print("\n".join(differences) or f"All results are as expected; see {folder / 'report.md'}")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
