"""The weights of a query's load-aware shuffles, from batch to batch.

A batch that is done again has to send each record where it went before, or a sink would write a
share twice. So the weights of a batch are in a file before it begins, and stay until the next one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext

from common.errors import SchedulerError
from common.topology.loads import even, weights_after
from worker.spark.streaming.documents import replace
from worker.spark.topology.figures import LOAD, Tally
from worker.spark.topology.program import Program, is_load_aware

WEIGHTS: Final = "orcaflow.weights"
"""The property of a batch's jobs with its weights, as JSON by the number of the edge."""


class LoadsDamagedError(SchedulerError):
    """Nobody knows where the records of a batch went that may have been begun."""


def weights_now(edge: int) -> tuple[int, ...]:
    """Return the weights of an edge's tasks in the batch that this process of Spark's works for."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(WEIGHTS)
    return tuple(json.loads(text).get(str(edge), ())) if text else ()


class Loads:
    """The weights of one query; `folder` outlives the task."""

    def __init__(self, program: Program, folder: Path) -> None:
        topology, query = program.topology, program.query
        self._edges = [
            edge
            for edge in query.edges
            if is_load_aware(edge, topology, program.part(edge.taken.component).tasks)
        ]
        self._file = folder / f"loads-{query.name}.json"
        self._weights: dict[str, tuple[int, ...]] = {}
        self._next: Mapping[str, tuple[int, ...]] = {}

    def begin(self) -> str:
        """Return the value of `WEIGHTS` for a batch, which stays should it be done again.

        The first batch of a task may have been begun by the one before, and has that one's weights.
        """
        if not self._edges:
            return ""
        weights = self._next or self._kept()
        self._weights = {
            str(edge.number): found
            if len(found := tuple(weights.get(str(edge.number), ()))) == edge.tasks
            else even(edge.tasks)
            for edge in self._edges
        }
        replace(self._file, self._weights)
        return json.dumps(self._weights)

    def end(self, done: Tally) -> None:
        """Take note of what the tasks have taken, in the batch that was begun last."""
        self._next = {
            str(edge.number): weights_after(
                self._weights[str(edge.number)],
                [done[LOAD, edge.bolt, str(task)] for task in range(edge.tasks)],
            )
            for edge in self._edges
        }

    def _kept(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise LoadsDamagedError(
                f"{self._file} is damaged: bring it back, or remove it if the last batch was done"
            ) from error
        return found
