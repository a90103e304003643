"""Jobs of Spark tasks, done in the tests' own process and in one session of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import light_jvm
from worker.spark.session import work
from worker.spark.session.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def a_session(
    warehouse: Path, *, zone: str = "UTC", conf: Mapping[str, str] = {}
) -> Iterator[SparkSession]:
    """A small session with a driver in this process."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config(map=light_jvm.conf())
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", zone)
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config(map=dict(conf))
        .getOrCreate()
    )
    own_zone = os.environ.get("TZ")
    try:
        yield spark
    finally:
        spark.stop()
        # Work with SQL takes the session's zone for its process, which goes on to other tests.
        os.environ.pop("TZ", None)
        if own_zone is not None:
            os.environ["TZ"] = own_zone
        time.tzset()


class Jobs:
    """Runs one job after the other; their results are in `folder`."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.folder = folder
        self._spark = spark
        self._capfd = capfd
        monkeypatch.setenv("ORCAFLOW_OUTPUT", str(self.outputs))
        monkeypatch.delenv("ORCAFLOW_SPARK_FACTS", raising=False)

    @property
    def outputs(self) -> Path:
        return self.folder / "out.jsonl"

    @property
    def reason(self) -> Path:
        return self.folder / "job.reason"

    def do(self, document: Mapping[str, Any]) -> tuple[int, str]:
        """Run a job; return its exit code and its output."""
        job = Job.of(document, reason_file=self.reason)
        work.facts.cache_clear()
        self._capfd.readouterr()
        code = work.run(self._spark, job)
        said = self._capfd.readouterr()
        return code, said.out + said.err


def text_of(path: Path) -> str:
    """The text of a file that a job has written; "" if there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""
