"""Figures of the tasks of a query, counted where they run and added up in the driver.

Counts come back with the end of each of Spark's tasks, by an accumulator. Those of a batch that
fails are counted as failed, and not as executed.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from pyspark.accumulators import AccumulatorParam

EXECUTED: Final = "executed"
EMITTED: Final = "emitted"
TRANSFERRED: Final = "transferred"
FAILED: Final = "failed"
ACKED: Final = "acked"
TASK: Final = "task"
KEY: Final = "key"
MICROS: Final = "micros"
ERROR: Final = "error"
LOAD: Final = "load"
"""Microseconds that a task took over its share: for load-aware shuffles, not for people."""
_MOST_ERRORS: Final = 50
_LONGEST_TEXT: Final = 1_000

Tally = Counter[tuple[str, str, str]]
"""Counts by what is counted, the component, and the stream, input, task or text in question."""


class TallyParam(AccumulatorParam[Tally]):
    """Adds tallies up."""

    def zero(self, value: Tally) -> Tally:
        return Counter()

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802
        for key, count in value2.items():
            if key[0] != ERROR or key in value1 or len(value1) < 100_000:
                value1[key] += count
        return value1


class TaskTally:
    """Counts for one task of a component."""

    def __init__(self, component: str, task: int) -> None:
        self.counts: Tally = Counter()
        self._component = component
        self._task = task
        self._errors = 0

    def add(self, what: str, name: str, count: int) -> None:
        """Count something of a stream or of an input."""
        if count:
            self.counts[what, self._component, name] += count

    def executed(self, taken: str, count: int) -> None:
        """Count records that were taken."""
        self.add(EXECUTED, taken, count)
        self.add(TASK, str(self._task), count)

    def took(self, micros: int) -> None:
        """Count time that the component took."""
        self.add(MICROS, "", micros)
        self.add(LOAD, str(self._task), micros)

    def keys(self, seen: Counter[object]) -> None:
        """Count the key that was seen most in a batch."""
        for key, count in seen.most_common(1):
            self.add(KEY, f"{self._task} {key!r:.200}", count)

    def failed(self, taken: str, error: BaseException) -> None:
        """Count a record that was given up, and keep its error."""
        self.add(FAILED, taken, 1)
        if self._errors < _MOST_ERRORS:
            self._errors += 1
            told = f"{type(error).__name__}: {error!s:.{_LONGEST_TEXT}}"
            self.add(ERROR, f"{self._task} {told}", 1)
