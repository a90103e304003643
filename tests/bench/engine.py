"""The engine alone: its events a second as the DAG grows, and a dense run from its JSON to its end.

No daemon takes part: a run is advanced by reports, and each step is timed. A step must cost what
the neighbours of one task cost, so there are also ratios of the median step in a large DAG to that
in a small one of the same shape, in the same run. Small runs are repeated until they have had as
many events as the largest.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from common.dag import build_dag
from common.model.definitions import TaskNode
from common.model.instances import Ownership, ProcessRow
from common.model.states import FailureStrategy, Priority, ProcessState, TaskDependType
from master.engine.advance import advance
from master.engine.events import RunOpened, TaskSucceeded
from master.engine.load import load_run
from master.engine.run import ProcessRun
from tests.bench import definitions
from tests.bench.figures import Figure, Target, percentile, rate
from tests.bench.stage import Stage
from tests.builders import read_graph

SIZES = (10, 100, 1_000, 10_000)
_LAYER = 10
_LAYERS, _WIDTH = 30, 5
# A larger run misses the processor's caches more often; its neighbours are as few.
_RATIO = 3.0
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_EVENTS = Target(limit=50_000, at_least=True)
_DENSE_LAYERS, _DENSE_WIDTH = 50, 100
_OWNERSHIP = Ownership(process_instance_id=1, host="m:1", epoch=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The median step, and the rate of all of them with the opening of the run."""

    step_us: float
    events_a_second: float


def measure(stage: Stage, runs: int) -> list[Figure]:
    """Measure without the stage, which is not used: there is nothing to start."""
    del stage
    figures = []
    for shape in (chain, layers):
        measured = {size: [_run(shape(size)) for _ in range(runs)] for size in SIZES}
        steps = {size: [one.step_us for one in each] for size, each in measured.items()}
        for size, each in measured.items():
            name = f"engine.{shape.__name__}_{size}"
            figures += [
                Figure(name=name, unit="µs/step", values=tuple(steps[size])),
                Figure(
                    name=f"{name}_events",
                    unit="events/s",
                    values=tuple(one.events_a_second for one in each),
                    target=_EVENTS,
                ),
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
    return [*figures, *_dense(runs)]


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


def _run(upstream: dict[str, list[str]]) -> _Measured:
    """Let all tasks succeed, one after the other."""
    dag = build_dag(upstream)
    nodes = {name: _node(name, dag.upstream[name]) for name in dag.names}
    took: list[float] = []
    events, seconds = 0, 0.0
    for _ in range(max(1, SIZES[-1] // len(nodes))):
        run = ProcessRun(
            ownership=Ownership(process_instance_id=1, host="m:1", epoch=1),
            dag=dag,
            nodes=nodes,
            state=ProcessState.RUNNING,
            failure_strategy=FailureStrategy.CONTINUE,
        )
        began = time.perf_counter()
        took += _succeed(run)
        seconds += time.perf_counter() - began
        events += len(nodes) + 1
    return _Measured(step_us=percentile(took, 50), events_a_second=rate(events, seconds))


def _succeed(run: ProcessRun) -> list[float]:
    """Open a run and let all of its tasks succeed; the microseconds of each report."""
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
    return took


def _dense(runs: int) -> list[Figure]:
    """A definition of 5,000 tasks with 490,000 edges: read, loaded and run."""
    text = definitions.layered((_DENSE_WIDTH,) * _DENSE_LAYERS, "true", "true")
    seconds: dict[str, list[float]] = {"read": [], "load": [], "run": []}
    for _ in range(runs):
        began = time.perf_counter()
        graph = read_graph(text)
        read = time.perf_counter()
        run = load_run(_OWNERSHIP, _process(text), (), dag=graph.dag, nodes=graph.nodes)
        loaded = time.perf_counter()
        _succeed(run)
        for name, moment, before in (
            ("read", read, began),
            ("load", loaded, read),
            ("run", time.perf_counter(), loaded),
        ):
            seconds[name].append(moment - before)
    return [
        Figure(name=f"engine.dense_{name}", unit="s", values=tuple(values))
        for name, values in seconds.items()
    ]


def _process(text: str) -> ProcessRow:
    return ProcessRow(
        id=1,
        name="dense",
        state=ProcessState.RUNNING,
        wanted_state=None,
        failure_strategy=FailureStrategy.CONTINUE,
        priority=Priority.MEDIUM,
        worker_group_id=-1,
        task_depend_type=TaskDependType.TASK_POST,
        command_param="{}",
        process_definition_id=1,
        process_instance_json=text,
        executor_id=1,
        start_time=_NOW,
        moment=_NOW,
    )


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
