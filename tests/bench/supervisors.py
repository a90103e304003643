"""A supervisor's run alone: 1,000 partitions in 100 groups, with one and with two replicas.

No daemon takes part. The first run makes all groups; the steady one finds that all is well, which
is what nearly every run does; the busy one begins the hand-over of all groups at once. Processor
time is measured, so that a loaded machine counts no more than a quiet one.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from common.model.streams.reading import read_spec
from common.model.streams.sequences import work_of
from common.model.streams.spec import SupervisorSpec
from common.model.streams.tasks import TaskStatus
from master.supervisors.deciding import decide
from master.supervisors.decisions import AskPause, Decision, Remember, StartTask
from master.supervisors.notices import Run
from master.supervisors.view import Memory, StreamSnapshot, StreamTask, SupervisorView
from tests.bench.figures import Figure, Target
from tests.bench.stage import Stage

_PARTITIONS, _GROUPS = 1_000, 100
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_RUN = Target(limit=20)


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Measure without the stage, which is not used: there is nothing to start."""
    del stage
    figures = []
    for replicas in (1, 2):
        took = [_measure(replicas) for _ in range(runs)]
        figures += [
            Figure(
                name=f"supervisors.{kind}_{replicas}",
                unit="ms/run",
                values=tuple(one[kind] for one in took),
                target=_RUN if kind == "steady" else None,
            )
            for kind in ("first", "steady", "busy")
        ]
    return figures


def _measure(replicas: int) -> dict[str, float]:
    spec = _spec(replicas)
    offsets = dict.fromkeys(range(_PARTITIONS), 1_000_000)
    view = SupervisorView(
        spec=spec,
        work=work_of(spec),
        epoch=1,
        memory=Memory(),
        stream=StreamSnapshot(earliest=dict.fromkeys(offsets, 0), latest=offsets),
        stored={},
        tasks={},
    )
    took: dict[str, float] = {}
    decisions = _timed(view, _NOW, took, "first")
    tasks = {
        each.name: StreamTask(
            name=each.name,
            base_sequence=each.base_sequence,
            starts=each.starts,
            checkpoints=each.checkpoints,
            assigned=True,
            status=TaskStatus.READING,
            started=_NOW,
            offsets=dict(offsets.items() & dict.fromkeys(each.starts, 1_000_000).items()),
        )
        for each in decisions
        if isinstance(each, StartTask)
    }
    if len(tasks) != _GROUPS * replicas:
        raise RuntimeError(f"{len(tasks)} tasks were started")
    view = replace(view, memory=_memory(decisions), tasks=tasks)
    decisions = _timed(view, _NOW + timedelta(seconds=30), took, "steady")
    view = replace(view, memory=_memory(decisions))
    decisions = _timed(view, _NOW + timedelta(hours=1), took, "busy")
    if sum(isinstance(each, AskPause) for each in decisions) != _GROUPS:
        raise RuntimeError("not all groups are handed over")
    return took


def _timed(
    view: SupervisorView, now: datetime, took: dict[str, float], kind: str
) -> tuple[Decision, ...]:
    began = time.process_time()
    decisions = decide(view, Run(), now=now)
    took[kind] = (time.process_time() - began) * 1e3
    return decisions


def _memory(decisions: tuple[Decision, ...]) -> Memory:
    last = decisions[-1]
    if not isinstance(last, Remember):
        raise TypeError("nothing was remembered")
    return last.memory


def _spec(replicas: int) -> SupervisorSpec:
    read = read_spec(
        {
            "type": "kafka",
            "dataSchema": {"dataSource": "events", "granularitySpec": {"queryGranularity": "HOUR"}},
            "ioConfig": {
                "topic": "events",
                "consumerProperties": {"bootstrap.servers": "broker:9092"},
                "inputFormat": {"type": "json"},
                "taskCount": _GROUPS,
                "replicas": replicas,
                "idleConfig": {"enabled": True},
            },
        }
    ).spec
    if not isinstance(read, SupervisorSpec):
        raise TypeError("a specification was read as a tombstone")
    return read
