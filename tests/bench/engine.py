"""The cost of an engine step as the DAG grows, and of reading a dense definition.

No daemon takes part: a run is advanced by reports, and each step is timed. A step must cost what
the neighbours of one task cost, so the figures are ratios of the median step in a large DAG to that
in a small one of the same shape, in the same run.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from common.dag import build_dag
from common.model.definitions import TaskNode
from common.model.instances import Ownership
from common.model.states import FailureStrategy, Priority, ProcessState
from master.engine.advance import advance
from master.engine.events import RunOpened, TaskSucceeded
from master.engine.run import ProcessRun
from tests.bench import definitions
from tests.bench.figures import Figure, Target, percentile
from tests.bench.stage import Stage
from tests.builders import read_graph

SIZES = (10, 100, 1_000, 10_000)
_LAYER = 10
_LAYERS, _WIDTH = 30, 5
# A larger run misses the processor's caches more often; its neighbours are as few.
_RATIO = 3.0
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Measure without the stage, which is not used: there is nothing to start."""
    del stage
    figures = []
    for shape in (chain, layers):
        steps = {size: [_step_us(shape(size)) for _ in range(runs)] for size in SIZES}
        figures += [
            Figure(name=f"engine.{shape.__name__}_{size}", unit="µs/step", values=tuple(values))
            for size, values in steps.items()
        ]
        ratios = [
            large / small for large, small in zip(steps[SIZES[-1]], steps[SIZES[0]], strict=True)
        ]
        figures.append(
            Figure(
                name=f"engine.{shape.__name__}_ratio",
                unit=f"step of {SIZES[-1]} / step of {SIZES[0]}",
                values=tuple(ratios),
                target=Target(limit=_RATIO),
            )
        )
    figures.append(
        Figure(
            name="engine.validate_30x5",
            unit="ms",
            values=tuple(_validate_ms() for _ in range(runs)),
            target=Target(limit=100),
        )
    )
    return figures


def chain(size: int) -> dict[str, list[str]]:
    """The upstream by name: each task after the one before."""
    return {f"t{n}": [f"t{n - 1}"] if n else [] for n in range(size)}


def layers(size: int) -> dict[str, list[str]]:
    """The upstream by name: each task after all ten of the layer above."""
    return {
        f"l{n // _LAYER}n{n % _LAYER}": [
            f"l{n // _LAYER - 1}n{other}" for other in range(_LAYER) if n >= _LAYER
        ]
        for n in range(size)
    }


def _step_us(upstream: dict[str, list[str]]) -> float:
    """The median time of a step in which one task succeeds, in a run in which all of them do."""
    dag = build_dag(upstream)
    run = ProcessRun(
        ownership=Ownership(process_instance_id=1, host="m:1", epoch=1),
        dag=dag,
        nodes={name: _node(name, dag.upstream[name]) for name in dag.names},
        state=ProcessState.RUNNING,
        failure_strategy=FailureStrategy.CONTINUE,
    )
    advance(run, RunOpened(), now=_NOW)
    took: list[float] = []
    while run.live:
        name = next(iter(run.live))
        event = TaskSucceeded(name=name, attempt=1, at=_NOW)
        began = time.perf_counter()
        advance(run, event, now=_NOW)
        took.append((time.perf_counter() - began) * 1e6)
    if run.state is not ProcessState.SUCCESS:
        raise RuntimeError(f"the run ended as {run.state.name}")
    return percentile(took, 50)


def _node(name: str, upstream: tuple[str, ...]) -> TaskNode:
    return TaskNode(
        name=name,
        task_type="SHELL",
        upstream=upstream,
        forbidden=False,
        max_retry_times=0,
        retry_interval=timedelta(),
        priority=Priority.MEDIUM,
        worker_group_id=-1,
        task_json="{}",
    )


def _validate_ms() -> float:
    text = definitions.layered((_WIDTH,) * _LAYERS, "true", "true")
    began = time.perf_counter()
    read_graph(text)
    return (time.perf_counter() - began) * 1e3
