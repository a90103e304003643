"""Hand-overs of a supervised stream: the time in which nobody reads, on a real cluster.

Records come all the time, and the task of the only group is replaced every `_DURATION_SECONDS`. The
moments are those of Spark's own files: a batch that is planned has an entry in the offset log of its
query, and one that is done has an entry in the commit log. `gap` is from the end of a task's last
batch to the plan of its successor's first one: nobody reads meanwhile. `silence` is up to the end of
that batch: no record has been read since. The first hand-over does not count.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.bench.cluster import ROOT
from tests.bench.figures import Figure, Target
from tests.bench.stage import Stage
from tests.mock_kafka import Broker, a_broker

_DURATION_SECONDS = 40
_LIMIT_SECONDS = 5
_PARTITIONS = 2
_PAUSE_SECONDS = 0.1
_AT_ONCE = 20
_LOOK_SECONDS = 0.05
_FIRST_SECONDS = 120
_CHECKPOINT = "stream/checkpoint"
_SPEC: dict[str, Any] = {
    "type": "kafka",
    "spec": {
        "dataSchema": {
            "dataSource": "handed",
            "timestampSpec": {"column": "at"},
            "dimensionsSpec": {"dimensions": ["origin"]},
            "metricsSpec": [{"type": "count", "name": "rows"}],
            "granularitySpec": {"segmentGranularity": "HOUR", "queryGranularity": "MINUTE"},
        },
        "ioConfig": {
            "topic": "handed",
            "inputFormat": {"type": "json"},
            "useEarliestOffset": True,
            "taskDuration": f"PT{_DURATION_SECONDS}S",
            "startDelay": "PT0S",
            "period": "PT5S",
        },
    },
}


@dataclass(slots=True)
class _Task:
    """The moments of one task's batches, in Unix time, by their numbers."""

    planned: dict[int, float] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=dict)


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Hand over once more than there are runs."""
    with a_broker() as broker:
        broker.create("handed", _PARTITIONS)
        document = json.loads(json.dumps(_SPEC))
        document["spec"]["ioConfig"]["consumerProperties"] = {"bootstrap.servers": broker.servers}
        path = stage.cluster.home / "handed.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        orcaflow = str(ROOT / "bin" / "orcaflow")
        with _producing(broker):
            stage.cluster.execute([orcaflow, "stream", "submit", str(path)])
            try:
                tasks = _watched(stage.cluster.home, runs + 2)
            finally:
                stage.cluster.execute([orcaflow, "stream", "terminate", "handed"])
    handed = list(pairwise(tasks[1:]))
    gaps = [min(after.planned.values()) - max(before.done.values()) for before, after in handed]
    silences = [min(after.done.values()) - max(before.done.values()) for before, after in handed]
    return [
        Figure(
            name="streams.hand_over_gap",
            unit="s",
            values=tuple(gaps),
            target=Target(limit=_LIMIT_SECONDS),
        ),
        Figure(name="streams.hand_over_silence", unit="s", values=tuple(silences)),
    ]


@contextmanager
def _producing(broker: Broker) -> Iterator[None]:
    """Have records come all the time."""
    stopping = threading.Event()

    def produce() -> None:
        while not stopping.wait(_PAUSE_SECONDS):
            at = datetime.now(UTC).isoformat()
            value = json.dumps({"at": at, "origin": "JFK"}).encode()
            for partition in range(_PARTITIONS):
                broker.produce("handed", partition, [value] * _AT_ONCE)

    thread = threading.Thread(target=produce, name="produce")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _watched(home: Path, count: int) -> list[_Task]:
    """Watch until so many tasks have read something; return them in the order of their begins."""
    tasks: dict[Path, _Task] = {}
    deadline = time.monotonic() + _FIRST_SECONDS + count * 2 * _DURATION_SECONDS
    while sum(bool(task.done) for task in tasks.values()) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(tasks)} of {count} tasks have read something")
        for checkpoint in home.glob(f"tasks/*/*/*/{_CHECKPOINT}"):
            task = tasks.setdefault(checkpoint, _Task())
            _note(checkpoint / "offsets", task.planned)
            _note(checkpoint / "commits", task.done)
        time.sleep(_LOOK_SECONDS)
    return sorted(
        (task for task in tasks.values() if task.done), key=lambda task: min(task.done.values())
    )


def _note(log: Path, moments: dict[int, float]) -> None:
    """Note the entries of a log of Spark's; a task's folder may go at any moment."""
    try:
        for entry in log.iterdir():
            if entry.name.isdecimal() and int(entry.name) not in moments:
                moments[int(entry.name)] = entry.stat().st_mtime
    except FileNotFoundError:
        return
