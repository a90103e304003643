"""A session for topologies, and witnesses of what their tasks have had."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from common.topology.declaration import Topology
from tests import forked_pythons
from tests.integration.spark_jobs import a_session
from tests.integration.topology_parts import Witness
from worker.spark.diagnosis.failures import is_late_python
from worker.spark.topology.figures import Tally
from worker.spark.topology.queries import TopologyQueries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def topology_session(warehouse: Path) -> Iterator[SparkSession]:
    """A session whose Python processes know Orcaflow, as those of the task do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with a_session(warehouse, conf=forked_pythons.CONF) as made:
            yield made


class Stage:
    """Runs topologies whose sinks are witnesses."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.seen = folder / "seen"
        self.seen.mkdir()
        self.tally: Tally = Counter()
        self.batches: list[tuple[str, int]] = []

    def witness(self, name: str) -> Witness:
        return Witness(self.seen, name)

    def run(self, topology: Topology) -> None:
        """Run a topology from its checkpoint until its spouts have no more."""
        # As its task does: a busy computer is no failure of what is tested.
        while not self._has_run(topology):
            pass

    def _has_run(self, topology: Topology) -> bool:
        queries = TopologyQueries(
            self.spark, topology, folder=self.folder, scratch=self.folder / "scratch"
        )
        queries.committed = self.committed
        queries.start()
        try:
            for each in queries.running:
                each.handle.processAllAvailable()
        except StreamingQueryException as error:
            if is_late_python(error):
                return False
            _, own = queries.failure() or ("", error)
            raise own from error
        finally:
            queries.stop()
        return True

    def committed(self, query: str, number: int, done: Tally) -> None:
        """Take note of a batch."""
        self.batches.append((query, number))
        self.tally.update(done)

    def received(self, name: str) -> dict[int, list[tuple[Any, ...]]]:
        """Return what each task of a witness has had, whatever the batch."""
        found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for file in sorted(self.seen.glob(f"{name}-*")):
            for line in file.read_text().splitlines():
                task, values, _, _ = json.loads(line)
                found[task].append(tuple(values))
        return found
